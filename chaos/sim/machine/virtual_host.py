"""A simulated process: its loop, its clock and randomness, its work on threads.

Place in the data path: the programs of a simulated machine are started as one of these; the
substitutes of `virtual_stdlib` (time, randomness, names of processes) look the current one up here.

Invariant: outside of every process a look-up is an error: product code that runs there would read a
clock that nobody simulates.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaos.sim.machine.current_process import enter, leave, running
from chaos.sim.machine.scheduler import Scheduler
from chaos.sim.machine.tcp import SimTcp
from chaos.sim.machine.violation import CrashNow
from chaos.sim.machine.virtual_clock import VirtualClock
from chaos.sim.machine.virtual_loop import VirtualLoop
from raft.replicated_log import CommittedEntry
from raft.storage import Disk

if TYPE_CHECKING:
    from asyncio import Task

__all__ = ["VirtualProcess", "current"]

_HANDOVER_US_MAX = 100  # from the loop to a thread and back
_ROOMY = {"total": 1 << 40, "used": 1 << 30, "free": (1 << 40) - (1 << 30)}


class VirtualProcess:
    """One incarnation of a program on a machine.

    `open_disk`, `open_trace`, `on_apply` and `disk_usage` are set by the code that starts a program
    that needs them.
    """

    def __init__(
        self,
        *,
        name: str,
        host: str,
        number: int,
        clock: VirtualClock,
        scheduler: Scheduler,
        tcp: SimTcp,
        rng: random.Random,
        graveyard: list[Task[Any]],
        failures: list[Exception],
    ) -> None:
        self.name = name
        self.host = host
        self.number = number  # unique among the processes of a seed
        self.clock = clock
        self.rng = rng
        self.graveyard = graveyard  # tasks of dead processes, kept until the seed ends
        self.failures = failures
        self.scheduler = scheduler
        self.disk_time_us: Callable[[], int] = lambda: 0  # duration of a sync
        self.syncs_begun_us: list[int] = []  # start times of those under way, in order
        self.apply_delay_us: Callable[[], int] = lambda: 0  # of a slow state machine
        self.open_disk: Callable[[Path], Disk] = _no_disk
        self.open_trace: Callable[[int], Any] = _no_trace
        self.on_fsync: Callable[[int], None] = lambda _: None
        self.on_apply: Callable[[Sequence[CommittedEntry]], None] = _nothing_to_apply
        # Returns whether the program ends in good order by an exception of one of its callbacks.
        self.on_callback_error: Callable[[Exception], bool] = lambda _: False
        self.disk_usage: Callable[[], dict[str, int]] = lambda: _ROOMY
        self.descriptors: set[int] = set()  # real ones that the program has open
        self.areas: list[mmap.mmap] = []
        # Only what the product calls is there.
        self.loop = VirtualLoop(self, scheduler, tcp)  # type: ignore[abstract]

    @property
    def alive(self) -> bool:
        return not self.loop.dead

    def run(self, action: Callable[[], None]) -> None:
        """Run a function as this program at once, outside of its loop's turns, for a test."""
        self.loop.call_soon(action)

    def kill(self) -> None:
        """Kill the process: nothing of it runs any more, and its kernel closes what it had open."""
        if self.alive:
            self.loop.kill()
            # Not at once: the dying code may still be on the stack below.
            self.scheduler.after(0, self._close_files)

    def _close_files(self) -> None:
        for area in self.areas:
            # One that a dead object still views (an index file) goes with that object.
            with contextlib.suppress(BufferError):
                area.close()
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.areas.clear()
        self.descriptors.clear()

    def on_thread(
        self,
        work: Callable[[], Any],
        done: Callable[[Any, BaseException | None], None],
        *,
        takes_disk_time: bool = False,
    ) -> None:
        """Carry `work` out after a delay, then pass the loop its result or what it raised.

        In between the loop goes on: what it does then is not covered by the work.
        """
        delay_us = int(self.rng.random() * _HANDOVER_US_MAX)
        if takes_disk_time:
            delay_us += self.disk_time_us()
            self.syncs_begun_us.append(self.scheduler.now_us)
            done = partial(self._sync_ended, self.scheduler.now_us, done)
        work_us = int(self.rng.random() * delay_us)
        self.scheduler.after(work_us, partial(self._run_work, work, done, delay_us - work_us))

    def begin_sync(self, work: Callable[[], None], report: Callable[[], None]) -> None:
        """Let the kernel do `work` after a while, also while the process is paused, and then its
        loop `report`."""
        delay_us = self.disk_time_us()
        begun_us = self.scheduler.now_us
        self.syncs_begun_us.append(begun_us)
        work_us = int(self.rng.random() * delay_us)
        done = partial(self._sync_ended, begun_us, lambda *_: report())
        self.scheduler.after(work_us, partial(self._run_in_kernel, work, done, delay_us - work_us))

    def report_soon(self, report: Callable[[], None]) -> None:
        """Let the loop call `report`."""
        self.loop.call_soon(report)

    def _run_in_kernel(
        self,
        work: Callable[[], None],
        done: Callable[[Any, BaseException | None], None],
        handover_us: int,
    ) -> None:
        if self.loop.dead:
            return
        before = enter(self)
        try:
            with contextlib.suppress(CrashNow):
                work()
        finally:
            leave(before)
        self.scheduler.after(handover_us, partial(self.loop.post, done, None, None))

    def _sync_ended(
        self,
        begun_us: int,
        done: Callable[[Any, BaseException | None], None],
        result: Any,
        error: BaseException | None,
    ) -> None:
        self.syncs_begun_us.remove(begun_us)
        done(result, error)

    def _run_work(
        self,
        work: Callable[[], Any],
        done: Callable[[Any, BaseException | None], None],
        handover_us: int,
    ) -> None:
        if self.loop.dead:
            return
        if self.loop.paused:  # so are its threads
            self.loop.on_resume.append(partial(self._run_work, work, done, handover_us))
            return
        before = enter(self)
        result = None
        outcome = _Outcome()
        try:
            with outcome:
                result = work()
        finally:
            leave(before)
        self.scheduler.after(handover_us, partial(self.loop.post, done, result, outcome.error))


class _Outcome:
    """Keeps what work on a thread raises, for the caller."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool:
        self.error = error
        return isinstance(error, Exception | CrashNow)


def current() -> VirtualProcess:
    """Return the process that runs; outside of every process this is an error."""
    process = running()
    assert isinstance(process, VirtualProcess), "product code runs outside of every process"
    return process


def _no_disk(root: Path) -> Disk:
    raise AssertionError(f"nobody gave this process a disk: {root}")


def _nothing_to_apply(entries: Sequence[CommittedEntry]) -> None:
    raise AssertionError(f"{len(entries)} entries are applied in a process without a log")


def _no_trace(incarnation: int) -> Any:
    raise AssertionError(f"nobody asked for a trace of incarnation {incarnation}")
