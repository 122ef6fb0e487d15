"""Entries of the log in the framing of RocketMQ's CommitLog.

Place in the data path: `broker.ha.commit_log` writes and reads entries with it. Pure.

An entry is one message record of the topic `LMQ_SYS_ENTRY`, the head, and behind it the message
records of the payload as they are. To a RocketMQ broker the head is a message like any other.

| field of the head | value |
|---|---|
| flag | size of the records behind the head |
| queue id, queue offset | 0, the entry's index - 1 |
| physical offset | position of the head |
| born and store timestamp | the store timestamp of the payload's table |
| body | header and table of the payload (`broker.entry.payload`) |
| properties | `LMQ_CHAIN` and sixteen hex digits: the chain before the entry, and its own |

The chain is a CRC32 over the chain before it, index, position, body and records, so equal chains
mean equal logs up to there: the fields of the head that it leaves out follow from the others, and
are compared. `Slot.position` stands `SLOT_AHEAD` bytes behind the head, so that the payload's
header and table, counted from there, end where the records begin.

A record without such a head was written by a RocketMQ master, and is an entry of its own: its table
is derived from it, a run of one unit. An entry and the eight bytes of a BLANK behind it fit in one
file; the BLANK fills a file to its end: size 4, magic 0xCBD43194, anything.

Source: RocketMQ CommitLog.DefaultAppendMessageCallback, CommitLog.checkMessageAndReturnSize,
CommitLogDispatcherBuildConsumeQueue.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import msgpack
from isal.isal_zlib import crc32

from broker.entry.levels import delay_ms
from broker.entry.payload import (
    PAYLOAD_HEADER,
    UNIT,
    Run,
    encode_header,
    encode_table,
)
from broker.entry.topics import SCHEDULE_TOPIC
from raft.messages import LogBase
from remoting.errors import RecordError
from remoting.records import sys_flag
from remoting.records.message import MAGIC_V1, MAGIC_V2, MessageRecord, decode_record, tags_code
from remoting.records.property_names import PropertyName

__all__ = [
    "BLANK_SIZE_MIN",
    "HEAD_OVERHEAD",
    "MAGIC_BLANK",
    "SLOT_AHEAD",
    "SYSTEM_TOPIC",
    "TERM",
    "CutShortError",
    "Framed",
    "FramingError",
    "encode_blank",
    "encode_entry",
    "parse",
    "place_before",
]

SYSTEM_TOPIC: Final = "LMQ_SYS_ENTRY"
TERM: Final = 1
"""Nobody is elected: all entries are of one term."""

BLANK_SIZE_MIN: Final = 8
_BLANK: Final = struct.Struct(">II")
MAGIC_BLANK: Final = 0xCBD43194
_SIZE_AND_MAGIC: Final = _BLANK
# Total, magic, body CRC, queue id, flag, queue offset, position, sysFlag, born timestamp, born
# host, store timestamp, store host, reconsume times, prepared offset, body length.
_HEAD: Final = struct.Struct(">IIIiiqqiq8sq8siqI")
assert _HEAD.size == 88
_TOPIC: Final = bytes([len(SYSTEM_TOPIC)]) + SYSTEM_TOPIC.encode()
_CHAIN_NAME: Final = b"LMQ_CHAIN\x01"
_CHAIN_DIGITS: Final = 16
_PROPERTIES_SIZE: Final = len(_CHAIN_NAME) + _CHAIN_DIGITS + 1
_PROPERTIES_HEAD: Final = _PROPERTIES_SIZE.to_bytes(2, "big") + _CHAIN_NAME
_TRAILER_SIZE: Final = len(_TOPIC) + 2 + _PROPERTIES_SIZE
HEAD_OVERHEAD: Final = _HEAD.size + _TRAILER_SIZE
"""Bytes that an entry takes beyond its payload."""
SLOT_AHEAD: Final = HEAD_OVERHEAD
_NO_HOST: Final = bytes(8)
_SEED: Final = struct.Struct(">IQQ")
_RECORD_SIZE_MIN: Final = 91
_CRC_MASK: Final = 0x7FFF_FFFF
_STORED_AT_SIZE: Final = 16  # of a table: the first element is within


class FramingError(Exception):
    """The bytes at a place are not the entry that has to stand there."""


class CutShortError(FramingError):
    """The bytes end before the entry does; `size` of them are needed to know more."""

    def __init__(self, available: int, size: int) -> None:
        super().__init__(f"cut short: {available} bytes of {size}")
        self.size = size


@dataclass(frozen=True, slots=True)
class Framed:
    """An entry as it was parsed, or a BLANK, whose `payload` is None.

    `size` counts its bytes in the log, `position` is as in `CommittedEntry`, `chain` is the chain
    of the log up to and with this entry.
    """

    size: int
    payload: bytes | None
    position: int
    chain: int


def encode_blank(size: int) -> bytes:
    """Return the beginning of a BLANK that takes `size` bytes; what follows may be anything."""
    assert size >= BLANK_SIZE_MIN
    return _BLANK.pack(size, MAGIC_BLANK)


def encode_entry(payload: bytes, end: LogBase) -> tuple[tuple[bytes, ...], LogBase]:
    """Return the bytes of the entry behind `end`, in pieces, and the log's end with it."""
    (*_, table_size) = PAYLOAD_HEADER.unpack_from(payload)
    body_size = PAYLOAD_HEADER.size + table_size
    body, records = payload[:body_size], memoryview(payload)[body_size:]
    chain = crc32(payload, _seed(end))
    fixed = _encode_head(body, len(records), end)
    trailer = _TOPIC + _PROPERTIES_HEAD + b"%08X%08X\x02" % (end.chain, chain)
    size = HEAD_OVERHEAD + len(payload)
    after = LogBase(index=end.index + 1, term=TERM, position=end.position + size, chain=chain)
    return (fixed, body, trailer, bytes(records)), after


def _encode_head(body: bytes, records_size: int, end: LogBase) -> bytes:
    """Return the fields of a head before its body, which is header and table of a payload."""
    stored_ms = _stored_ms(body)
    return _HEAD.pack(
        HEAD_OVERHEAD + len(body),
        MAGIC_V1,
        crc32(body) & _CRC_MASK,
        0,
        records_size,
        end.index,
        end.position,
        0,
        stored_ms,
        _NO_HOST,
        stored_ms,
        _NO_HOST,
        0,
        0,
        len(body),
    )


def parse(buffer: bytes | memoryview, end: LogBase, *, file_left: int) -> Framed:
    """Return the entry, or the BLANK, at the beginning of `buffer`, which stands behind `end`;
    `file_left` bytes are left of its file.

    Raises CutShortError where the buffer must have more bytes, and FramingError with the reason.
    """
    view = memoryview(buffer)
    if len(view) < _SIZE_AND_MAGIC.size:
        raise CutShortError(len(view), _SIZE_AND_MAGIC.size)
    size, magic = _SIZE_AND_MAGIC.unpack_from(view)
    if magic == MAGIC_BLANK:
        if size != file_left:
            raise FramingError(f"a BLANK of {size} bytes where the file has {file_left} left")
        return Framed(size, None, end.position, end.chain)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise FramingError(f"magic {magic:#010x} is no record's")
    if not _RECORD_SIZE_MIN <= size <= file_left - BLANK_SIZE_MIN:
        raise FramingError(f"a record of {size} bytes where the file has {file_left} left")
    if len(view) < size:
        raise CutShortError(len(view), size)
    record = bytes(view[:size])
    try:
        decoded = decode_record(record)
    except RecordError as error:
        raise FramingError(str(error)) from error
    if decoded.physical_offset != end.position:
        raise FramingError(f"the record names position {decoded.physical_offset}")
    if decoded.topic == SYSTEM_TOPIC:
        return _entry(view, decoded, size, end, file_left)
    if decoded.properties.startswith(_CHAIN_NAME):
        raise FramingError(f"a head of topic {decoded.topic!r}")
    try:
        payload = _derived(decoded, record, end.position)
    except (RecordError, IndexError) as error:  # of its properties, or no queue of a delay level
        raise FramingError(f"a record without a place in a queue: {error}") from error
    chain = crc32(record, _seed(end))
    return Framed(size, payload, end.position + size - len(payload), chain)


def _entry(
    view: memoryview, head: MessageRecord, head_size: int, end: LogBase, file_left: int
) -> Framed:
    """Return the entry that begins with the record `head`. Raises as `parse`."""
    if head.queue_offset != end.index:
        raise FramingError(f"index {head.queue_offset + 1} where {end.index + 1} belongs")
    size = head_size + head.flag
    if head.flag < 0 or size > file_left - BLANK_SIZE_MIN:
        raise FramingError(f"an entry of {size} bytes where the file has {file_left} left")
    if len(view) < size:
        raise CutShortError(len(view), size)
    payload = b"".join((head.body, view[head_size:size]))
    chain = crc32(payload, _seed(end))
    if head.properties != _CHAIN_NAME + b"%08X%08X\x02" % (end.chain, chain):
        raise FramingError(
            f"chains {end.chain:08X} and {chain:08X} are not those of {head.properties!r}"
        )
    # The chain says nothing of the times, hosts and flags in the head, which a torn write may lack.
    if bytes(view[: _HEAD.size]) != _encode_head(head.body, head.flag, end):
        raise FramingError("fields of the head are not those of its body and place")
    return Framed(size, payload, end.position + SLOT_AHEAD, chain)


def place_before(record: bytes) -> LogBase | None:
    """Return what precedes the entry whose head `record` is; None if it is no head of ours.

    Raises RecordError if it is no record; nothing else of it is checked.
    """
    head = decode_record(record)
    if head.topic != SYSTEM_TOPIC:
        return None
    digits = head.properties.removeprefix(_CHAIN_NAME)[: _CHAIN_DIGITS // 2]
    try:
        chain = int(digits, 16)
    except ValueError as error:
        raise RecordError(f"{head.properties!r} names no chain") from error
    return LogBase(index=head.queue_offset, term=TERM, position=head.physical_offset, chain=chain)


def _seed(end: LogBase) -> int:
    """Return what the chain of the entry behind `end` begins with."""
    return crc32(_SEED.pack(end.chain, end.index, end.position))


def _stored_ms(payload: bytes) -> int:
    """Return the first element of the table that a payload begins with."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(payload[PAYLOAD_HEADER.size : PAYLOAD_HEADER.size + _STORED_AT_SIZE])
    unpacker.read_array_header()
    return int(unpacker.unpack())


def _derived(decoded: MessageRecord, record: bytes, position: int) -> bytes:
    """Return the payload of a record that a RocketMQ master wrote."""
    stored_ms = decoded.store_timestamp_ms
    runs = []
    transaction = decoded.sys_flag & sys_flag.TRANSACTION_MASK
    # RocketMQ puts neither prepared nor rolled back messages into a ConsumeQueue.
    if transaction in (sys_flag.TRANSACTION_NONE, sys_flag.TRANSACTION_COMMIT):
        code = tags_code(decoded.property_map().get(PropertyName.TAGS))
        if decoded.topic == SCHEDULE_TOPIC:  # the time of delivery stands where tags codes do
            code = stored_ms + delay_ms(decoded.queue_id)
        units = UNIT.pack(position, len(record), code)
        runs.append(Run(decoded.topic, decoded.queue_id, decoded.queue_offset, units, None))
    table = encode_table(stored_ms, runs, [])
    return b"".join((encode_header(len(table)), table, record))
