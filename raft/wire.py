"""Raft messages as bytes: length-prefixed frames with a msgpack head and the payloads behind it.

Place in the data path: `raft.transport` encodes what the core sends and decodes what peers send.
Pure, no sockets.

A frame:

| offset | size | field |
|---|---|---|
| 0 | 4 | size N of all that follows, at most FRAME_SIZE_BYTES_MAX |
| 4 | 4 | size H of the head |
| 8 | H | head: msgpack array [kind of message, sender, receiver, term, fields in order] |
| 8+H | N-4-H | payloads of the entries, back to back |

The head of an AppendEntries ends with a flat list of term, kind and payload size per entry; the
indexes follow from prev_log_index. Payloads stand outside of msgpack so that sending copies none
of their bytes and receiving copies them once.

Invariants: what decodes is a well-formed message with every number in range, terms not falling
along the entries and none above the message's; anything else is a WireError that names the field.
A peer's bytes are never trusted, not even a proved peer's.
"""

from __future__ import annotations

import struct
from typing import assert_never

import msgpack

from raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    Message,
    NodeId,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)

__all__ = [
    "ENTRIES_COUNT_MAX",
    "FRAME_SIZE_BYTES_MAX",
    "NODE_NAME_SIZE_MAX",
    "FrameReader",
    "WireError",
    "decode_message",
    "encode_message",
]

FRAME_SIZE_BYTES_MAX = 64 << 20
ENTRIES_COUNT_MAX = 65_536
NODE_NAME_SIZE_MAX = 255
_HEAD_SIZE_MAX = 4096 + 16 * ENTRIES_COUNT_MAX
_NUMBER_MAX = 2**63 - 1
_BUFFER_SIZE_MIN = 256 << 10

_SIZE = struct.Struct(">I")
_SIZES = struct.Struct(">II")

_REQUEST_VOTE = 1
_REQUEST_VOTE_REPLY = 2
_APPEND_ENTRIES = 3
_APPEND_ENTRIES_REPLY = 4
_TIMEOUT_NOW = 5
_KINDS = {int(kind): kind for kind in EntryKind}

_pack = msgpack.Packer(autoreset=True).pack


class WireError(Exception):
    """The bytes are no message; the connection they came on is closed."""


def encode_message(message: Message) -> list[bytes]:
    """The frame as buffers to be written one after the other; payloads are not copied.

    Of an AppendEntries only the first ENTRIES_COUNT_MAX entries are sent: the rest counts as
    lost, which Raft mends.
    """
    entries: tuple[Entry, ...] = ()
    fields: tuple[object, ...]
    match message:
        case AppendEntries():
            entries = message.entries[:ENTRIES_COUNT_MAX]
            table: list[int] = []
            for entry in entries:
                table += (entry.term, entry.kind, len(entry.payload))
            fields = (
                _APPEND_ENTRIES,
                message.sender,
                message.receiver,
                message.term,
                message.prev_log_index,
                message.prev_log_term,
                message.leader_commit,
                message.read_round,
                table,
            )
        case AppendEntriesReply():
            fields = (
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
            )
        case RequestVote():
            fields = (
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
            fields = (
                _REQUEST_VOTE_REPLY,
                message.sender,
                message.receiver,
                message.term,
                message.granted,
                message.pre_vote,
            )
        case TimeoutNow():
            fields = (_TIMEOUT_NOW, message.sender, message.receiver, message.term)
        case _:
            assert_never(message)
    head: bytes = _pack(fields)
    payloads = [entry.payload for entry in entries if entry.payload]
    size = 4 + len(head) + sum(map(len, payloads))
    assert size <= FRAME_SIZE_BYTES_MAX, f"the configuration allows a frame of {size} bytes"
    return [_SIZES.pack(size, len(head)) + head, *payloads]


def decode_message(frame: memoryview) -> Message:
    """The message of a frame (its size prefix taken off). Raises WireError."""
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
    fields = _Fields(head)
    message = _decode_fields(fields, frame, payload_offset)
    if type(message) is not AppendEntries and payload_offset != len(frame):
        raise WireError(f"frame: {len(frame) - payload_offset} bytes behind the head")
    return message


def _decode_fields(fields: _Fields, frame: memoryview, payload_offset: int) -> Message:
    kind = fields.head[0]
    match kind:
        case 3:
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
                entries=_decode_entries(
                    fields.head[8],
                    frame,
                    payload_offset,
                    index=prev_log_index + 1,
                    term_min=prev_log_term,
                    term_max=term,
                ),
            )
        case 4:
            fields.expect("AppendEntriesReply", 10)
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
        case _:
            raise WireError(f"kind of message: {kind!r:.40} is unknown")


def _decode_entries(
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
        entries.append(Entry(index=index, term=term, kind=kind, payload=payload))
        term_min = term
        offset += size
        index += 1
    if offset != frame_size:
        raise WireError(f"frame: {frame_size - offset} bytes behind the last entry")
    return tuple(entries)


class _Fields:
    """Typed access to the head's fields; each raises WireError naming the field."""

    __slots__ = ("head",)

    def __init__(self, head: list[object]) -> None:
        self.head = head

    def expect(self, kind: str, count: int) -> None:
        if len(self.head) != count:
            raise WireError(f"{kind}: {len(self.head)} fields, not {count}")

    def number(self, name: str, place: int) -> int:
        value = self.head[place]
        if type(value) is not int or not 0 <= value <= _NUMBER_MAX:
            raise WireError(f"{name}: {value!r:.40} is not a number in range")
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


class FrameReader:
    """Cuts a byte stream into frames, for a protocol that receives into a buffer of ours.

    Memory is bounded by the largest frame allowed; a larger one is refused by its prefix.
    """

    __slots__ = ("_buffer", "_end", "_start", "size_bytes_max")

    def __init__(self, size_bytes_max: int = FRAME_SIZE_BYTES_MAX) -> None:
        self.size_bytes_max = size_bytes_max
        self._buffer = bytearray(_BUFFER_SIZE_MIN)
        self._start = 0  # of the first byte not yet given out
        self._end = 0  # of what was received

    def get_buffer(self) -> memoryview:
        """Where the next bytes are to be received. Frames given out before lose their bytes."""
        held = self._end - self._start
        needed = _BUFFER_SIZE_MIN // 2
        if held >= _SIZE.size:
            needed = self._frame_size() + _SIZE.size - held
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._buffer) > 4 * _BUFFER_SIZE_MIN:
                self._buffer = bytearray(_BUFFER_SIZE_MIN)
        elif self._start and len(self._buffer) - self._end < needed:
            # Same size on both sides: the bytearray is not resized, views of it may exist.
            self._buffer[:held] = self._buffer[self._start : self._end]
            self._start, self._end = 0, held
        if len(self._buffer) - self._end < needed and self._end:
            grown = bytearray(max(held + needed, 2 * _BUFFER_SIZE_MIN))
            grown[:held] = self._buffer[self._start : self._end]
            self._buffer, self._start, self._end = grown, 0, held
        return memoryview(self._buffer)[self._end :]

    def received(self, count: int) -> list[memoryview]:
        """The frames that are whole now, without their size prefix; valid until `get_buffer`.

        Raises WireError where a prefix announces a frame beyond the limit.
        """
        self._end += count
        frames: list[memoryview] = []
        view = memoryview(self._buffer)
        while self._end - self._start >= _SIZE.size:
            size = self._frame_size()
            if size > self.size_bytes_max:
                raise WireError(f"frame of {size} bytes, at most {self.size_bytes_max} are allowed")
            begin = self._start + _SIZE.size
            if self._end - begin < size:
                break
            frames.append(view[begin : begin + size])
            self._start = begin + size
        return frames

    def _frame_size(self) -> int:
        (size,) = _SIZE.unpack_from(self._buffer, self._start)
        return int(size)
