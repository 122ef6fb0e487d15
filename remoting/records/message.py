"""Message records: the same bytes in the CommitLog, in a pull's answer and in a check's body.

Place in the data path: the broker encodes a record when it appends, and answers pulls with stored
bytes; clients decode them. Batch bodies (SEND_BATCH_MESSAGE) are here too; properties, ids and
body compression have modules of their own and are re-exported.

| # | field | size | at (IPv4) |
|---|---|---|---|
| 1 | total size | 4 | 0 |
| 2 | magic: V1 0xDAA320A7, V2 0xDAA320AB | 4 | 4 |
| 3 | body CRC: CRC32(body) & 0x7FFFFFFF | 4 | 8 |
| 4 | queue id | 4 | 12 |
| 5 | flag of the user | 4 | 16 |
| 6 | queue offset | 8 | 20 |
| 7 | physical offset | 8 | 28 |
| 8 | system flag | 4 | 36 |
| 9 | born timestamp, ms | 8 | 40 |
| 10 | born host: ip 4 or 16, port 4 | 8 or 20 | 48 |
| 11 | store timestamp, ms | 8 | 56 |
| 12 | store host: ip 4 or 16, port 4 | 8 or 20 | 64 |
| 13 | reconsume times | 4 | 72 |
| 14 | prepared transaction offset | 8 | 76 |
| 15 | body length, body | 4 + n | 84 |
| 16 | topic length (V1: 1 byte, V2: 2), topic | | |
| 17 | properties length, properties | 2 + n | |

Bits 0x10 and 0x20 of the system flag mark the born and the store host as IPv6. V2 is written only
for topics longer than 127 bytes.

Source: RocketMQ MessageExtEncoder, CommitLog.checkMessageAndReturnSize, MessageDecoder.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from remoting.errors import RecordError
from remoting.records import sys_flag as flags
from remoting.records.body_compression import compress_body, decompress_body
from remoting.records.message_id import (
    UniqueIdGenerator,
    java_string_hash,
    offset_msg_id,
    pack_host,
    parse_offset_msg_id,
    split_host,
    tags_code,
    unpack_host,
)
from remoting.records.properties import (
    PROPERTIES_SIZE_MAX,
    append_properties,
    decode_properties,
    encode_properties,
    find_property,
)

__all__ = [
    "BODY_SIZE_MAX",
    "MAGIC_V1",
    "MAGIC_V2",
    "PROPERTIES_SIZE_MAX",
    "BatchItem",
    "MessageRecord",
    "RecordScan",
    "UniqueIdGenerator",
    "append_properties",
    "compress_body",
    "decode_batch_body",
    "decode_properties",
    "decode_record",
    "decode_records",
    "decompress_body",
    "encode_batch_body",
    "encode_properties",
    "encode_record",
    "find_property",
    "java_string_hash",
    "offset_msg_id",
    "parse_offset_msg_id",
    "record_properties",
    "scan_records",
    "split_host",
    "tags_code",
]

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
BODY_SIZE_MAX: Final = 4_194_304
_TOPIC_SIZE_MAX_V1: Final = 127
_TOPIC_SIZE_MAX: Final = 255

# Fields 1 to 14 and the body length, by the kinds of host.
_SIZE_AND_MAGIC: Final = struct.Struct(">II")
_SIZE_TO_SYS_FLAG: Final = struct.Struct(">IIIiiqqi")
_HEADS: Final = {
    0: struct.Struct(">IIIiiqqiq8sq8siqI"),
    flags.BORN_HOST_IPV6: struct.Struct(">IIIiiqqiq20sq8siqI"),
    flags.STORE_HOST_IPV6: struct.Struct(">IIIiiqqiq8sq20siqI"),
    flags.BORN_HOST_IPV6 | flags.STORE_HOST_IPV6: struct.Struct(">IIIiiqqiq20sq20siqI"),
}
_HOST_BITS: Final = flags.BORN_HOST_IPV6 | flags.STORE_HOST_IPV6
_HEAD_V4: Final = _HEADS[0]
_RECORD_SIZE_MIN: Final = 91
assert _SIZE_TO_SYS_FLAG.size == 40
assert _HEAD_V4.size == 88
assert _HEAD_V4.size + 1 + 2 == _RECORD_SIZE_MIN
_SHORT: Final = struct.Struct(">H")
_LENGTH: Final = struct.Struct(">I")
_BATCH_HEAD: Final = struct.Struct(">IIIiI")
assert _BATCH_HEAD.size == 20


@dataclass(slots=True, kw_only=True)
class MessageRecord:
    """Every field of a stored record. Hosts are "ip:port" or "[ipv6]:port"; times are Unix ms.

    `properties` is the encoded block (`decode_properties` decodes it). Encoding sets the bits of
    `sys_flag` for IPv6 hosts by the hosts. Not frozen: one is made per delivered message.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes = b""
    flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: str = "127.0.0.1:0"
    store_timestamp_ms: int = 0
    store_host: str = "127.0.0.1:0"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    @property
    def offset_msg_id(self) -> str:
        """The id that names the storing broker and the physical offset."""
        return (pack_host(self.store_host) + self.physical_offset.to_bytes(8, "big")).hex().upper()

    def property_map(self) -> dict[str, str]:
        """Decode `properties` into a dict, anew on each call. Raises RecordError."""
        return decode_properties(self.properties)


class RecordScan(NamedTuple):
    """The fields of a stored record that hot paths use, without decoding its strings."""

    start: int  # of the record in the buffer
    size: int
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    body_start: int  # in the buffer
    body_size: int
    topic: bytes
    properties: bytes


class BatchItem(NamedTuple):
    """One message of a batch body; the topic and the rest are in the batch's header."""

    body: bytes
    properties: bytes
    flag: int = 0


def encode_record(record: MessageRecord) -> bytes:
    """Encode the record.

    Raises RecordError where a field does not fit: topic empty or above 255 bytes, properties above
    32,767, a number outside its width, a host that is not ip:port.
    """
    topic = record.topic.encode()
    topic_size = len(topic)
    properties = record.properties
    if not 0 < topic_size <= _TOPIC_SIZE_MAX:
        raise RecordError(f"topic of {topic_size} bytes is not within 1..{_TOPIC_SIZE_MAX}")
    if len(properties) > PROPERTIES_SIZE_MAX:
        raise RecordError(
            f"properties take {len(properties)} bytes, more than {PROPERTIES_SIZE_MAX}"
        )
    born_host = pack_host(record.born_host)
    store_host = pack_host(record.store_host)
    sys_flag = record.sys_flag & ~_HOST_BITS
    if len(born_host) == 20:
        sys_flag |= flags.BORN_HOST_IPV6
    if len(store_host) == 20:
        sys_flag |= flags.STORE_HOST_IPV6
    head = _HEADS[sys_flag & _HOST_BITS]
    if topic_size <= _TOPIC_SIZE_MAX_V1:
        magic = MAGIC_V1
        topic_length = topic_size.to_bytes(1, "big")
    else:
        magic = MAGIC_V2
        topic_length = topic_size.to_bytes(2, "big")
    body = record.body
    size = head.size + len(body) + len(topic_length) + topic_size + 2 + len(properties)
    try:
        packed = head.pack(
            size,
            magic,
            zlib.crc32(body) & 0x7FFF_FFFF,
            record.queue_id,
            record.flag,
            record.queue_offset,
            record.physical_offset,
            sys_flag,
            record.born_timestamp_ms,
            born_host,
            record.store_timestamp_ms,
            store_host,
            record.reconsume_times,
            record.prepared_transaction_offset,
            len(body),
        )
    except struct.error as error:
        raise RecordError(f"a field of the record does not fit: {error}") from error
    return b"".join((packed, body, topic_length, topic, _SHORT.pack(len(properties)), properties))


def _layout(
    buffer: bytes | bytearray | memoryview, start: int
) -> tuple[struct.Struct, int, int, int, int]:
    """Return (fixed fields, body, topic and properties start, end) of the record at `start`.

    Every length is checked against the next and against the buffer. Raises RecordError.
    """
    left = len(buffer) - start
    if left < _RECORD_SIZE_MIN:
        raise RecordError(f"{left} bytes at {start} are too few for a record")
    size, magic = _SIZE_AND_MAGIC.unpack_from(buffer, start)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise RecordError(f"magic {magic:#010x} at {start} is no record's")
    if size > left:
        raise RecordError(f"record at {start} says it has {size} bytes; {left} are there")
    head = _HEADS[buffer[start + 39] & _HOST_BITS]
    end = start + size
    body_start = start + head.size
    if body_start + 3 > end:
        raise RecordError(f"record at {start} of {size} bytes is shorter than its fixed fields")
    (body_size,) = _LENGTH.unpack_from(buffer, body_start - 4)
    body_end = body_start + body_size
    topic_start = body_end + (1 if magic == MAGIC_V1 else 2)
    if topic_start > end:
        raise RecordError(f"body length {body_size} exceeds the record at {start}")
    topic_size = buffer[body_end]
    if magic == MAGIC_V2:
        topic_size = topic_size << 8 | buffer[body_end + 1]
    properties_start = topic_start + topic_size + 2
    if properties_start > end:
        raise RecordError(f"topic length {topic_size} exceeds the record at {start}")
    (properties_size,) = _SHORT.unpack_from(buffer, properties_start - 2)
    if properties_start + properties_size != end:
        raise RecordError(
            f"properties length {properties_size} does not end the record at {start}:"
            f" {end - properties_start} bytes are left"
        )
    return head, body_start, topic_start, properties_start, end


def decode_record(
    buffer: bytes | bytearray | memoryview, offset: int = 0, *, check_crc: bool = True
) -> MessageRecord:
    """Decode the record at `offset`; its first four bytes are its length.

    Raises RecordError where it is cut short, its lengths contradict each other, a string is not
    UTF-8, or (unless `check_crc` is False) the body does not match its CRC.
    """
    head, body_start, topic_start, properties_start, end = _layout(buffer, offset)
    (
        _,
        _,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp_ms,
        born_host,
        store_timestamp_ms,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body_size,
    ) = head.unpack_from(buffer, offset)
    body = bytes(buffer[body_start : body_start + body_size])
    if check_crc and zlib.crc32(body) & 0x7FFF_FFFF != crc:
        raise RecordError(f"body of the record at {offset} does not match its CRC {crc:#010x}")
    try:
        topic = str(buffer[topic_start : properties_start - 2], "utf-8")
    except UnicodeDecodeError as error:
        raise RecordError(f"topic of the record at {offset} is not UTF-8: {error}") from error
    return MessageRecord(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=bytes(buffer[properties_start:end]),
        flag=flag,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_timestamp_ms=born_timestamp_ms,
        born_host=unpack_host(born_host),
        store_timestamp_ms=store_timestamp_ms,
        store_host=unpack_host(store_host),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
    )


def record_properties(record: bytes) -> dict[str, str]:
    """Decode only the properties of one record. Raises RecordError."""
    _, _, _, start, end = _layout(record, 0)
    return decode_properties(record[start:end])


def decode_records(buffer: bytes | bytearray | memoryview) -> list[MessageRecord]:
    """Decode all records, back to back. Raises RecordError as `decode_record`."""
    records: list[MessageRecord] = []
    at = 0
    while at < len(buffer):
        records.append(decode_record(buffer, at))
        at += int.from_bytes(buffer[at : at + 4], "big")
    return records


def scan_records(buffer: bytes | bytearray | memoryview) -> Iterator[RecordScan]:
    """Yield records back to back, lengths checked, CRC and UTF-8 not. Raises RecordError."""
    at = 0
    while at < len(buffer):
        _, body_start, topic_start, properties_start, end = _layout(buffer, at)
        size, _, _, queue_id, _, queue_offset, physical_offset, sys_flag = (
            _SIZE_TO_SYS_FLAG.unpack_from(buffer, at)
        )
        yield RecordScan(
            at,
            size,
            queue_id,
            queue_offset,
            physical_offset,
            sys_flag,
            body_start,
            _LENGTH.unpack_from(buffer, body_start - 4)[0],
            bytes(buffer[topic_start : properties_start - 2]),
            bytes(buffer[properties_start:end]),
        )
        at = end


def encode_batch_body(items: Iterable[BatchItem]) -> bytes:
    """Encode the body of SEND_BATCH_MESSAGE.

    Per message: total size 4, magic 0, CRC 0, flag 4, body length 4, body, properties length 2,
    properties. Raises RecordError where properties are above 32,767 bytes.
    """
    parts: list[bytes] = []
    for body, properties, flag in items:
        if len(properties) > PROPERTIES_SIZE_MAX:
            raise RecordError(
                f"properties take {len(properties)} bytes, more than {PROPERTIES_SIZE_MAX}"
            )
        size = _BATCH_HEAD.size + len(body) + 2 + len(properties)
        parts += (
            _BATCH_HEAD.pack(size, 0, 0, flag, len(body)),
            body,
            _SHORT.pack(len(properties)),
            properties,
        )
    return b"".join(parts)


def decode_batch_body(encoded: bytes, *, count_max: int | None = None) -> list[BatchItem]:
    """Decode a batch body; magic and CRC of an item are ignored, as RocketMQ does.

    Raises RecordError where lengths contradict each other, or there are more than `count_max`
    messages.
    """
    items: list[BatchItem] = []
    at = 0
    while at < len(encoded):
        if len(items) == count_max:
            raise RecordError(f"a batch of more than {count_max} messages")
        left = len(encoded) - at
        if left < _BATCH_HEAD.size + 2:
            raise RecordError(f"{left} bytes at {at} are too few for a message of a batch")
        size, _, _, flag, body_size = _BATCH_HEAD.unpack_from(encoded, at)
        body_start = at + _BATCH_HEAD.size
        properties_start = body_start + body_size + 2
        end = at + size
        if size > left or properties_start > end:
            raise RecordError(f"message at {at} of the batch: size {size}, body {body_size}")
        (properties_size,) = _SHORT.unpack_from(encoded, properties_start - 2)
        if properties_start + properties_size != end:
            raise RecordError(f"message at {at} of the batch: properties length {properties_size}")
        items.append(
            BatchItem(
                encoded[body_start : body_start + body_size],
                encoded[properties_start:end],
                flag,
            )
        )
        at = end
    return items
