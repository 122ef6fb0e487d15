"""Commands of POP on the replicated state (docs/FORMATS.md section 4).

Place in the data path: processors of POP propose these, `broker.state.pop_state` applies them. A
pop time identifies one holding of a message: a command with another one changes nothing.
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
    """Command that gives a group messages of a queue, and moves its offset to `next_offset`.

    Without effect if the group's offset is not `expected` (-1: it has none), or below a floor.
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
    """PopCommand in order: the group's offset stays at `start` until they are acknowledged."""

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
    """Command that acknowledges messages: rows of queue offset and pop time."""

    group: str
    topic: str
    queue_id: int
    rows: list[list[int]]


@dataclass(frozen=True, slots=True)
class AckOrderCommand:
    """Command that acknowledges a message popped in order."""

    group: str
    topic: str
    queue_id: int
    offset: int
    pop_ms: int


@dataclass(frozen=True, slots=True)
class ChangeInvisibleCommand:
    """Command that extends the holding `pop_ms` to `visible_ms` and renames it `next_pop_ms`."""

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
    """Command that ends expired holdings, whose messages are stored again in the same entry: rows
    of group, topic, queue id, queue offset and pop time."""

    rows: list[list[Any]]


@dataclass(frozen=True, slots=True)
class RequestModeCommand:
    """Command that makes a group's members pull or pop a topic, and sets how many share a queue."""

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
