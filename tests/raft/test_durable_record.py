"""Small files that a store lives by: what was read or replaced is there after any crash."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from chaos.sim.machine.disk import DiskFault, SimDisk, Survival
from chaos.sim.machine.violation import CrashNow
from raft.log.disk import make_durable_directory
from raft.log.durable_mark import DurableMark, Mark
from raft.log.durable_record import overwrite, read_durable, read_now, replace
from raft.storage import LogBase

OLD, NEW = b"old" * 100, b"new record" * 100


def _disk(seed: int) -> SimDisk:
    disk = SimDisk(random.Random(seed), garbage_rate=0.3)
    disk.make_directory("d")
    disk.sync_directory("")
    return disk


@pytest.mark.parametrize("survival", Survival)
@pytest.mark.parametrize("seed", range(20))
def test_a_replaced_file_holds_the_old_record_or_the_new_one(seed: int, survival: Survival) -> None:
    for fuse in range(1, 20):
        disk = _disk(seed)
        replace(disk, "d/f", OLD)
        disk.fuse = fuse
        try:
            replace(disk, "d/f", NEW)
        except CrashNow:
            disk.power_failure(survival)
            assert read_durable(disk, "d/f", 5_000) in {OLD, NEW}
            continue
        disk.power_failure(survival)
        assert read_durable(disk, "d/f", 5_000) == NEW
        return
    raise AssertionError("it takes fewer operations")


@pytest.mark.parametrize("survival", Survival)
def test_what_was_read_is_there_after_a_failure_of_power(survival: Survival) -> None:
    """The process that wrote it was killed: it may have been in the page cache, name and all."""
    for fuse in range(1, 20):
        disk = _disk(1)
        replace(disk, "d/f", OLD)
        disk.fuse = fuse
        try:
            replace(disk, "d/f", NEW)
            disk.fuse = 0
        except CrashNow:
            disk.process_crash()
        found = read_durable(disk, "d/f", 5_000)
        disk.power_failure(survival)
        assert read_durable(disk, "d/f", 5_000) == found


def test_what_a_failed_fsync_left_in_memory_is_not_believed() -> None:
    disk = _disk(1)
    replace(disk, "d/f", OLD)
    disk.fault = DiskFault(operation="sync", error=errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        overwrite(disk, "d/f", NEW[:10])
    assert read_now(disk, "d/f", 5_000) == NEW[:10] + OLD[10:], "clean in memory"
    assert read_durable(disk, "d/f", 5_000) == OLD


@pytest.mark.parametrize("seed", range(300))
def test_a_mark_of_a_killed_process_is_durable_before_it_is_lowered(seed: int) -> None:
    """Both slots may be in memory only: to write one is to rely on the other."""

    def mark(index: int) -> Mark:
        cut = LogBase(index=index, term=1, position=index * 10, chain=index)
        return Mark(cut=cut, last=LogBase(), base=LogBase())

    disk = _disk(seed)
    durable = DurableMark(disk, "d/mark")
    durable.reset(mark(5))
    durable.raise_to(mark(6))
    durable.raise_to(mark(7))
    disk.process_crash()
    again = DurableMark(disk, "d/mark")
    assert again.read() == mark(7)
    disk.fuse = 1 + seed % 12
    try:
        again.reset(mark(3))
        disk.fuse = 0
    except CrashNow:
        pass
    disk.power_failure(Survival.SCATTER)
    assert DurableMark(disk, "d/mark").read() in {mark(7), mark(3)}


def test_the_names_on_the_way_to_a_store_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink())
    )
    store = tmp_path / "a" / "b"
    make_durable_directory(store)
    assert set(synced) == {tmp_path, tmp_path / "a"}
    synced.clear()
    make_durable_directory(store)
    assert synced == [tmp_path / "a"], "whoever made it may have been killed before"
