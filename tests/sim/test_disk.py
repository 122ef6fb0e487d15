"""The simulated disk keeps what was synced, and only that for certain."""

from __future__ import annotations

import errno
import random

import pytest

from chaos.sim.machine.disk import TAIL_REMOVAL, DiskFault, SimDisk, Survival, fail_power
from chaos.sim.machine.violation import CrashNow


def _disk(seed: int = 1) -> SimDisk:
    return SimDisk(random.Random(seed))


def _content(disk: SimDisk, path: str) -> bytes:
    return disk.open(path, create=False).pread(1 << 20, 0)


def _synced_file(disk: SimDisk, data: bytes) -> None:
    file = disk.open("f", create=True)
    assert file.pwritev([data], 0) == len(data)
    file.sync()
    disk.sync_directory("")


@pytest.mark.parametrize("survival", Survival)
def test_synced_bytes_survive_a_power_failure(survival: Survival) -> None:
    disk = _disk()
    _synced_file(disk, b"synced")
    disk.power_failure(survival)
    assert _content(disk, "f") == b"synced"


def test_unsynced_bytes_are_lost() -> None:
    disk = _disk()
    _synced_file(disk, b"synced")
    disk.open("f", create=False).pwritev([b"not"], 6)
    assert _content(disk, "f") == b"syncednot"
    disk.power_failure(Survival.NONE)
    assert _content(disk, "f") == b"synced"
    assert disk.lost_bytes == 3


def test_unsynced_bytes_outlive_a_process_but_are_not_durable() -> None:
    disk = _disk()
    _synced_file(disk, b"synced")
    disk.open("f", create=False).pwritev([b"not"], 6)
    disk.process_crash()
    assert _content(disk, "f") == b"syncednot"
    disk.power_failure(Survival.NONE)
    assert _content(disk, "f") == b"synced"


def test_a_torn_write_keeps_a_prefix() -> None:
    lengths = set()
    for seed in range(200):
        disk = _disk(seed)
        _synced_file(disk, b"")
        disk.open("f", create=False).pwritev([b"abcdefgh"], 0)
        disk.power_failure(Survival.PREFIX)
        left = _content(disk, "f")
        assert b"abcdefgh".startswith(left)
        lengths.add(len(left))
    assert lengths == set(range(9))


def test_scattered_sectors_leave_holes() -> None:
    found_hole = False
    for seed in range(200):
        disk = _disk(seed)
        _synced_file(disk, b"")
        disk.open("f", create=False).pwritev([b"x" * 256], 0)
        disk.power_failure(Survival.SCATTER)
        left = _content(disk, "f")
        assert set(left) <= {0, ord("x")}
        found_hole = found_hole or 0 in left
    assert found_hole


def test_what_a_failure_of_power_takes_is_counted() -> None:
    counts = {"power_failures": 1, "lost_unsynced_bytes": 5, "torn_writes": 0}
    disk = _disk()
    _synced_file(disk, b"synced")
    disk.open("f", create=False).pwritev([b"x" * 40], 6)
    fail_power(disk, Survival.NONE, counts)
    assert counts == {"power_failures": 2, "lost_unsynced_bytes": 45, "torn_writes": 0}


def test_unsynced_truncation_may_come_back() -> None:
    disk = _disk()
    _synced_file(disk, b"synced")
    disk.open("f", create=False).truncate(2)
    assert _content(disk, "f") == b"sy"
    disk.power_failure(Survival.NONE)
    assert _content(disk, "f") == b"synced"


def test_a_name_without_directory_sync_is_lost() -> None:
    disk = _disk()
    file = disk.open("f", create=True)
    file.pwritev([b"data"], 0)
    file.sync()
    disk.power_failure(Survival.NONE)
    with pytest.raises(FileNotFoundError):
        disk.open("f", create=False)


def test_an_unsynced_rename_is_undone() -> None:
    disk = _disk()
    _synced_file(disk, b"old")
    new = disk.open("new", create=True)
    new.pwritev([b"new"], 0)
    new.sync()
    disk.sync_directory("")
    disk.rename("new", "f")
    assert _content(disk, "f") == b"new"
    disk.power_failure(Survival.NONE)
    assert _content(disk, "f") == b"old"
    assert _content(disk, "new") == b"new"


def test_a_removal_is_durable_with_the_directory() -> None:
    disk = _disk()
    _synced_file(disk, b"data")
    disk.remove("f")
    disk.power_failure(Survival.NONE)
    assert _content(disk, "f") == b"data"
    disk.remove("f")
    disk.sync_directory("")
    disk.power_failure(Survival.NONE)
    assert disk.list("") == []


def test_an_unsynced_directory_takes_its_files_along() -> None:
    disk = _disk()
    disk.make_directory("a/b")
    file = disk.open("a/b/f", create=True)
    file.sync()
    disk.sync_directory("a/b")
    assert disk.list("a") == ["b"]
    disk.power_failure(Survival.NONE)
    assert disk.list("") == []


def test_a_sync_under_way_covers_what_was_written_before_it_began() -> None:
    disk = _disk()
    _synced_file(disk, b"")
    file = disk.open("f", create=False)
    file.pwritev([b"before"], 0)
    disk.begin_sync()
    file.sync()
    disk.end_begin_sync()
    file.pwritev([b"after"], 6)
    disk.complete_sync()
    disk.power_failure(Survival.NONE)
    assert _content(disk, "f") == b"before"


def test_a_crash_during_a_sync_finds_a_part_of_it_done() -> None:
    found = {_after_crash_in_sync(seed) for seed in range(20)}
    assert found == {(b"", b""), (b"first", b""), (b"first", b"second")}


def _after_crash_in_sync(seed: int) -> tuple[bytes, bytes]:
    disk = _disk(seed)
    first, second = (disk.open(name, create=True) for name in ("f", "g"))
    disk.sync_directory("")
    first.pwritev([b"first"], 0)
    second.pwritev([b"second"], 0)
    disk.begin_sync()
    first.sync()
    second.sync()
    disk.end_begin_sync()
    disk.power_failure(Survival.NONE)
    disk.complete_sync()
    return _content(disk, "f"), _content(disk, "g")


def test_a_sync_that_failed_has_lost_its_pages() -> None:
    disk = _disk()
    _synced_file(disk, b"synced")
    file = disk.open("f", create=False)
    file.pwritev([b" and not"], 6)
    disk.fault = DiskFault(operation="sync", error=errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert _content(disk, "f") == b"synced and not"
    disk.power_failure(Survival.ALL)
    assert _content(disk, "f") == b"synced"


def test_the_fuse_kills_at_the_counted_operation() -> None:
    disk = _disk()
    _synced_file(disk, b"")
    file = disk.open("f", create=False)
    disk.fuse = 2
    file.pwritev([b"whole"], 0)
    with pytest.raises(CrashNow):
        file.pwritev([b"torn by the crash"], 5)
    assert b"wholetorn by the crash".startswith(_content(disk, "f"))


def test_a_fuse_may_wait_for_the_cut_of_a_log() -> None:
    disk = _disk()
    for name in ("10", "20", "30", "30.index", "x"):
        disk.open(name, create=True)
    disk.fuse, disk.fuse_after = 2, TAIL_REMOVAL
    for name in ("10", "x", "30.index"):  # the oldest, and what has no number
        disk.remove(name)
    assert disk.fuse_after == TAIL_REMOVAL
    disk.remove("30")
    assert disk.fuse_after is None
    disk.sync_directory("")
    with pytest.raises(CrashNow):
        disk.remove("20")
    assert disk.list("") == ["20"]


def test_it_tells_what_no_failure_of_power_takes() -> None:
    disk = _disk()
    file = disk.open("f", create=True)
    file.pwritev([b"synced"], 0)
    file.sync()
    assert not disk.is_durable("f", 6)  # its name is not
    disk.sync_directory("")
    file.pwritev([b"not"], 6)
    assert disk.is_durable("f", 6)
    assert not disk.is_durable("f", 7)
    file.sync()
    assert disk.is_durable("f", 9)
    file.pwritev([b"s"], 0)  # the same byte: a failure may leave anything of it
    assert not disk.is_durable("f", 9)
    disk.fault = DiskFault(operation="sync", error=5)
    with pytest.raises(OSError, match=r"."):
        file.sync()
    file.pwritev([b"N"], 6)
    file.sync()
    assert disk.is_durable("f", 9)
    file.pwritev([b"lost"], 9)
    disk.fault = DiskFault(operation="sync", error=5)
    with pytest.raises(OSError, match=r"."):
        file.sync()
    file.sync()
    assert not disk.is_durable("f", 13)  # the pages of a failed fsync are clean, and nowhere


def _may_change(disk: SimDisk, path: str) -> bool:
    """By what the disk holds, not by what it remembers of it."""
    inode = disk._names[path]
    named = disk._names_durable.get(path) is inode
    return not named or bool(inode.pending) or inode.data != inode.durable


@pytest.mark.parametrize("seed", range(40))
def test_it_names_each_file_that_a_failure_of_power_may_change(seed: int) -> None:
    rng, disk = random.Random(seed), _disk(seed)
    for _ in range(300):
        path = rng.choice("abc")
        action = rng.choice(("write", "write", "sync", "fail", "names", "rename", "remove", "die"))
        there = disk.list("")
        if action == "names":
            disk.sync_directory("")
        elif action == "die" and rng.random() < 0.3:
            disk.power_failure(rng.choice(list(Survival)))
        elif action == "rename" and path in there:
            disk.rename(path, rng.choice("abc".replace(path, "")))
        elif action == "remove" and path in there:
            disk.remove(path)
        elif action in {"write", "sync", "fail"}:
            file = disk.open(path, create=True)
            if action == "write":
                file.pwritev([rng.randbytes(3)], rng.randrange(20))
            elif action == "sync":
                file.sync()
            else:
                disk.fault = DiskFault(operation="sync", error=errno.EIO)
                with pytest.raises(OSError, match=r"."):
                    file.sync()
        named = disk.unsettled()
        assert {path for path in disk.list("") if _may_change(disk, path)} <= named
        assert all(disk.is_durable(path, 1 << 20) for path in set(disk.list("")) - named)
    for path in disk.list(""):
        disk.spoil(path, b"as it is")
    disk.sync_directory("")
    assert disk.unsettled() == set()
    for path in disk.list(""):
        disk.open(path, create=False).pwritev([b"more"], 0)
        disk.remove(path)
    disk.sync_directory("")
    assert disk.unsettled() == set()
    assert disk._touched == set()  # what nothing leads to any more is not kept


def test_an_armed_error_is_raised_once() -> None:
    disk = _disk()
    _synced_file(disk, b"")
    file = disk.open("f", create=False)
    disk.fault = DiskFault(operation="write", error=errno.ENOSPC)
    file.sync()
    with pytest.raises(OSError, match="No space left"):
        file.pwritev([b"x"], 0)
    assert file.pwritev([b"x"], 0) == 1


def test_short_writes_happen() -> None:
    disk = SimDisk(random.Random(1), short_write_rate=1.0)
    file = disk.open("f", create=True)
    assert 1 <= file.pwritev([b"abcdefgh"], 0) < 8
