"""Virtual time: a heap of actions, run one after another.

Place in the data path: everything in the simulator that happens later is an action here. Time
jumps from one action to the next, so a second costs what happens in it.

Invariants: time never goes back; two actions of the same microsecond run in the order in which
they were scheduled, so that a seed has exactly one course.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

__all__ = ["Scheduler"]


class Scheduler:
    """Times are microseconds since the beginning of the simulation."""

    __slots__ = ("_heap", "_sequence", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self._sequence = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []

    def at(self, time_us: int, action: Callable[[], None]) -> None:
        """Run `action` at `time_us`; a time that has passed means now, after what is due."""
        self._sequence += 1
        heapq.heappush(self._heap, (max(time_us, self.now_us), self._sequence, action))

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        self.at(self.now_us + delay_us, action)

    def run_until(self, time_us: int, stop: Callable[[], bool] | None = None) -> bool:
        """Run everything due up to `time_us`, and set the clock there.

        `stop` is asked after each action; True ends the run early, and is returned.
        """
        heap = self._heap
        while heap and heap[0][0] <= time_us:
            due_us, _, action = heapq.heappop(heap)
            self.now_us = due_us
            action()
            if stop is not None and stop():
                return True
        self.now_us = max(self.now_us, time_us)
        return False
