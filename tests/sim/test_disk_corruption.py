"""A simulated disk that rots and fills up, under the real log."""

from __future__ import annotations

import errno
import random

import pytest

from chaos.sim.machine.disk import SimDisk, Survival
from raft.log.damage import DamagedLogError
from raft.log.segment_log import SegmentLog
from raft.messages import Entry, EntryKind
from tests.sim.disk_corruption import Corruption, log_files, spoil_one


def entry(index: int) -> Entry:
    return Entry(index=index, term=1, kind=EntryKind.DATA, payload=b"%03d" % index * 10)


def open_log(disk: SimDisk) -> SegmentLog:
    return SegmentLog(
        disk,
        "commitlog",
        segment_size_bytes_max=500,
        preallocation_size_bytes=100,
        tail_size_bytes_max=100,
    )


@pytest.mark.parametrize("kind", Corruption)
def test_every_kind_is_found_and_mended(kind: Corruption) -> None:
    spoilt = 0
    for seed in range(60):
        rng = random.Random(seed)
        disk = SimDisk(rng)
        log = open_log(disk)
        log.append([entry(index) for index in range(1, 31)])
        log.sync()
        disk.power_failure(Survival.ALL)
        if spoil_one(disk, rng, kind, log_files(disk)) is None:
            continue
        log = open_log(disk)
        scrub = log.scrub()
        while not (step := scrub.step(200)).done:
            log.note_damages(step.damages)
        log.note_damages(step.damages)
        unreadable = 0
        for index in range(1, 31):
            try:
                assert log.entries(index, index + 1, 1 << 20) == (entry(index),)
            except DamagedLogError:
                unreadable += 1
        spoilt += unreadable > 0
        while log.damages:
            wanted = log.wanted_index(log.damages[0])
            log.repair(wanted, [entry(i) for i in range(wanted, log.damages[0].last_index + 1)])
        assert log.entries(1, 31, 1 << 20) == tuple(entry(index) for index in range(1, 31))
    assert spoilt > 10


def test_a_full_disk_takes_what_was_allocated_and_no_more() -> None:
    disk = SimDisk(random.Random(1))
    file = disk.open("f", create=True)
    disk.capacity_bytes = 100
    file.allocate(80)
    assert disk.used_bytes == 80
    file.pwritev([b"x" * 80], 0)
    for grow in (lambda: file.allocate(101), lambda: file.pwritev([b"y" * 30], 75)):
        with pytest.raises(OSError, match="No space") as info:
            grow()
        assert info.value.errno == errno.ENOSPC
    disk.capacity_bytes = None
    file.allocate(1000)


def test_a_log_on_a_full_disk_goes_on_once_there_is_room() -> None:
    disk = SimDisk(random.Random(1))
    log = open_log(disk)
    disk.capacity_bytes = disk.used_bytes + 1500
    index = 0
    while log.reserve(74):
        index += 1
        log.append([entry(index)])
        log.sync()
    assert 10 < index < 25
    disk.capacity_bytes += 2000
    assert log.reserve(74)
    log.append([entry(index + 1)])
    log.sync()
    disk.power_failure(Survival.NONE)
    assert open_log(disk).last_index == index + 1
