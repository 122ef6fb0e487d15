"""Entries of a DLedger data file: where each begins, and what is wrong with bytes that are none.

Place in the data path: `verify.export.rocketmq.log_files` walks a file with it.

| offset | size | field |
|---|---|---|
| 0 | 4 | magic: 1 an entry, 2 a no-op, -1 the rest of the file is blank (its size follows) |
| 4 | 4 | size of the entry, header included; 0: never written |
| 8 | 8 | index, from 0 on |
| 16 | 8 | term |
| 24 | 8 | position of the entry |
| 32 | 4 | channel, always 0 |
| 36 | 8 | CRCs of the entries before and of the body, both unused and 0 |
| 44 | 4 | size of the body, which is one RocketMQ record |

Invariant: nothing raises whatever the bytes are. The record in the body is not looked at here: an
entry whose header is sound has its place in the log even where its record is damaged.

Source: DLedger's DLedgerEntryCoder, DLedgerMmapFileStore.recover; RocketMQ's DLedgerCommitLog.
"""

from __future__ import annotations

import struct
from typing import Final

from verify.export.rocketmq.record_frames import UNWRITTEN, Blank, Frame

__all__ = ["HEADER_SIZE_BYTES", "dledger_frame"]

_BEGIN: Final = struct.Struct(">ii")
_HEADER: Final = struct.Struct(">iiqqqiiii")
HEADER_SIZE_BYTES: Final = 48
assert _HEADER.size == HEADER_SIZE_BYTES
_BLANK: Final = -1
_NORMAL, _NOOP = 1, 2


def dledger_frame(data: memoryview, offset: int, position: int) -> Frame | Blank | str:
    """Read what begins at `offset`, which is `position` in the log; a string: why it is nothing."""
    if len(data) - offset < _BEGIN.size:
        return UNWRITTEN
    magic, size = _BEGIN.unpack_from(data, offset)
    if magic == _BLANK:
        return Blank(size)
    if magic == 0 and size == 0:
        return UNWRITTEN
    if magic not in {_NORMAL, _NOOP} or not HEADER_SIZE_BYTES <= size <= len(data) - offset:
        return f"the entry has magic {magic} and size {size}"
    _, _, index, term, stated_position, _, _, _, body_size = _HEADER.unpack_from(data, offset)
    if body_size + HEADER_SIZE_BYTES != size:
        return f"the entry of size {size} has a body of {body_size} bytes"
    if stated_position != position:
        return f"the entry says that it is that of position {stated_position}"
    if index < 0 or term < 0:
        return f"the entry has index {index} and term {term}"
    return Frame(
        size=size,
        body=HEADER_SIZE_BYTES,
        rank=(term, index),
        index=index,
        term=term,
        is_data=magic == _NORMAL,
    )
