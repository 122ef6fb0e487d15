"""Scheduler of a broker's periodic work, on one timer of its loop.

Place in the data path: `broker.process.server` adds the work (held pulls, delays, timers, the
index, the disk) and runs `run` beside the server of requests.

Invariants: an act never runs before its interval has passed since it last ran, and at most TICK_MS
plus the loop's delay after that; an act that says that it is idle waits for the next wakeup, or for
IDLE_MS where its interval is shorter. Acts that run together run one after the other, in the order
in which they were added. An exception of one ends `run`. One wakeup serves all, and there is none
at which nothing is due: a task and a timer for each cost an idle broker more than the work itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from raft.stalls import Stalls, section

__all__ = ["IDLE_MS", "TICK_MS", "Rounds"]

TICK_MS: Final = 25
IDLE_MS: Final = 100


@dataclass(slots=True)
class _Act:
    interval_ms: int
    name: str
    act: Callable[[], None]
    idle: Callable[[], bool]
    ready_ms: int  # when its interval has passed
    due_ms: int  # the same, or later where it is idle


class Rounds:
    """Calls functions at intervals; `stalls`, if given, measures each call under its name."""

    def __init__(self, monotonic_ms: Callable[[], int], stalls: Stalls | None) -> None:
        self._monotonic_ms = monotonic_ms
        self._stalls = stalls
        self._acts: list[_Act] = []

    def add(
        self,
        interval_ms: int,
        name: str,
        act: Callable[[], None],
        *,
        idle: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run `act` every `interval_ms`, first one interval from now; `name` is for `stalls`.
        `idle`, called behind each run, returns whether the next may wait for IDLE_MS."""
        ready_ms = self._monotonic_ms() + interval_ms
        self._acts.append(_Act(interval_ms, name, act, idle, ready_ms, ready_ms))

    async def run(self) -> None:
        """Run acts until cancelled, or until one raises."""
        while True:
            await asyncio.sleep(self.wait_ms() / 1000)
            self.turn()

    def wait_ms(self) -> int:
        """Return in how many milliseconds the next turn is due, at least TICK_MS."""
        due_ms = min((row.due_ms for row in self._acts), default=0)
        return max(TICK_MS, due_ms - self._monotonic_ms())

    def turn(self) -> None:
        """Run the acts that are due now, and with them the idle ones, so that these need no wakeup
        of their own."""
        now_ms = self._monotonic_ms()
        for row in self._acts:
            if row.ready_ms > now_ms:
                continue
            if self._stalls is None:
                row.act()
            else:
                with section(self._stalls, row.name):
                    row.act()
            row.ready_ms = row.due_ms = now_ms + row.interval_ms
            if row.idle():
                row.due_ms = max(row.due_ms, now_ms + IDLE_MS)
