"""A checkpoint is believed only as it was written: its commit index is acted upon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raft.checkpoint import Checkpoint, WrongStoreError, read_checkpoint, write_checkpoint
from raft.disk import OsDisk

WRITTEN = Checkpoint(
    group="broker-a", node="n1", incarnation=3, commit_index=1017, applied_index=1000, clean=True
)
NOTHING = Checkpoint(group="broker-a", node="n1")


def read(path: Path) -> Checkpoint:
    return read_checkpoint(OsDisk(path.parent), store=path.parent, group="broker-a", node="n1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint"
    write_checkpoint(OsDisk(tmp_path), WRITTEN)
    return path


def test_it_comes_back(path: Path) -> None:
    assert read(path) == WRITTEN
    path.unlink()
    assert read(path) == NOTHING


def test_every_changed_byte_and_every_cut_is_found(path: Path) -> None:
    """A commit index that says more than was committed would have uncommitted entries applied."""
    whole = path.read_bytes().rstrip()
    for place in range(len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            assert read(path) in {NOTHING, WRITTEN}  # a space may become another one
        path.write_bytes(whole[:place])
        assert read(path) == NOTHING


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"group": "broker-a", "node": "n1", "commit_index": 1e999}',
        '{"group": "broker-a", "node": "n1", "incarnation": 1, "commit_index": Infinity, '
        '"applied_index": 1, "clean": true}',
        json.dumps({"group": "broker-b", "node": "n1", "incarnation": 1, "commit_index": 5}),
        "\x00" * 100,
        "[" * 5_000,
    ],
)
def test_what_it_is_not_says_nothing(path: Path, text: str) -> None:
    path.write_text(text)
    assert read(path) == NOTHING


def test_another_nodes_is_refused(path: Path) -> None:
    with pytest.raises(WrongStoreError, match="belongs to broker-a/n1, not to broker-a/n2"):
        read_checkpoint(OsDisk(path.parent), store=path.parent, group="broker-a", node="n2")
