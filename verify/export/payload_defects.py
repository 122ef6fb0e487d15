"""One payload by itself: its commands, and its first defect.

Place in the data path: `verify.export.payloads` reads the command tables here, entry by entry, and
the description of the defect if a payload that was read in bulk is not as drawn.

Invariants: whatever the bytes are, only `PayloadError` is raised, and it names the defect.

Source: docs/FORMATS.md section 4; RocketMQ's record layout (MessageExtEncoder).
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

from verify.export.messages.holding_rows import HOLDING_COMMANDS, holding_rows
from verify.export.messages.record_fields import MAGIC_V1, MAGIC_V2

__all__ = ["PayloadError", "commands_of", "payload_defect"]

_HEAD: Final = struct.Struct(">BBHI")  # version, flags, births ahead, table size
assert _HEAD.size == 8
_FIXED: Final = struct.Struct(">IIIiiqqiq")  # up to the born timestamp, before the hosts
assert _FIXED.size == 48
_BORN_HOST_IPV6: Final = 0x10
_STORE_HOST_IPV6: Final = 0x20
_TABLE: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_COMMANDS: Final = msgspec.msgpack.Decoder(list[list[Any]])
_NO_COMMANDS: Final = b"\x90"
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1


class PayloadError(Exception):
    """A payload whose CRC is right but which is not as the format draws it."""


def commands_of(payload: memoryview) -> tuple[list[list[Any]], int]:
    """Return the commands of an entry, and the position in `payload` of its first record.

    Raises:
        PayloadError: the payload is not as the format draws it.
    """
    if len(payload) < _HEAD.size:
        raise PayloadError(f"a payload of {len(payload)} bytes is too short")
    version, flags, _, table_size = _HEAD.unpack_from(payload)
    first = _HEAD.size + table_size
    if version != 1 or flags > 1 or first > len(payload):
        raise PayloadError(f"payload version {version} with a table of {table_size} bytes")
    try:
        table = _TABLE.decode(payload[_HEAD.size : first])
        if len(table) < 3:
            raise PayloadError("the table is not [store_timestamp_ms, runs, commands]")
        if table[2] == _NO_COMMANDS:
            return [], first
        commands = _COMMANDS.decode(table[2])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadError(f"the table is not msgpack as drawn: {error}") from error
    for command in commands:
        if not command:
            raise PayloadError("a command in the table is not a list with a name")
        if not _is_as_drawn(command):
            raise PayloadError(f"the command {command[0]} in the table has other fields than drawn")
    return commands, first


def _is_as_drawn(command: list[Any]) -> bool:
    """Return whether a command that becomes columns has the right field types; True for others."""
    match command:
        case ["offset", str(), str(), int(queue), int(offset)]:
            return _INT32_MIN <= queue <= _INT32_MAX and _INT64_MIN <= offset <= _INT64_MAX
        case ["decide", int(), _, str(), *_]:
            return True
        case ["offset" | "decide", *_]:
            return False
        case [str(name), *_] if name in HOLDING_COMMANDS:
            return holding_rows(command) is not None
    return True


def payload_defect(payload: memoryview) -> str | None:
    """Return the first defect of `payload`; None if it is as drawn."""
    try:
        _, offset = commands_of(payload)
    except PayloadError as error:
        return str(error)
    while offset < len(payload):
        try:
            size = _record_size(payload, offset)
        except PayloadError as error:
            return str(error)
        except (struct.error, UnicodeDecodeError) as error:
            return f"the record at byte {offset} can't be read: {error}"
        except IndexError:  # whose text tells bytes from views of them
            return f"the record at byte {offset} can't be read: index out of range"
        offset += size
    return None


def _record_size(payload: memoryview, offset: int) -> int:
    size, magic, _, _, _, _, _, sys_flag, _ = _FIXED.unpack_from(payload, offset)
    if magic not in {MAGIC_V1, MAGIC_V2} or not 0 < size <= len(payload) - offset:
        raise PayloadError(f"the record at byte {offset} has magic {magic:08x} and size {size}")
    at = offset + _FIXED.size
    at += 20 if sys_flag & _BORN_HOST_IPV6 else 8
    at += 8  # the store timestamp
    at += 20 if sys_flag & _STORE_HOST_IPV6 else 8
    at += 12  # reconsume times, the prepared transaction's offset
    (body_size,) = struct.unpack_from(">i", payload, at)
    at += 4 + body_size
    if magic == MAGIC_V1:
        topic_size, at = payload[at], at + 1
    else:
        (topic_size,) = struct.unpack_from(">H", payload, at)
        at += 2
    bytes(payload[at : at + topic_size]).decode()
    at += topic_size
    (properties_size,) = struct.unpack_from(">H", payload, at)
    at += 2
    if body_size < 0 or at + properties_size != offset + size:
        raise PayloadError(f"the record at byte {offset} does not end where its size says")
    bytes(payload[at : at + properties_size]).decode()
    return int(size)
