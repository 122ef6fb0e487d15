"""A checkpoint is believed only as it was written: its commit index is acted upon."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from raft.log.disk import OsDisk
from raft.messages import NodeId
from raft.storage import Disk
from raft.store.checkpoint import Checkpoint, WrongStoreError, read_checkpoint, write_checkpoint
from raft.store.node_store import NodeStore
from tests.raft.node_group import node_config

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


def test_a_checkpoint_that_comes_late_neither_disturbs_nor_undoes_a_clean_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread writes on though the task that waited for it was cancelled."""
    peers = {NodeId("n0"): "127.0.0.1:1"}
    store = NodeStore(node_config(tmp_path, "n0", peers, trace=False), None)
    begun, go_on = threading.Event(), threading.Event()
    writing = 0

    def slowly(disk: Disk, checkpoint: Checkpoint) -> None:
        nonlocal writing
        writing += 1
        try:
            assert writing == 1, "one temporary file serves all"
            if not checkpoint.clean:
                begun.set()
                assert go_on.wait(10)
            write_checkpoint(disk, checkpoint)
        finally:
            writing -= 1

    monkeypatch.setattr("raft.store.node_store.write_checkpoint", slowly)
    with ThreadPoolExecutor(2) as threads:
        late = threads.submit(store.write_checkpoint, 0, 0, clean=False)
        assert begun.wait(10)
        last = threads.submit(
            store.end_cleanly, lambda: None, lambda: None, commit_index=0, applied_index=0
        )
        wait([last], timeout=0.2)  # time to get in, if it could
        go_on.set()
        late.result(10)
        last.result(10)
    store.write_checkpoint(0, 0, clean=False)
    assert store.checkpoint.clean
    store.close()
    again = NodeStore(node_config(tmp_path, "n0", peers, trace=False), None)
    assert again.checkpoint.clean
    again.write_checkpoint(0, 0, clean=False)
    assert not again.checkpoint.clean, "the next life's own counts"
    again.close()
