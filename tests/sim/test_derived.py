"""What a failure of power leaves of simulated ConsumeQueues: sectors old or new, no others'."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.sim.groups.derived import DerivedState
from chaos.sim.groups.programs.settings import memory_directory
from chaos.sim.machine.disk import Survival

_SIZE = 640


@pytest.fixture
def store() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=memory_directory()) as directory:
        queue = Path(directory) / "consumequeue"
        queue.mkdir()
        yield queue.parent


def _sync(derived: DerivedState, path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        derived.on_fsync(descriptor)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("seed", range(8))
def test_each_sector_is_what_it_was_or_what_it_became(store: Path, seed: int) -> None:
    derived, path = DerivedState(store, random.Random(seed)), store / "consumequeue" / "0"
    path.write_bytes(b"a" * _SIZE)
    _sync(derived, path)
    path.write_bytes(b"b" * _SIZE)
    derived.power_failure(Survival.NONE)
    assert set(path.read_bytes()) == set(b"ab")


@pytest.mark.parametrize("seed", range(8))
def test_a_file_made_anew_has_nothing_of_the_one_before(store: Path, seed: int) -> None:
    derived, path = DerivedState(store, random.Random(seed)), store / "consumequeue" / "0"
    path.write_bytes(b"a" * _SIZE)
    _sync(derived, path)
    path.rename(path.with_name("away"))  # its inode is not free for the next one
    path.write_bytes(b"b" * _SIZE)
    derived.power_failure(Survival.NONE)
    left = path.read_bytes() if path.exists() else b""
    assert set(left) <= set(b"b\0"), "nothing of the one before, whatever is lost of this one"


def test_what_is_remembered_of_a_preallocated_file_is_what_was_written(tmp_path: Path) -> None:
    """A broker of a thousand queues would take gigabytes else."""
    state = DerivedState(tmp_path, random.Random(1))
    path = tmp_path / "consumequeue" / "T" / "0" / "0"
    path.parent.mkdir(parents=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.ftruncate(descriptor, 6 << 20)
        os.pwrite(descriptor, b"first", 0)
        os.pwrite(descriptor, b"behind a hole", 1 << 20)
        os.lseek(descriptor, 7, os.SEEK_SET)
        state.on_fsync(descriptor)
        assert os.lseek(descriptor, 0, os.SEEK_CUR) == 7, "the file's place is its owner's"
        ((_, size, written),) = state._synced.values()
        assert (size, len(written)) == (6 << 20, (1 << 20) + len(b"behind a hole"))
        before = path.read_bytes()
        os.pwrite(descriptor, b"lost", 2 << 20)
    finally:
        os.close(descriptor)
    state.power_failure(Survival.NONE)
    found = path.read_bytes()
    assert len(found) == 6 << 20
    assert found[: 2 << 20] == before[: 2 << 20]
