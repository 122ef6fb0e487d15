"""The verifier's own reader of what a data entry holds: table, message records, commands.

Place in the data path: from an entry's payload to rows of the table `log`. Shares no code with
what wrote them.

Invariants: a payload that is not as drawn raises `PayloadError`, which names what was wrong;
nothing else is raised for what the bytes are.

Source: docs/FORMATS.md section 4; RocketMQ's record layout (MessageExtEncoder).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

__all__ = ["Payload", "PayloadError", "Record", "read_payload", "tag_hash"]

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"

_PAYLOAD_HEAD: Final = struct.Struct(">BB2sI")  # version, flags, zeros, table size
assert _PAYLOAD_HEAD.size == 8
_FIXED: Final = struct.Struct(">IIIiiqqiq")  # up to the born timestamp, which hosts follow
assert _FIXED.size == 48
_MAGIC_V1: Final = 0xDAA320A7
_MAGIC_V2: Final = 0xDAA320AB
_BORN_HOST_IPV6: Final = 0x10
_STORE_HOST_IPV6: Final = 0x20
_TRANSACTION_BITS: Final = 0xC
_TRANSACTION_COMMIT: Final = 0x8


class PayloadError(Exception):
    """A payload whose CRC is right but which is not as the format draws it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One message record. `offset` is its place in the payload, `size` its bytes."""

    offset: int
    size: int
    kind: str  # message, half, op, final
    topic: str
    queue: int
    queue_offset: int
    tag_hash: int
    value: str | None
    uniq_key: str | None
    keys: list[str] | None
    tx: str | None
    half_offset: int | None  # of an op record: the half that it settles


# In the units of delayed messages the time of delivery stands in place of a tag hash: the store
# timestamp and the delay of the level, which is the queue + 1 (RocketMQ's 18 levels).
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
# A timer message names it in its properties, less one millisecond.
TIMER_TOPIC = "rmq_sys_wheel_timer"
_DELAYS_S = (1, 5, 10, 30, *(60 * m for m in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)))
_DELAYS_MS = {queue: 1_000 * seconds for queue, seconds in enumerate(_DELAYS_S)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    records: list[Record]
    commands: list[list[object]]


def read_payload(payload: memoryview) -> Payload:
    """Records in the order of their bytes, then commands in theirs.

    Raises:
        PayloadError: as the class says.
    """
    if len(payload) < _PAYLOAD_HEAD.size:
        raise PayloadError(f"a payload of {len(payload)} bytes is too short")
    version, flags, zeros, table_size = _PAYLOAD_HEAD.unpack_from(payload)
    if (
        version != 1
        or flags > 1
        or zeros != b"\0\0"
        or table_size > len(payload) - _PAYLOAD_HEAD.size
    ):
        raise PayloadError(f"payload version {version} with a table of {table_size} bytes")
    first = _PAYLOAD_HEAD.size + table_size
    commands = _commands(bytes(payload[_PAYLOAD_HEAD.size : first]))
    return Payload(records=list(_records(payload, first)), commands=commands)


def tag_hash(tags: str | None) -> int:
    """Java's String.hashCode over UTF-16 units, as a signed number; 0 without tags."""
    if not tags:
        return 0
    code = 0
    units = tags.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", units):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code


def _commands(table: bytes) -> list[list[object]]:
    try:
        content = msgspec.msgpack.decode(table)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PayloadError(f"the table is not msgpack: {error}") from error
    if not isinstance(content, list) or len(content) < 3 or not isinstance(content[2], list):
        raise PayloadError("the table is not [store_timestamp_ms, runs, commands]")
    commands: list[list[object]] = content[2]
    if not all(isinstance(command, list) and command for command in commands):
        raise PayloadError("a command in the table is not a list with a name")
    return commands


def _records(payload: memoryview, offset: int) -> Iterator[Record]:
    while offset < len(payload):
        try:
            record = _record(payload, offset)
        except (struct.error, UnicodeDecodeError, IndexError) as error:
            raise PayloadError(f"the record at byte {offset} can't be read: {error}") from error
        yield record
        offset += record.size


def _record(payload: memoryview, offset: int) -> Record:
    size, magic, _, queue, _, queue_offset, _, sys_flag, _ = _FIXED.unpack_from(payload, offset)
    if magic not in {_MAGIC_V1, _MAGIC_V2} or not 0 < size <= len(payload) - offset:
        raise PayloadError(f"the record at byte {offset} has magic {magic:08x} and size {size}")
    at = offset + _FIXED.size
    at += 20 if sys_flag & _BORN_HOST_IPV6 else 8
    (stored_ms,) = struct.unpack_from(">q", payload, at)
    at += 8
    at += 20 if sys_flag & _STORE_HOST_IPV6 else 8
    (prepared_offset,) = struct.unpack_from(">q", payload, at + 4)  # behind the reconsume times
    at += 12
    (body_size,) = struct.unpack_from(">i", payload, at)
    body_at = at + 4
    at = body_at + body_size
    if magic == _MAGIC_V1:
        topic_size, at = payload[at], at + 1
    else:
        (topic_size,) = struct.unpack_from(">H", payload, at)
        at += 2
    topic = bytes(payload[at : at + topic_size]).decode()
    at += topic_size
    (properties_size,) = struct.unpack_from(">H", payload, at)
    at += 2
    if body_size < 0 or at + properties_size != offset + size:
        raise PayloadError(f"the record at byte {offset} does not end where its size says")
    properties = _properties(bytes(payload[at : at + properties_size]).decode())
    kind = _kind(topic, sys_flag, prepared_offset)
    uniq_key = properties.get("UNIQ_KEY")
    is_op = kind == "op"
    body = bytes(payload[body_at : body_at + body_size]) if is_op else b""
    return Record(
        offset=offset,
        size=size,
        kind=kind,
        topic=topic,
        queue=queue,
        queue_offset=queue_offset,
        tag_hash=_unit_value(topic, queue, stored_ms, properties),
        value=None if is_op else properties.get("lmq_value", uniq_key),
        uniq_key=None if is_op else uniq_key,
        keys=None if is_op else (properties.get("KEYS", "").split() or None),
        tx=properties.get("lmq_tx"),
        half_offset=_half_offset(body) if is_op else None,
    )


def _unit_value(topic: str, queue: int, stored_ms: int, properties: dict[str, str]) -> int:
    """What the ConsumeQueue's unit has in its last field."""
    if topic == SCHEDULE_TOPIC and queue in _DELAYS_MS:
        return stored_ms + _DELAYS_MS[queue]
    if topic == TIMER_TOPIC and properties.get("TIMER_OUT_MS", "").isdecimal():
        return int(properties["TIMER_OUT_MS"]) + 1
    return tag_hash(properties.get("TAGS"))


def _kind(topic: str, sys_flag: int, prepared_offset: int) -> str:
    if topic == HALF_TOPIC:
        return "half"
    if topic == OP_TOPIC:
        return "op"
    # A final message that was delayed is stored again when its time has come, without the offset.
    is_final = sys_flag & _TRANSACTION_BITS == _TRANSACTION_COMMIT and prepared_offset
    return "final" if is_final else "message"


def _half_offset(body: bytes) -> int | None:
    first = body.split(b",", 1)[0]
    return int(first) if first.isdigit() else None


def _properties(block: str) -> dict[str, str]:
    pairs = (item.partition("\x01") for item in block.split("\x02") if item)
    return {name: value for name, _, value in pairs if name}
