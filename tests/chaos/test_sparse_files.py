"""Holes at a file's end are cut, and nothing else."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from chaos.recording.sparse_files import cut_trailing_holes, end_of_data

PAGE = 4096


def sparse(path: Path, size: int, pieces: dict[int, bytes]) -> bytes:
    with path.open("wb") as file:
        for at, data in pieces.items():
            file.seek(at)
            file.write(data)
        file.truncate(size)
    return path.read_bytes()


@pytest.fixture(autouse=True)
def _holes_are_known(tmp_path: Path) -> None:
    sparse(tmp_path / "probe", 1 << 20, {})
    if end_of_data(tmp_path / "probe"):
        pytest.skip("this file system knows no holes")
    (tmp_path / "probe").unlink()


def test_a_file_ends_with_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    path.parent.mkdir()
    before = sparse(path, 6_000_000, {0: b"x" * 20, 900_000: b"y" * 20})
    assert cut_trailing_holes(tmp_path) == 6_000_000 - path.stat().st_size
    after = path.read_bytes()
    assert 900_020 <= len(after) < 900_020 + PAGE
    assert before == after + bytes(len(before) - len(after))
    assert cut_trailing_holes(tmp_path) == 0, "a second time there is nothing to cut"


def test_whatever_is_written(tmp_path: Path) -> None:
    rng = random.Random(5)
    for number in range(30):
        path = tmp_path / f"{number}"
        pieces = {
            rng.randrange(1 << 20): rng.randbytes(rng.randrange(1, 9000))
            for _ in range(rng.randrange(4))
        }
        before = sparse(path, rng.choice([0, 1, PAGE, 1 << 20, 3 << 20]), pieces)
        cut_trailing_holes(tmp_path)
        after = path.read_bytes()
        assert before == after + bytes(len(before) - len(after))
        written = max([0, *(at + len(data) for at, data in pieces.items())])
        assert len(after) < written + PAGE


def test_bytes_that_were_allocated_stay(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    descriptor = os.open(path, os.O_RDWR)
    os.pwrite(descriptor, bytes(PAGE), 0)
    os.close(descriptor)
    assert cut_trailing_holes(tmp_path) == 0
    assert path.read_bytes() == bytes(PAGE)
