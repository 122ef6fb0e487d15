"""Entry headers of a log segment and their CRC chain, in bulk.

Place in the data path: `verify.export.replica` maps a replica's segments one by one and reads them
here; `verify.export.payloads` reads the payloads of the entries.

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

A sound segment, the usual case, is walked by its sizes and checked as arrays. On any difference the
whole segment is read again entry by entry, which finds the defect.

Invariants: nothing raises whatever the bytes are; what can't be read is returned as `Damage`, in
place, and reading continues after it if the next header can be trusted.

Source: docs/FORMATS.md section 3.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from verify.export.messages.entries import KIND_DATA, Damage, Entries

__all__ = [
    "HEADER_SIZE_BYTES",
    "LOG_START",
    "SegmentEnd",
    "SegmentRead",
    "read_segment",
]

_MAGIC: Final = 0x4C4D5131
_HEADER: Final = struct.Struct(">IIQQQB3sII")
HEADER_SIZE_BYTES: Final = 44
assert _HEADER.size == HEADER_SIZE_BYTES
_HEADERS: Final = np.dtype(
    [
        ("magic", ">u4"),
        ("size", ">u4"),
        ("index", ">u8"),
        ("term", ">u8"),
        ("position", ">u8"),
        ("kind", "u1"),
        ("zeros", "u1", 3),
        ("before", ">u4"),
        ("chain", ">u4"),
    ]
)
assert _HEADERS.itemsize == HEADER_SIZE_BYTES
_BEGIN: Final = struct.Struct(">II")
_CHAINED_SIZE: Final = 40
_INT64_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEnd:
    """The expected continuation after a segment's last entry; index 0 and None mean unknown."""

    next_index: int
    next_position: int | None
    chain: int | None


LOG_START: Final = SegmentEnd(next_index=1, next_position=0, chain=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRead:
    """A segment's entries; its damages, each with its index among both; the end of the segment."""

    entries: Entries
    damages: Sequence[tuple[int, Damage]]
    last_index: int  # of the last entry or damage; 0: the segment has neither
    end: SegmentEnd


def read_segment(data: memoryview, start: int, before: SegmentEnd) -> SegmentRead:
    """Read the entries of one segment, whose first byte is at `start` in the log.

    `before` is the end of the previous segment, which the first entry has to continue.
    """
    sound = _sound_segment(data, start, before)
    return sound if sound is not None else _damaged_segment(data, start, before)


def _sound_segment(data: memoryview, start: int, before: SegmentEnd) -> SegmentRead | None:
    """Read a segment in bulk; None if anything in it is not as it should be."""
    offsets, end = _offsets(data)
    if not offsets or not _only_zeros(data, end) or before.next_position not in {None, start}:
        return None
    headers = _headers_at(data, offsets)
    at = np.array(offsets, dtype=np.int64)
    size = headers["size"].astype(np.int64)
    index, term = headers["index"], headers["term"]
    chain, chain_before = headers["chain"], headers["before"]
    sound = (
        end <= len(data)
        and before.next_index in {0, int(index[0])}
        and before.chain in {None, int(chain_before[0])}
        and bool((headers["position"] == (at + start).astype(np.uint64)).all())
        and int(index[0]) >= 1
        and int(index[-1]) <= _INT64_MAX
        and bool((index[1:] == index[:-1] + np.uint64(1)).all())
        and int(term.max()) <= _INT64_MAX
        and int(headers["kind"].max()) <= KIND_DATA
        and not headers["zeros"].any()
        and bool((chain_before[1:] == chain[:-1]).all())
        and _crcs(data, offsets, size.tolist()) == chain.tolist()
    )
    if not sound:
        return None
    return SegmentRead(
        entries=Entries(
            order=np.arange(len(offsets), dtype=np.int64),
            index=index.astype(np.int64),
            term=term.astype(np.int64),
            kind=headers["kind"].astype(np.int64),
            position=at + start,
            chain=chain.astype(np.int64),
            start=at + HEADER_SIZE_BYTES,
            end=at + size,
        ),
        damages=(),
        last_index=int(index[-1]),
        end=SegmentEnd(
            next_index=int(index[-1]) + 1, next_position=start + end, chain=int(chain[-1])
        ),
    )


def _offsets(data: memoryview) -> tuple[list[int], int]:
    """Return the start of each entry, following each size to the next, and the end of the last."""
    offsets: list[int] = []
    offset, last, unpack = 0, len(data) - HEADER_SIZE_BYTES, _BEGIN.unpack_from
    while offset <= last:
        magic, size = unpack(data, offset)
        if magic != _MAGIC or size < HEADER_SIZE_BYTES:
            break
        offsets.append(offset)
        offset += size
    return offsets, offset


def _headers_at(data: memoryview, offsets: list[int]) -> npt.NDArray[np.void]:
    content = np.frombuffer(data, dtype=np.uint8)
    at = np.array(offsets, dtype=np.int64)[:, None] + np.arange(HEADER_SIZE_BYTES)
    headers: npt.NDArray[Any] = content[at].view(_HEADERS)
    return headers[:, 0]


def _crcs(data: memoryview, offsets: list[int], sizes: list[int]) -> list[int]:
    crc32 = zlib.crc32
    return [
        crc32(data[offset + 44 : offset + size], crc32(data[offset : offset + 40]))
        for offset, size in zip(offsets, sizes, strict=True)
    ]


def _damaged_segment(data: memoryview, start: int, before: SegmentEnd) -> SegmentRead:
    """Read a segment entry by entry, with each defect as a damage in its place."""
    rows: list[tuple[int, ...]] = []
    damages: list[tuple[int, Damage]] = []
    offset, index, chain, last_index = 0, before.next_index, before.chain, 0

    def damaged(at: int, position: int, reason: str) -> None:
        nonlocal last_index
        last_index = min(at, _INT64_MAX)
        found = Damage(index=last_index, position=position, reason=reason)
        damages.append((len(rows) + len(damages), found))

    if before.next_position is not None and before.next_position != start:
        reason = f"the segment before ends at {before.next_position}, the next begins at {start}"
        damaged(index, before.next_position, reason)
        # The entry before is unknown: the first one can't be checked against its chain.
        chain = None
    while not _only_zeros(data, offset):
        defect = _header_defect(data, offset, start)
        if defect is not None:
            damaged(index, start + offset, defect)
            break
        _, size, found, term, _, kind, _, chain_before, own = _HEADER.unpack_from(data, offset)
        defect = _entry_defect(data, offset, size, own)
        if defect is None and index not in {0, found}:
            defect = f"the entry has index {found}, {index} belongs there"
        if defect is None and chain is not None and chain_before != chain:
            defect = f"the entry continues chain {chain_before:08x}, the one before has {chain:08x}"
        if defect is None and max(found, term) > _INT64_MAX:
            defect = f"no log has the index {found} or the term {term}"
        if defect is None:
            place = (len(rows) + len(damages), found, term, kind, start + offset, own)
            rows.append((*place, offset + HEADER_SIZE_BYTES, offset + size))
            last_index = found
        else:
            damaged(index or found, start + offset, defect)
        # The header is plausible, so its size leads to the next entry even if this one is damaged.
        offset, index, chain = offset + size, found + 1, own
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), 8).T
    return SegmentRead(
        entries=Entries(**dict(zip(Entries.__dataclass_fields__, columns, strict=True))),
        damages=damages,
        last_index=last_index,
        end=_segment_end(data, start),
    )


def _segment_end(data: memoryview, start: int) -> SegmentEnd:
    """Return the end of a segment's entries, by headers alone; unknown if one can't be read."""
    offset, index, chain = 0, 0, 0
    while not _only_zeros(data, offset):
        if _header_defect(data, offset, start) is not None:
            return SegmentEnd(next_index=0, next_position=None, chain=None)
        _, size, index, _, _, _, _, _, chain = _HEADER.unpack_from(data, offset)
        offset += size
    return SegmentEnd(next_index=index + 1, next_position=start + offset, chain=chain)


def _only_zeros(data: memoryview, offset: int) -> bool:
    """Return whether all bytes from `offset` on are zero: preallocated space, never used."""
    if any(data[offset : offset + HEADER_SIZE_BYTES]):
        return False
    rest = data[offset : len(data)]
    return not rest or not np.frombuffer(rest, dtype=np.uint8).any()


def _header_defect(data: memoryview, offset: int, start: int) -> str | None:
    if len(data) - offset < HEADER_SIZE_BYTES:
        return f"a header is cut short after {len(data) - offset} bytes"
    magic, size, index, _, position, kind, zeros, _, _ = _HEADER.unpack_from(data, offset)
    if magic != _MAGIC:
        return f"an entry begins with {magic:08x}, which is not its magic"
    if position != start + offset:
        return f"the entry says that it stands at {position}"
    if size < HEADER_SIZE_BYTES or index < 1 or kind > KIND_DATA or zeros != b"\0\0\0":
        return f"the header is garbage: size {size}, index {index}, kind {kind}"
    return None


def _entry_defect(data: memoryview, offset: int, size: int, chain: int) -> str | None:
    if size > len(data) - offset:
        return f"the entry of {size} bytes is cut short after {len(data) - offset}"
    crc = zlib.crc32(data[offset : offset + _CHAINED_SIZE])
    crc = zlib.crc32(data[offset + HEADER_SIZE_BYTES : offset + size], crc)
    if crc != chain:
        return f"the CRC of header and payload is {crc:08x}, the entry has {chain:08x}"
    return None
