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

import dataclasses
import struct
from operator import attrgetter

import msgspec

from raft.membership import (
    NODE_NAME_SIZE_MAX,
    Configuration,
    Member,
)
from raft.messages import (
    AppendEntries,
    Entry,
    FetchEntriesReply,
    InstallSnapshot,
    Introduce,
    LogBase,
    NodeId,
    PeerMessage,
)
from raft.peers.frame_reader import FRAME_SIZE_BYTES_MAX, FrameReader, WireError, frame_prefix
from raft.peers.wire_heads import (
    APPEND_ENTRIES,
    ENTRIES_COUNT_MAX,
    FETCH_ENTRIES_REPLY,
    FLAT,
    INSTALL_SNAPSHOT,
    INTRODUCE,
    NUMBER_MAX,
    AppendEntriesHead,
    FetchEntriesReplyHead,
    InstallSnapshotHead,
    IntroduceHead,
    configuration_of,
    decode_entries,
    decode_head,
    flat_message,
    roster_of,
    store_id_of,
)

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

INSTALL_DATA_SIZE_MAX = 16 << 20
_HEAD_SIZE_MAX = 4096 + 16 * ENTRIES_COUNT_MAX

_SIZE = struct.Struct(">I")

_FLAT = {
    message: (kind, attrgetter(*(each.name for each in dataclasses.fields(message))))
    for message, kind in FLAT.items()
}

_pack = msgspec.msgpack.Encoder().encode


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
    head = _pack(_head_fields(message))
    size = 4 + len(head) + sum(map(len, payloads))
    assert size <= FRAME_SIZE_BYTES_MAX, f"the configuration allows a frame of {size} bytes"
    head = _SIZE.pack(len(head)) + head
    return [frame_prefix((head, *payloads)) + head, *payloads]


def _head_fields(message: PeerMessage) -> tuple[object, ...]:
    match message:
        case AppendEntries():
            return (
                APPEND_ENTRIES,
                message.sender,
                message.receiver,
                message.term,
                message.prev_log_index,
                message.prev_log_term,
                message.leader_commit,
                message.read_round,
                _entry_table(message.entries),
            )
        case _ if type(message) in _FLAT:
            kind, fields_of = _FLAT[type(message)]
            return (kind, *fields_of(message))
        case InstallSnapshot():
            return _install_fields(message)
        case Introduce():
            return (
                INTRODUCE,
                message.sender,
                message.receiver,
                message.store_id,
                [one for row in message.roster for one in row],
                *_configuration_fields(message.configuration),
            )
        case FetchEntriesReply():
            return (
                FETCH_ENTRIES_REPLY,
                message.sender,
                message.receiver,
                message.request_id,
                message.chain_before,
                message.missing,
                message.commit_index,
                message.entries[0].index if message.entries else 0,
                _entry_table(message.entries),
            )
    raise AssertionError(f"{type(message).__name__} has no kind")


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
    assert len(message.data) <= INSTALL_DATA_SIZE_MAX
    base = message.base
    return (
        INSTALL_SNAPSHOT,
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
    head = decode_head(frame[_SIZE.size : payload_offset])
    if isinstance(head, AppendEntriesHead):
        return _append(head, frame, payload_offset)
    if isinstance(head, InstallSnapshotHead):
        return _install(head, frame[payload_offset:])
    if isinstance(head, FetchEntriesReplyHead):
        return _fetch_reply(head, frame, payload_offset)
    if payload_offset != len(frame):
        raise WireError(f"frame: {len(frame) - payload_offset} bytes behind the head")
    if isinstance(head, IntroduceHead):
        return Introduce(
            sender=NodeId(head.sender),
            receiver=NodeId(head.receiver),
            store_id=store_id_of("store_id", head.store_id),
            roster=roster_of(head),
            configuration=configuration_of(head),
        )
    message: PeerMessage = flat_message(head)
    return message


def _append(head: AppendEntriesHead, frame: memoryview, offset: int) -> AppendEntries:
    if head.prev_log_term > head.term:
        raise WireError(f"prev_log_term: {head.prev_log_term} is above term {head.term}")
    return AppendEntries(
        sender=NodeId(head.sender),
        receiver=NodeId(head.receiver),
        term=head.term,
        prev_log_index=head.prev_log_index,
        prev_log_term=head.prev_log_term,
        leader_commit=head.leader_commit,
        read_round=head.read_round,
        entries=decode_entries(
            head.entries,
            frame,
            offset,
            index=head.prev_log_index + 1,
            term_min=head.prev_log_term,
            term_max=head.term,
        ),
    )


def _install(head: InstallSnapshotHead, data: memoryview) -> InstallSnapshot:
    configuration = configuration_of(head)
    assert configuration is not None, "its index is a number"
    if head.base_term > head.term:
        raise WireError(f"base term: {head.base_term} is above term {head.term}")
    if not head.base_index <= head.snapshot_index >= configuration.index:
        raise WireError(f"snapshot_index: {head.snapshot_index} is before what it covers")
    if len(data) > INSTALL_DATA_SIZE_MAX:
        raise WireError(f"data: {len(data)} bytes, at most {INSTALL_DATA_SIZE_MAX}")
    if head.offset + len(data) > head.snapshot_size:
        raise WireError(f"data: it ends behind the snapshot's {head.snapshot_size} bytes")
    return InstallSnapshot(
        sender=NodeId(head.sender),
        receiver=NodeId(head.receiver),
        term=head.term,
        base=LogBase(
            index=head.base_index,
            term=head.base_term,
            position=head.base_position,
            chain=head.base_chain,
        ),
        configuration=configuration,
        snapshot_index=head.snapshot_index,
        snapshot_size=head.snapshot_size,
        offset=head.offset,
        data=bytes(data),
        crc=head.crc,
    )


def _fetch_reply(head: FetchEntriesReplyHead, frame: memoryview, offset: int) -> FetchEntriesReply:
    entries = decode_entries(
        head.entries, frame, offset, index=head.first_index, term_min=0, term_max=NUMBER_MAX
    )
    if bool(entries) != bool(head.first_index):
        raise WireError(f"first_index: {head.first_index} with {len(entries)} entries")
    return FetchEntriesReply(
        sender=NodeId(head.sender),
        receiver=NodeId(head.receiver),
        request_id=head.request_id,
        chain_before=head.chain_before,
        missing=head.missing,
        commit_index=head.commit_index,
        entries=entries,
    )
