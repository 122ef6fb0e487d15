"""Reads of the log's files that return only checked bytes.

Place in the data path: `raft.log.segment_log` reads here what is no longer among its newest
entries: entries for followers and for applying, and stored bytes by position for pulls.

Invariants:
- nothing leaves this module that did not match the chain in the index when it was read; a mismatch
  is recorded as damage and raised;
- a read by position is answered from a region that was checked whole when it was fetched from the
  disk and is cached as it was then: the cost is per region, and later damage on the disk is found
  by the next fetch. A region holds the entries that begin in one stretch of REGION_SIZE bytes;
  memory for regions is bounded.

Source: none.
"""

from __future__ import annotations

from collections import OrderedDict

from raft.log.damage import Damage, DamagedLogError
from raft.log.log_format import HEADER, HEADER_SIZE
from raft.log.segment_files import SegmentFiles
from raft.log.segment_index import SegmentIndex
from raft.log.segment_scan import check_entries, damages_of
from raft.log.segment_table import SegmentTable
from raft.messages import Entry, EntryKind, Index

__all__ = ["REGION_SIZE", "VerifiedReads"]

REGION_SIZE = 256 << 10
_REGIONS_SIZE_MAX = 16 << 20
_ENTRIES_READ_SIZE_MAX = 4 << 20
_MISMATCH = "the bytes are not what was written"


class VerifiedReads:
    """Reader of one log. `table` and `files` are the log's own; damage goes to `table.damages`."""

    def __init__(self, table: SegmentTable, files: SegmentFiles) -> None:
        self._table = table
        self._files = files
        # By segment and number in it: first position and bytes; least recently used first.
        self._regions: OrderedDict[tuple[int, int], tuple[int, bytes]] = OrderedDict()
        self._regions_size = 0

    def entries(
        self, low: Index, high: Index, size_max: int, *, confirmed: bool = True
    ) -> list[Entry]:
        """Return entries of [low, high) up to the first one that is damaged, at least one.

        No more than fit in `size_max` stored bytes. `confirmed` False: also those before a damage
        that may be stale. Raises OSError and DamagedLogError.
        """
        entries: list[Entry] = []
        while low < high and (not entries or size_max > 0):
            try:
                self._refuse_entry(low, confirmed=confirmed)
                next_low, size = self._read_entries(low, high, size_max, entries)
            except DamagedLogError:
                if entries:
                    return entries
                raise
            if next_low == low:
                break
            low = next_low
            size_max -= size
        return entries

    def verify(self, low: Index, high: Index) -> list[Damage]:
        """Compare entries of closed segments once more; return the damage in [low, high).

        What can still be read of a file that has lost its name counts as lost: the next start could
        not read it.
        """
        damages, first = self._table.damages, low
        while low < high:
            segment = self._table.segment_of(low)
            self._files.close_lost(segment.before.position)
            start = segment.position(low)
            stop = min(high, segment.last_index + 1)
            stop = min(stop, max(low + 1, segment.index_at(start + _ENTRIES_READ_SIZE_MAX)))
            data = self._fetch(segment, start, segment.end(stop - 1))
            self._note(segment, data, start, low, stop)
            low = stop
        return [
            damage for damage in damages if damage.first_index < high and first <= damage.last_index
        ]

    def read(self, position: int, size: int) -> tuple[int, bytes]:
        """Return a stretch of checked bytes that holds [position, position + size), and its
        position.

        Raises OSError and DamagedLogError.
        """
        table = self._table
        self._refuse_damaged(position, position + size)
        segment = table.segment_at(position)
        region_position, data = self._region(segment, position)
        end = position + size
        if end <= region_position + len(data):
            return region_position, data
        pieces = [data]
        reached = region_position + len(data)
        while reached < end:
            # The cached region may have ended earlier than it does now: then this one begins
            # before.
            start, data = self._region(segment, reached)
            pieces.append(data[reached - start :])
            reached = start + len(data)
        return region_position, b"".join(pieces)

    def forget_from(self, position: int) -> None:
        """Drop cached regions at or behind `position`, where the log changes."""
        for key, (start, data) in list(self._regions.items()):
            if start + len(data) > position:
                del self._regions[key]
                self._regions_size -= len(data)

    # --- inside --------------------------------------------------------------------------------

    def _read_entries(
        self, low: Index, high: Index, size_max: int, entries: list[Entry]
    ) -> tuple[Index, int]:
        """Add entries of one segment, one piece; return the index of the next one, and the size."""
        damages = self._table.damages
        segment = self._table.segment_of(low)
        high = min(high, segment.last_index + 1)
        if damages:
            damage = damages.next(low)
            if damage is not None:
                high = min(high, damage.first_index)
        start = segment.position(low)
        limit = start + min(size_max, _ENTRIES_READ_SIZE_MAX)
        if segment.end(high - 1) > limit:
            fitting = segment.index_at(limit)
            if fitting <= low and entries:
                return low, 0
            high = max(low + 1, fitting)
        data = self._fetch(segment, start, segment.end(high - 1))
        bad = next(check_entries(data, start, segment, low, high), None)
        if bad is not None:
            self._note(segment, data, start, low, high)
            high = bad
        for index in range(low, high):
            offset = segment.position(index) - start
            end = segment.end(index) - start
            _, _, _, term, _, kind, _, _ = HEADER.unpack_from(data, offset)
            payload = data[offset + HEADER_SIZE : end]
            entries.append(Entry(index=index, term=term, kind=EntryKind(kind), payload=payload))
        if high == low:
            damage = damages.at(low)
            assert damage is not None, "it was noted just now"
            raise DamagedLogError(damage)
        return high, segment.end(high - 1) - start

    def _region(self, segment: SegmentIndex, position: int) -> tuple[int, bytes]:
        """Return the checked region that holds the byte at `position`."""
        first_position = segment.before.position
        entry = segment.index_at(position)
        number = (segment.position(entry) - first_position) // REGION_SIZE
        key = (first_position, number)
        known = self._regions.get(key)
        if known is not None and known[0] <= position < known[0] + len(known[1]):
            self._regions.move_to_end(key)
            return known
        low = segment.index_at(first_position + number * REGION_SIZE)
        if segment.position(low) < first_position + number * REGION_SIZE:
            low += 1  # it begins in the region before
        high = min(
            segment.index_at(first_position + (number + 1) * REGION_SIZE - 1),
            segment.last_index,
        )
        return self._fetch_region(segment, key, low, high + 1, position)

    def _fetch_region(
        self,
        segment: SegmentIndex,
        key: tuple[int, int],
        low: Index,
        high: Index,
        position: int,
    ) -> tuple[int, bytes]:
        start = segment.position(low)
        data = self._fetch(segment, start, segment.end(high - 1))
        if next(check_entries(data, start, segment, low, high), None) is not None:
            self._note(segment, data, start, low, high)
        damages = self._table.damages
        if damages and damages.overlapping(start, segment.end(high - 1)) is not None:
            # Parts of it are damaged: return only the requested entry, and don't cache it.
            entry = segment.index_at(position)
            self._refuse_damaged(segment.position(entry), segment.end(entry))
            low_end = segment.position(entry) - start
            return segment.position(entry), data[low_end : segment.end(entry) - start]
        old = self._regions.pop(key, None)
        if old is not None:
            self._regions_size -= len(old[1])
        self._regions[key] = (start, data)
        self._regions_size += len(data)
        while self._regions_size > _REGIONS_SIZE_MAX and len(self._regions) > 1:
            _, (_, dropped) = self._regions.popitem(last=False)
            self._regions_size -= len(dropped)
        return start, data

    def _fetch(self, segment: SegmentIndex, start: int, end: int) -> bytes:
        """Read from the disk, fewer bytes where the file ends too early; a lost file has none."""
        first_position = segment.before.position
        try:
            file = self._files.closed(first_position)
        except FileNotFoundError:
            self._note(
                segment, b"", first_position, segment.before.index + 1, segment.last_index + 1
            )
            return b""
        return file.pread(end - start, start - first_position)

    def _note(
        self, segment: SegmentIndex, data: bytes, start: int, low: Index, high: Index
    ) -> None:
        """Record entries of [low, high) that don't match as damaged."""
        damages = self._table.damages
        bad = [
            index
            for index in check_entries(data, start, segment, low, high)
            if damages.at(index) is None
        ]
        path = self._files.path(segment.before.position)
        reason = _MISMATCH if data else "the file is missing"
        for damage in damages_of(iter(bad), segment, path, reason):
            damages.add(damage)
        if bad:
            self._table.retain(segment)

    def _refuse_entry(self, index: Index, *, confirmed: bool) -> None:
        damages = self._table.damages
        damage = damages.next(index) if damages else None
        if damage is None:
            return
        if index >= (damage.suspect_index if confirmed else damage.first_index):
            raise DamagedLogError(damage)

    def _refuse_damaged(self, position: int, end_position: int) -> None:
        damages = self._table.damages
        if damages:
            damage = damages.overlapping(position, end_position)
            if damage is not None:
                raise DamagedLogError(damage)
