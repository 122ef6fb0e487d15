"""A computer of a simulated group: an address, a clock, and one program at a time on it.

Place in the data path: `cluster` makes one per broker, name server and client; `nemesis` kills,
pauses and cuts it. A program is a coroutine of the product, run on a fresh virtual loop.

Invariants: one process at a time; a process that died never acts again; what a machine keeps over a
crash is what its subclass keeps (a broker's disk), and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import warnings
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from chaos.sim.machine.scheduler import Scheduler
from chaos.sim.machine.tcp import SimTcp
from chaos.sim.machine.trace import Trace
from chaos.sim.machine.violation import CrashNow, Violation
from chaos.sim.machine.virtual_clock import VirtualClock
from chaos.sim.machine.virtual_host import VirtualProcess
from chaos.sim.seed.coverage import Coverage
from raft.messages import NodeId

__all__ = ["Machine", "Site", "calm_site"]

_CLOSINGS_MAX = 10


@dataclass(slots=True, kw_only=True)
class Site:
    """The surroundings that all machines of a seed share."""

    key: str  # of the seed: prefix of the seeds of all generators
    scheduler: Scheduler
    tcp: SimTcp
    coverage: Coverage
    trace: Trace
    clock_rate_spread: float
    wall_clock_spread_ms: int
    timer_lateness_us_max: int
    clock_offset_s_max: float = 1_000.0  # by how much monotonic clocks differ
    uptime_s: float = 0.0  # what all of them show at least, when the run begins
    graveyard: list[asyncio.Task[Any]] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    process_count: int = 0

    def generator(self, what: str) -> random.Random:
        return random.Random(f"{what}/{self.key}")

    def bury(self) -> None:
        """End the coroutines of dead processes; their `finally` clauses have no effect."""
        for task in self.graveyard:
            for _ in range(_CLOSINGS_MAX):
                with contextlib.suppress(Exception, CrashNow), warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # of work that never began
                    task.get_coro().close()
                    break
        self.graveyard.clear()


def calm_site(key: str, *, traced: bool) -> Site:
    """Make a site with exact clocks and a network that is fast and loses nothing."""
    scheduler, coverage = Scheduler(), Coverage()
    trace = Trace(scheduler, on=traced)
    tcp = SimTcp(
        scheduler,
        random.Random(1),
        coverage.counts,
        trace,
        delay_us_min=100,
        delay_us_max=300,
        held_survive_rate=1.0,
    )
    return Site(
        key=key,
        scheduler=scheduler,
        tcp=tcp,
        coverage=coverage,
        trace=trace,
        clock_rate_spread=0.0,
        wall_clock_spread_ms=0,
        timer_lateness_us_max=0,
    )


class Machine:
    """One computer. `program` makes the coroutine that a new process runs."""

    def __init__(
        self, site: Site, name: str, ip: str, program: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self.name = NodeId(name)
        self.ip = ip
        self.site = site
        self.program = program
        self.counts = site.coverage.counts
        self.clock = VirtualClock(
            site.scheduler,
            site.generator(f"clock/{name}"),
            rate_spread=site.clock_rate_spread,
            wall_spread_ms=site.wall_clock_spread_ms,
            lateness_us_max=site.timer_lateness_us_max,
            offset_s_max=site.clock_offset_s_max,
            uptime_s=site.uptime_s,
        )
        self.process: VirtualProcess | None = None
        self.main: asyncio.Task[None] | None = None
        self.incarnation = 0
        self.paused = False
        site.tcp.add_machine(name, ip)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    def start(self) -> None:
        """Boot, if need be, and run the program."""
        assert not self.alive, f"{self.name} runs already"
        site = self.site
        self.incarnation += 1
        site.process_count += 1
        self.paused = False
        site.tcp.power_restored(self.name)
        self.process = process = VirtualProcess(
            name=f"{self.name}.{self.incarnation}",
            host=self.name,
            number=site.process_count,
            clock=self.clock,
            scheduler=site.scheduler,
            tcp=site.tcp,
            rng=site.generator(f"process/{self.name}/{self.incarnation}"),
            graveyard=site.graveyard,
            failures=site.failures,
        )
        self.equip(process)
        if site.trace.on:
            site.trace.add(self.name, f"starts, incarnation {self.incarnation}")
        process.run(lambda: self._begin(process))

    def equip(self, process: VirtualProcess) -> None:
        """Give the process what only this kind of machine has."""

    def _begin(self, process: VirtualProcess) -> None:
        self.main = process.loop.create_task(self.program())
        self.main.add_done_callback(self._on_main_done)

    def _on_main_done(self, task: asyncio.Task[None]) -> None:
        if task is not self.main or not self.alive:
            return
        error = None if task.cancelled() else task.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        self.die(power=False)
        self.on_exit(error)

    def on_exit(self, error: BaseException | None) -> None:
        """Handle the end of the program, by itself or on request."""
        if isinstance(error, Violation):
            self.site.failures.append(error)
        elif error is not None:
            failure = Violation("stopped", f"{self.name}: {type(error).__name__}: {error}")
            failure.__cause__ = error
            self.site.failures.append(failure)

    def die(self, *, power: bool) -> None:
        """Kill the process; with `power` the machine loses power too."""
        process = self.process
        assert process is not None
        if not process.alive:
            return
        if self.site.trace.on:
            self.site.trace.add(self.name, f"dies, power failure: {power}")
        process.kill()
        if power:
            self.site.tcp.power_lost(process)
        else:
            self.site.tcp.process_died(process)

    def stop_cleanly(self) -> None:
        """Stop the process as by SIGTERM."""
        main, process = self.main, self.process
        if main is not None and process is not None and process.alive:
            process.loop.call_soon(main.cancel)

    def pause(self) -> None:
        assert self.process is not None
        self.paused = True
        self.process.loop.paused = True
        self.counts["pauses"] += 1

    def resume(self) -> None:
        assert self.process is not None
        self.paused = False
        self.process.loop.resume()
