"""A wall clock that can be put wrong: offset, drift, strobe.

Place in the data path: `broker.failpoints.installation` puts it in the place of `time.time` and
`time.time_ns`, by which this project tells the time of day. Monotonic clocks are left alone, as by
whoever sets a clock.

libfaketime (0.9.10) is of no use here: under it each wait of a thread that shares the interpreter
with another takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.failpoints.orders import ClockSetting

__all__ = ["WallClock"]

_NS_PER_MS = 1_000_000
_PPM = 1_000_000


class WallClock:
    """The machine's clock and what was set on top of it; both clocks return nanoseconds."""

    def __init__(self, right_ns: Callable[[], int], monotonic_ns: Callable[[], int]) -> None:
        self._right_ns = right_ns
        self._monotonic_ns = monotonic_ns
        self._state = ClockSetting(), monotonic_ns()  # one value, read by all threads

    @property
    def setting(self) -> ClockSetting:
        return self._state[0]

    def put(self, setting: ClockSetting) -> None:
        """Put the clock wrong, or right again: ClockSetting() is right."""
        self._state = setting, self._monotonic_ns()

    def off_ns(self) -> int:
        """Return by how many nanoseconds the clock is ahead of the machine's; negative: behind."""
        setting, since_ns = self._state
        elapsed_ns = self._monotonic_ns() - since_ns
        drift_ns = elapsed_ns * setting.drift_ppm // _PPM
        strobe_ns = setting.strobe_ms * _NS_PER_MS
        if strobe_ns and elapsed_ns // strobe_ns % 2:
            return drift_ns
        return setting.offset_ms * _NS_PER_MS + drift_ns

    def time_ns(self) -> int:
        return self._right_ns() + self.off_ns()

    def time(self) -> float:
        return self.time_ns() / 1e9
