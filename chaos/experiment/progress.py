"""Live progress of an experiment: phase, rates, leader and term, faults.

Place in the data path: reads `chaos.recording.history`'s counts, `chaos.systems.watch` and the
nemesis; writes to standard error only. On a terminal it is one block that is redrawn, elsewhere a
line every few seconds.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from chaos.experiment.nemesis_runner import ActiveFault, Nemesis
from chaos.recording.history import HistoryWriter
from chaos.systems.watch import ClusterWatch
from chaos.worlds.world import World

__all__ = ["Progress"]

REFRESH_S: Final = 0.5
LINE_INTERVAL_S: Final = 5.0
FAULT_LINES_MAX: Final = 4


class Progress:
    """The display. `phase` and `detail` are set by the experiment as it goes."""

    def __init__(self, name: str) -> None:
        self.phase = "start"
        self.detail = ""
        self._name = name
        self._console = Console(stderr=True, highlight=False)
        self._sources: tuple[World, HistoryWriter, ClusterWatch, Nemesis] | None = None
        self._last = (0, 0, 0)
        self._rates = (0.0, 0.0, 0.0)

    def attach(
        self, world: World, history: HistoryWriter, watch: ClusterWatch, nemesis: Nemesis
    ) -> None:
        """Show this run's state from now on."""
        self._sources = (world, history, watch, nemesis)

    def print_line(self, text: str) -> None:
        """Print one line that stays."""
        self._console.print(Text(text), soft_wrap=True)

    async def run(self) -> None:
        """Refresh until cancelled."""
        if sys.stderr.isatty():
            with Live(console=self._console, auto_refresh=False, transient=True) as live:
                await self._every(REFRESH_S, lambda: live.update(self._block(), refresh=True))
        else:
            await self._every(LINE_INTERVAL_S, lambda: self.print_line(self._line()))

    async def _every(self, seconds: float, show: Callable[[], None]) -> None:
        while True:
            self._measure(seconds)
            show()
            await asyncio.sleep(seconds)

    def _measure(self, seconds: float) -> None:
        if self._sources is None:
            return
        counts = self._sources[1].counts
        now = (counts.messages_acked, counts.transactions_decided, counts.messages_read)
        fresh = [(b - a) / seconds for a, b in zip(self._last, now, strict=True)]
        self._last = now
        self._rates = (fresh[0], fresh[1], fresh[2])

    def _line(self) -> str:
        if self._sources is None:
            return f"{self._name}: {self.phase} {self.detail}"
        world, history, watch, nemesis = self._sources
        counts = history.counts
        leaders = ", ".join(f"{g}: {watch.describe(g)}" for g in world.layout.groups)
        sends, decides, reads = self._rates
        broken = ", ".join(fault.step.name for fault in nemesis.active) or "none"
        return (
            f"{history.now_ns() / 1e9:6.1f} s {self.phase:<6} {self.detail} | "
            f"acked {counts.messages_acked} (+{sends:.0f}/s), "
            f"decided {counts.transactions_decided} (+{decides:.0f}/s), "
            f"read {counts.messages_read} (+{reads:.0f}/s), "
            f"fail {counts.fail}, info {counts.info} | {leaders} | faults now: {broken}"
        )

    def _block(self) -> Group:
        lines = [Text(f"{self._name}", style="bold"), Text(self._line())]
        if self._sources is not None:
            faults = self._sources[3].faults[-FAULT_LINES_MAX:]
            lines += [Text(_fault_line(fault)) for fault in faults]
        return Group(*lines)


def _fault_line(fault: ActiveFault) -> str:
    state = "healed" if fault.t_healed is not None else "on"
    targets = ", ".join(fault.targets[:2]) + (" ..." if len(fault.targets) > 2 else "")
    return f"  {fault.t_start / 1e9:6.1f} s {fault.step.name} {fault.effect}, {state}: {targets}"
