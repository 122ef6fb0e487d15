"""Scans the bytes of a segment: finds its entries, and compares entries with their index.

Place in the data path: `raft.log.log_recovery` walks a segment that has no sidecar (the last one,
or one whose sidecar is lost); reads and the scrub compare bytes with the known index.

Invariants:
- a fragment is a run of entries each of which is whole and continues the one before (index,
  position, chain). Behind a defect the walk searches for the next entry that names its own place;
  which of two contradicting fragments is right is the caller's decision, who knows what must stand
  at the ends;
- a comparison with a known chain needs no check of the header's fields: the chain covers them all.

Source: as `raft.log.log_recovery`.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from isal.isal_zlib import crc32

from raft.log.damage import Damage
from raft.log.log_format import (
    CHAINED_SIZE,
    HEADER_SIZE,
    MAGIC,
    EntryCutShortError,
    EntryDefectError,
    EntryHeader,
    parse_entry,
)
from raft.log.segment_index import SegmentIndex
from raft.messages import EntryKind, Index, LogBase, Term
from raft.storage import DiskFile

__all__ = [
    "Fragment",
    "check_entries",
    "damages_of",
    "read_first_entry",
    "read_tail",
    "scan_segment",
]

_CHUNK_SIZE = 4 << 20
_CHAIN = struct.Struct(">I")


@dataclass(slots=True, kw_only=True)
class Fragment:
    """A run of consecutive valid entries; `defect` is what was wrong right behind the last one."""

    first_index: Index
    position: int
    chain_before: int
    end_position: int
    positions: array[int] = field(default_factory=lambda: array("Q"))
    chains: array[int] = field(default_factory=lambda: array("I"))
    term_runs: list[tuple[Index, Term]] = field(default_factory=list)
    config_indexes: list[Index] = field(default_factory=list)
    defect: str | None = None

    @property
    def last_index(self) -> Index:
        return self.first_index + len(self.positions) - 1

    @property
    def last_chain(self) -> int:
        return self.chains[-1] if self.chains else self.chain_before

    @property
    def end(self) -> LogBase:
        term = self.term_runs[-1][1] if self.term_runs else 0
        return LogBase(
            index=self.last_index, term=term, position=self.end_position, chain=self.last_chain
        )

    def take(self, buffer: bytes, offset: int) -> int:
        """Add the entry at `offset`; return its size. Raises EntryDefectError if it does not
        fit."""
        header = parse_entry(
            buffer,
            offset,
            index=self.first_index + len(self.positions),
            position=self.end_position,
            chain_before=self.chains[-1] if self.chains else self.chain_before,
        )
        self._add(header)
        return header.size

    def _add(self, header: EntryHeader) -> None:
        term_before = self.term_runs[-1][1] if self.term_runs else 0
        if header.term < term_before:
            raise EntryDefectError(f"term {header.term} after term {term_before}")
        if header.term != term_before:
            self.term_runs.append((header.index, header.term))
        if header.kind is EntryKind.CONFIG:
            self.config_indexes.append(header.index)
        self.positions.append(self.end_position)
        self.chains.append(header.chain)
        self.end_position += header.size

    def boundary(self, position: int) -> tuple[Index, int] | None:
        """Return index and chain of the entry that ends at `position`; None where none does."""
        if position == self.end_position:
            return self.last_index, self.last_chain
        if not self.position <= position < self.end_position:
            return None
        low, high = 0, len(self.positions)
        while low < high:
            middle = (low + high) // 2
            if self.positions[middle] < position:
                low = middle + 1
            else:
                high = middle
        # Behind the beginning of the last entry: a damaged record may claim any end.
        if low == len(self.positions) or self.positions[low] != position:
            return None
        chain = self.chains[low - 1] if low else self.chain_before
        return self.first_index + low - 1, chain

    def cut(self, position: int) -> None:
        """Drop the entries behind `position`, the end of one of them."""
        while self.positions and self.positions[-1] >= position:
            self.end_position = self.positions.pop()
            self.chains.pop()
        last = self.last_index
        while self.term_runs and self.term_runs[-1][0] > last:
            self.term_runs.pop()
        while self.config_indexes and self.config_indexes[-1] > last:
            self.config_indexes.pop()


def scan_segment(
    file: DiskFile, first_position: int, *, index: Index, chain_before: int
) -> list[Fragment]:
    """Return every fragment of the segment, in order.

    The first one begins at the segment's start, where the entry `index` has to continue
    `chain_before`; it is empty where that entry is missing. A fragment whose `defect` is None ends
    at the end of the file, or before nothing but zeros.
    """
    fragments = [_walk_file(file, first_position, index, chain_before)]
    if fragments[0].defect is None:
        return fragments
    start = fragments[0].end_position
    tail = read_tail(file, start - first_position)
    if not tail.rstrip(b"\0"):
        fragments[0].defect = None
        return fragments
    offset = 0
    while (place := _find_entry(tail, start, offset)) is not None:
        fragment = _walk_buffer(tail, start, place)
        fragments.append(fragment)
        offset = fragment.end_position - start
    return fragments


def read_first_entry(file: DiskFile, position: int) -> EntryHeader | None:
    """Return the header of the segment's first entry, if it is whole and names its place."""
    size = _CHUNK_SIZE >> 6
    while True:
        data = file.pread(size, 0)
        try:
            return parse_entry(data, 0, index=None, position=position, chain_before=None)
        except EntryCutShortError as short:
            if short.size is None or short.size <= size:
                return None
            size = short.size
        except EntryDefectError:
            return None


def check_entries(
    data: bytes | memoryview,
    data_position: int,
    index: SegmentIndex,
    low: Index,
    high: Index,
) -> Iterator[Index]:
    """Yield the entries of [low, high) whose bytes in `data` do not match the index."""
    view = memoryview(data)
    start = index.position(low) - data_position
    for number in range(low, high):
        end = index.end(number) - data_position
        chain = index.chain(number)
        if (
            end > len(view)
            or end - start < HEADER_SIZE
            or crc32(view[start + HEADER_SIZE : end], crc32(view[start : start + CHAINED_SIZE]))
            != chain
            or _CHAIN.unpack_from(view, start + CHAINED_SIZE)[0] != chain
        ):
            yield number
        start = end


def damages_of(bad: Iterator[Index], index: SegmentIndex, path: str, reason: str) -> list[Damage]:
    """Return one damage per run of bad entries."""
    runs: list[list[Index]] = []
    for number in bad:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [
        Damage(
            first_index=first,
            last_index=last,
            position=index.position(first),
            end_position=index.end(last),
            chain_before=index.chain(first - 1),
            chain_after=index.chain(last),
            path=path,
            reason=reason,
        )
        for first, last in runs
    ]


def read_tail(file: DiskFile, offset: int) -> bytes:
    """Return all bytes from `offset` on; the segment's size bounds them."""
    chunks = []
    while chunk := file.pread(_CHUNK_SIZE, offset):
        chunks.append(chunk)
        offset += len(chunk)
    return b"".join(chunks)


def _walk_file(file: DiskFile, first_position: int, index: Index, chain_before: int) -> Fragment:
    """Return the fragment at the segment's start, read a piece at a time."""
    fragment = Fragment(
        first_index=index,
        position=first_position,
        chain_before=chain_before,
        end_position=first_position,
    )
    buffer = b""
    offset = 0  # of the next entry in the buffer
    read_offset = 0  # of the next byte to read in the file
    while True:
        try:
            offset += fragment.take(buffer, offset)
        except EntryCutShortError as defect:
            # The entry may be whole but only partly in the buffer: read on before judging.
            chunk = file.pread(max(_CHUNK_SIZE, len(buffer) - offset), read_offset)
            if not chunk:
                fragment.defect = None if offset == len(buffer) else str(defect)
                return fragment
            read_offset += len(chunk)
            buffer = buffer[offset:] + chunk
            offset = 0
        except EntryDefectError as defect:
            fragment.defect = str(defect)
            return fragment


def _walk_buffer(data: bytes, data_position: int, offset: int) -> Fragment:
    """Return the fragment that begins at `offset`, where a valid entry stands."""
    position = data_position + offset
    first = parse_entry(data, offset, index=None, position=position, chain_before=None)
    fragment = Fragment(
        first_index=first.index,
        position=position,
        chain_before=first.chain_before,
        end_position=position,
    )
    while True:
        try:
            offset += fragment.take(data, offset)
        except EntryDefectError as defect:
            if any(data[offset:]):
                fragment.defect = str(defect)
            return fragment


def _find_entry(data: bytes, data_position: int, offset: int) -> int | None:
    """Return the place of the next valid entry at or behind `offset`."""
    place = data.find(MAGIC, offset)
    while 0 <= place <= len(data) - HEADER_SIZE:
        try:
            parse_entry(data, place, index=None, position=data_position + place, chain_before=None)
        except EntryDefectError:
            place = data.find(MAGIC, place + 1)
            continue
        return place
    return None
