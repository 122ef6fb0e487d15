"""Time marks: up to which position of the log everything was stored before a given time.

Place in the data path: `broker.state` notes committed entries, `broker.retention` asks which part
of the log is older than its retention time. Replicated, pure and deterministic: positions and store
timestamps come from the log.

A mark says "what stands below this position was stored at this time or earlier"; there is one per
minute in which something was stored. When there are too many, the older half loses every second
one: an old answer becomes coarser, and never names a position whose records are younger than asked.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

__all__ = ["TimeMarks"]

_INTERVAL_MS = 60_000
_MARKS_MAX = 8_192  # more than five days without a thinning


class TimeMarks:
    def __init__(self) -> None:
        self._positions: array[int] = array("Q")
        self._times_ms: array[int] = array("Q")

    def __len__(self) -> int:
        return len(self._positions)

    def note(self, position: int, stored_ms: int) -> None:
        """An entry at `position` holds records stored at `stored_ms`, as all behind it or later."""
        if self._times_ms and stored_ms - self._times_ms[-1] < _INTERVAL_MS:
            return
        self._positions.append(position)
        self._times_ms.append(stored_ms)
        if len(self._positions) > _MARKS_MAX:
            half = _MARKS_MAX // 2
            del self._positions[1:half:2]
            del self._times_ms[1:half:2]

    def position_before(self, time_ms: int) -> int:
        """A position below which everything was stored before `time_ms`; 0 where none is known."""
        at = bisect_right(self._times_ms, time_ms - 1)
        return self._positions[at - 1] if at else 0

    def capture(self) -> tuple[array[int], array[int]]:
        """Positions and times, both rising."""
        return self._positions[:], self._times_ms[:]

    def restore(self, positions: array[int], times_ms: array[int]) -> None:
        """Raises ValueError where these are no marks."""
        if len(positions) != len(times_ms) or len(positions) > _MARKS_MAX:
            raise ValueError(f"time marks: {len(positions)} positions, {len(times_ms)} times")
        self._positions, self._times_ms = positions[:], times_ms[:]
