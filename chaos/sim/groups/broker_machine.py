"""A machine that runs a real broker, `Broker`, over a disk that loses and tears.

Place in the data path: implements `chaos.sim.seed.nemesis.Target`. The log, term and vote are on a
`SimDisk`; the files that the broker writes beside them are real ones in a directory of the seed.

Invariants: the disk serves one process at a time, and operations of a dead one have no effect; a
broker ends by itself only after an injected error of its disk.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol

from broker.config.config import BrokerConfig
from broker.config.settings import load_settings
from broker.process.server import Broker
from chaos.sim.groups.derived import DerivedState
from chaos.sim.groups.machine import Machine, Site
from chaos.sim.machine.disk import SimDisk, SimFile, Survival, fail_power
from chaos.sim.machine.violation import CrashNow, Violation
from chaos.sim.machine.virtual_host import VirtualProcess, current
from raft.events import Role
from raft.log.damage import Damage, DamagedLogError
from raft.log.segment_files import segment_path, segment_positions
from raft.log.segment_log import SegmentLog
from raft.messages import Index, NodeId, Term
from raft.replicated_log import (
    CommittedEntry,
    LogStatus,
    NotLeaderError,
    Phase,
    StateDivergedError,
)
from raft.storage import OnSynced

__all__ = ["BrokerMachine", "MachineDisk", "Witness"]

_DISK_SIZE = 1 << 40
_CALM_SYNC_US_MAX = 10_000


class Witness(Protocol):
    """The observer of what brokers do; `chaos.sim.groups.cluster` implements it."""

    def on_trace(
        self, node: NodeId, incarnation: int, event: str, term: Term, fields: dict[str, Any]
    ) -> None: ...

    def on_apply(self, node: NodeId, entries: Sequence[CommittedEntry]) -> None: ...

    def on_death(self, machine: BrokerMachine) -> None: ...


class _MachineFile(SimFile):
    """A file whose reads may fail too."""

    __slots__ = ()
    _disk: MachineDisk

    def pread(self, size: int, offset: int) -> bytes:
        self._disk.before_read()
        return super().pread(size, offset)


class MachineDisk(SimDisk):
    """Reports when its fuse kills the node, and ends whatever a dead process attempts."""

    on_crash: Callable[[str], None]
    on_kernel_sync: Callable[[], None] = lambda: None
    has_failed = False  # an error was raised since the process began

    def open(self, path: str, *, create: bool) -> SimFile:
        file = super().open(path, create=create)
        return _MachineFile(self, file._inode)

    def open_syncs(self, path: str) -> None:
        """Let the kernel of the current process's machine carry syncs out."""
        self.kernel = current()
        super().open_syncs(path)

    def begin_kernel_sync(self, inode: Any, on_done: OnSynced) -> bool:
        begun = super().begin_kernel_sync(inode, on_done)
        if begun:
            self.on_kernel_sync()
        return begun

    def before_read(self) -> None:
        """Raise an armed read error; the fuse does not count reads, which change nothing."""
        fault = self.fault
        if fault is not None and fault.operation == "read":
            self.fault = None
            self.has_failed = True
            raise OSError(fault.error, os.strerror(fault.error))

    def _find_room(self, inode: Any, size: int) -> None:
        try:
            super()._find_room(inode, size)
        except OSError:
            self.has_failed = True
            raise

    def _before(self, operation: str) -> None:
        if not current().alive:
            raise CrashNow(f"disk {operation} of a dead process")
        try:
            super()._before(operation)
        except CrashNow as crash:
            self.on_crash(crash.place)
            raise
        except OSError:
            self.has_failed = True
            raise


class _TraceSink:
    """Stands in for the file of raft.store.trace.RaftTrace."""

    def __init__(self, witness: Witness, process: VirtualProcess, node: NodeId, number: int):
        self._witness = witness
        self._process = process
        self._node = node
        self._incarnation = number

    def record(self, event: str, term: int, **fields: Any) -> None:
        if self._process.alive:
            if event == "read":
                fields["requested_us"] = self._process.clock.global_us(fields["t_begin"] / 1e9)
            self._witness.on_trace(self._node, self._incarnation, event, term, fields)

    def flush(self) -> None:
        """Do nothing: each row was passed on when it was recorded."""

    def close(self) -> None:
        """Do nothing: no file is open."""


class BrokerMachine(Machine):
    disk_class: type[MachineDisk] = MachineDisk

    def __init__(
        self,
        site: Site,
        config: BrokerConfig,
        witness: Witness,
        *,
        short_write_rate: float,
        garbage_rate: float,
        sync_us: tuple[int, int],
        apply_us_max: int,
        name: str | None = None,
    ) -> None:
        """Build the machine without starting it.

        `name` is the machine's; None: the broker's. `apply_us_max`: longest delay between commit
        and apply.
        """
        name = config.node if name is None else name
        super().__init__(site, name, config.listen.rpartition(":")[0], self._run)
        self.config = config
        self._witness = witness
        self._rng = site.generator(f"broker/{name}")
        self._sync_us = sync_us
        self._apply_us_max = apply_us_max
        self._apply_rng = site.generator(f"apply/{name}")
        self.derived = DerivedState(config.store, random.Random(self._rng.random()))
        self._rates = short_write_rate, garbage_rate
        self.new_disk()
        self.broker: Broker | None = None
        self._log_begin = 0
        self.sync_slow_us = 0
        self.fuse_is_power = False
        self.disk_is_full = False
        self._task: asyncio.Task[None] | None = None  # kept until the next one

    def new_disk(self) -> None:
        """Replace the disk by an empty one."""
        self.derived.forget()
        short_write_rate, garbage_rate = self._rates
        self.disk = self.disk_class(
            random.Random(self._rng.random()),
            short_write_rate=short_write_rate,
            garbage_rate=garbage_rate,
        )
        self._own_disk(self.disk)

    def take_disk(self, disk: SimDisk) -> None:
        """Take over the disk of another machine."""
        assert isinstance(disk, MachineDisk)
        self._own_disk(disk)

    def _own_disk(self, disk: MachineDisk) -> None:
        self.disk = disk
        disk.on_crash = self._on_disk_fuse
        disk.on_kernel_sync = self._on_kernel_sync

    def _on_kernel_sync(self) -> None:
        self.counts["kernel_syncs"] += 1

    @property
    def is_sound(self) -> bool:
        """Whether the broker serves and knows of no damage in its log."""
        status = self.status
        if status is None or status.phase is not Phase.SERVING:
            return False
        return not self.damages

    @property
    def damages(self) -> tuple[Damage, ...]:
        """The damage that the broker knows of."""
        return self._log.damages

    @property
    def _log(self) -> SegmentLog:
        assert self.broker is not None
        log = self.broker.log._store.log  # type: ignore[attr-defined]  # RaftNode's
        assert isinstance(log, SegmentLog)
        return log

    def entries(self) -> Iterator[tuple[Index, Term, int]]:
        """Yield index, term and chain of the entries in its log, without damaged ones."""
        log = self._log
        for index in range(log.base.index + 1, log.last_index + 1):
            try:
                entry = index, log.term(index), log.chain(index)
            except DamagedLogError:
                continue
            yield entry

    @property
    def log_begin(self) -> int:
        """The last known start of the log."""
        broker = self.broker
        if broker is not None and broker._started:
            self._log_begin = broker.log.status().begin_position
        return self._log_begin

    def holds_durably(self, index: Index, chain: int | None) -> bool:
        """Return whether the log up to the entry at `index` survives any power failure.

        The answer is the disk's, not the broker's. While term or vote are being saved, the trace
        waits: an entry that was truncated meanwhile (told apart by `chain`) is no longer claimed.
        """
        log = self._log
        end = 0
        if index > log.base.index:
            if index > log.last_index or log.chain(index) != chain:
                return True
            end = log.entry_end(index)
        if not any(self._may_lose(path, end) for path in self.disk.unsettled()):
            return True  # the usual case; the check below walks over hundreds of files
        positions = segment_positions(self.disk, "commitlog")
        ends = [*positions[1:], end]
        return all(
            self.disk.is_durable(segment_path("commitlog", position), min(end, until) - position)
            for position, until in zip(positions, ends, strict=True)
            if position < end
        )

    def _may_lose(self, path: str, end: int) -> bool:
        """Return whether the file is a segment with undurable bytes up to `end`.

        Of an earlier segment, bytes behind its last entry count too.
        """
        directory, _, name = path.rpartition("/")
        if directory != "commitlog" or not name.isdecimal():
            return False
        size = end - int(name)
        return size > 0 and not self.disk.is_durable(path, size)

    # --- interface of the nemesis --------------------------------------------------------------

    @property
    def status(self) -> LogStatus | None:
        """The status of a broker whose log has been opened."""
        broker = self.broker
        if not self.alive or broker is None or not broker._started:
            return None
        return broker.log.status()

    @property
    def leads(self) -> bool:
        status = self.status
        return status is not None and status.role is Role.LEADER

    @property
    def term(self) -> Term:
        status = self.status
        return 0 if status is None else status.term

    @property
    def step_fuse(self) -> int:
        """Callbacks of the process's loop until it dies; 0: it does not die."""
        return self.process.loop.fuse if self.process is not None else 0

    @step_fuse.setter
    def step_fuse(self, count: int) -> None:
        if self.process is not None:
            self.process.loop.fuse = count

    def syncs_since(self, time_us: int) -> bool:
        """Return whether a sync is under way that began before this time."""
        process = self.process
        if process is None or not process.alive:
            return False
        return any(begun_us < time_us for begun_us in process.syncs_begun_us)

    def draw_survival(self) -> Survival:
        return self._rng.choice(tuple(Survival))

    def transfer(self, target: NodeId) -> None:
        """Request a leadership transfer, and ignore its outcome."""
        if self.process is not None and self.status is not None:
            self.process.run(lambda: self._start_task(self._transfer(target)))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        assert self.process is not None
        self._task = self.process.loop.create_task(work)

    async def _transfer(self, target: NodeId) -> None:
        assert self.broker is not None
        try:
            await self.broker.log.transfer_leadership(target)
        except (NotLeaderError, TimeoutError, ValueError):
            return
        self.counts["leaderships_transferred"] += 1

    def peer_unreachable(self, peer: NodeId) -> None:
        self.site.tcp.reset(self.name, peer)

    # --- start, stop and crash -----------------------------------------------------------------

    def equip(self, process: VirtualProcess) -> None:
        node, witness = self.name, self._witness
        process.open_disk = lambda _: self.disk
        process.open_trace = lambda number: _TraceSink(witness, process, node, number)
        process.on_apply = lambda entries: witness.on_apply(node, entries)
        process.disk_time_us = self._draw_sync_us
        process.apply_delay_us = self._draw_apply_us
        process.disk_usage = self._disk_usage
        process.on_fsync = self.derived.on_fsync
        process.on_callback_error = self._on_callback_error
        process.loop.on_fuse = self._on_step_fuse
        self.broker = None
        self.disk.has_failed = False

    def _on_callback_error(self, error: Exception) -> bool:
        """Handle an error as run_broker does; only an injected error of the disk is no finding."""
        if self.broker is None or not (isinstance(error, OSError) and self.disk.has_failed):
            return False
        self.broker.fail(error)
        return True

    def _disk_usage(self) -> dict[str, int]:
        free = _DISK_SIZE // 50 if self.disk_is_full else _DISK_SIZE // 2
        return {"total": _DISK_SIZE, "used": _DISK_SIZE - free, "free": free}

    def calm(self) -> None:
        """Make disk and state machine quick from now on, so that the backlog is worked off."""
        self._apply_us_max = 0
        low, high = self._sync_us
        self._sync_us = min(low, _CALM_SYNC_US_MAX), min(high, _CALM_SYNC_US_MAX)

    def _draw_sync_us(self) -> int:
        low, high = self._sync_us
        return low + int(self._rng.random() ** 2 * max(1, high - low)) + self.sync_slow_us

    def _draw_apply_us(self) -> int:
        return int(self._apply_rng.random() ** 2 * self._apply_us_max) if self._apply_us_max else 0

    async def _run(self) -> None:
        """Run the broker as broker.process.server.run_broker does."""
        while True:
            self.broker = broker = Broker(load_settings(self.config))
            try:
                await self._run_once(broker)
            except* StateDivergedError:
                self.counts["states_diverged"] += 1  # the same process begins anew
            else:
                return

    async def _run_once(self, broker: Broker) -> None:
        try:
            await broker.start()
            await broker.serve()
        finally:
            await broker.stop()

    def crash(self, *, power: bool, survival: Survival) -> None:
        assert self.alive, f"{self.name} is dead already"
        self.counts["crashes"] += 1
        self.die(power=power)
        if power:
            fail_power(self.disk, survival, self.counts)
            lost = self.derived.lost_files
            self.derived.power_failure(survival)
            self.counts["derived_files_lost"] += self.derived.lost_files - lost
        else:
            self.disk.process_crash()

    def _on_step_fuse(self) -> None:
        self.counts["crashes_in_steps"] += 1
        self.crash(power=self.fuse_is_power, survival=self.draw_survival())
        self._witness.on_death(self)

    def _on_disk_fuse(self, place: str) -> None:
        self.counts["crashes_in_disk_operations"] += 1
        if self.site.trace.on:
            self.site.trace.add(self.name, f"is killed at: {place}")
        self.crash(power=self.fuse_is_power, survival=self.draw_survival())
        self._witness.on_death(self)

    def on_exit(self, error: BaseException | None) -> None:
        if isinstance(error, OSError) and self.disk.has_failed:
            self.counts["disk_errors"] += 1
        elif error is not None and not isinstance(error, asyncio.CancelledError):
            failure = Violation("stopped", f"{self.name}: {type(error).__name__}: {error}")
            failure.__cause__ = error
            self.site.failures.append(failure)
            return
        else:
            self.counts["clean_stops"] += 1
        if self.site.trace.on:
            self.site.trace.add(self.name, f"ends: {error or 'cleanly'}")
        self.disk.process_crash()
        self._witness.on_death(self)
