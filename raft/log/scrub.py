"""Re-reads closed segments, a piece at a time, and reports what does not match any more.

Place in the data path: the node runs its steps on a thread, throttled, and passes the findings to
`SegmentLog.note_damages`, which verifies them on its own thread: meanwhile the segment may have
been truncated, dropped or repaired.

Invariants: it shares nothing with the log but the disk, and changes nothing. A segment that was
removed meanwhile is skipped when the findings are verified.

Source: "An Analysis of Data Corruption in the Storage Stack" (FAST '08): most latent errors are
found by scrubs, not by readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

from raft.log.damage import Damage
from raft.log.segment_files import segment_path
from raft.log.segment_index import SegmentIndex, SegmentSummary
from raft.log.segment_rebuild import load_sidecar, rebuild_known
from raft.log.segment_scan import check_entries, damages_of
from raft.messages import Index
from raft.storage import Disk

__all__ = ["Scrub", "ScrubStep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubStep:
    """Findings of one step; `done` once there is no segment left."""

    size_bytes: int
    damages: tuple[Damage, ...]
    done: bool


@dataclass(slots=True, kw_only=True)
class _Under:
    """The segment that is being read."""

    summary: SegmentSummary
    index: SegmentIndex
    next_index: Index
    found: list[Damage] = field(default_factory=list)


class Scrub:
    """Scrub of the given segments, oldest first. Not thread-safe, but bound to no thread."""

    def __init__(self, disk: Disk, directory: str, segments: Sequence[SegmentSummary]) -> None:
        self._disk = disk
        self._directory = directory
        self._left = list(reversed(segments))
        self._under: _Under | None = None

    def step(self, size_bytes_max: int = 1 << 20) -> ScrubStep:
        """Read about `size_bytes_max` bytes, an entry at least. Raises OSError."""
        if self._under is None:
            if not self._left:
                return ScrubStep(size_bytes=0, damages=(), done=True)
            self._under = self._begin(self._left.pop())
        under = self._under
        low, index = under.next_index, under.index
        start = index.position(low)
        fitting = index.index_at(min(start + size_bytes_max, index.end_position - 1))
        high = min(max(low, fitting), index.last_index) + 1
        if low == index.before.index + 1:
            found, under.found = under.found, []
        else:
            found = []
        try:
            data = self._read(under.summary, start, index.end(high - 1), first=low)
        except FileNotFoundError:
            data, high = b"", index.last_index + 1
        path = segment_path(self._directory, under.summary.position)
        known = {number for damage in found for number in _numbers(damage)}
        bad = (
            number for number in check_entries(data, start, index, low, high) if number not in known
        )
        found += damages_of(bad, index, path, "the bytes are not what was written")
        under.next_index = high
        if high > index.last_index:
            self._under = None
        done = self._under is None and not self._left
        return ScrubStep(size_bytes=len(data), damages=tuple(found), done=done)

    def _begin(self, summary: SegmentSummary) -> _Under:
        first = summary.before.index + 1
        index = load_sidecar(self._disk, self._directory, summary)
        if index is not None:
            return _Under(summary=summary, index=index, next_index=first)
        rebuilt = rebuild_known(self._disk, self._directory, summary)
        found = [] if rebuilt.damage is None else [rebuilt.damage]
        return _Under(summary=summary, index=rebuilt.index, next_index=first, found=found)

    def _read(self, summary: SegmentSummary, start: int, end: int, *, first: Index) -> bytes:
        path = segment_path(self._directory, summary.position)
        with closing(self._disk.open(path, create=False)) as file:
            if first == summary.before.index + 1:
                file.drop_cache()
            return file.pread(end - start, start - summary.position)


def _numbers(damage: Damage) -> range:
    return range(damage.first_index, damage.last_index + 1)
