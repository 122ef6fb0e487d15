"""Snapshot files: what is written comes back, what is damaged is never restored."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raft.log.disk import OsDisk
from raft.messages import LogBase
from raft.snapshots.snapshot import (
    BLOCK_SIZE_BYTES_MAX,
    DamagedSnapshotError,
    SnapshotFiles,
    SnapshotHeader,
)
from tests.raft.forgetful_disk import ForgetfulDisk


def header(index: int = 7) -> SnapshotHeader:
    return SnapshotHeader(
        last=LogBase(index=index, term=3, position=4096, chain=0xDEADBEEF),
        config_index=2,
        membership=b"members",
    )


def test_the_file_is_drawn_in_the_formats(tmp_path: Path) -> None:
    files = SnapshotFiles(OsDisk(tmp_path))
    assert files.write(header(), [b"state", b"more"]) == 100
    data = (tmp_path / "snapshots" / "00000000000000000007.snapshot").read_bytes()
    assert data.hex(" ", 4) == (
        "4c4d5153 00000001 00000000 00000007 00000000 00000003 00000000 00001000 deadbeef "
        "00000000 00000002 00000007 6d656d62 657273cd 6b722500 000005a3 93d2fb73 74617465 "
        "00000004 8b52f27c 6d6f7265 00000000 00000000 00000009 d3e29868"
    )
    assert files.indexes() == [7]
    assert files.verified(7) == header()


@given(chunks=st.lists(st.binary(min_size=1, max_size=3000), max_size=8), index=st.integers(0, 9))
def test_a_state_comes_back(chunks: list[bytes], index: int) -> None:
    disk = ForgetfulDisk(random.Random(index))
    files = SnapshotFiles(disk)
    files.write(header(index), chunks)
    disk.crash(keep=0)
    files = SnapshotFiles(disk)
    assert files.verified(index) == header(index)
    assert list(files.chunks(index)) == chunks


def test_the_largest_chunk_and_an_empty_state(tmp_path: Path) -> None:
    files = SnapshotFiles(OsDisk(tmp_path))
    files.write(header(1), [bytes(BLOCK_SIZE_BYTES_MAX)])
    files.write(header(2), [])
    assert [len(chunk) for chunk in files.chunks(1)] == [BLOCK_SIZE_BYTES_MAX]
    assert list(files.chunks(2)) == []


def test_every_damaged_byte_and_every_cut_is_found(tmp_path: Path) -> None:
    files = SnapshotFiles(OsDisk(tmp_path))
    files.write(header(), [b"state of the group" * 3, b"x"])
    path = tmp_path / files.path(7)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        with pytest.raises(DamagedSnapshotError):
            files.verified(7)
        path.write_bytes(whole[:place])
        with pytest.raises(DamagedSnapshotError):
            files.verified(7)
    path.write_bytes(whole + b"\0")
    with pytest.raises(DamagedSnapshotError):
        files.verified(7)


def test_blocks_of_another_snapshot_are_found(tmp_path: Path) -> None:
    """Each block is right in itself, the whole is not."""
    files = SnapshotFiles(OsDisk(tmp_path))
    files.write(header(), [b"aaaa", b"bbbb"])
    path = tmp_path / files.path(7)
    data = path.read_bytes()
    begin = data.index(b"aaaa") - 8
    swapped = data[:begin] + data[begin + 12 : begin + 24] + data[begin : begin + 12]
    path.write_bytes(swapped + data[begin + 24 :])
    with pytest.raises(DamagedSnapshotError, match="trailer"):
        files.verified(7)


def test_a_file_under_another_index_is_not_that_snapshot(tmp_path: Path) -> None:
    files = SnapshotFiles(OsDisk(tmp_path))
    files.write(header(7), [b"state"])
    (tmp_path / files.path(7)).rename(tmp_path / files.path(9))
    with pytest.raises(DamagedSnapshotError, match="of index 7"):
        files.verified(9)


def test_a_crash_leaves_a_whole_snapshot_or_none() -> None:
    for seed in range(200):
        disk = ForgetfulDisk(random.Random(seed))
        files = SnapshotFiles(disk)
        files.write(header(1), [b"old"])

        def chunks(disk: ForgetfulDisk = disk, seed: int = seed) -> Iterator[bytes]:
            yield b"new state" * 100
            disk.fail_syncs = seed % 2 == 0
            yield b"its end"

        if seed % 2 == 0:
            with pytest.raises(OSError, match="Input/output error"):
                files.write(header(2), chunks())
        else:
            files.write(header(2), chunks())
        disk.fail_syncs = False
        disk.crash(keep=0.5)
        files = SnapshotFiles(disk)
        for index in files.indexes():
            files.verified(index)
        assert files.indexes() == ([1] if seed % 2 == 0 else [1, 2])


def test_what_is_not_kept_is_removed(tmp_path: Path) -> None:
    files = SnapshotFiles(OsDisk(tmp_path))
    for index in (3, 10, 200):
        files.write(header(index), [b"state"])
    files.retain({200, 10, 4})
    assert files.indexes() == [10, 200]
    files.retain({10})
    assert files.indexes() == [10, 200], "a newer one is a leader's, which is to be installed"
    files.retain(())
    assert files.indexes() == [10, 200]


def test_what_was_not_finished_is_removed_at_the_start(tmp_path: Path) -> None:
    files = SnapshotFiles(OsDisk(tmp_path))
    files.open_incoming().close()
    (tmp_path / "snapshots" / "00000000000000000009.tmp").write_bytes(b"half")
    (tmp_path / "snapshots" / "notes").write_text("a person's")
    files = SnapshotFiles(OsDisk(tmp_path))
    assert files.indexes() == []
    assert [path.name for path in (tmp_path / "snapshots").iterdir()] == ["notes"]
