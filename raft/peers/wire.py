"""Raft messages as bytes: length-prefixed frames with a msgpack head and the payloads behind it.

Place in the data path: `raft.peers.transport` encodes what the core sends, `raft.peers.connection`
decodes what peers send. Pure.

A frame:

| offset | size | field |
|---|---|---|
| 0 | 12 | prefix (`raft.peers.frame_reader`): its N is at most FRAME_SIZE_BYTES_MAX |
| 12 | 4 | size H of the head |
| 16 | H | head: msgpack array [kind of message, sender, receiver, term, fields in order] |
| 16+H | N-4-H | payloads of the entries, back to back, or the data of a snapshot |

The head of a message with entries ends with a flat list of term, kind and payload size per entry;
the indexes follow from that of the first. Payloads stand outside of msgpack so that sending copies
none of their bytes and receiving copies them once. A membership is two flat lists, voters and
learners, of name, address and store_id each.

Invariants: a decoded message is well-formed with every number in range, terms not falling along the
entries and none above the message's, each CONFIG entry a membership; anything else is a WireError
that names the field. A peer's bytes are never trusted, not even a proved peer's.
"""

from __future__ import annotations

import struct
from typing import assert_never

import msgpack

from raft.membership import (
    NODE_NAME_SIZE_MAX,
    Configuration,
    Member,
)
from raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    FetchEntries,
    FetchEntriesReply,
    InstallSnapshot,
    InstallSnapshotReply,
    Introduce,
    LogBase,
    PeerMessage,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from raft.peers.frame_reader import FRAME_SIZE_BYTES_MAX, FrameReader, WireError, frame_prefix
from raft.peers.wire_fields import NUMBER_MAX, HeadFields, decode_entries

__all__ = [
    "ENTRIES_COUNT_MAX",
    "FRAME_SIZE_BYTES_MAX",
    "INSTALL_DATA_SIZE_MAX",
    "NODE_NAME_SIZE_MAX",
    "FrameReader",
    "WireError",
    "decode_message",
    "encode_message",
]

ENTRIES_COUNT_MAX = 65_536
INSTALL_DATA_SIZE_MAX = 16 << 20
_HEAD_SIZE_MAX = 4096 + 16 * ENTRIES_COUNT_MAX

_SIZE = struct.Struct(">I")

_REQUEST_VOTE = 1
_REQUEST_VOTE_REPLY = 2
_APPEND_ENTRIES = 3
_APPEND_ENTRIES_REPLY = 4
_TIMEOUT_NOW = 5
_INSTALL_SNAPSHOT = 6
_INSTALL_SNAPSHOT_REPLY = 7
_INTRODUCE = 8
_FETCH_ENTRIES = 9
_FETCH_ENTRIES_REPLY = 10
_WITH_PAYLOADS = (AppendEntries, FetchEntriesReply, InstallSnapshot)

_pack = msgpack.Packer(autoreset=True).pack


def encode_message(message: PeerMessage) -> list[bytes]:
    """Return the frame as buffers to be written one after the other; payloads are not copied.

    Of a message with entries only the first ENTRIES_COUNT_MAX are sent: the rest counts as lost,
    and Raft, or the requester of entries, repeats it.
    """
    payloads: list[bytes] = []
    if isinstance(message, AppendEntries | FetchEntriesReply):
        payloads = [one.payload for one in message.entries[:ENTRIES_COUNT_MAX] if one.payload]
    elif isinstance(message, InstallSnapshot):
        payloads = [message.data]
    head: bytes = _pack(_head_fields(message))
    size = 4 + len(head) + sum(map(len, payloads))
    assert size <= FRAME_SIZE_BYTES_MAX, f"the configuration allows a frame of {size} bytes"
    head = _SIZE.pack(len(head)) + head
    return [frame_prefix((head, *payloads)) + head, *payloads]


def _head_fields(message: PeerMessage) -> tuple[object, ...]:
    match message:
        case AppendEntries():
            return (
                _APPEND_ENTRIES,
                message.sender,
                message.receiver,
                message.term,
                message.prev_log_index,
                message.prev_log_term,
                message.leader_commit,
                message.read_round,
                _entry_table(message.entries),
            )
        case AppendEntriesReply():
            return (
                _APPEND_ENTRIES_REPLY,
                message.sender,
                message.receiver,
                message.term,
                message.success,
                message.match_index,
                message.rejected_prev_index,
                message.conflict_index,
                message.conflict_term,
                message.read_round,
                message.writable,
            )
        case RequestVote():
            return (
                _REQUEST_VOTE,
                message.sender,
                message.receiver,
                message.term,
                message.last_log_index,
                message.last_log_term,
                message.pre_vote,
                message.leadership_transfer,
            )
        case RequestVoteReply():
            return (
                _REQUEST_VOTE_REPLY,
                message.sender,
                message.receiver,
                message.term,
                message.granted,
                message.pre_vote,
            )
        case TimeoutNow():
            return (_TIMEOUT_NOW, message.sender, message.receiver, message.term)
        case InstallSnapshot():
            assert len(message.data) <= INSTALL_DATA_SIZE_MAX
            return (_INSTALL_SNAPSHOT, *_install_fields(message))
        case InstallSnapshotReply():
            return (
                _INSTALL_SNAPSHOT_REPLY,
                message.sender,
                message.receiver,
                message.term,
                message.base_index,
                message.snapshot_index,
                message.next_offset,
                message.installed,
            )
        case Introduce() | FetchEntries() | FetchEntriesReply():
            return _talk_fields(message)
        case _:
            assert_never(message)


def _talk_fields(message: Introduce | FetchEntries | FetchEntriesReply) -> tuple[object, ...]:
    match message:
        case Introduce():
            return (
                _INTRODUCE,
                message.sender,
                message.receiver,
                message.store_id,
                [one for row in message.roster for one in row],
                *_configuration_fields(message.configuration),
            )
        case FetchEntries():
            return (
                _FETCH_ENTRIES,
                message.sender,
                message.receiver,
                message.request_id,
                message.first_index,
                message.last_index,
            )
        case FetchEntriesReply():
            return (
                _FETCH_ENTRIES_REPLY,
                message.sender,
                message.receiver,
                message.request_id,
                message.chain_before,
                message.missing,
                message.commit_index,
                message.entries[0].index if message.entries else 0,
                _entry_table(message.entries),
            )
        case _:
            assert_never(message)


def _entry_table(entries: tuple[Entry, ...]) -> list[int]:
    table: list[int] = []
    for entry in entries[:ENTRIES_COUNT_MAX]:
        table += (entry.term, entry.kind, len(entry.payload))
    return table


def _configuration_fields(configuration: Configuration | None) -> tuple[object, ...]:
    if configuration is None:
        return (None, [], [])
    membership = configuration.membership
    return (configuration.index, _flat(membership.voters), _flat(membership.learners))


def _install_fields(message: InstallSnapshot) -> tuple[object, ...]:
    base = message.base
    return (
        message.sender,
        message.receiver,
        message.term,
        base.index,
        base.term,
        base.position,
        base.chain,
        *_configuration_fields(message.configuration),
        message.snapshot_index,
        message.snapshot_size,
        message.offset,
        message.crc,
    )


def _flat(members: tuple[Member, ...]) -> list[str]:
    return [one for member in members for one in (member.node_id, member.address, member.store_id)]


def decode_message(frame: memoryview) -> PeerMessage:
    """Decode the message of a frame (its prefix taken off). Raises WireError."""
    if len(frame) < _SIZE.size:
        raise WireError(f"frame: {len(frame)} bytes are too few")
    (head_size,) = _SIZE.unpack_from(frame)
    if not 0 < head_size <= min(len(frame) - _SIZE.size, _HEAD_SIZE_MAX):
        raise WireError(f"head size: {head_size} does not fit in a frame of {len(frame)} bytes")
    payload_offset = _SIZE.size + head_size
    try:
        head = msgpack.unpackb(
            frame[_SIZE.size : payload_offset],
            raw=False,
            use_list=True,
            max_array_len=3 * ENTRIES_COUNT_MAX,
            max_map_len=0,
            max_ext_len=0,
            max_bin_len=0,
            max_str_len=NODE_NAME_SIZE_MAX,
        )
    except (ValueError, RecursionError, msgpack.UnpackException) as error:
        raise WireError(f"head: {type(error).__name__}: {error}") from error
    if type(head) is not list or not head:
        raise WireError("head: not an array")
    fields = HeadFields(head)
    message = _decode_fields(fields, frame, payload_offset)
    if type(message) not in _WITH_PAYLOADS and payload_offset != len(frame):
        raise WireError(f"frame: {len(frame) - payload_offset} bytes behind the head")
    return message


def _decode_fields(fields: HeadFields, frame: memoryview, payload_offset: int) -> PeerMessage:
    kind = fields.head[0]
    match kind:
        case 3:
            return _decode_append(fields, frame, payload_offset)
        case 4:
            fields.expect("AppendEntriesReply", 11)
            return AppendEntriesReply(
                sender=fields.name("sender", 1),
                receiver=fields.name("receiver", 2),
                term=fields.number("term", 3),
                success=fields.boolean("success", 4),
                match_index=fields.number("match_index", 5),
                rejected_prev_index=fields.number("rejected_prev_index", 6),
                conflict_index=fields.number("conflict_index", 7),
                conflict_term=fields.number("conflict_term", 8),
                read_round=fields.number("read_round", 9),
                writable=fields.boolean("writable", 10),
            )
        case 1:
            fields.expect("RequestVote", 8)
            return RequestVote(
                sender=fields.name("sender", 1),
                receiver=fields.name("receiver", 2),
                term=fields.number("term", 3),
                last_log_index=fields.number("last_log_index", 4),
                last_log_term=fields.number("last_log_term", 5),
                pre_vote=fields.boolean("pre_vote", 6),
                leadership_transfer=fields.boolean("leadership_transfer", 7),
            )
        case 2:
            fields.expect("RequestVoteReply", 6)
            return RequestVoteReply(
                sender=fields.name("sender", 1),
                receiver=fields.name("receiver", 2),
                term=fields.number("term", 3),
                granted=fields.boolean("granted", 4),
                pre_vote=fields.boolean("pre_vote", 5),
            )
        case 5:
            fields.expect("TimeoutNow", 4)
            return TimeoutNow(
                sender=fields.name("sender", 1),
                receiver=fields.name("receiver", 2),
                term=fields.number("term", 3),
            )
        case 6:
            return _decode_install(fields, frame, payload_offset)
        case 7:
            fields.expect("InstallSnapshotReply", 8)
            return InstallSnapshotReply(
                sender=fields.name("sender", 1),
                receiver=fields.name("receiver", 2),
                term=fields.number("term", 3),
                base_index=fields.number("base_index", 4),
                snapshot_index=fields.number("snapshot_index", 5),
                next_offset=fields.number("next_offset", 6),
                installed=fields.boolean("installed", 7),
            )
        case 8 | 9 | 10:
            return _decode_talk(fields, frame, payload_offset)
        case _:
            raise WireError(f"kind of message: {kind!r:.40} is unknown")


def _decode_append(fields: HeadFields, frame: memoryview, offset: int) -> AppendEntries:
    fields.expect("AppendEntries", 9)
    term = fields.number("term", 3)
    prev_log_index = fields.number("prev_log_index", 4)
    prev_log_term = fields.number("prev_log_term", 5)
    if prev_log_term > term:
        raise WireError(f"prev_log_term: {prev_log_term} is above term {term}")
    return AppendEntries(
        sender=fields.name("sender", 1),
        receiver=fields.name("receiver", 2),
        term=term,
        prev_log_index=prev_log_index,
        prev_log_term=prev_log_term,
        leader_commit=fields.number("leader_commit", 6),
        read_round=fields.number("read_round", 7),
        entries=decode_entries(
            fields.head[8],
            frame,
            offset,
            index=prev_log_index + 1,
            term_min=prev_log_term,
            term_max=term,
        ),
    )


def _decode_install(fields: HeadFields, frame: memoryview, offset: int) -> InstallSnapshot:
    fields.expect("InstallSnapshot", 15)
    term = fields.number("term", 3)
    base = LogBase(
        index=fields.number("base index", 4),
        term=fields.number("base term", 5),
        position=fields.number("base position", 6),
        chain=fields.chain("base chain", 7),
    )
    message = InstallSnapshot(
        sender=fields.name("sender", 1),
        receiver=fields.name("receiver", 2),
        term=term,
        base=base,
        configuration=Configuration(
            index=fields.number("configuration index", 8), membership=fields.membership(9)
        ),
        snapshot_index=fields.number("snapshot_index", 11),
        snapshot_size=fields.number("snapshot_size", 12),
        offset=fields.number("offset", 13),
        data=bytes(frame[offset:]),
        crc=fields.number("crc", 14),
    )
    if base.term > term:
        raise WireError(f"base term: {base.term} is above term {term}")
    if not base.index <= message.snapshot_index >= message.configuration.index:
        raise WireError(f"snapshot_index: {message.snapshot_index} is before what it covers")
    if len(message.data) > INSTALL_DATA_SIZE_MAX:
        raise WireError(f"data: {len(message.data)} bytes, at most {INSTALL_DATA_SIZE_MAX}")
    if message.offset + len(message.data) > message.snapshot_size:
        raise WireError(f"data: it ends behind the snapshot's {message.snapshot_size} bytes")
    return message


def _decode_talk(
    fields: HeadFields, frame: memoryview, offset: int
) -> Introduce | FetchEntries | FetchEntriesReply:
    """Decode a message between shells; it has no term."""
    kind = fields.head[0]
    if kind == _INTRODUCE:
        fields.expect("Introduce", 8)
        return Introduce(
            sender=fields.name("sender", 1),
            receiver=fields.name("receiver", 2),
            store_id=fields.store_id("store_id", fields.head[3]),
            roster=fields.roster(4),
            configuration=fields.configuration(5),
        )
    if kind == _FETCH_ENTRIES:
        fields.expect("FetchEntries", 6)
        return FetchEntries(
            sender=fields.name("sender", 1),
            receiver=fields.name("receiver", 2),
            request_id=fields.number("request_id", 3),
            first_index=fields.number("first_index", 4),
            last_index=fields.number("last_index", 5),
        )
    fields.expect("FetchEntriesReply", 9)
    first_index = fields.number("first_index", 7)
    entries = decode_entries(
        fields.head[8], frame, offset, index=first_index, term_min=0, term_max=NUMBER_MAX
    )
    if bool(entries) != bool(first_index):
        raise WireError(f"first_index: {first_index} with {len(entries)} entries")
    return FetchEntriesReply(
        sender=fields.name("sender", 1),
        receiver=fields.name("receiver", 2),
        request_id=fields.number("request_id", 3),
        chain_before=fields.chain("chain_before", 4),
        missing=fields.boolean("missing", 5),
        commit_index=fields.number("commit_index", 6),
        entries=entries,
    )
