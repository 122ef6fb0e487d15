"""Time marks: positions of the log below which everything was stored before a given time.

Place in the data path: `broker.state.state` notes committed entries, `broker.config.retention` uses
the marks to find the part of the log that is older than its retention time. Replicated, pure and
deterministic: positions and store timestamps come from the log.

A mark says "everything below this position was stored at this time or earlier"; there is one per
minute in which something was stored. When there are too many, those go that stand closest to their
neighbours for their age: an old answer becomes coarser, to about a five-hundredth of the age asked
for, and never names a position whose records are younger than that.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

__all__ = ["TimeMarks"]

_INTERVAL_MS = 60_000
_MARKS_MAX = 8_192  # more than five days without a thinning
_THINNED_MARKS = _MARKS_MAX // 16


class TimeMarks:
    def __init__(self) -> None:
        self._positions: array[int] = array("Q")
        self._times_ms: array[int] = array("Q")

    def __len__(self) -> int:
        return len(self._positions)

    def note(self, position: int, stored_ms: int, *, before_ms: int) -> None:
        """Note an entry at `position` with records stored at `stored_ms`; the newest records before
        it were stored at `before_ms`, 0 if there are none."""
        noted_ms = self._times_ms[-1] if self._times_ms else 0
        if not before_ms or stored_ms - noted_ms < _INTERVAL_MS:
            return
        self._positions.append(position)
        self._times_ms.append(before_ms)
        if len(self._positions) > _MARKS_MAX:
            self._thin()

    def _thin(self) -> None:
        """Remove marks whose neighbours are near, measured by their age; no two neighbours, so that
        the measured distances stay nearly right."""
        times_ms = self._times_ms
        now_ms = times_ms[-1]
        by_need = sorted(
            range(1, len(times_ms) - 1, 2),
            key=lambda at: ((times_ms[at + 1] - times_ms[at - 1]) << 20) // (now_ms - times_ms[at]),
        )
        for at in sorted(by_need[:_THINNED_MARKS], reverse=True):
            del self._positions[at]
            del self._times_ms[at]

    def position_before(self, time_ms: int) -> int:
        """Return a position below which all was stored before `time_ms`; 0 if none is known."""
        at = bisect_right(self._times_ms, time_ms - 1)
        return self._positions[at - 1] if at else 0

    def time_at(self, position: int) -> int | None:
        """Return about when what stands at `position` was stored, late by no more than a minute
        where marks were not thinned; None: since the last mark."""
        at = bisect_right(self._positions, position)
        return self._times_ms[at] if at < len(self._times_ms) else None

    def capture(self) -> tuple[array[int], array[int]]:
        """Return positions and times, both ascending."""
        return self._positions[:], self._times_ms[:]

    def restore(self, positions: array[int], times_ms: array[int]) -> None:
        """Replace the marks by captured ones. Raises ValueError if they are invalid."""
        if len(positions) != len(times_ms) or len(positions) > _MARKS_MAX:
            raise ValueError(f"time marks: {len(positions)} positions, {len(times_ms)} times")
        self._positions, self._times_ms = positions[:], times_ms[:]
