"""The verifier's own reader of log segments: entry headers and their CRC chain.

Place in the data path: `verify.sources.commitlog` walks a replica's segments with it. Shares no
code with what wrote them, so that a bug can't hide in both.

| offset | size | field |
|---|---|---|
| 0 | 4 | magic `LMQ1` |
| 4 | 4 | size of the entry, header included |
| 8 | 8 | index |
| 16 | 8 | term |
| 24 | 8 | position of this header in the log |
| 32 | 1 | kind: 0 no-op, 1 configuration, 2 data |
| 33 | 3 | zero |
| 36 | 4 | chain of the entry before |
| 40 | 4 | chain: CRC32 over bytes 0..40 and the payload |

Invariants: nothing raises for what the bytes are; what can't be read comes out as `Damage`, in
place, and reading goes on behind it where the next header can be trusted.

Source: docs/FORMATS.md section 3.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = [
    "HEADER",
    "KIND_CONFIG",
    "KIND_DATA",
    "KIND_NOOP",
    "Damage",
    "LogEntry",
    "SegmentEnd",
    "read_segment",
    "segment_end",
]

MAGIC: Final = 0x4C4D5131
HEADER: Final = struct.Struct(">IIQQQB3sII")
assert HEADER.size == 44
_CHAINED_SIZE: Final = 40

KIND_NOOP: Final = 0
KIND_CONFIG: Final = 1
KIND_DATA: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """A whole entry. `position` is that of its header."""

    index: int
    term: int
    kind: int
    position: int
    chain: int
    payload: memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Bytes at `position` that are not the entry that belongs there; `index` is its index."""

    index: int
    position: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEnd:
    """What follows the last entry of a segment; None for the chain: it is not known."""

    next_index: int
    next_position: int
    chain: int | None


def read_segment(data: memoryview, start: int, before: SegmentEnd) -> Iterator[LogEntry | Damage]:
    """The entries of one segment, whose first byte is at `start` in the log.

    `before` tells how the segment before ended: the first entry has to follow it.
    """
    offset, index, chain = 0, before.next_index, before.chain
    if before.next_position != start:
        reason = f"the segment before ends at {before.next_position}, the next begins at {start}"
        yield Damage(index=index, position=before.next_position, reason=reason)
        chain = None
    while not _only_zeros(data, offset):
        defect = _header_defect(data, offset, start)
        if defect is not None:
            yield Damage(index=index, position=start + offset, reason=defect)
            return
        _, size, found, term, _, kind, _, chain_before, own_chain = HEADER.unpack_from(data, offset)
        payload = data[offset + HEADER.size : offset + size]
        defect = _entry_defect(data, offset, size, own_chain)
        if defect is None and index not in {0, found}:
            defect = f"the entry has index {found}, {index} belongs there"
        if defect is None and chain is not None and chain_before != chain:
            defect = f"the entry continues chain {chain_before:08x}, the one before has {chain:08x}"
        if defect is None:
            yield LogEntry(
                index=found,
                term=term,
                kind=kind,
                position=start + offset,
                chain=own_chain,
                payload=payload,
            )
        else:
            yield Damage(index=index or found, position=start + offset, reason=defect)
        offset, index, chain = offset + size, found + 1, own_chain


def segment_end(data: memoryview, start: int, next_start: int) -> SegmentEnd:
    """Where the entries of a segment end, by their headers alone.

    Where a header can't be read, the answer claims nothing: index 0 and no chain, at the place
    where the next segment begins. The damage itself is found by whoever reads that segment.
    """
    offset, index, chain = 0, 0, 0
    while not _only_zeros(data, offset):
        if _header_defect(data, offset, start) is not None:
            return SegmentEnd(next_index=0, next_position=next_start, chain=None)
        _, size, index, _, _, _, _, _, chain = HEADER.unpack_from(data, offset)
        offset += size
    return SegmentEnd(next_index=index + 1, next_position=start + offset, chain=chain)


def _only_zeros(data: memoryview, offset: int) -> bool:
    """True where the segment holds nothing from `offset` on: its room that was never used."""
    rest = data[offset:]
    return not any(rest[:4096]) and not any(rest[4096:])


def _header_defect(data: memoryview, offset: int, start: int) -> str | None:
    if len(data) - offset < HEADER.size:
        return f"a header is cut short after {len(data) - offset} bytes"
    magic, size, index, _, position, kind, zeros, _, _ = HEADER.unpack_from(data, offset)
    if magic != MAGIC:
        return f"an entry begins with {magic:08x}, which is not its magic"
    if position != start + offset:
        return f"the entry says that it stands at {position}"
    if size < HEADER.size or index < 1 or kind > KIND_DATA or zeros != b"\0\0\0":
        return f"the header is garbage: size {size}, index {index}, kind {kind}"
    return None


def _entry_defect(data: memoryview, offset: int, size: int, chain: int) -> str | None:
    if size > len(data) - offset:
        return f"the entry of {size} bytes is cut short after {len(data) - offset}"
    crc = zlib.crc32(data[offset : offset + _CHAINED_SIZE])
    crc = zlib.crc32(data[offset + HEADER.size : offset + size], crc)
    if crc != chain:
        return f"the CRC of header and payload is {crc:08x}, the entry has {chain:08x}"
    return None
