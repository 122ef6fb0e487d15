"""The system of this project on simulated machines: real brokers and name servers, virtual time.

Place in the data path: the system of the world `sim`. Brokers write their log to a simulated disk,
which is copied into the run directory when the system stops, the trace and what is derived from the
log (ConsumeQueues, indexes) right there; so the run is exported and judged as any other.

Invariants: a machine runs one process at a time; a killed process never acts again; what was not
fsynced stays, as in a page cache, until `lose_unsynced`.
"""

from __future__ import annotations

import asyncio
import errno
import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from broker.config.config import BrokerConfig, parse_config
from broker.failpoints.orders import ClockSetting
from chaos.cluster.access import access_of
from chaos.cluster.broker_status import BrokerStatus, query
from chaos.cluster.cluster import write_directory
from chaos.cluster.layout import BrokerPlace, ClusterLayout, NameServerPlace
from chaos.sim.groups.broker_machine import BrokerMachine
from chaos.sim.groups.machine import Machine, Site
from chaos.sim.groups.programs.settings import NameServerProgram
from chaos.sim.machine.disk import SimDisk, Survival, fail_power
from chaos.sim.machine.virtual_host import VirtualProcess
from chaos.sim.world.settable_clock import SettableClock
from chaos.sim.world.simulated_disks import DiskPoints, SimulatedFailpoints, WorldDisk
from chaos.sim.world.simulated_replacements import SimulatedReplacements
from chaos.systems.base import Part, Replacements, SystemFailedError
from chaos.systems.ledgermq_parts import SharedLayout, on_this_host
from chaos.systems.ledgermq_replacements import ReplacedMasters
from raft.messages import NodeId, Term
from raft.replicated_log import CommittedEntry
from raft.store.trace import RaftTrace
from remoting.connections.rpc import RemotingClient

__all__ = ["SimulatedFiles", "SimulatedSystem"]

_SYNC_US: Final = (200, 3_000)
_POLL_S: Final = 0.01
_READY_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 60.0
_STATUS_TIMEOUT_MS: Final = 500


class SimulatedSystem:
    """One simulated cluster, whose run directory is real."""

    name: Final = "ledgermq"
    dedupes: Final = True
    all_parts: Final = frozenset(
        {
            Part.PROCESSES,
            Part.STORES,
            Part.POWER,
            Part.CLOCKS,
            Part.DISKS,
            Part.REPAIRS,
            Part.REPLACEMENTS,
        }
    )
    members: Final = None
    settings: Final = None
    releases: Final = None

    def __init__(self, run: Path, layout: ClusterLayout, site: Site) -> None:
        self.run: Final = run
        self.version: Final = importlib.metadata.version("ledgermq")
        self.parts: Final = self.all_parts - ({Part.REPAIRS} if layout.has_masters else set())
        self._shared = SharedLayout(run, layout, traces=True, inside=on_this_host)
        self._site = site
        self._brokers: dict[str, _Broker] = {}
        self._name_servers: dict[str, Machine] = {}
        self.processes: Final = _Processes(self)
        self.stores: Final = _Stores(self._brokers, site)
        self.clocks: Final = _Clocks(self._brokers)
        self.failpoints: Final = SimulatedFailpoints(self._brokers)
        self.replacements: Final[Replacements] = (
            ReplacedMasters(self._shared, self.processes)
            if layout.has_masters
            else SimulatedReplacements(lambda: self.layout, self._brokers.__getitem__)
        )
        self._statuses: RemotingClient | None = None

    @property
    def layout(self) -> ClusterLayout:
        """The layout with the masters that groups have now."""
        return self._shared.now

    @property
    def machines(self) -> list[Machine]:
        return [*self._name_servers.values(), *self._brokers.values()]

    def machine(self, node: str) -> Machine:
        """Return the machine. Raises SystemFailedError where there is none of that name."""
        machine = self._brokers.get(node) or self._name_servers.get(node)
        if machine is None:
            raise SystemFailedError(f"there is no process {node}")
        return machine

    async def start(self, dial: Mapping[str, Mapping[str, str]]) -> None:
        write_directory(self.run, self.layout, dial)
        self._shared.dial = dial
        self._statuses = access_of(self.layout).client()
        for server in self.layout.name_servers:
            self._name_servers[server.name] = _name_server(self._site, server, self.run)
        for place in self.layout.brokers:
            config = self._config(place.name)
            self._brokers[place.name] = _Broker(self._site, place, config, self.run)
        for machine in self.machines:
            machine.start()
        await self._await_ready()

    def restart(self, node: str) -> None:
        """Start a machine, a broker's with what its configuration says by now."""
        machine = self.machine(node)
        if isinstance(machine, BrokerMachine):
            machine.config = self._config(node)
        machine.start()

    def _config(self, node: str) -> BrokerConfig:
        return parse_config((self.run / "config" / f"{node}.toml").read_text(encoding="utf-8"))

    async def stop(self) -> None:
        brokers = list(self._brokers.values())
        for machine in brokers:
            machine.stop_cleanly()
        deadline = asyncio.get_running_loop().time() + _STOP_TIMEOUT_S
        while left := [machine.name for machine in brokers if machine.alive]:
            if asyncio.get_running_loop().time() >= deadline:
                raise SystemFailedError(f"{', '.join(left)} did not stop at SIGTERM")
            await asyncio.sleep(_POLL_S)
        await self.abort()
        for place in self.layout.brokers:
            store = self.layout.store_directory(self.run, place)
            _copy_disk(self._brokers[place.name].disk, store)

    async def abort(self) -> None:
        if self._statuses is not None:
            await self._statuses.close()
        for machine in self.machines:
            if machine.alive:
                machine.die(power=False)

    async def status(self, node: str) -> BrokerStatus | None:
        assert self._statuses is not None, "the system was not started"
        address = self.layout.broker(node).address
        return await query(self._statuses, address, timeout_ms=_STATUS_TIMEOUT_MS)

    async def _await_ready(self) -> None:
        deadline = asyncio.get_running_loop().time() + _READY_TIMEOUT_S
        while True:
            names = [place.name for place in self.layout.brokers]
            answers = await asyncio.gather(*(self.status(name) for name in names))
            led = {answer.group for answer in answers if answer is not None and answer.ready}
            if None not in answers and led == set(self.layout.groups):
                return
            if asyncio.get_running_loop().time() >= deadline:
                raise SystemFailedError(f"not ready after {_READY_TIMEOUT_S:g} s of virtual time")
            await asyncio.sleep(_POLL_S)


class _Processes:
    def __init__(self, system: SimulatedSystem) -> None:
        self._system = system

    async def kill(self, node: str) -> None:
        machine = self._alive(node)
        if isinstance(machine, BrokerMachine):
            machine.crash(power=False, survival=Survival.ALL)
        else:
            machine.die(power=False)

    async def terminate(self, node: str, *, timeout_s: float) -> bool:
        machine = self._alive(node)
        machine.stop_cleanly()
        deadline = asyncio.get_running_loop().time() + timeout_s
        while machine.alive:
            if asyncio.get_running_loop().time() >= deadline:
                await self.kill(node)
                return False
            await asyncio.sleep(_POLL_S)
        return True

    async def restart(self, node: str) -> None:
        machine = self._system.machine(node)
        if machine.alive:
            raise SystemFailedError(f"{node} already runs")
        self._system.restart(node)

    async def pause(self, node: str) -> None:
        self._alive(node).pause()

    async def resume(self, node: str) -> None:
        machine = self._alive(node)
        if machine.paused:
            machine.resume()

    def state(self, node: str) -> str:
        machine = self._system.machine(node)
        if not machine.alive:
            return "gone"
        return "T" if machine.paused else "S"

    def pid(self, node: str) -> int | None:
        return None  # no process of this host

    def has_opened_store(self, node: str) -> bool | None:
        machine = self._system.machine(node)
        return machine.alive and machine.disk.opened if isinstance(machine, _Broker) else None

    def _alive(self, node: str) -> Machine:
        machine = self._system.machine(node)
        if not machine.alive:
            raise SystemFailedError(f"{node} is not running")
        return machine


class _Stores:
    def __init__(self, brokers: Mapping[str, _Broker], site: Site) -> None:
        self._brokers = brokers
        self._counts = site.coverage.counts

    def files(self, node: str) -> SimulatedFiles:
        return SimulatedFiles(self._brokers[node])

    async def lose_unsynced(self, node: str) -> str | None:
        machine = self._brokers[node]
        if machine.alive:
            raise SystemFailedError(f"{node} runs: its store is in use")
        survival = machine.draw_survival()
        unsettled = sorted(machine.disk.unsettled())
        fail_power(machine.disk, survival, self._counts)
        machine.derived.power_failure(survival)
        return f"un-fsynced writes of {', '.join(unsettled) or 'no file'}: {survival.value} left"


class SimulatedFiles:
    """The files of one simulated disk, and those derived from its log, which are real files
    in the store's directory. While its process runs all are read only."""

    def __init__(self, machine: _Broker) -> None:
        self._machine = machine

    def names(self) -> list[str]:
        return sorted([*self._machine.disk.paths(), *self._machine.derived.names()])

    def size(self, name: str) -> int:
        return len(self._content(name))

    def read(self, name: str, offset: int, size: int) -> bytes:
        return self._content(name)[offset : offset + size]

    def write(self, name: str, offset: int, data: bytes) -> None:
        self._require_dead()
        content = bytearray(self._content(name))
        content[offset : offset + len(data)] = data
        self._put(name, bytes(content))

    def truncate(self, name: str, size: int) -> None:
        self._require_dead()
        content = self._content(name)
        self._put(name, content[:size].ljust(size, b"\0"))

    def remove(self, name: str) -> None:
        self._require_dead()
        self._content(name)
        if self._machine.derived.has(name):
            self._machine.derived.path(name).unlink()
        else:
            self._machine.disk.lose(name)

    def copy_all(self) -> dict[str, bytes]:
        return {name: self._content(name) for name in self.names()}

    def restore_all(self, files: Mapping[str, bytes]) -> None:
        self._require_dead()
        self._machine.new_disk()
        disk = self._machine.disk
        derived = self._machine.derived
        for name in derived.names():
            derived.path(name).unlink()
        for name, content in files.items():
            if derived.has(name):
                derived.path(name).parent.mkdir(parents=True, exist_ok=True)
                derived.path(name).write_bytes(content)
                continue
            folder = name.rpartition("/")[0]
            if folder:
                disk.make_directory(folder)
            file = disk.open(name, create=True)
            file.pwritev([content], 0)
            file.sync()
            disk.sync_directory(folder)
        disk.sync_directory("")

    def _content(self, name: str) -> bytes:
        """Raises FileNotFoundError: another fault, or the broker, may have removed it meanwhile."""
        disk = self._machine.disk
        if self._machine.derived.has(name):
            return self._machine.derived.path(name).read_bytes()
        if name not in disk.paths():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return disk.content(name)

    def _put(self, name: str, content: bytes) -> None:
        if self._machine.derived.has(name):
            self._machine.derived.path(name).write_bytes(content)
        else:
            self._machine.disk.spoil(name, content)

    def _require_dead(self) -> None:
        if self._machine.alive:
            raise SystemFailedError(f"{self._machine.name} runs: its store is in use")


class _Clocks:
    def __init__(self, brokers: Mapping[str, _Broker]) -> None:
        self._brokers = brokers

    async def put(
        self, node: str, *, offset_ms: int, drift_ppm: int = 0, strobe_ms: int = 0
    ) -> None:
        setting = ClockSetting(offset_ms=offset_ms, drift_ppm=drift_ppm, strobe_ms=strobe_ms)
        self._brokers[node].clock.wrong.put(setting)

    async def offset_ms(self, node: str) -> int | None:
        machine = self._brokers[node]
        return machine.clock.wrong.off_ns() // 1_000_000 if machine.alive else None


class _Broker(BrokerMachine):
    """A broker of an experiment: its trace is a file, its end is written to its output, its disk
    and its clock can be wrong."""

    disk_class = WorldDisk
    disk: WorldDisk
    clock: SettableClock

    def __init__(self, site: Site, place: BrokerPlace, config: BrokerConfig, run: Path) -> None:
        self.points = DiskPoints(site.generator(f"disk-points/{place.name}"))
        super().__init__(
            site,
            config,
            _NoWitness(),
            short_write_rate=0.0,
            garbage_rate=0.0,
            sync_us=_SYNC_US,
            apply_us_max=0,
            name=place.name,
        )
        self.clock = SettableClock(site, place.name)
        self._output = run / "output" / f"{place.name}.log"

    def new_disk(self) -> None:
        super().new_disk()
        self.disk.points = self.points

    def equip(self, process: VirtualProcess) -> None:
        super().equip(process)
        self.points.disarm()
        self.disk.opened = False
        self.sync_slow_us = 0
        folder = self.config.store / "trace"
        process.open_trace = lambda number: RaftTrace(folder, number)
        process.on_apply = lambda _: None

    def on_exit(self, error: BaseException | None) -> None:
        """Let the process be gone, as a real one that ends by an error."""
        if error is not None and not isinstance(error, asyncio.CancelledError):
            with self._output.open("a", encoding="utf-8") as output:
                output.write(f"ended: {type(error).__name__}: {error}\n")
        self.disk.process_crash()


class _NoWitness:
    """An observer that nobody listens to: the run's tables are judged when it has ended."""

    def on_trace(
        self, node: NodeId, incarnation: int, event: str, term: Term, fields: dict[str, Any]
    ) -> None:
        """Do nothing."""

    def on_apply(self, node: NodeId, entries: Sequence[CommittedEntry]) -> None:
        """Do nothing."""

    def on_death(self, machine: BrokerMachine) -> None:
        """Do nothing: whoever killed it knows."""


def _name_server(site: Site, server: NameServerPlace, run: Path) -> Machine:
    """Return the machine of a name server. Its file of configuration is a real one, as derived
    files are: `write_directory` names the same to processes of a host."""
    program = NameServerProgram(server.address, run / "nodes" / f"{server.name}.kv.json")
    return Machine(site, server.name, server.address.rpartition(":")[0], program.run)


def _copy_disk(disk: SimDisk, store: Path) -> None:
    """Write the disk's files below `store`; what is zero at their ends is a hole, as on a disk."""
    for name in disk.paths():
        content = disk.content(name)
        path = store / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(content.rstrip(b"\0"))
            file.truncate(len(content))
