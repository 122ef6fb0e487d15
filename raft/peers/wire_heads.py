"""Heads of peers' messages: their fields in the order of the wire, and what each may be.

Place in the data path: `raft.peers.wire` has the head of a frame decoded here, and what the head
says of entries and members. Pure.

Invariants: every number is in range, every name is valid, terms do not fall along the entries, a
CONFIG entry holds a membership; anything else is a WireError that names the field.
"""

from __future__ import annotations

import dataclasses
import re
from functools import reduce
from operator import or_
from typing import Annotated, Any, Final, cast, get_type_hints

import msgpack
import msgspec

from raft.membership import (
    LEARNERS_COUNT_MAX,
    NODE_NAME_SIZE_MAX,
    VOTERS_COUNT_MAX,
    Configuration,
    Member,
    Membership,
    MembershipError,
    decode_membership,
)
from raft.messages import (
    AppendEntriesReply,
    Entry,
    EntryKind,
    FetchEntries,
    InstallSnapshotReply,
    NodeId,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from raft.peers.frame_reader import WireError

__all__ = [
    "APPEND_ENTRIES",
    "ENTRIES_COUNT_MAX",
    "FETCH_ENTRIES_REPLY",
    "FLAT",
    "INSTALL_SNAPSHOT",
    "INTRODUCE",
    "NUMBER_MAX",
    "AppendEntriesHead",
    "FetchEntriesReplyHead",
    "Head",
    "InstallSnapshotHead",
    "IntroduceHead",
    "configuration_of",
    "decode_entries",
    "decode_head",
    "flat_message",
    "roster_of",
    "store_id_of",
]

ENTRIES_COUNT_MAX: Final = 65_536
NUMBER_MAX: Final = 2**63 - 1
APPEND_ENTRIES: Final = 3
INSTALL_SNAPSHOT: Final = 6
INTRODUCE: Final = 8
FETCH_ENTRIES_REPLY: Final = 10
_STORE_ID: Final = re.compile(r"[0-9a-f]{32}")
_KINDS: Final = {int(kind): kind for kind in EntryKind}
_PLACE: Final = re.compile(r"at `\$\[(\d+)\]")

Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
Crc = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NODE_NAME_SIZE_MAX)]
Text = Annotated[str, msgspec.Meta(max_length=NODE_NAME_SIZE_MAX)]
Texts = Annotated[list[Text], msgspec.Meta(max_length=3 * VOTERS_COUNT_MAX)]
EntryTable = Annotated[list[int], msgspec.Meta(max_length=3 * ENTRIES_COUNT_MAX)]


class Head(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The fields of a head; its tag, the kind of message, stands before them."""

    sender: Name
    receiver: Name


class AppendEntriesHead(Head, tag=APPEND_ENTRIES):
    term: Number
    prev_log_index: Number
    prev_log_term: Number
    leader_commit: Number
    read_round: Number
    entries: EntryTable


class InstallSnapshotHead(Head, tag=INSTALL_SNAPSHOT):
    term: Number
    base_index: Number
    base_term: Number
    base_position: Number
    base_chain: Crc
    configuration_index: Number
    voters: Texts
    learners: Texts
    snapshot_index: Number
    snapshot_size: Number
    offset: Number
    crc: Number


class IntroduceHead(Head, tag=INTRODUCE):
    store_id: Text
    roster: Texts
    configuration_index: Number | None
    voters: Texts
    learners: Texts


class FetchEntriesReplyHead(Head, tag=FETCH_ENTRIES_REPLY):
    request_id: Number
    chain_before: Crc
    missing: bool
    commit_index: Number
    first_index: Number
    entries: EntryTable


FLAT: Final[dict[type[Any], int]] = {
    RequestVote: 1,
    RequestVoteReply: 2,
    AppendEntriesReply: 4,
    TimeoutNow: 5,
    InstallSnapshotReply: 7,
    FetchEntries: 9,
}
"""Messages whose fields are the head's, in their own order, with the kind of each."""


def _flat_head(message: type[Any], kind: int) -> type[Head]:
    types = {NodeId: Name, int: Number, bool: bool}
    hints = get_type_hints(message)
    fields = [(each.name, types[hints[each.name]]) for each in dataclasses.fields(message)]
    made: Any = msgspec.defstruct(message.__name__, fields[2:], bases=(Head,), tag=kind)
    return cast("type[Head]", made)


_FLAT_HEADS: Final = {_flat_head(message, kind): message for message, kind in FLAT.items()}
_BY_KIND: Final[dict[int, type[Head]]] = {
    APPEND_ENTRIES: AppendEntriesHead,
    INSTALL_SNAPSHOT: InstallSnapshotHead,
    INTRODUCE: IntroduceHead,
    FETCH_ENTRIES_REPLY: FetchEntriesReplyHead,
    **{FLAT[message]: head for head, message in _FLAT_HEADS.items()},
}
_WORDS: Final = {
    Number: "a number in range",
    Crc: "a CRC32",
    Name: "a node's name",
    bool: "a boolean",
    Text: "text",
    Number | None: "a number in range",
    Texts: "a list of texts",
    EntryTable: "a list of numbers",
}
_decoder: Final = msgspec.msgpack.Decoder(reduce(or_, _BY_KIND.values()))


def decode_head(data: memoryview) -> Head:
    """Decode a head. Raises WireError."""
    try:
        head: Head = _decoder.decode(data)
    except msgspec.ValidationError as error:
        raise _refusal(data, str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"head: {type(error).__name__}: {error}") from error
    return head


def flat_message(head: Head) -> Any:
    """Return the message whose fields the head's are, or None where they are not."""
    message = _FLAT_HEADS.get(type(head))
    return None if message is None else message(**msgspec.structs.asdict(head))


def _refusal(data: memoryview, text: str) -> WireError:
    """Name the field that is wrong; msgspec names its place alone."""
    try:
        fields = msgpack.unpackb(data, max_map_len=0, max_ext_len=0, max_bin_len=0)
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        return WireError(f"head: {type(error).__name__}: {error}")
    if type(fields) is not list or not fields:
        return WireError("head: not an array")
    head = _BY_KIND.get(fields[0]) if type(fields[0]) is int else None
    if head is None:
        return WireError(f"kind of message: {fields[0]!r:.40} is unknown")
    types = get_type_hints(head, include_extras=True)
    if len(fields) - 1 != len(types):
        name = head.__name__.removesuffix("Head")
        return WireError(f"{name}: {len(fields)} fields, not {len(types) + 1}")
    found = _PLACE.search(text)
    if found is None:
        return WireError(f"head: {text}")
    place = int(found[1])
    name, kind = list(types.items())[place - 1]
    return WireError(
        f"{name}: {fields[place]!r:.40} is not {_WORDS.get(kind, 'a list of its kind')}"
    )


def roster_of(head: IntroduceHead) -> tuple[tuple[NodeId, str], ...]:
    """Return the stores known, by name. Raises WireError."""
    rows = _rows("roster", head.roster, 2, VOTERS_COUNT_MAX)
    if not all(name for name, _ in rows):
        raise WireError("roster: a name is empty")
    return tuple((NodeId(name), store_id_of("roster", one)) for name, one in rows)


def store_id_of(name: str, text: str) -> str:
    """Return a store's name; never "": a store that introduces itself has one."""
    if not _STORE_ID.fullmatch(text):
        raise WireError(f"{name}: {text!r:.40} is not 32 hex digits")
    return text


def configuration_of(head: InstallSnapshotHead | IntroduceHead) -> Configuration | None:
    """Return the configuration that a head carries. Raises WireError."""
    if head.configuration_index is None:
        return None
    voters = _rows("voters", head.voters, 3, VOTERS_COUNT_MAX)
    learners = _rows("learners", head.learners, 3, LEARNERS_COUNT_MAX)
    if not voters:
        raise WireError("voters: none")
    try:
        membership = Membership(
            voters=tuple(map(_member, voters)), learners=tuple(map(_member, learners))
        )
    except MembershipError as error:
        raise WireError(f"membership: {error}") from error
    return Configuration(index=head.configuration_index, membership=membership)


def _rows(name: str, texts: list[str], size: int, count_max: int) -> list[list[str]]:
    """Return a flat list of texts as rows. Raises WireError."""
    if len(texts) % size or len(texts) > size * count_max:
        raise WireError(f"{name}: not a list of at most {count_max} times {size} texts")
    if any(len(text.encode()) > NODE_NAME_SIZE_MAX for text in texts):
        raise WireError(f"{name}: a text is above {NODE_NAME_SIZE_MAX} bytes")
    return [texts[begin : begin + size] for begin in range(0, len(texts), size)]


def _member(row: list[str]) -> Member:
    name, address, store_id = row
    return Member(node_id=NodeId(name), address=address, store_id=store_id)


def decode_entries(
    table: list[int],
    frame: memoryview,
    offset: int,
    *,
    index: int,
    term_min: int,
    term_max: int,
) -> tuple[Entry, ...]:
    """Return the entries of a table and the payloads behind the head. Raises WireError."""
    if len(table) % 3:
        raise WireError("entries: not a list of term, kind and size")
    entries: list[Entry] = []
    frame_size = len(frame)
    for place in range(0, len(table), 3):
        term, kind_code, size = table[place : place + 3]
        if not term_min <= term <= term_max:
            raise WireError(f"entry {index} term: {term!r:.40} is not in {term_min}..{term_max}")
        kind = _KINDS.get(kind_code)
        if kind is None:
            raise WireError(f"entry {index} kind: {kind_code!r:.40} is unknown")
        if not 0 <= size <= frame_size - offset:
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
