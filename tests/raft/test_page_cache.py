"""What the kernel is told to forget: only what is synced and well before the log's end."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.log.disk import OsDisk
from raft.log.page_cache import PageCacheWindow
from raft.log.segment_log import SegmentLog
from raft.messages import Entry, EntryKind

MIB = 1 << 20


class Told:
    """A disk that notes, as positions of the log, what it is told to forget."""

    def __init__(self) -> None:
        self.forgotten: list[tuple[int, int]] = []
        self.gone: set[int] = set()

    def open(self, path: str, *, create: bool) -> ToldFile:
        assert not create
        if int(path) in self.gone:
            raise FileNotFoundError(path)
        return ToldFile(self, int(path))


class ToldFile:
    def __init__(self, disk: Told, position: int) -> None:
        self._disk = disk
        self._position = position

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def drop_cache(self, offset: int = 0, size: int = 0) -> None:
        assert size > 0, "not all of it"
        begin = self._position + offset
        self._disk.forgotten.append((begin, begin + size))

    def close(self) -> None:
        pass


@given(
    window=st.integers(1, 40).map(lambda size: size * MIB),
    steps=st.lists(st.integers(1, 30 * MIB), max_size=60),
    segment_size=st.integers(5 * MIB, 70 * MIB),
    start=st.integers(0, 100 * MIB),
)
def test_one_stretch_behind_the_window_goes(window, steps, segment_size, start):
    disk = Told()
    cache = PageCacheWindow(disk, str, window)
    start = min(start, segment_size)
    cache.restart(0, start)
    end = start
    begins = 0
    for step in steps:
        end += step
        while end - begins > segment_size:
            begins += segment_size
            cache.begin(begins)
        cache.advance(end)
        assert all(stop <= end - window for _, stop in disk.forgotten)
    expected = start
    for begin, stop in disk.forgotten:
        assert begin == expected, "no hole, and nothing twice"
        assert stop > begin
        expected = stop


def test_what_is_forgotten_keeps_up(tmp_path):
    disk = Told()
    cache = PageCacheWindow(disk, str, 8 * MIB)
    cache.restart(0, 0)
    for end in range(MIB, 200 * MIB, MIB):
        if end % (64 * MIB) == 0:
            cache.begin(end)
        cache.advance(end)
    assert disk.forgotten[-1][1] >= 199 * MIB - 8 * MIB - 4 * MIB


def test_segments_that_are_gone_and_logs_that_were_cut_do_not_stop_it():
    disk = Told()
    disk.gone = {0}
    cache = PageCacheWindow(disk, str, MIB)
    cache.restart(0, 0)
    cache.begin(6 * MIB)
    for end in (10 * MIB, 11 * MIB, 12 * MIB, 13 * MIB):
        cache.advance(end)
    assert disk.forgotten == [(6 * MIB, 10 * MIB)]
    cache.restart(6 * MIB, 7 * MIB)
    cache.advance(8 * MIB)
    assert len(disk.forgotten) == 1
    cache.advance(20 * MIB)
    assert disk.forgotten[1:] == [(7 * MIB, 11 * MIB)]


@pytest.mark.parametrize("size", [0, MIB])
def test_a_log_reads_what_left_the_cache(tmp_path, size):
    log = SegmentLog(
        OsDisk(Path(tmp_path)),
        "commitlog",
        segment_size_bytes_max=3 * MIB,
        tail_size_bytes_max=MIB,
        cached_size_bytes=size,
    )
    payloads = [bytes([number]) * (MIB // 2) for number in range(40)]
    for number, payload in enumerate(payloads, start=1):
        log.append([Entry(index=number, term=1, kind=EntryKind.DATA, payload=payload)])
        log.sync()
    assert [entry.payload for entry in log.entries(1, 41, 1 << 30)] == payloads
    log.close()
