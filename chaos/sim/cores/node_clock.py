"""The clock of a simulated node, which is fast or slow, and its one timer, which is late.

Place in the data path: `SimNode` reads it for its core, and arms it for the next deadline.

Invariants: a clock never falls, and its rate never changes; at most one timer is armed, and a timer
that was disarmed by the death of its node does not ring.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from chaos.sim.machine.scheduler import Scheduler

__all__ = ["NodeClock"]

_OFFSET_MS_MAX = 1_000_000


class NodeClock:
    """A clock with a constant rate and one timer.

    `ring` is called at the deadline, or up to `lateness_us_max` later. The rate is 1, give or take
    `rate_spread`.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        rng: random.Random,
        ring: Callable[[], None],
        *,
        rate_spread: float,
        lateness_us_max: int,
    ) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self._ring = ring
        self._rate = 1.0 + rate_spread * (2 * rng.random() - 1)
        self._offset_ms = int(rng.random() * _OFFSET_MS_MAX)
        self._lateness_us_max = lateness_us_max
        self._wake_us = -1
        self._number = 0

    def now_ms(self) -> int:
        return self._offset_ms + int(self._scheduler.now_us * self._rate / 1000)

    def arm(self, deadline_ms: int) -> None:
        """Arm the timer for `deadline_ms`, unless it already rings as early."""
        due_us = int((deadline_ms - self._offset_ms) * 1000 / self._rate) + 1
        due_us = max(due_us, self._scheduler.now_us + 1)
        if 0 <= self._wake_us <= due_us:
            return
        lateness_us = int(self._rng.random() * self._lateness_us_max)
        self._wake_us = due_us
        self._number += 1
        self._scheduler.at(due_us + lateness_us, partial(self._on_time, self._number))

    def disarm(self) -> None:
        self._wake_us = -1
        self._number += 1

    def _on_time(self, number: int) -> None:
        if self._number == number:  # no later timer has replaced it
            self._wake_us = -1
            self._ring()
