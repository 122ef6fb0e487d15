"""What a broker does again and again, on one timer of its loop.

Place in the data path: `broker.process.server` adds what has to be looked at (held pulls, delays,
timers, the index, the disk) and runs `run` beside what serves clients.

Invariants: an act never comes before its interval has passed since it came last, and at most
TICK_MS and what the loop is late after that; those that are due together come one after the other,
in the order in which they were added. What one raises ends `run`. One wakeup serves all: a task
and a timer for each cost an idle broker more than what they looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from raft.stalls import Stalls, section

__all__ = ["TICK_MS", "Rounds"]

TICK_MS: Final = 25


@dataclass(slots=True)
class _Act:
    interval_ms: int
    name: str
    act: Callable[[], None]
    due_ms: int


class Rounds:
    """`stalls` measures each act under its name, where anybody measures."""

    def __init__(self, monotonic_ms: Callable[[], int], stalls: Stalls | None) -> None:
        self._monotonic_ms = monotonic_ms
        self._stalls = stalls
        self._acts: list[_Act] = []

    def add(self, interval_ms: int, name: str, act: Callable[[], None]) -> None:
        """Begins one interval from now; `name` stands in the log of stalls."""
        self._acts.append(_Act(interval_ms, name, act, self._monotonic_ms() + interval_ms))

    async def run(self) -> None:
        """Until cancelled, or until an act raises."""
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            self.turn()

    def turn(self) -> None:
        """Do what is due now."""
        now_ms = self._monotonic_ms()
        for row in self._acts:
            if row.due_ms > now_ms:
                continue
            row.due_ms = now_ms + row.interval_ms
            if self._stalls is None:
                row.act()
            else:
                with section(self._stalls, row.name):
                    row.act()
