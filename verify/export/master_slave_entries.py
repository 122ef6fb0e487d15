"""Entries of a file of a master's or slave's log: RocketMQ's records, some being heads of entries.

Place in the data path: `verify.export.master_slave_replica` maps a replica's files one by one and
reads them here; `verify.export.payloads` reads what the entries hold.

An entry of ours is a record of the topic `LMQ_SYS_ENTRY`, its head, and behind it message records:

| offset | size | field of the head |
|---|---|---|
| 0 | 4 | size of the head |
| 4 | 4 | magic DAA320A7 |
| 8 | 4 | CRC of the body, its highest bit cleared |
| 12 | 4 | queue id, 0 |
| 16 | 4 | flag: size of the records behind the head |
| 20 | 8 | queue offset: the entry's index less 1 |
| 28 | 8 | position of the head in the log |
| 36 | 4 | system flags, 0 |
| 40 | 24 | born timestamp and host, store timestamp: that of the table, hosts 0 |
| 64 | 20 | store host, reconsume times, prepared offset: 0 |
| 84 | 4 | size of the body |
| 88 | | body: header and table of the payload |
| | 43 | topic, and the property LMQ_CHAIN: the chain before the entry, and its own |

The chain is a CRC32 of body and records, begun with that of the chain before, index less 1, and
position. A record of another topic was written by a RocketMQ master, and is an entry by itself,
without an index or a chain of its own. A BLANK takes what is left of a file.

Invariants: nothing raises whatever the bytes are; what can't be read is returned as `Damage`, in
place, and reading goes on behind it if the frame tells where; entries whose index can't be known,
since nothing tells how many were lost before them, are passed over up to the next head.

Source: docs/FORMATS.md section 19; RocketMQ's MessageExtEncoder.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from verify.export.messages.entries import KIND_DATA, Damage, Entries
from verify.export.messages.record_fields import MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN
from verify.export.rocketmq.record_frames import record_defect

__all__ = ["LOG_START", "NO_CHAIN", "TRAILER_SIZE_BYTES", "LogPlace", "MasterFile", "read_file"]

TERM: Final = 1
"""Nobody is elected: all entries are of one term."""

NO_CHAIN: Final = -1
"""In place of a chain that can't be known."""

_BEGIN: Final = struct.Struct(">II")
_HEAD: Final = struct.Struct(">IIIIIQQI8s8s8s20sI")
_HEAD_SIZE: Final = 88
assert _HEAD.size == _HEAD_SIZE
_SEED: Final = struct.Struct(">IQQ")
_BLANK: Final = 0xCBD43194
_TOPIC: Final = b"\x0dLMQ_SYS_ENTRY"
_PROPERTIES: Final = (10 + 16 + 1).to_bytes(2, "big") + b"LMQ_CHAIN\x01"
_BEFORE_CHAINS: Final = _TOPIC + _PROPERTIES
_DIGITS: Final = frozenset(b"0123456789ABCDEF")
TRAILER_SIZE_BYTES: Final = len(_BEFORE_CHAINS) + 16 + 1
"""What a head has behind its body: its topic and its one property."""
assert TRAILER_SIZE_BYTES == 43
_TABLE_AT: Final = 8  # behind the header of a payload
_ZERO_HOST: Final = bytes(8)
_ZEROS: Final = bytes(20)
_CRC_MASK: Final = 0x7FFFFFFF
_INDEX_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """A place between two entries, as the entry behind it must continue it; index 0, position None
    and chain None: not known."""

    next_index: int
    next_position: int | None
    chain: int | None


LOG_START: Final = LogPlace(next_index=1, next_position=0, chain=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterFile:
    """A file's entries, of which `is_bare` tells the records without a head; its damages, each with
    its index among both; the place behind it."""

    entries: Entries
    is_bare: npt.NDArray[np.bool_]
    damages: Sequence[tuple[int, Damage]]
    last_index: int  # of the last sound entry; 0: there is none
    end: LogPlace


@dataclass(frozen=True, slots=True)
class _Framed:
    """A record at a place: the entry's end, and for a head its body, index and chains; no chains:
    they can't be read."""

    end: int
    body: int = 0
    index: int = 0  # 0: no head
    chains: tuple[int, int] | None = None


def read_file(data: memoryview, start: int, before: LogPlace) -> MasterFile:
    """Read the entries of one file, whose first byte is at `start` in the log, behind `before`."""
    reader = _Reader(data, start, before)
    reader.read()
    return reader.result()


class _Reader:
    """Reads one file from its first byte on."""

    def __init__(self, data: memoryview, start: int, before: LogPlace) -> None:
        self._data = data
        self._start = start
        self._index, self._chain = before.next_index, before.chain
        self._rows: list[tuple[int, int, int, int, int, int, bool]] = []
        self._damages: list[tuple[int, Damage]] = []
        self._last_index = 0
        self._offset = 0
        self._end: int | None = None  # position where the log goes on; None: not known
        if before.next_position is not None and before.next_position != start:
            self._damaged(
                before.next_position,
                f"the file before ends at {before.next_position}, the next begins at {start}",
            )
            self._index, self._chain = 0, None

    def read(self) -> None:
        data, size = self._data, len(self._data)
        while self._offset < size:
            offset = self._offset
            left = size - offset
            length, magic = _BEGIN.unpack_from(data, offset) if left >= _BEGIN.size else (0, 0)
            if magic == _BLANK and length == left:
                self._end = self._start + size
                return
            if length == 0 and _only_zeros(data, offset):
                break
            framed = _frame(data, offset, self._start + offset)
            if isinstance(framed, str):
                self._damaged(self._start + offset, framed)
                return
            self._take(framed)
            self._offset = framed.end
        self._end = self._start + self._offset

    def _take(self, framed: _Framed) -> None:
        """Note the entry at the present offset, or what is wrong with it, and go on behind it."""
        offset, end = self._offset, framed.end
        position = self._start + offset
        if framed.index:
            defect = self._defect_of_head(framed)
            index, chain = framed.index, framed.chains and framed.chains[1]
        elif not self._index:
            # How many entries were lost before it nothing tells.
            return
        else:
            defect = record_defect(self._data, offset, end, position)
            index, chain = self._index, self._chain_behind(offset, end, position)
        if defect is not None:
            self._damaged(position, defect, index)
        else:
            place = len(self._rows) + len(self._damages)
            stored = NO_CHAIN if chain is None else chain
            self._rows.append(
                (place, index, position, stored, framed.body or offset, end, not framed.index)
            )
            self._last_index = index
        self._index, self._chain = index + 1, chain

    def _chain_behind(self, offset: int, end: int, position: int) -> int | None:
        """Return the chain with the bare record at `offset`; None: that before is not known."""
        if self._chain is None:
            return None
        seed = zlib.crc32(_SEED.pack(self._chain, self._index - 1, position))
        return zlib.crc32(self._data[offset:end], seed)

    def _defect_of_head(self, framed: _Framed) -> str | None:
        """Return why the entry of ours at the present offset is not the one that belongs there."""
        if framed.chains is None:
            return "the head's topic or its chains can't be read"
        before, stated = framed.chains
        data, offset = self._data, self._offset
        (
            size,
            magic,
            crc,
            queue,
            flag,
            at,
            position,
            sys_flag,
            born,
            host,
            stored,
            rest,
            body_size,
        ) = _HEAD.unpack_from(data, offset)
        if magic != MAGIC_V1 or queue or sys_flag or born != stored:
            return "the head has fields that no head has"
        if host != _ZERO_HOST or rest != _ZEROS:
            return "the head has hosts or times that no head has"
        body = data[framed.body : framed.body + body_size]
        if size != _HEAD_SIZE + body_size + TRAILER_SIZE_BYTES or not _is_table(body):
            return f"the head of {size} bytes has a body of {body_size}"
        if zlib.crc32(body) & _CRC_MASK != crc:
            return "the CRC of the head's body is wrong"
        records = data[offset + size : offset + size + flag]
        chain = zlib.crc32(records, zlib.crc32(body, zlib.crc32(_SEED.pack(before, at, position))))
        if chain != stated:
            return f"the chain with the entry is {chain:08X}, its head has {stated:08X}"
        if self._index not in {0, framed.index}:
            return f"the entry has index {framed.index}, {self._index} belongs there"
        if self._chain is not None and before != self._chain:
            return f"the entry continues chain {before:08X}, the one before has {self._chain:08X}"
        return None

    def _damaged(self, position: int, reason: str, index: int = 0) -> None:
        order = len(self._rows) + len(self._damages)
        found = Damage(index=self._index or index, position=position, reason=reason)
        self._damages.append((order, found))

    def result(self) -> MasterFile:
        columns = np.array([row[:6] for row in self._rows], dtype=np.int64)
        order, index, position, chain, start, end = columns.reshape(len(self._rows), 6).T
        is_known = self._end is not None
        return MasterFile(
            entries=Entries(
                order=order,
                index=index,
                term=np.full(len(index), TERM, dtype=np.int64),
                kind=np.full(len(index), KIND_DATA, dtype=np.int64),
                position=position,
                chain=chain,
                start=start,
                end=end,
            ),
            is_bare=np.array([row[6] for row in self._rows], dtype=np.bool_),
            damages=self._damages,
            last_index=self._last_index,
            end=LogPlace(
                next_index=self._index if is_known else 0,
                next_position=self._end,
                chain=self._chain if is_known else None,
            ),
        )


def _frame(data: memoryview, offset: int, position: int) -> _Framed | str:
    """Return where the entry at `offset` ends and what its head says; a string: nothing tells."""
    left = len(data) - offset
    if left < RECORD_SIZE_MIN:
        return f"a record is cut short after {left} bytes"
    size, magic, _, _, flag, index, stated, *_ = _HEAD.unpack_from(data, offset)
    if magic not in {MAGIC_V1, MAGIC_V2}:
        return f"a record begins with magic {magic:08x}, which is none"
    # A file whose end is a hole was cut there: no room for a BLANK need be left in it.
    if not RECORD_SIZE_MIN <= size <= left:
        return f"a record of {size} bytes where the file has {left} left"
    if stated != position:
        return f"the record says that it is that of position {stated}"
    trailer = bytes(data[offset + size - TRAILER_SIZE_BYTES : offset + size])
    has_topic = trailer.startswith(_TOPIC)
    if not has_topic and not trailer.startswith(_PROPERTIES, len(_TOPIC)):
        return _Framed(offset + size)
    if size + flag > left:
        return f"an entry of {size + flag} bytes where the file has {left} left"
    if index >= _INDEX_MAX:
        return f"no log has the index {index + 1}"
    body = offset + _HEAD_SIZE
    return _Framed(offset + size + flag, body, index + 1, _chains(trailer))


def _chains(trailer: bytes) -> tuple[int, int] | None:
    """Return the chain before the entry and its own, as its head's last bytes have them."""
    digits, end = trailer[len(_BEFORE_CHAINS) : -1], trailer[-1:]
    if not trailer.startswith(_BEFORE_CHAINS) or end != b"\x02" or not _DIGITS.issuperset(digits):
        return None
    return int(digits[:8], 16), int(digits[8:], 16)


def _is_table(body: memoryview) -> bool:
    """Return whether a head's body is the header and the table of a payload, and nothing else."""
    return len(body) >= _TABLE_AT and len(body) == _TABLE_AT + int.from_bytes(body[4:8], "big")


def _only_zeros(data: memoryview, offset: int) -> bool:
    """Return whether all bytes from `offset` on are zero: room that was never used."""
    return not np.frombuffer(data[offset:], dtype=np.uint8).any()
