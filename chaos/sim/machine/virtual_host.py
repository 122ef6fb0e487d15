"""A simulated machine's clocks, and its current process.

Place in the data path: `virtual_loop` enters a process before it runs anything of it; the
substitutes of `virtual_stdlib` (time, randomness, names of processes) look the current one up here.

Invariants: at most one process is current; outside of every process there is none, and a look-up is
an error: product code that runs there would read a clock that nobody simulates.
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

from chaos.sim.machine.scheduler import Scheduler
from chaos.sim.machine.violation import CrashNow
from raft.replicated_log import CommittedEntry
from raft.storage import Disk

if TYPE_CHECKING:
    from asyncio import Task

    from chaos.sim.machine.tcp import SimTcp
    from chaos.sim.machine.virtual_loop import VirtualLoop

__all__ = ["VirtualClock", "VirtualProcess", "current", "enter", "leave"]

WALL_START_MS = 1_700_000_000_000
_HANDOVER_US_MAX = 100  # from the loop to a thread and back
_ROOMY = {"total": 1 << 40, "used": 1 << 30, "free": (1 << 40) - (1 << 30)}


class VirtualClock:
    """One machine's clocks. `rate` is near 1; `wall_offset_ms` may jump, the monotonic may not."""

    __slots__ = ("_lateness", "_offset_s", "_rate", "_scheduler", "wall_offset_ms")

    def __init__(
        self,
        scheduler: Scheduler,
        rng: random.Random,
        *,
        rate_spread: float,
        wall_spread_ms: int,
        lateness_us_max: int,
        offset_s_max: float = 1_000.0,
        uptime_s: float = 0.0,
    ) -> None:
        self._scheduler = scheduler
        self._rate = 1.0 + rate_spread * (2 * rng.random() - 1)
        self._offset_s = uptime_s + rng.random() * offset_s_max
        self.wall_offset_ms = int(wall_spread_ms * (2 * rng.random() - 1))
        self._lateness = lateness_us_max, random.Random(rng.random())

    def monotonic(self) -> float:
        return self._offset_s + self._scheduler.now_us * self._rate / 1e6

    def wall_ns(self) -> int:
        now_us = int(self._scheduler.now_us * self._rate)
        return (WALL_START_MS + self.wall_offset_ms) * 1_000_000 + now_us * 1_000

    def global_us(self, when_s: float) -> int:
        """Return the scheduler's time at the local time `when_s`, rounded down."""
        return int((when_s - self._offset_s) * 1e6 / self._rate)

    def due_us(self, when_s: float) -> int:
        """Return when the scheduler must act for a timer at local time `when_s`: not before it."""
        offset_s, rate = self._offset_s, self._rate
        due_us = int((when_s - offset_s) * 1e6 / rate) + 1
        while (
            offset_s + due_us * rate / 1e6 < when_s
        ):  # by rounding of floats; a timer that always rings
            due_us += 1  # early would be armed again and again at the same time
        lateness_us_max, rng = self._lateness
        if lateness_us_max:
            due_us += int(rng.random() ** 3 * lateness_us_max)
        return max(due_us, self._scheduler.now_us)


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
        loop_class = _loop_class()
        self.loop: VirtualLoop = loop_class(self, scheduler, tcp)

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
        tell_us: int,
    ) -> None:
        if self.loop.dead:
            return
        if self.loop.paused:  # so are its threads
            self.loop.on_resume.append(partial(self._run_work, work, done, tell_us))
            return
        before = enter(self)
        result = None
        outcome = _Outcome()
        try:
            with outcome:
                result = work()
        finally:
            leave(before)
        self.scheduler.after(tell_us, partial(self.loop.post, done, result, outcome.error))


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


_current: list[VirtualProcess | None] = [None]


def current() -> VirtualProcess:
    process = _current[0]
    assert process is not None, "product code runs outside of every simulated process"
    return process


def enter(process: VirtualProcess) -> VirtualProcess | None:
    """Make the process current; return the previous one, for `leave`."""
    before = _current[0]
    _current[0] = process
    return before


def leave(before: VirtualProcess | None) -> None:
    _current[0] = before


def _no_disk(root: Path) -> Disk:
    raise AssertionError(f"nobody gave this process a disk: {root}")


def _nothing_to_apply(entries: Sequence[CommittedEntry]) -> None:
    raise AssertionError(f"{len(entries)} entries are applied in a process without a log")


def _no_trace(incarnation: int) -> Any:
    raise AssertionError(f"nobody asked for a trace of incarnation {incarnation}")


def _loop_class() -> type[VirtualLoop]:
    from chaos.sim.machine.virtual_loop import VirtualLoop  # noqa: PLC0415  # each needs the other

    return VirtualLoop
