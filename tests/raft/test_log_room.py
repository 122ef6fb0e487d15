"""Room on the disk, the log's beginning, and what a start costs."""

from __future__ import annotations

import errno
import random
import zlib
from pathlib import Path

import pytest

from raft.log.disk import OsDisk
from raft.log.log_format import HEADER_SIZE
from raft.log.segment_log import SegmentLog
from raft.messages import Entry, EntryKind, LogBase
from raft.storage import DiskFile
from tests.raft.forgetful_disk import ForgetfulDisk

ENTRY_SIZE = HEADER_SIZE + 30


def entry(index: int, term: int = 1, kind: EntryKind = EntryKind.DATA) -> Entry:
    return Entry(index=index, term=term, kind=kind, payload=b"%03d" % index * 10)


def open_log(disk: ForgetfulDisk | OsDisk, segment_size: int = 500) -> SegmentLog:
    return SegmentLog(
        disk,
        "commitlog",
        segment_size_bytes_max=segment_size,
        preallocation_size_bytes=200,
        tail_size_bytes_max=100,
    )


def filled(disk: ForgetfulDisk | OsDisk, count: int) -> SegmentLog:
    log = open_log(disk)
    log.append([entry(index) for index in range(1, count + 1)])
    log.sync()
    return log


def test_what_was_reserved_is_written_on_a_full_disk() -> None:
    disk = ForgetfulDisk(random.Random(1))
    log = open_log(disk)
    for index in range(1, 60):
        assert log.reserve(ENTRY_SIZE)
        disk.is_full = True
        log.append([entry(index)])  # also where it begins a segment
        log.sync()
        disk.is_full = False
    assert log.last_index == 59


def test_a_full_disk_is_no_failure_of_the_log() -> None:
    disk = ForgetfulDisk(random.Random(1))
    log = open_log(disk)
    disk.is_full = True
    taken = 0
    while log.reserve(ENTRY_SIZE):
        taken += 1
        log.append([entry(taken)])
    assert not log.reserve(ENTRY_SIZE)
    log.sync()
    if taken:
        log.truncate_from(taken)
    disk.is_full = False
    assert log.reserve(ENTRY_SIZE)
    log.append([entry(log.last_index + 1, term=2)])
    log.sync()


def test_blocks_are_allocated_ahead(tmp_path: Path) -> None:
    log = SegmentLog(OsDisk(tmp_path), "commitlog")
    log.append([entry(1)])
    status = (tmp_path / "commitlog" / f"{0:020d}").stat()
    assert status.st_size == 4 << 20
    assert status.st_blocks * 512 >= 4 << 20
    log.close()


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
def test_the_oldest_segments_go_and_the_base_tells_it(keep: float) -> None:
    disk = ForgetfulDisk(random.Random(3))
    log = filled(disk, 60)
    position, chain = log.position(31), log.chain(30)
    base = log.drop_before(position + 1)
    assert base == log.base
    assert base.position <= position
    assert log.first_index == base.index + 1 <= 31
    assert log.chain(base.index) == base.chain
    assert base.index != 30 or base.chain == chain
    assert log.term(base.index) == base.term == 1
    first = log.first_index
    for asked in (lambda: log.term(first - 2), lambda: log.entries(first - 1, first, 100)):
        with pytest.raises(IndexError):
            asked()
    with pytest.raises(LookupError):
        log.read(base.position - 1, 1)
    disk.crash(keep=keep)
    again = open_log(disk)
    assert again.base == base
    assert again.entries(first, 61, 1 << 20) == tuple(entry(i) for i in range(first, 61))
    assert again.drop_before(0) == base
    assert again.drop_before(1 << 40).index < 60, "the last segment stays"


@pytest.mark.parametrize("seed", range(30))
def test_a_crash_within_a_drop_leaves_a_log(seed: int) -> None:
    """Whatever of it reached the disk: the log begins at the old base or at a later one."""
    rng = random.Random(seed)
    disk = ForgetfulDisk(rng)
    log = filled(disk, 60)
    removals = 0
    remove = disk.remove

    def failing_remove(path: str) -> None:
        nonlocal removals
        removals += 1
        if removals > seed % 7:
            raise OSError(5, "Input/output error")
        remove(path)

    disk.remove = failing_remove  # type: ignore[method-assign]  # the machine dies there
    with pytest.raises(OSError, match="Input/output"):
        log.drop_before(log.position(50))
    disk.remove = remove  # type: ignore[method-assign]
    disk.crash(keep=rng.random())
    again = open_log(disk)
    assert not again.damages
    first = again.first_index
    assert again.entries(first, 61, 1 << 20) == tuple(entry(i) for i in range(first, 61))


def test_an_emptied_log_begins_behind_the_new_base() -> None:
    disk = ForgetfulDisk(random.Random(3))
    log = filled(disk, 20)
    base = LogBase(index=100, term=7, position=12345, chain=99)
    log.reset(base)
    assert (log.base, log.last_index, log.last_term, log.end_position) == (base, 100, 7, 12345)
    assert log.chain(100) == 99
    log.append([entry(101, term=7), entry(102, term=8)])
    log.sync()
    disk.crash(keep=0.0)
    again = open_log(disk)
    assert again.base == base
    assert again.entries(101, 103, 1 << 20) == (entry(101, term=7), entry(102, term=8))
    assert [again.term(index) for index in (100, 101, 102)] == [7, 7, 8]


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_within_a_reset_leaves_the_old_log_or_the_empty_one(seed: int) -> None:
    rng = random.Random(seed)
    disk = ForgetfulDisk(rng)
    log = filled(disk, 20)
    base = LogBase(index=100, term=7, position=rng.choice([0, 300, 12345]), chain=99)
    left = seed // 2
    sync = disk.sync_directory

    def failing_sync(path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(5, "Input/output error")
        sync(path)

    disk.sync_directory = failing_sync  # type: ignore[method-assign]  # the machine dies there
    try:
        log.reset(base)
    except OSError:
        disk.sync_directory = sync  # type: ignore[method-assign]
        disk.crash(keep=rng.random())
    disk.sync_directory = sync  # type: ignore[method-assign]
    again = open_log(disk)
    assert not again.damages
    if again.base == base:
        assert again.last_index == 100
    else:
        assert again.entries(1, 21, 1 << 20) == tuple(entry(i) for i in range(1, 21))


def test_a_start_reads_sidecars_and_walks_the_last_segment_only() -> None:
    disk = ForgetfulDisk(random.Random(3))
    log = open_log(disk)
    log.append([entry(i, kind=EntryKind(1 + (i % 9 > 0))) for i in range(1, 100)])
    log.append([entry(i, term=4) for i in range(100, 120)])
    log.sync()
    configs = list(log.config_indexes)
    assert configs == list(range(9, 100, 9))
    log.close()
    disk.crash(keep=1.0)
    again = open_log(disk)
    assert again.recovery.segments > 15
    assert again.recovery.segments_scanned == 1
    assert list(again.config_indexes) == configs
    assert [again.term(index) for index in (1, 99, 100, 119)] == [1, 1, 4, 4]
    again.close()
    for name in disk.list("commitlog"):
        if name.endswith(".index"):
            disk.content(f"commitlog/{name}")[9] ^= 1
    disk.crash(keep=1.0)
    again = open_log(disk)
    assert again.recovery.segments_scanned == again.recovery.segments
    assert list(again.config_indexes) == configs
    again.close()
    disk.crash(keep=1.0)
    assert open_log(disk).recovery.segments_scanned == 1, "they were written anew"


def test_a_store_of_before_sidecars_and_slots_is_opened(tmp_path: Path) -> None:
    log = filled(OsDisk(tmp_path), 40)
    end = log.end_position
    log.close()
    for path in tmp_path.rglob("*"):
        if path.suffix in {".index", ".copy", ".base", ".durable"}:
            path.unlink()
    head = b"LMQD" + end.to_bytes(8, "big")
    (tmp_path / "commitlog.durable").write_bytes(head + zlib.crc32(head).to_bytes(4, "big"))
    again = open_log(OsDisk(tmp_path))
    assert again.last_index == 40
    assert again.recovery.durable_position == end
    again.close()
    assert (tmp_path / "commitlog.durable").stat().st_size == 8192


def test_the_index_of_a_closed_segment_is_not_kept_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raft.log.segment_table._CACHED_ENTRIES_MAX", 20)
    disk = ForgetfulDisk(random.Random(3))
    log = filled(disk, 300)
    for index in range(1, 301):
        assert log.entries(index, index + 1, 100) == (entry(index),)
        assert log.read(log.position(index) + HEADER_SIZE, 3) == b"%03d" % index
    assert len(log._table._cache) <= 4


class NoNewNames(OsDisk):
    """There is no room for the name of another sidecar."""

    refused = 0

    def open(self, path: str, *, create: bool) -> DiskFile:
        if create and path.endswith(".index"):
            self.refused += 1
            raise OSError(errno.ENOSPC, "no room", path)
        return super().open(path, create=create)


def test_a_log_goes_on_where_a_sidecar_has_no_room_for_its_name(tmp_path: Path) -> None:
    disk = NoNewNames(tmp_path)
    log = filled(disk, 20)
    assert disk.refused > 0
    log.close()
    again = open_log(disk)
    assert again.entries(1, 21, 1 << 20) == tuple(entry(index) for index in range(1, 21))
    again.close()
