"""Heads of the messages that carry entries, members or a snapshot's bytes.

Place in the data path: `raft.peers.wire` packs such a head and the payloads behind it into a frame,
and has the message made of both again. The fields stand in a frame in the order that they have
here. Pure.

Entries are a flat list of term, kind and payload size each; the indexes follow from that of the
first. A membership is two flat lists, voters and learners, of name, address and store_id each.

Invariants: every number is in range, every name is valid, terms do not fall along the entries, a
CONFIG entry holds a membership; anything else is a WireError that names the field.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Self

from msgspec import Meta, Struct

from raft.ids import NODE_NAME_SIZE_MAX, NUMBER_MAX, Crc, Index, NodeId, Number, Term
from raft.membership import (
    LEARNERS_COUNT_MAX,
    VOTERS_COUNT_MAX,
    Configuration,
    Member,
    Membership,
    MembershipError,
    decode_membership,
)
from raft.messages import (
    AppendEntries,
    Entry,
    EntryKind,
    FetchEntriesReply,
    InstallSnapshot,
    Introduce,
    LogBase,
)
from raft.peers.frame_reader import WireError

__all__ = [
    "ENTRIES_COUNT_MAX",
    "AppendEntriesHead",
    "FetchEntriesReplyHead",
    "Head",
    "InstallSnapshotHead",
    "IntroduceHead",
    "payloads_of",
]

ENTRIES_COUNT_MAX: Final = 65_536
_INSTALL_DATA_SIZE_MAX: Final = 16 << 20
_STORE_ID: Final = re.compile(r"[0-9a-f]{32}")
_KINDS: Final = {int(kind): kind for kind in EntryKind}

_Text = Annotated[str, Meta(max_length=NODE_NAME_SIZE_MAX)]
_Texts = Annotated[list[_Text], Meta(max_length=3 * VOTERS_COUNT_MAX)]
_EntryTable = Annotated[list[int], Meta(max_length=3 * ENTRIES_COUNT_MAX)]


class Head(Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """A head; its tag, the kind of message, stands before its fields.

    `of` makes the head of a message, `message` the message of a head and the payloads behind it.
    The latter raises WireError where they don't fit together.
    """

    sender: NodeId
    receiver: NodeId


class AppendEntriesHead(Head, frozen=True, kw_only=True, tag=3):
    term: Term
    prev_log_index: Index
    prev_log_term: Term
    leader_commit: Index
    read_round: Number
    entries: _EntryTable

    @classmethod
    def of(cls, message: AppendEntries) -> Self:
        return cls(
            sender=message.sender,
            receiver=message.receiver,
            term=message.term,
            prev_log_index=message.prev_log_index,
            prev_log_term=message.prev_log_term,
            leader_commit=message.leader_commit,
            read_round=message.read_round,
            entries=_entry_table(message.entries),
        )

    def message(self, payloads: memoryview) -> AppendEntries:
        if self.prev_log_term > self.term:
            raise WireError(f"prev_log_term: {self.prev_log_term} is above term {self.term}")
        return AppendEntries(
            sender=self.sender,
            receiver=self.receiver,
            term=self.term,
            prev_log_index=self.prev_log_index,
            prev_log_term=self.prev_log_term,
            leader_commit=self.leader_commit,
            read_round=self.read_round,
            entries=_entries(
                self.entries,
                payloads,
                first_index=self.prev_log_index + 1,
                term_min=self.prev_log_term,
                term_max=self.term,
            ),
        )


class InstallSnapshotHead(Head, frozen=True, kw_only=True, tag=6):
    term: Term
    base_index: Index
    base_term: Term
    base_position: Number
    base_chain: Crc
    configuration_index: Index
    voters: _Texts
    learners: _Texts
    snapshot_index: Index
    snapshot_size: Number
    offset: Number
    crc: Number

    @classmethod
    def of(cls, message: InstallSnapshot) -> Self:
        assert len(message.data) <= _INSTALL_DATA_SIZE_MAX
        base, configuration = message.base, message.configuration
        return cls(
            sender=message.sender,
            receiver=message.receiver,
            term=message.term,
            base_index=base.index,
            base_term=base.term,
            base_position=base.position,
            base_chain=base.chain,
            configuration_index=configuration.index,
            voters=_texts(configuration.membership.voters),
            learners=_texts(configuration.membership.learners),
            snapshot_index=message.snapshot_index,
            snapshot_size=message.snapshot_size,
            offset=message.offset,
            crc=message.crc,
        )

    def message(self, payloads: memoryview) -> InstallSnapshot:
        configuration = _configuration(self.configuration_index, self.voters, self.learners)
        if self.base_term > self.term:
            raise WireError(f"base term: {self.base_term} is above term {self.term}")
        if not self.base_index <= self.snapshot_index >= configuration.index:
            raise WireError(f"snapshot_index: {self.snapshot_index} is before what it covers")
        if len(payloads) > _INSTALL_DATA_SIZE_MAX:
            raise WireError(f"data: {len(payloads)} bytes, at most {_INSTALL_DATA_SIZE_MAX}")
        if self.offset + len(payloads) > self.snapshot_size:
            raise WireError(f"data: it ends behind the snapshot's {self.snapshot_size} bytes")
        return InstallSnapshot(
            sender=self.sender,
            receiver=self.receiver,
            term=self.term,
            base=LogBase(
                index=self.base_index,
                term=self.base_term,
                position=self.base_position,
                chain=self.base_chain,
            ),
            configuration=configuration,
            snapshot_index=self.snapshot_index,
            snapshot_size=self.snapshot_size,
            offset=self.offset,
            data=bytes(payloads),
            crc=self.crc,
        )


class IntroduceHead(Head, frozen=True, kw_only=True, tag=8):
    store_id: _Text
    roster: _Texts
    configuration_index: Index | None
    voters: _Texts
    learners: _Texts

    @classmethod
    def of(cls, message: Introduce) -> Self:
        configuration = message.configuration
        membership = Membership() if configuration is None else configuration.membership
        return cls(
            sender=message.sender,
            receiver=message.receiver,
            store_id=message.store_id,
            roster=[text for row in message.roster for text in row],
            configuration_index=None if configuration is None else configuration.index,
            voters=_texts(membership.voters),
            learners=_texts(membership.learners),
        )

    def message(self, payloads: memoryview) -> Introduce:
        if payloads:
            raise WireError(f"frame: {len(payloads)} bytes behind the head")
        configuration = None
        if self.configuration_index is not None:
            configuration = _configuration(self.configuration_index, self.voters, self.learners)
        return Introduce(
            sender=self.sender,
            receiver=self.receiver,
            store_id=_store_id("store_id", self.store_id),
            roster=_roster(self.roster),
            configuration=configuration,
        )


class FetchEntriesReplyHead(Head, frozen=True, kw_only=True, tag=10):
    request_id: Number
    chain_before: Crc
    missing: bool
    commit_index: Index
    first_index: Index  # 0: there are no entries
    entries: _EntryTable

    @classmethod
    def of(cls, message: FetchEntriesReply) -> Self:
        return cls(
            sender=message.sender,
            receiver=message.receiver,
            request_id=message.request_id,
            chain_before=message.chain_before,
            missing=message.missing,
            commit_index=message.commit_index,
            first_index=message.entries[0].index if message.entries else 0,
            entries=_entry_table(message.entries),
        )

    def message(self, payloads: memoryview) -> FetchEntriesReply:
        entries = _entries(
            self.entries, payloads, first_index=self.first_index, term_min=0, term_max=NUMBER_MAX
        )
        if bool(entries) != bool(self.first_index):
            raise WireError(f"first_index: {self.first_index} with {len(entries)} entries")
        return FetchEntriesReply(
            sender=self.sender,
            receiver=self.receiver,
            request_id=self.request_id,
            entries=entries,
            chain_before=self.chain_before,
            missing=self.missing,
            commit_index=self.commit_index,
        )


# Entries.


def payloads_of(entries: tuple[Entry, ...]) -> list[bytes]:
    """Return what stands behind the head of a message with these entries."""
    return [entry.payload for entry in entries[:ENTRIES_COUNT_MAX] if entry.payload]


def _entry_table(entries: tuple[Entry, ...]) -> list[int]:
    table: list[int] = []
    for entry in entries[:ENTRIES_COUNT_MAX]:
        table += (entry.term, entry.kind, len(entry.payload))
    return table


def _entries(
    table: list[int],
    payloads: memoryview,
    *,
    first_index: Index,
    term_min: Term,
    term_max: Term,
) -> tuple[Entry, ...]:
    """Return the entries of a table and their payloads. Raises WireError."""
    if len(table) % 3:
        raise WireError("entries: not a list of term, kind and size")
    entries: list[Entry] = []
    numbers = iter(table)
    index, offset, size_all = first_index, 0, len(payloads)
    for term, kind_code, size in zip(numbers, numbers, numbers, strict=True):
        # Terms never fall along a log (5.3), so they can't be checked each by itself.
        if not term_min <= term <= term_max:
            raise WireError(f"entry {index} term: {term!r:.40} is not in {term_min}..{term_max}")
        kind = _KINDS.get(kind_code)
        if kind is None:
            raise WireError(f"entry {index} kind: {kind_code!r:.40} is unknown")
        if not 0 <= size <= size_all - offset:
            raise WireError(f"entry {index} size: {size!r:.40} does not fit in the frame")
        payload = bytes(payloads[offset : offset + size])
        if kind is EntryKind.CONFIG:
            _check_membership(index, payload)
        entries.append(Entry(index=index, term=term, kind=kind, payload=payload))
        term_min = term
        offset += size
        index += 1
    if offset != size_all:
        raise WireError(f"frame: {size_all - offset} bytes behind the last entry")
    return tuple(entries)


def _check_membership(index: Index, payload: bytes) -> None:
    """Check a payload that the core will decode and trust."""
    try:
        decode_membership(payload)
    except MembershipError as error:
        raise WireError(f"entry {index} membership: {error}") from error


# Members and stores.


def _texts(members: tuple[Member, ...]) -> list[str]:
    return [text for one in members for text in (one.node_id, one.address, one.store_id)]


def _configuration(index: Index, voters: list[str], learners: list[str]) -> Configuration:
    """Return the configuration of two flat lists of members. Raises WireError."""
    voter_rows = _rows("voters", voters, 3, VOTERS_COUNT_MAX)
    learner_rows = _rows("learners", learners, 3, LEARNERS_COUNT_MAX)
    if not voter_rows:
        raise WireError("voters: none")
    try:
        membership = Membership(
            voters=tuple(map(_member, voter_rows)), learners=tuple(map(_member, learner_rows))
        )
    except MembershipError as error:
        raise WireError(f"membership: {error}") from error
    return Configuration(index=index, membership=membership)


def _member(row: list[str]) -> Member:
    name, address, store_id = row
    return Member(node_id=NodeId(name), address=address, store_id=store_id)


def _roster(texts: list[str]) -> tuple[tuple[NodeId, str], ...]:
    """Return the stores known, by name. Raises WireError."""
    rows = _rows("roster", texts, 2, VOTERS_COUNT_MAX)
    if not all(name for name, _ in rows):
        raise WireError("roster: a name is empty")
    return tuple((NodeId(name), _store_id("roster", store_id)) for name, store_id in rows)


def _store_id(field: str, text: str) -> str:
    """Return a store's name; never "": a store that introduces itself has one."""
    if not _STORE_ID.fullmatch(text):
        raise WireError(f"{field}: {text!r:.40} is not 32 hex digits")
    return text


def _rows(field: str, texts: list[str], size: int, count_max: int) -> list[list[str]]:
    """Return a flat list of texts as rows. Raises WireError."""
    if len(texts) % size or len(texts) > size * count_max:
        raise WireError(f"{field}: not a list of at most {count_max} times {size} texts")
    if any(len(text.encode()) > NODE_NAME_SIZE_MAX for text in texts):
        raise WireError(f"{field}: a text is above {NODE_NAME_SIZE_MAX} bytes")
    return [texts[begin : begin + size] for begin in range(0, len(texts), size)]
