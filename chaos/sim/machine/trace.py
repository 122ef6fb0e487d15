"""The course of a seed in lines, for a person who replays it, and to compare two runs.

Place in the data path: all parts of the simulator write here; off in a campaign, where only the
counters of `coverage` are kept. Callers check `on` before they build a line.
"""

from __future__ import annotations

import hashlib

from chaos.sim.machine.scheduler import Scheduler

__all__ = ["Trace"]


class Trace:
    __slots__ = ("_scheduler", "lines", "on")

    def __init__(self, scheduler: Scheduler, *, on: bool) -> None:
        self._scheduler = scheduler
        self.on = on
        self.lines: list[str] = []

    def add(self, who: str, what: str) -> None:
        """Add a line; `who` is a node, or the part of the simulator that acts."""
        if self.on:
            self.lines.append(f"{self._scheduler.now_us / 1000:12.3f}ms {who:8} {what}")

    def digest(self) -> str:
        """Return the SHA-256 of all lines."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()
