"""One seed of a whole cluster from beginning to end: what runs of every engine share.

Place in the data path: `chaos.sim.groups.cluster` and `chaos.sim.ha.cluster` say what stands in the
cluster, what befalls it and how it is judged; here is the simulated machine room that they stand
in, and how time passes in it.

Invariants: a violation ends the run where it is noticed; whatever ends it, no process of it is left
and its files are gone.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from chaos.sim.groups.machine import Machine, Site
from chaos.sim.groups.programs.settings import memory_directory
from chaos.sim.machine.scheduler import Scheduler
from chaos.sim.machine.tcp import SimTcp
from chaos.sim.machine.trace import Trace
from chaos.sim.machine.virtual_stdlib import substituted
from chaos.sim.seed.coverage import Coverage
from chaos.sim.seed.group_options import GroupOptions
from chaos.sim.seed.ha_options import HaOptions

__all__ = ["SeedRun"]

_POLL_US: Final = 50_000  # between two checks whether a phase is over


class SeedRun(ABC):
    """The run of one seed. `key` seeds what is drawn in it; `counted_as` names it in the counts."""

    counted_as: str

    def __init__(
        self,
        options: GroupOptions | HaOptions,
        *,
        key: str,
        wall_clock_spread_ms: int,
        traced: bool,
    ) -> None:
        self.scheduler = Scheduler()
        self.coverage = Coverage()
        self.counts = self.coverage.counts
        self.trace = Trace(self.scheduler, on=traced)
        self._site = Site(
            key=key,
            scheduler=self.scheduler,
            tcp=SimTcp(
                self.scheduler,
                random.Random(f"network/{key}"),
                self.counts,
                self.trace,
                delay_us_min=options.link_delay_us_min,
                delay_us_max=options.link_delay_us_max,
                held_survive_rate=options.held_survive_rate,
            ),
            coverage=self.coverage,
            trace=self.trace,
            clock_rate_spread=options.clock_rate_spread,
            wall_clock_spread_ms=wall_clock_spread_ms,
            timer_lateness_us_max=options.timer_lateness_us_max,
        )

    def run(self) -> None:
        """Run all phases. Raises Violation."""
        with ExitStack() as undo:
            root = Path(tempfile.mkdtemp(prefix="ledgermq-sim-", dir=memory_directory()))
            undo.callback(shutil.rmtree, root, ignore_errors=True)
            undo.enter_context(substituted(self._substitutes()))
            undo.callback(self._bury)
            self._build(root)
            self._run_phases()
            self.counts[self.counted_as] += 1
            self.counts["virtual_ms"] += self.scheduler.now_us // 1000

    def _substitutes(self) -> Sequence[tuple[object, object]]:
        """Return the product's parts for which this run has others, and those."""
        return ()

    @abstractmethod
    def _build(self, root: Path) -> None:
        """Create all machines; `root` is for the files of their stores that are real."""

    @abstractmethod
    def _run_phases(self) -> None:
        """Run and judge the cluster. Raises Violation."""

    @abstractmethod
    def _machines(self) -> Iterable[Machine]:
        """Return all machines that were made."""

    def _bury(self) -> None:
        """End every process, and silence what their coroutines still raise."""
        for machine in self._machines():
            if machine.process is not None:
                machine.process.kill()
        self.scheduler.run_until(self.scheduler.now_us)
        self._site.bury()

    def _run_until(self, time_us: int, done: Callable[[], bool] | None = None) -> bool:
        """Run to the time, or until `done`, which is polled; a violation ends it at once."""
        failures = self._site.failures
        while self.scheduler.now_us < time_us:
            step_us = min(time_us, self.scheduler.now_us + _POLL_US)
            if self.scheduler.run_until(step_us, stop=failures.__len__):
                raise failures[0]
            if done is not None and done():
                return True
        return False

    @staticmethod
    def _come_back(machine: Machine) -> None:
        if not machine.alive:
            machine.start()
