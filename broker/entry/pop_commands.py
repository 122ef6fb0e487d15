"""What POP changes in the replicated state (docs/FORMATS.md section 4).

Place in the data path: processors of POP propose these, `broker.state.pop_state` applies them. A
pop time names one holding of a message: whoever names another one changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = [
    "AckCommand",
    "AckOrderCommand",
    "ChangeInvisibleCommand",
    "PopCommand",
    "PopCommands",
    "PopOrderCommand",
    "RequestModeCommand",
    "ReviveCommand",
]


@dataclass(frozen=True, slots=True)
class PopCommand:
    """The group took these messages of a queue, and goes on at `next_offset`.

    Void where the group's offset is not `expected` (-1: it has none), and below a floor.
    """

    group: str
    topic: str
    queue_id: int
    expected: int
    next_offset: int
    pop_ms: int
    invisible_ms: int
    offsets: list[int]


@dataclass(frozen=True, slots=True)
class PopOrderCommand:
    """As PopCommand, in order: the group's offset stays at `start` until they are acknowledged."""

    group: str
    topic: str
    queue_id: int
    expected: int
    start: int
    pop_ms: int
    invisible_ms: int
    attempt_id: str
    offsets: list[int]


@dataclass(frozen=True, slots=True)
class AckCommand:
    """Messages are done: rows of queue offset and pop time."""

    group: str
    topic: str
    queue_id: int
    rows: list[list[int]]


@dataclass(frozen=True, slots=True)
class AckOrderCommand:
    """A message that was popped in order is done."""

    group: str
    topic: str
    queue_id: int
    offset: int
    pop_ms: int


@dataclass(frozen=True, slots=True)
class ChangeInvisibleCommand:
    """The holding of `pop_ms` lasts until `visible_ms`, and is named `next_pop_ms` from now on."""

    group: str
    topic: str
    queue_id: int
    offset: int
    pop_ms: int
    next_pop_ms: int
    visible_ms: int
    is_order: bool


@dataclass(frozen=True, slots=True)
class ReviveCommand:
    """Holdings that are over; the messages stand in the same entry once more. Rows of group,
    topic, queue id, queue offset and pop time."""

    rows: list[list[Any]]


@dataclass(frozen=True, slots=True)
class RequestModeCommand:
    """Whether a group's members pull the topic or pop it, and how many share a queue."""

    topic: str
    group: str
    mode: str
    share_queue_count: int


PopCommands: TypeAlias = (
    PopCommand
    | PopOrderCommand
    | AckCommand
    | AckOrderCommand
    | ChangeInvisibleCommand
    | ReviveCommand
    | RequestModeCommand
)
