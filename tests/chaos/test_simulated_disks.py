"""Disks and clocks of the simulated world: what is armed happens, is counted, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.failpoints.orders import ClockSetting
from chaos.sim.groups.derived import DerivedState
from chaos.sim.groups.machine import Machine, calm_site
from chaos.sim.machine.current_process import enter, leave
from chaos.sim.machine.disk import Survival
from chaos.sim.world.settable_clock import SettableClock
from chaos.sim.world.simulated_disks import DiskPoint, DiskPoints, SimulatedFailpoints, WorldDisk
from chaos.sim.world.simulated_system import SimulatedFiles
from chaos.systems.base import PointAction, SystemFailedError

NODE = "broker-a-n0"


@dataclass
class Owner:
    points: DiskPoints
    sync_slow_us: int = 0
    alive: bool = True


async def _nothing() -> None:
    await asyncio.get_running_loop().create_future()


class Bench:
    """One disk with its points, and the part of a system that arms them."""

    def __init__(self) -> None:
        self.points = DiskPoints(random.Random(1))
        self.disk = WorldDisk(random.Random(1))
        self.disk.points = self.points
        self.machine = Owner(self.points)
        self.failpoints = SimulatedFailpoints({NODE: self.machine})
        program = Machine(calm_site("disks", traced=False), NODE, "10.0.0.1", _nothing)
        program.start()
        self._process = program.process
        with self.inside_a_process():
            self.file = self.disk.open("log", create=True)
            self.disk.sync_directory("")

    @contextlib.contextmanager
    def inside_a_process(self) -> Iterator[None]:
        """Only a process that lives may use the disk."""
        assert self._process is not None
        before = enter(self._process)
        try:
            yield
        finally:
            leave(before)

    def write(self, data: bytes = b"abcd") -> int:
        with self.inside_a_process():
            return self.file.pwritev([data], 0)

    def sync(self) -> None:
        with self.inside_a_process():
            self.file.sync()

    def write_and_sync(self) -> None:
        self.write()
        self.sync()

    def after_power_failure(self) -> bytes:
        self.disk.power_failure(Survival.NONE)
        return self.disk.content("log")


async def test_nothing_happens_that_is_not_armed() -> None:
    bench = Bench()
    assert bench.write() == 4
    bench.sync()
    assert bench.after_power_failure() == b"abcd"
    counts = await bench.failpoints.counts(NODE)
    assert counts is not None
    assert {name: (each.reached, each.fired) for name, each in counts.items()} == {
        "disk.write": (1, 0),
        "disk.fsync": (2, 0),
    }


async def test_what_a_lie_left_behind_is_lost_with_the_power() -> None:
    bench = Bench()
    await bench.failpoints.arm(NODE, "disk.fsync", PointAction(action="lie"))
    bench.write()
    bench.sync()
    assert bench.disk.content("log") == b"abcd"
    assert bench.after_power_failure() == b""
    assert bench.points.fsync.fired == 1


async def test_an_honest_fsync_covers_what_a_lie_left_behind() -> None:
    bench = Bench()
    await bench.failpoints.arm(NODE, "disk.fsync", PointAction(action="lie"))
    bench.write()
    bench.sync()
    await bench.failpoints.disarm(NODE, "disk.fsync")
    bench.sync()
    assert bench.after_power_failure() == b"abcd"


@pytest.mark.parametrize(("point", "name"), [("disk.write", "ENOSPC"), ("disk.fsync", "EIO")])
async def test_an_error_is_raised_as_often_as_it_is_to_be(point: str, name: str) -> None:
    bench = Bench()
    await bench.failpoints.arm(NODE, point, PointAction(action="error", errno=name, count=1))
    with pytest.raises(OSError, match=os.strerror(getattr(errno, name))):
        bench.write_and_sync()
    assert bench.disk.has_failed
    bench.write()
    bench.sync()


async def test_half_of_a_write_is_written() -> None:
    bench = Bench()
    await bench.failpoints.arm(NODE, "disk.write", PointAction(action="short"))
    assert bench.write() == 2
    assert bench.disk.content("log") == b"ab"


async def test_fsyncs_are_slow_until_the_fault_is_healed() -> None:
    bench = Bench()
    await bench.failpoints.arm(NODE, "disk.fsync", PointAction(action="delay", ms=150))
    assert bench.machine.sync_slow_us == 150_000
    bench.sync()
    assert bench.points.fsync.fired == 1
    await bench.failpoints.disarm(NODE, "disk.fsync")
    assert bench.machine.sync_slow_us == 0


async def test_what_no_simulated_disk_can_do_is_refused_by_name() -> None:
    bench = Bench()
    with pytest.raises(SystemFailedError, match=r"no simulated disk\.fsync can stuck"):
        await bench.failpoints.arm(NODE, "disk.fsync", PointAction(action="stuck"))
    with pytest.raises(SystemFailedError, match=r"no simulated commit\.before can crash"):
        await bench.failpoints.arm(NODE, "commit.before", PointAction(action="crash"))
    bench.machine.alive = False
    assert await bench.failpoints.counts(NODE) is None


def test_first_those_that_go_by_then_a_share() -> None:
    point = DiskPoint(random.Random(3))
    point.arm(PointAction(action="short", after=10, share=0.5))
    assert not any(point.passed() for _ in range(10))
    assert 20 < sum(point.passed() is not None for _ in range(100)) < 80


def test_a_wall_clock_jumps_drifts_and_strobes_beside_a_monotonic_one() -> None:
    site = calm_site("clocks", traced=False)
    clock = SettableClock(site, NODE)
    right_ns, monotonic_s = clock.wall_ns(), clock.monotonic()
    clock.wrong.put(ClockSetting(offset_ms=5_000))
    assert clock.wall_ns() - right_ns == 5_000_000_000
    clock.wrong.put(ClockSetting(drift_ppm=200_000))
    site.scheduler.run_until(site.scheduler.now_us + 1_000_000)
    assert clock.wrong.off_ns() == 200_000_000
    clock.wrong.put(ClockSetting(offset_ms=300, strobe_ms=100))
    offs = set()
    for _ in range(4):
        offs.add(clock.wrong.off_ns())
        site.scheduler.run_until(site.scheduler.now_us + 100_000)
    assert offs == {0, 300_000_000}
    assert clock.monotonic() - monotonic_s == pytest.approx(1.4)


def machine_of(bench: Bench, store: Path, *, alive: bool) -> Any:
    derived = DerivedState(store, random.Random(1))
    return cast(Any, SimpleNamespace(name=NODE, disk=bench.disk, derived=derived, alive=alive))


def test_a_file_that_is_gone_is_not_found_as_on_a_disk(tmp_path: Path) -> None:
    bench = Bench()
    bench.write_and_sync()
    files = SimulatedFiles(machine_of(bench, tmp_path, alive=False))
    assert (files.names(), files.size("log"), files.read("log", 1, 2)) == (["log"], 4, b"bc")
    files.remove("log")
    assert files.names() == []
    for action in (
        lambda: files.read("log", 0, 1),
        lambda: files.size("log"),
        lambda: files.write("log", 0, b"x"),
        lambda: files.truncate("log", 0),
        lambda: files.remove("log"),
    ):
        with pytest.raises(FileNotFoundError):
            action()


def test_what_is_derived_from_the_log_is_edited_as_the_log_is(tmp_path: Path) -> None:
    bench = Bench()
    bench.write_and_sync()
    units = tmp_path / "consumequeue" / "orders" / "0" / "00000000000000000000"
    units.parent.mkdir(parents=True)
    units.write_bytes(b"units")
    name = "consumequeue/orders/0/00000000000000000000"
    files = SimulatedFiles(machine_of(bench, tmp_path, alive=False))
    assert files.names() == [name, "log"]
    before = files.copy_all()
    files.write(name, 1, b"N")
    assert (units.read_bytes(), files.size(name)) == (b"uNits", 5)
    files.truncate(name, 2)
    assert files.read(name, 0, 5) == b"uN"
    files.remove(name)
    assert files.names() == ["log"]
    assert not units.exists()
    files.write("log", 0, b"x")
    assert bench.disk.content("log") == b"xbcd"
    assert before[name] == b"units"


def test_the_files_of_a_process_that_runs_are_read_only(tmp_path: Path) -> None:
    bench = Bench()
    bench.write_and_sync()
    files = SimulatedFiles(machine_of(bench, tmp_path, alive=True))
    assert files.read("log", 0, 4) == b"abcd"
    for action in (
        lambda: files.write("log", 0, b"x"),
        lambda: files.truncate("log", 0),
        lambda: files.remove("log"),
        lambda: files.restore_all({}),
    ):
        with pytest.raises(SystemFailedError, match="in use"):
            action()
    assert bench.disk.content("log") == b"abcd"
