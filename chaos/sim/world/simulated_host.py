"""The host of an experiment on virtual time: one scheduler, one network, one laboratory machine.

Place in the data path: `chaos.experiment.experiment` runs its phases on the laboratory's machine,
beside the machines of brokers and name servers. Clients of the workload run there too; each dials
from the place of its slot, so that its links can be cut (`chaos.sim.world.simulated_links`).

Invariants: the whole run is one thread and one course of the seed; all monotonic clocks agree, so
that a run has one clock; nothing of the run is left when `run` returns.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from chaos.cluster.layout import ClusterLayout
from chaos.sim.groups.machine import Machine, Site, calm_site
from chaos.sim.machine.virtual_stdlib import substituted
from chaos.sim.world.simulated_links import SimulatedLinks
from chaos.sim.world.simulated_system import SimulatedSystem
from chaos.systems.base import SystemFailedError
from chaos.worlds.host import WorldOptions
from chaos.worlds.world import World

__all__ = ["SimulatedHost", "at_simulated_addresses"]

_LABORATORY: Final = ("laboratory", "10.0.0.1")
_STEP_US: Final = 1_000_000
_UPTIME_S: Final = 100_000  # a broker that takes 0 for "long ago" is wrong on no fresh machine
# What of the laboratory runs on a simulated machine; the simulator itself does not.
_ROOMS: Final = (
    "chaos.cluster",
    "chaos.experiment",
    "chaos.links",
    "chaos.nemesis",
    "chaos.recording",
    "chaos.systems",
    "chaos.workload",
    "chaos.worlds",
)


def at_simulated_addresses(layout: ClusterLayout) -> ClusterLayout:
    """Return the layout with an address of its own for every process."""
    return dataclasses.replace(
        layout,
        name_servers=tuple(
            dataclasses.replace(server, address=f"10.0.2.{number}:9876")
            for number, server in enumerate(layout.name_servers, start=1)
        ),
        brokers=tuple(
            dataclasses.replace(
                place,
                address=f"10.0.1.{number}:10911",
                raft_address=f"10.0.1.{number}:10915",
            )
            for number, place in enumerate(layout.brokers, start=1)
        ),
    )


class SimulatedHost:
    """A host of one experiment. `key` is the seed of everything random in it."""

    has_real_time = False

    def __init__(self, key: str) -> None:
        self._key = key
        self._site = calm_site(key, traced=False)
        self._site.clock_offset_s_max = 0.0
        self._site.uptime_s = _UPTIME_S
        self._systems: list[SimulatedSystem] = []

    def now_ns(self) -> int:
        return _UPTIME_S * 1_000_000_000 + self._site.scheduler.now_us * 1_000

    def run(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run on the laboratory's machine until `main` has ended; raise what it raised.

        Raises SystemFailedError where a simulated process failed in a way that none may.
        """
        site = self._site
        scheduler = site.scheduler
        with substituted(rooms=_ROOMS, small_files=False):
            laboratory = _Laboratory(site, *_LABORATORY, main)
            try:
                laboratory.start()
                while not laboratory.has_ended:
                    scheduler.run_until(
                        scheduler.now_us + _STEP_US, stop=lambda: laboratory.has_ended
                    )
            finally:
                self._bury(laboratory)
        if laboratory.error is not None:
            raise laboratory.error
        if site.failures:
            raise SystemFailedError(f"a simulated process failed: {site.failures[0]}")

    @contextlib.contextmanager
    def stop_signals(self) -> Iterator[None]:
        """Do nothing: a stop signal ends the thread, and with it all that is simulated."""
        yield

    def make_world(self, options: WorldOptions) -> World:
        system = SimulatedSystem(options.run, options.layout, self._site)
        self._systems.append(system)
        links = SimulatedLinks(
            options.layout,
            options.client_slots,
            self._site.tcp,
            process_state=system.processes.state,
            layout_now=lambda: system.layout,
        )
        return World("sim", system, links, options.client_slots)

    def _bury(self, laboratory: Machine) -> None:
        machines = [machine for system in self._systems for machine in system.machines]
        for machine in (laboratory, *machines):
            if machine.process is not None:
                machine.process.kill()
        self._site.scheduler.run_until(self._site.scheduler.now_us)
        self._site.bury()


class _Laboratory(Machine):
    """The machine that the experiment runs on."""

    def __init__(
        self,
        site: Site,
        name: str,
        ip: str,
        program: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        super().__init__(site, name, ip, program)
        self.has_ended = False
        self.error: BaseException | None = None

    def on_exit(self, error: BaseException | None) -> None:
        self.has_ended = True
        self.error = error
