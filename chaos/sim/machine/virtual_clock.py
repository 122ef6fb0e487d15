"""A simulated machine's clocks: monotonic and wall, with a rate and offsets of their own.

Place in the data path: every process of a machine reads them (`chaos.sim.machine.virtual_host`),
and its loop asks them when a timer is due on the scheduler's time. Pure: time is the scheduler's,
randomness the caller's.
"""

from __future__ import annotations

import random

from chaos.sim.machine.scheduler import Scheduler

__all__ = ["WALL_START_MS", "VirtualClock"]

WALL_START_MS = 1_700_000_000_000


class VirtualClock:
    """One machine's clocks. `rate` is near 1; `wall_offset_ms` may jump, the monotonic may not."""

    __slots__ = ("_lateness", "_offset_s", "_rate", "_scheduler", "wall_offset_ms")

    def __init__(
        self,
        scheduler: Scheduler,
        rng: random.Random,
        *,
        rate_spread: float,
        wall_spread_ms: int,
        lateness_us_max: int,
        offset_s_max: float = 1_000.0,
        uptime_s: float = 0.0,
    ) -> None:
        self._scheduler = scheduler
        self._rate = 1.0 + rate_spread * (2 * rng.random() - 1)
        self._offset_s = uptime_s + rng.random() * offset_s_max
        self.wall_offset_ms = int(wall_spread_ms * (2 * rng.random() - 1))
        self._lateness = lateness_us_max, random.Random(rng.random())

    def monotonic(self) -> float:
        return self._offset_s + self._scheduler.now_us * self._rate / 1e6

    def lasted_s(self, true_us: int) -> float:
        """Return what this machine's clock shows of so much true time."""
        return true_us * self._rate / 1e6

    def wall_ns(self) -> int:
        now_us = int(self._scheduler.now_us * self._rate)
        return (WALL_START_MS + self.wall_offset_ms) * 1_000_000 + now_us * 1_000

    def global_us(self, when_s: float) -> int:
        """Return the scheduler's time at the local time `when_s`, rounded down."""
        return int((when_s - self._offset_s) * 1e6 / self._rate)

    def due_us(self, when_s: float) -> int:
        """Return when the scheduler must act for a timer at local time `when_s`: not before it."""
        offset_s, rate = self._offset_s, self._rate
        due_us = int((when_s - offset_s) * 1e6 / rate) + 1
        while (
            offset_s + due_us * rate / 1e6 < when_s
        ):  # by rounding of floats; a timer that always rings
            due_us += 1  # early would be armed again and again at the same time
        lateness_us_max, rng = self._lateness
        if lateness_us_max:
            due_us += int(rng.random() ** 3 * lateness_us_max)
        return max(due_us, self._scheduler.now_us)
