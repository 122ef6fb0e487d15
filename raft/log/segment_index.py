"""Where the entries of one segment stand, in memory and in the file beside a closed segment.

Place in the data path: `raft.log.segment_table` finds an entry's place and chain with it. The
sidecar `<segment>.index` is written when the segment is closed. It is derived: where it is
missing the segment is scanned and it is written anew; but with it damage is known entry by entry.

Invariants:
- a summary (the sidecar's head, with a CRC of its own) is enough to open a log: a start reads a
  few hundred bytes per closed segment;
- what the sidecar says counts only where it fits its neighbours: it begins where the segment
  before ends, with that segment's last index and chain, and ends where the next one begins.

Source: none; a derived file in the manner of any segmented log.

| offset | size | field |
|---|---|---|
| 0 | 4 | magic `LMQI` |
| 4 | 4 | size H of the head, its CRC included |
| 8 | 8 | position of the segment's first byte |
| 16 | 8 | one past its last byte |
| 24 | 8 | index of the entry before the first, 0 for none |
| 32 | 8 | term of that entry |
| 40 | 8 | index of the last entry |
| 48 | 4 | chain of the entry before the first |
| 52 | 4 | chain of the last entry |
| 56 | 4 | number R of term runs |
| 60 | 4 | number C of configurations |
| 64 | 16 R | first index and term of each run; the first one begins with the first entry |
| 64+16 R | 8 C | index of each configuration |
| H-4 | 4 | CRC32 of the head before |
| H | 4 N | offset of each of the N entries in the segment |
| H+4 N | 4 N | chain of each entry |
| H+8 N | 4 | CRC32 of the two arrays |
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from dataclasses import dataclass

from isal.isal_zlib import crc32

from raft.messages import Index, LogBase, Term
from raft.storage import DiskFile

__all__ = [
    "SegmentIndex",
    "SegmentSummary",
    "encode_sidecar",
    "read_index",
    "read_summary",
]

_MAGIC = b"LMQI"
_HEAD = struct.Struct(">4sIQQQQQIIII")
_RUN = struct.Struct(">QQ")
_CONFIG = struct.Struct(">Q")
_CRC = struct.Struct(">I")
_FIRST_READ_SIZE = 4096
_HEAD_SIZE_MAX = 16 << 20
_UINT = "I"

assert _HEAD.size == 64
assert array(_UINT).itemsize == 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSummary:
    """Summary of a closed segment. `before` is the place right before it, position included."""

    before: LogBase
    last_index: Index
    end_position: int
    chain_after: int
    term_runs: tuple[tuple[Index, Term], ...]
    config_indexes: tuple[Index, ...]

    @property
    def position(self) -> int:
        return self.before.position

    @property
    def last_term(self) -> Term:
        return self.term_runs[-1][1] if self.term_runs else self.before.term

    @property
    def end(self) -> LogBase:
        return LogBase(
            index=self.last_index,
            term=self.last_term,
            position=self.end_position,
            chain=self.chain_after,
        )


class SegmentIndex:
    """Offsets and chains of one segment's entries; grows and shrinks at its end.

    The offset of a damaged entry may be unknown: it has that of the damage, and no bytes.
    """

    __slots__ = ("before", "chains", "end_position", "offsets")

    def __init__(self, before: LogBase) -> None:
        self.before = before
        self.end_position = before.position
        self.offsets: array[int] = array(_UINT)
        self.chains: array[int] = array(_UINT)

    @property
    def last_index(self) -> Index:
        return self.before.index + len(self.offsets)

    @property
    def last_chain(self) -> int:
        """Chain of the last entry, or of the one before the segment."""
        return self.chains[-1] if self.chains else self.before.chain

    def append(self, size: int, chain: int) -> None:
        self.offsets.append(self.end_position - self.before.position)
        self.chains.append(chain)
        self.end_position += size

    def position(self, index: Index) -> int:
        return self.before.position + self.offsets[index - self.before.index - 1]

    def end(self, index: Index) -> int:
        """Return one past the entry's last byte."""
        place = index - self.before.index
        if place < len(self.offsets):
            return self.before.position + self.offsets[place]
        return self.end_position

    def chain(self, index: Index) -> int:
        """Return the chain of an entry of the segment, or of the entry before its first."""
        place = index - self.before.index - 1
        return self.chains[place] if place >= 0 else self.before.chain

    def index_at(self, position: int) -> Index:
        """Return the entry that has the byte at `position`, which is in this segment."""
        return self.before.index + bisect_right(self.offsets, position - self.before.position)

    def truncate_from(self, index: Index) -> None:
        place = index - self.before.index - 1
        self.end_position = self.end(index - 1) if place else self.before.position
        del self.offsets[place:]
        del self.chains[place:]


def encode_sidecar(summary: SegmentSummary, index: SegmentIndex) -> bytes:
    before = summary.before
    runs, configs = summary.term_runs, summary.config_indexes
    size = _HEAD.size + len(runs) * _RUN.size + len(configs) * _CONFIG.size + _CRC.size
    head = _HEAD.pack(
        _MAGIC,
        size,
        before.position,
        summary.end_position,
        before.index,
        before.term,
        summary.last_index,
        before.chain,
        summary.chain_after,
        len(runs),
        len(configs),
    )
    head += b"".join(_RUN.pack(*run) for run in runs)
    head += b"".join(_CONFIG.pack(config) for config in configs)
    body = _to_bytes(index.offsets) + _to_bytes(index.chains)
    return head + _CRC.pack(crc32(head)) + body + _CRC.pack(crc32(body))


def read_summary(file: DiskFile) -> SegmentSummary | None:
    """Read the sidecar's head; None if it is not readable."""
    data = file.pread(_FIRST_READ_SIZE, 0)
    if len(data) < _HEAD.size + _CRC.size or data[:4] != _MAGIC:
        return None
    _, size, position, end, index, term, last, chain, chain_after, runs, configs = (
        _HEAD.unpack_from(data)
    )
    if size != _HEAD.size + runs * _RUN.size + configs * _CONFIG.size + _CRC.size:
        return None
    if size > _HEAD_SIZE_MAX or last < index or end < position:
        return None
    if len(data) < size:
        data = file.pread(size, 0)
    if len(data) < size or _CRC.unpack_from(data, size - 4)[0] != crc32(data[: size - 4]):
        return None
    configs_at = _HEAD.size + runs * _RUN.size
    return SegmentSummary(
        before=LogBase(index=index, term=term, position=position, chain=chain),
        last_index=last,
        end_position=end,
        chain_after=chain_after,
        term_runs=tuple(_RUN.iter_unpack(data[_HEAD.size : configs_at])),
        config_indexes=tuple(
            config for (config,) in _CONFIG.iter_unpack(data[configs_at : size - 4])
        ),
    )


def read_index(file: DiskFile, summary: SegmentSummary) -> SegmentIndex | None:
    """Read the arrays of the sidecar whose head is `summary`; None if they are not readable."""
    count = summary.last_index - summary.before.index
    head_size = (
        _HEAD.size
        + len(summary.term_runs) * _RUN.size
        + len(summary.config_indexes) * _CONFIG.size
        + _CRC.size
    )
    if file.size() != head_size + 8 * count + _CRC.size:
        return None
    body = file.pread(8 * count + _CRC.size, head_size)
    if len(body) != 8 * count + _CRC.size:
        return None
    if _CRC.unpack_from(body, 8 * count)[0] != crc32(body[: 8 * count]):
        return None
    index = SegmentIndex(summary.before)
    index.offsets = _from_bytes(body[: 4 * count])
    index.chains = _from_bytes(body[4 * count : 8 * count])
    index.end_position = summary.end_position
    if count and (index.offsets[0] != 0 or index.chains[-1] != summary.chain_after):
        return None
    return index


def _to_bytes(values: array[int]) -> bytes:
    if sys.byteorder == "little":
        values = values[:]
        values.byteswap()
    return values.tobytes()


def _from_bytes(data: bytes) -> array[int]:
    values = array(_UINT)
    values.frombytes(data)
    if sys.byteorder == "little":
        values.byteswap()
    return values
