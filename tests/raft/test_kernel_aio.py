"""Fsyncs by the kernel's AIO: on real files, on what refuses them, and what they may fail with."""

from __future__ import annotations

import asyncio
import errno
import os
import platform
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from campaigns.rig.waiting import turns, until
from raft.log import kernel_aio
from raft.log.disk import OsDisk
from raft.log.kernel_aio import FsyncQueue, examine

pytestmark = pytest.mark.skipif(
    platform.machine() not in kernel_aio._NUMBERS, reason="no numbers of its system calls"
)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    os.pwrite(descriptor, b"entry" * 1000, 0)
    yield descriptor
    os.close(descriptor)


def attached() -> FsyncQueue:
    queue = FsyncQueue()
    queue.attach(asyncio.get_running_loop())
    return queue


async def test_the_loop_is_told_once_of_each(file: int) -> None:
    ended: list[OSError | None] = []
    with closing(attached()) as queue:
        for count in range(1, 6):
            assert queue.submit(file, ended.append)
            assert len(ended) == count - 1, "not within the call"
            await until(lambda count=count: len(ended) == count, "it is done")
        await turns(3)
    assert ended == [None] * 5
    assert queue.under_way == 0


async def test_no_more_than_a_few_are_under_way(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[OSError | None] = []
    with closing(attached()) as queue:
        begun = [queue.submit(file, ended.append) for _ in range(kernel_aio._DEPTH + 1)]
        assert begun == [True] * kernel_aio._DEPTH + [False]
        await until(lambda: len(ended) == kernel_aio._DEPTH, "they are done")
        assert queue.submit(file, ended.append), "and there is room again"
        await until(lambda: not queue.under_way, "so is this one")


async def test_who_waits_has_the_outcome_before_the_callback(file: int) -> None:
    ended: list[OSError | None] = []
    with closing(attached()) as queue:
        for _ in range(3):
            assert queue.submit(file, ended.append)
        assert queue.wait() is None
        assert queue.under_way == 0
        assert ended == [], "the loop calls them"
        await until(lambda: len(ended) == 3, "it does")
        assert queue.wait() is None, "of nothing"


async def test_a_closed_file_is_refused_and_nothing_is_called(tmp_path: Path) -> None:
    ended: list[OSError | None] = []
    with closing(attached()) as queue:
        assert not queue.submit(9_999, ended.append)
        assert queue.under_way == 0


async def test_the_ring_goes_round_and_round(file: int) -> None:
    ended: list[OSError | None] = []
    with closing(attached()) as queue:
        assert queue._ring is not None, "this kernel has the layout that is known"
        for count in range(1, 3 * queue._ring_count):
            assert queue.submit(file, ended.append)
            await until(lambda count=count: len(ended) == count, "it is done")
    assert set(ended) == {None}


async def test_what_the_kernel_reports_in_the_ring_is_the_error(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[OSError | None] = []
    with closing(attached()) as queue:
        real = os.eventfd_read

        def fails(descriptor: int) -> int:
            ring = queue._ring
            assert ring is not None
            head, tail = kernel_aio._RING_ENDS.unpack_from(ring, kernel_aio._RING_ENDS_AT)
            if head != tail:
                at = queue._ring_begin + head * kernel_aio._EVENT.size
                number, iocb, _, _ = kernel_aio._EVENT.unpack_from(ring, at)
                kernel_aio._EVENT.pack_into(ring, at, number, iocb, -errno.EIO, 0)
            return real(descriptor)

        monkeypatch.setattr(os, "eventfd_read", fails)
        assert queue.submit(file, ended.append)
        await until(lambda: bool(ended), "it is done")
        assert ended[0] is not None
        assert ended[0].errno == errno.EIO


async def test_what_the_kernel_reports_is_the_error(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[OSError | None] = []
    with closing(attached()) as queue:
        queue._ring = None  # as of a kernel with another layout
        real = queue._calls.io_getevents

        def fails(*arguments: object) -> int:
            count = real(*arguments)
            for place in range(count):
                at = place * kernel_aio._EVENT.size
                number, iocb, _, _ = kernel_aio._EVENT.unpack_from(queue._events, at)
                kernel_aio._EVENT.pack_into(queue._events, at, number, iocb, -errno.EIO, 0)
            return count

        monkeypatch.setattr(queue._calls, "io_getevents", fails)
        assert queue.submit(file, ended.append)
        await until(lambda: bool(ended), "it is done")
        assert ended[0] is not None
        assert ended[0].errno == errno.EIO
        assert queue.submit(file, ended.append)
        failure = queue.wait()
        assert failure is not None
        assert failure.errno == errno.EIO


async def test_a_close_waits_for_nothing_and_calls_nothing(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a disk that hangs: io_destroy would wait for it."""
    ended: list[OSError | None] = []
    queue = attached()
    assert queue.submit(file, ended.append)

    def waits(context: int) -> int:
        raise AssertionError("it waits")

    destroy = queue._calls.io_destroy
    monkeypatch.setattr(queue._calls, "io_destroy", waits)
    queue.close()
    queue.close()
    await turns(30)
    assert ended == []
    destroy(queue._context)


def test_this_machine_says_what_it_can(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    assert examine(tmp_path / "file") is None
    refusal = examine(Path("/dev/null"))
    assert refusal is not None
    assert "Invalid argument (io_submit of an fsync)" in refusal
    assert "No such file" in str(examine(tmp_path / "missing"))


def test_a_machine_without_the_calls_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(OSError, match="kernel AIO on linux, riscv64") as refused:
        FsyncQueue()
    assert refused.value.errno == errno.ENOSYS


def test_a_kernel_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = kernel_aio._NUMBERS[platform.machine()]._replace(io_setup=100_000)
    monkeypatch.setitem(kernel_aio._NUMBERS, platform.machine(), numbers)
    with pytest.raises(OSError, match="io_setup") as refused:
        FsyncQueue()
    assert refused.value.errno == errno.ENOSYS


def test_a_trial_that_gets_no_answer_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with closing(FsyncQueue()) as queue:
        real = queue._calls.io_getevents
        monkeypatch.setattr(queue._calls, "io_getevents", lambda *_: 0)
        with pytest.raises(TimeoutError):
            queue.try_out(tmp_path / "file")
        monkeypatch.setattr(queue._calls, "io_getevents", real)
        assert len(queue._reap(least=1, timeout=None)) == 1


async def test_a_disk_that_refuses_stays_usable(tmp_path: Path) -> None:
    (tmp_path / "refuses").symlink_to("/dev/null")
    disk = OsDisk(tmp_path)
    with pytest.raises(OSError, match="io_submit of an fsync"):
        disk.open_syncs("refuses")
    with closing(disk.open("log", create=True)) as file:
        assert not file.begin_sync(lambda _: None)
        file.sync()
        disk.open_syncs("log")
        ended: list[OSError | None] = []
        assert file.begin_sync(ended.append)
        assert disk.wait_for_syncs() is None
        await until(lambda: ended == [None], "its report")
    disk.close_syncs()
    disk.close_syncs()
    assert disk.wait_for_syncs() is None
