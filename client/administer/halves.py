"""Halves of transactions as an administrator is shown them.

Place in the data path: `client.administer.admin` returns them; the answers of LEDGERMQ_LIST_HALVES
and LEDGERMQ_SHOW_HALF are decoded here.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from client.errors import MalformedAnswerError
from remoting.protocol.command import RemotingCommand

__all__ = ["HalfPage", "ShownHalf", "half_of", "page_of"]

_T = TypeVar("_T")


class ShownHalf(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A half message, or the copy of one that was discarded.

    `state`: undecided, discarded, committed, rolled back, or ended long ago. `msg_id` names it at
    its broker group, `offset` its place in the half topic or among the discarded; `topic` is the
    one that the message is for. Times are Unix ms; `age_ms` counts from its storing. `checks`: how
    often its producers were asked, of an undecided one. `resumed`: whether a discarded one has been
    made a half again. `unreadable`: why the broker can't read it now.
    """

    state: str
    msg_id: str
    offset: int
    topic: str = ""
    queue_id: int = 0
    producer_group: str = ""
    uniq_key: str = ""
    keys: str = ""
    tags: str = ""
    born_ms: int = 0
    stored_ms: int = 0
    age_ms: int = 0
    body_size: int = 0
    checks: int | None = None
    resumed: bool | None = None
    unreadable: str | None = None
    properties: dict[str, str] | None = None


class HalfPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Some halves of one broker group; the next page begins at `next_offset`. `undecided`: how many
    there are in the group, of all topics. A page may be empty although it is not the last."""

    halves: tuple[ShownHalf, ...]
    next_offset: int
    is_end: bool
    undecided: int


def page_of(answer: RemotingCommand) -> HalfPage:
    """Decode the answer of LEDGERMQ_LIST_HALVES. Raises MalformedAnswerError."""
    return _decoded(answer, HalfPage)


def half_of(answer: RemotingCommand) -> ShownHalf:
    """Decode the answer of LEDGERMQ_SHOW_HALF. Raises MalformedAnswerError."""
    return _decoded(answer, ShownHalf)


def _decoded(answer: RemotingCommand, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        raise MalformedAnswerError(f"halves: {error}") from error
