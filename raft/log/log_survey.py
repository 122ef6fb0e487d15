"""A log as it lies on the disk, read without changing anything.

Place in the data path: `ledgermq store check` and `store dump` read the log of a stopped node with
it; a node itself opens a `SegmentLog`.

Invariants: nothing is written, cut or repaired; its memory does not grow with the log; a damaged
entry is reported in its place, and the walk goes on behind it.

Source: none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from raft.log.damage import Damage
from raft.log.durable_mark import DurableMark
from raft.log.log_base import BaseFile
from raft.log.log_format import HEADER, HEADER_SIZE
from raft.log.log_recovery import RecoveredLog, read_base, recover
from raft.log.scrub import Scrub
from raft.log.segment_files import segment_path
from raft.log.segment_index import SegmentIndex, SegmentSummary
from raft.log.segment_rebuild import load_sidecar, rebuild_known
from raft.log.segment_scan import check_entries
from raft.messages import Entry, EntryKind, Index
from raft.storage import Disk, DiskFile

__all__ = ["LogSurvey", "StoredEntry"]

_STEP_SIZE = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEntry:
    """A whole entry; `position` is that of its header."""

    entry: Entry
    position: int
    chain: int

    @property
    def size(self) -> int:
        return HEADER_SIZE + len(self.entry.payload)


class LogSurvey:
    """Reader of the log in `directory`. Raises OSError and CorruptLogError as an opening would."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        mark = DurableMark(disk, f"{directory}.durable").peek()
        found = BaseFile(disk, f"{directory}.base").peek()
        stored = read_base(disk, directory, found, mark)
        self.is_resetting = stored.resetting
        self.recovered: RecoveredLog = recover(disk, directory, stored.base, mark)

    @property
    def first_index(self) -> Index:
        return self.recovered.base.index + 1

    @property
    def last_index(self) -> Index:
        return self.recovered.last.last_index

    def verify(self) -> Iterator[Damage]:
        """Read every closed segment; yield all damage, also known damage, in order."""
        damages = self.recovered.damages
        scrub = Scrub(self._disk, self._directory, self.recovered.closed)
        done = False
        while not done:
            step = scrub.step(_STEP_SIZE)
            for damage in step.damages:
                damages.add(damage)
            done = step.done
        yield from damages

    def walk(self, low: Index, high: Index) -> Iterator[StoredEntry | Index]:
        """Yield the entries of [low, high); the index alone where the entry is damaged."""
        low, high = max(low, self.first_index), min(high, self.last_index + 1)
        starts = [summary.before.index for summary in self.recovered.closed]
        while low < high:
            place = bisect_right(starts, low - 1) - 1
            if low > self.recovered.last.before.index:
                index = self.recovered.last
            else:
                index = self._index(self.recovered.closed[place])
            stop = min(high, index.last_index + 1)
            yield from self._walk_segment(index, low, stop)
            low = stop

    # --- inside --------------------------------------------------------------------------------

    def _index(self, summary: SegmentSummary) -> SegmentIndex:
        known = self.recovered.indexes.get(summary.position)
        known = known or load_sidecar(self._disk, self._directory, summary)
        return known or rebuild_known(self._disk, self._directory, summary).index

    def _walk_segment(
        self, index: SegmentIndex, low: Index, high: Index
    ) -> Iterator[StoredEntry | Index]:
        path = segment_path(self._directory, index.before.position)
        try:
            file = self._disk.open(path, create=False)
        except FileNotFoundError:
            yield from range(low, high)
            return
        with closing(file):
            while low < high:
                limit = min(index.position(low) + _STEP_SIZE, index.end_position - 1)
                stop = min(high, max(low, index.index_at(limit)) + 1)
                yield from self._read(file, index, low, stop)
                low = stop

    def _read(
        self, file: DiskFile, index: SegmentIndex, low: Index, high: Index
    ) -> Iterator[StoredEntry | Index]:
        start = index.position(low)
        data = file.pread(index.end(high - 1) - start, start - index.before.position)
        bad = set(check_entries(data, start, index, low, high))
        for number in range(low, high):
            damage = self.recovered.damages.at(number)
            if number in bad or (damage is not None and not damage.entries_known):
                yield number
                continue
            offset, end = index.position(number) - start, index.end(number) - start
            _, _, _, term, _, kind, _, chain = HEADER.unpack_from(data, offset)
            payload = data[offset + HEADER_SIZE : end]
            entry = Entry(index=number, term=term, kind=EntryKind(kind), payload=payload)
            yield StoredEntry(entry=entry, position=start + offset, chain=chain)
