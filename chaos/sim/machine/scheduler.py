"""Virtual time: a heap of actions, run one after another.

Place in the data path: everything in the simulator that happens later is an action here. Time jumps
from one action to the next, so a second costs what happens in it.

Invariants: time never goes back; two actions of the same microsecond run in the order in which they
were scheduled, so that a seed has exactly one course. Time does not stand still: a storm of actions
at one microsecond is a finding.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

from chaos.sim.machine.violation import Violation

__all__ = ["Scheduler"]

_ACTIONS_AT_ONCE_MAX: Final = 200_000


class Scheduler:
    """The heap of actions. Times are microseconds since the start of the simulation."""

    __slots__ = ("_at_once", "_heap", "_sequence", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self._sequence = 0
        self._at_once = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []

    def at(self, time_us: int, action: Callable[[], None]) -> None:
        """Run `action` at `time_us`; a time that has passed means now, after what is due."""
        self._sequence = sequence = self._sequence + 1
        now_us = self.now_us
        heapq.heappush(self._heap, (time_us if time_us > now_us else now_us, sequence, action))

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        self.at(self.now_us + delay_us, action)

    def run_until(self, time_us: int, stop: Callable[[], object] | None = None) -> bool:
        """Run everything due up to `time_us`, and set the clock there.

        `stop` is called after each action; what is true ends the run early, and True is returned.

        Raises:
            Violation: time stands still.
        """
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= time_us:
            due_us, _, action = pop(heap)
            if due_us > self.now_us:
                self.now_us = due_us
                self._at_once = 0
            self._at_once += 1
            if self._at_once > _ACTIONS_AT_ONCE_MAX:
                raise Violation("storm", f"time stands still at {due_us} us")
            action()
            if stop is not None and stop():
                return True
        self.now_us = max(self.now_us, time_us)
        return False
