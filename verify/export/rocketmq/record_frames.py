"""Bare records of a CommitLog file: where each begins, and what is wrong with bytes that are none.

Place in the data path: `verify.export.rocketmq.log_files` walks a file with it;
`verify.export.rocketmq.dledger_frames` checks the bodies of its entries with it.

| offset | size | field |
|---|---|---|
| 0 | 4 | size of the record |
| 4 | 4 | magic: DAA320A7, DAA320AB (topic of two length bytes), CBD43194 (rest of the file blank) |
| 8 | 4 | CRC of the body |
| 28 | 8 | position of the record in the log |
| 36 | 4 | system flags: 0x10, 0x20 for hosts of IPv6 |
| 56 | 8 | store timestamp (12 bytes later where the born host is IPv6) |

Invariant: nothing raises whatever the bytes are.

Source: RocketMQ's CommitLog.checkMessageAndReturnSize, MessageExtEncoder.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from verify.export.messages.record_fields import MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN

__all__ = ["UNWRITTEN", "Blank", "Frame", "record_defect", "record_frame"]

UNWRITTEN: Final = "nothing was written here"
_BEGIN: Final = struct.Struct(">II")
_FIXED: Final = struct.Struct(">IIIiIqqiq")
assert _FIXED.size == 48
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_BLANK: Final = 0xCBD43194
_CRC_MASK: Final = 0x7FFFFFFF  # Java's CRC32 as a positive int (UtilAll.crc32)
_BORN_HOST_IPV6: Final = 0x10
_STORE_HOST_IPV6: Final = 0x20
_IPV6_MORE: Final = 12


@dataclass(frozen=True, slots=True)
class Blank:
    """The rest of a file that was too small for the next record."""

    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One record or DLedger entry of a file. `rank` never falls along a log: what is left over of a
    log that was cut has a lower one than what was written over it."""

    size: int
    body: int  # offset of the record in the frame
    rank: tuple[int, int]
    index: int | None  # DLedger's own; None: a bare record
    term: int
    is_data: bool


def record_frame(data: memoryview, offset: int, position: int) -> Frame | Blank | str:
    """Read what begins at `offset`, which is `position` in the log; a string: why it is nothing."""
    if len(data) - offset < _BEGIN.size:
        return UNWRITTEN
    size, magic = _BEGIN.unpack_from(data, offset)
    if magic == _BLANK:
        return Blank(size)
    if size == 0 and magic == 0:
        return UNWRITTEN
    reason = record_defect(data, offset, len(data), position)
    if reason is not None:
        return reason
    (sys_flag,) = _INT.unpack_from(data, offset + 36)
    at = offset + 56 + (_IPV6_MORE if sys_flag & _BORN_HOST_IPV6 else 0)
    (stored_ms,) = _LONG.unpack_from(data, at)
    return Frame(size=size, body=0, rank=(stored_ms, 0), index=None, term=0, is_data=True)


def record_defect(data: memoryview, offset: int, end: int, position: int) -> str | None:
    """Return why the bytes from `offset` are not a record of the log's `position`; None: they are.

    `end`: the record's bytes end there at the latest.
    """
    if end - offset < RECORD_SIZE_MIN:
        return f"{end - offset} bytes are no record"
    size, magic, crc, _, _, _, stated_position, sys_flag, _ = _FIXED.unpack_from(data, offset)
    if magic not in {MAGIC_V1, MAGIC_V2} or not RECORD_SIZE_MIN <= size <= end - offset:
        return f"the record has magic {magic:08x} and size {size}"
    if stated_position != position:
        return f"the record says that it is that of position {stated_position}"
    at = offset + 84
    at += _IPV6_MORE if sys_flag & _BORN_HOST_IPV6 else 0
    at += _IPV6_MORE if sys_flag & _STORE_HOST_IPV6 else 0
    if at + _INT.size > offset + size:
        return f"the record of size {size} ends before its body"
    (body_size,) = _INT.unpack_from(data, at)
    at += _INT.size
    if not 0 <= body_size <= offset + size - at:
        return f"the record of size {size} has a body of {body_size} bytes"
    if zlib.crc32(data[at : at + body_size]) & _CRC_MASK != crc & _CRC_MASK and body_size > 0:
        return "the CRC of the record's body is wrong"
    return None
