"""Typed access to the fields of a peer's message.

Place in the data path: `raft.peers.wire` reads the head of a frame and the table of its entries
through this. Pure.

Invariants: every number is in range, every name is valid, terms do not fall along the entries, a
CONFIG entry holds a membership; anything else is a WireError that names the field.
"""

from __future__ import annotations

import re

from raft.membership import (
    LEARNERS_COUNT_MAX,
    VOTERS_COUNT_MAX,
    Configuration,
    Member,
    Membership,
    MembershipError,
    decode_membership,
)
from raft.messages import Entry, EntryKind, NodeId
from raft.peers.frame_reader import WireError

__all__ = ["NUMBER_MAX", "HeadFields", "decode_entries"]

NUMBER_MAX = 2**63 - 1
_CHAIN_MAX = 2**32 - 1
_STORE_ID = re.compile(r"[0-9a-f]{32}")
_KINDS = {int(kind): kind for kind in EntryKind}


class HeadFields:
    """Fields of a head. Each method raises WireError naming the field."""

    __slots__ = ("head",)

    def __init__(self, head: list[object]) -> None:
        self.head = head

    def expect(self, kind: str, count: int) -> None:
        if len(self.head) != count:
            raise WireError(f"{kind}: {len(self.head)} fields, not {count}")

    def number(self, name: str, place: int) -> int:
        value = self.head[place]
        if type(value) is not int or not 0 <= value <= NUMBER_MAX:
            raise WireError(f"{name}: {value!r:.40} is not a number in range")
        return value

    def chain(self, name: str, place: int) -> int:
        value = self.number(name, place)
        if value > _CHAIN_MAX:
            raise WireError(f"{name}: {value} is not a CRC32")
        return value

    def boolean(self, name: str, place: int) -> bool:
        value = self.head[place]
        if type(value) is not bool:
            raise WireError(f"{name}: {value!r:.40} is not a boolean")
        return value

    def name(self, name: str, place: int) -> NodeId:
        value = self.head[place]
        if type(value) is not str or not value:
            raise WireError(f"{name}: {value!r:.40} is not a node's name")
        return NodeId(value)

    def text(self, name: str, value: object) -> str:
        if type(value) is not str:
            raise WireError(f"{name}: {value!r:.40} is not text")
        return value

    def texts(self, name: str, place: int, *, row: int, rows_max: int) -> list[tuple[str, ...]]:
        """Return a flat list of texts as rows of `row` each."""
        values = self.head[place]
        if type(values) is not list or len(values) % row or len(values) > row * rows_max:
            raise WireError(f"{name}: not a list of at most {rows_max} times {row} texts")
        texts = [self.text(name, value) for value in values]
        return [tuple(texts[begin : begin + row]) for begin in range(0, len(texts), row)]

    def store_id(self, name: str, value: object) -> str:
        """Return a store's name; never "": a store that introduces itself has one."""
        text = self.text(name, value)
        if not _STORE_ID.fullmatch(text):
            raise WireError(f"{name}: {text!r:.40} is not 32 hex digits")
        return text

    def roster(self, place: int) -> tuple[tuple[NodeId, str], ...]:
        rows = self.texts("roster", place, row=2, rows_max=VOTERS_COUNT_MAX)
        if not all(name for name, _ in rows):
            raise WireError("roster: a name is empty")
        return tuple((NodeId(name), self.store_id("roster", one)) for name, one in rows)

    def configuration(self, place: int) -> Configuration | None:
        """Return the configuration with its index at `place`, voters and learners behind it."""
        if self.head[place] is None:
            return None
        index = self.number("configuration index", place)
        return Configuration(index=index, membership=self.membership(place + 1))

    def membership(self, place: int) -> Membership:
        """Return the membership with its voters at `place`, learners behind it."""
        voters = self.texts("voters", place, row=3, rows_max=VOTERS_COUNT_MAX)
        learners = self.texts("learners", place + 1, row=3, rows_max=LEARNERS_COUNT_MAX)
        if not voters:
            raise WireError("voters: none")
        try:
            return Membership(
                voters=tuple(map(_member, voters)), learners=tuple(map(_member, learners))
            )
        except MembershipError as error:
            raise WireError(f"membership: {error}") from error


def _member(row: tuple[str, ...]) -> Member:
    name, address, store_id = row
    return Member(node_id=NodeId(name), address=address, store_id=store_id)


def decode_entries(
    table: object,
    frame: memoryview,
    offset: int,
    *,
    index: int,
    term_min: int,
    term_max: int,
) -> tuple[Entry, ...]:
    if type(table) is not list or len(table) % 3:
        raise WireError("entries: not a list of term, kind and size")
    entries: list[Entry] = []
    frame_size = len(frame)
    for place in range(0, len(table), 3):
        term, kind_code, size = table[place : place + 3]
        if type(term) is not int or not term_min <= term <= term_max:
            raise WireError(f"entry {index} term: {term!r:.40} is not in {term_min}..{term_max}")
        kind = _KINDS.get(kind_code) if type(kind_code) is int else None
        if kind is None:
            raise WireError(f"entry {index} kind: {kind_code!r:.40} is unknown")
        if type(size) is not int or not 0 <= size <= frame_size - offset:
            raise WireError(f"entry {index} size: {size!r:.40} does not fit in the frame")
        payload = bytes(frame[offset : offset + size])
        if kind is EntryKind.CONFIG:
            _check_membership(index, payload)
        entries.append(Entry(index=index, term=term, kind=kind, payload=payload))
        term_min = term
        offset += size
        index += 1
    if offset != frame_size:
        raise WireError(f"frame: {frame_size - offset} bytes behind the last entry")
    return tuple(entries)


def _check_membership(index: int, payload: bytes) -> None:
    """Check a payload that the core will decode and trust."""
    try:
        decode_membership(payload)
    except MembershipError as error:
        raise WireError(f"entry {index} membership: {error}") from error
