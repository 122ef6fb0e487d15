"""The undo journal against a model that remembers everything, and the disk over it.

The model keeps each file's bytes as they are and as they were at its last honest fsync, and each
directory's names likewise: what a power failure leaves is the latter, or something in between.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.failpoints.catalogue import DISK_POINTS
from broker.failpoints.faulty_disk import FaultyDisk
from broker.failpoints.orders import Action, Arming
from broker.failpoints.points import FailPoint
from broker.failpoints.undo_journal import DIRECTORY, lose_unsynced
from campaigns.rig.waiting import await_until
from raft.storage import write_fully

PATHS = ("a", "b", "d/a", "d/b", "d/c")


@dataclass(eq=False)
class ModelFile:
    now: bytes = b""
    states: list[bytes] = field(default_factory=lambda: [b""])
    """What it was at its last fsync, then after each change since."""

    def become(self, data: bytes) -> None:
        if data != self.now:
            self.now = data
            self.states.append(data)

    def sync(self) -> None:
        self.states = [self.now]


class Model:
    """A store that was fsynced now and then."""

    def __init__(self) -> None:
        self.now: dict[str, ModelFile] = {}
        self.durable: dict[str, ModelFile] = {}

    def sync_directory(self, directory: str) -> None:
        for path in PATHS:
            if path.rpartition("/")[0] == directory:
                self.durable.pop(path, None)
                if path in self.now:
                    self.durable[path] = self.now[path]


class Pair:
    """The disk and the model, given the same operations."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.rng = rng
        self.root = root
        self.points = {row.name: FailPoint(row) for row in DISK_POINTS}
        self.model = Model()
        self.open_anew()
        self.disk.make_directory("d")

    def open_anew(self) -> None:
        """As after a kill of the process."""
        self.disk = FaultyDisk(self.root, self.points)

    def step(self) -> None:
        kinds = ("write",) * 5 + ("truncate", "allocate", "sync", "sync", "names", "rename")
        kind = self.rng.choice((*kinds, "remove", "lie", "kill"))
        path = self.rng.choice(PATHS)
        getattr(self, f"do_{kind}")(path)

    def do_write(self, path: str) -> None:
        model = self._opened(path)
        data = self.rng.randbytes(self.rng.randint(1, 1_500))
        if self.rng.random() < 0.3:
            data = bytes(len(data))
        offset = self.rng.randint(0, len(model.now) + 300)
        file = self.disk.open(path, create=False)
        write_fully(file, data, offset)
        file.close()
        old = model.now.ljust(offset, b"\0")
        model.become(old[:offset] + data + old[offset + len(data) :])

    def do_truncate(self, path: str) -> None:
        model = self._opened(path)
        size = self.rng.randint(0, len(model.now) + 100)
        file = self.disk.open(path, create=False)
        file.truncate(size)
        file.close()
        model.become(model.now[:size].ljust(size, b"\0"))

    def do_allocate(self, path: str) -> None:
        model = self._opened(path)
        size = self.rng.randint(1, len(model.now) + 600)
        file = self.disk.open(path, create=False)
        file.allocate(size)
        file.close()
        model.become(model.now.ljust(size, b"\0"))

    def do_sync(self, path: str) -> None:
        if path in self.model.now:
            file = self.disk.open(path, create=False)
            file.sync()
            file.close()
            self.model.now[path].sync()

    def do_names(self, path: str) -> None:
        directory = path.rpartition("/")[0]
        self.disk.sync_directory(directory)
        self.model.sync_directory(directory)

    def do_lie(self, path: str) -> None:
        for name in ("disk.fsync", "disk.fsync_directory"):
            self.points[name].arm(Arming(point=name, action=Action.LIE))
        if path in self.model.now:
            self.disk.open(path, create=False).sync()
        self.disk.sync_directory(path.rpartition("/")[0])
        for name in ("disk.fsync", "disk.fsync_directory"):
            self.points[name].disarm()

    def do_rename(self, path: str) -> None:
        others = [p for p in PATHS if p != path and p.rpartition("/")[0] == path.rpartition("/")[0]]
        target = self.rng.choice(others)
        if path in self.model.now:
            self.disk.rename(path, target)
            self.model.now[target] = self.model.now.pop(path)

    def do_remove(self, path: str) -> None:
        if path in self.model.now:
            self.disk.remove(path)
            del self.model.now[path]

    def do_kill(self, _: str) -> None:
        self.open_anew()

    def stands(self) -> dict[str, bytes]:
        found = [p for p in self.root.rglob("*") if p.is_file() and DIRECTORY not in p.parts]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in found}

    def _opened(self, path: str) -> ModelFile:
        if path not in self.model.now:
            self.disk.open(path, create=True).close()
            self.model.now[path] = ModelFile()
        return self.model.now[path]


@pytest.mark.parametrize("seed", range(12))
def test_all_that_no_fsync_covers_is_lost_and_nothing_else(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    pair = Pair(tmp_path, rng)
    for _ in range(12):
        for _ in range(rng.randint(1, 25)):
            pair.step()
        model = pair.model
        assert pair.stands() == {path: file.now for path, file in model.now.items()}
        lost = lose_unsynced(tmp_path)
        durable = {path: file.states[0] for path, file in model.durable.items()}
        assert pair.stands() == durable
        changed = {path: file.now for path, file in model.now.items()} != durable
        assert lost.count or not changed
        assert lose_unsynced(tmp_path).count == 0, "once is enough"
        model.now = {path: ModelFile(now=data, states=[data]) for path, data in durable.items()}
        model.durable = dict(model.now)
        pair.open_anew()


@pytest.mark.parametrize("seed", range(30))
def test_a_part_of_it_is_lost_from_the_end_of_each_file(tmp_path: Path, seed: int) -> None:
    """Files keep their names here: each ends in a state that it had, or torn between two."""
    rng = random.Random(seed)
    pair = Pair(tmp_path, rng)
    for path in PATHS:
        pair.do_write(path)
        pair.do_sync(path)
        pair.do_names(path)
    for _ in range(60):
        kind = rng.choice(("write", "write", "write", "truncate", "allocate", "sync", "kill"))
        getattr(pair, f"do_{kind}")(rng.choice(PATHS))
    if seed % 3 == 0:
        lose_unsynced(tmp_path)
        assert pair.stands() == {path: file.states[0] for path, file in pair.model.now.items()}
        return
    lose_unsynced(tmp_path, rng)
    for path, data in pair.stands().items():
        states = pair.model.now[path].states
        between = [_torn(data, one, other) for one, other in itertools.pairwise(states)]
        assert data in states or any(between), path


def _torn(data: bytes, before: bytes, after: bytes) -> bool:
    """Whether the first sectors are of `after` and the rest of `before`."""
    size = max(len(before), len(after))
    if not min(len(before), len(after)) <= len(data) <= size:
        return False
    before, after = before.ljust(size, b"\0"), after.ljust(size, b"\0")
    padded = data.ljust(size, b"\0")
    cuts = range(0, size + 512, 512)
    return any(
        padded == (after[:cut] + before[cut:])[: len(data)].ljust(size, b"\0") for cut in cuts
    )


def test_what_was_written_during_an_fsync_is_not_covered_by_it(tmp_path: Path) -> None:
    pair = Pair(tmp_path, random.Random(1))
    file = pair.disk.open("a", create=True)
    pair.disk.sync_directory("")
    write_fully(file, b"one", 0)
    undo = file._undo
    begun, go_on = threading.Event(), threading.Event()

    def sync() -> None:
        with undo.syncing():
            begun.set()
            go_on.wait(10)

    thread = threading.Thread(target=sync)
    thread.start()
    begun.wait(10)
    write_fully(file, b"two", 0)
    go_on.set()
    thread.join()
    lose_unsynced(tmp_path)
    assert (tmp_path / "a").read_bytes() == b"one"


def test_a_failed_fsync_covers_nothing(tmp_path: Path) -> None:
    pair = Pair(tmp_path, random.Random(1))
    file = pair.disk.open("a", create=True)
    pair.disk.sync_directory("")
    write_fully(file, b"one", 0)
    pair.points["disk.fsync"].arm(
        Arming(point="disk.fsync", action=Action.ERROR, errno="EIO", only="a", count=1)
    )
    with pytest.raises(OSError, match=r"failpoint disk\.fsync"):
        file.sync()
    lose_unsynced(tmp_path)
    assert (tmp_path / "a").read_bytes() == b""


def test_a_copy_of_a_store_has_no_part_in_its_journal(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    pair = Pair(first, random.Random(1))
    pair.do_write("a")
    shutil.copytree(first, second)
    before = (second / "a").read_bytes()
    assert lose_unsynced(second).count == 0
    assert (second / "a").read_bytes() == before
    assert lose_unsynced(first).names == ["create a"]
    assert not (first / "a").exists()


def test_a_torn_record_was_never_made(tmp_path: Path) -> None:
    """A kill between the journal's record and the change undoes nothing."""
    pair = Pair(tmp_path, random.Random(1))
    file = pair.disk.open("a", create=True)
    pair.disk.sync_directory("")
    write_fully(file, b"one", 0)
    file.sync()
    write_fully(file, b"two", 0)
    [record] = (tmp_path / DIRECTORY).glob("file-*")
    os.truncate(record, record.stat().st_size - 1)
    lose_unsynced(tmp_path)
    assert (tmp_path / "a").read_bytes() == b"two"


def test_what_a_kill_left_of_a_removed_file_has_no_history(tmp_path: Path) -> None:
    """Its inode will be another file's."""
    pair = Pair(tmp_path, random.Random(1))
    for step in (pair.do_write, pair.do_sync, pair.do_names, pair.do_write, pair.do_remove):
        step("a")
    journal = tmp_path / DIRECTORY
    assert len(list(journal.glob("kept-*"))) == len(list(journal.glob("file-*"))) == 1
    (journal / "names").write_text("")  # it was dropped, and then the process was killed
    pair.open_anew()
    assert not [*journal.glob("kept-*"), *journal.glob("file-*")]


def test_a_short_write_writes_half_and_a_failing_one_too(tmp_path: Path) -> None:
    pair = Pair(tmp_path, random.Random(1))
    file = pair.disk.open("a", create=True)
    point = pair.points["disk.write"]
    point.arm(Arming(point="disk.write", action=Action.SHORT, count=1))
    assert file.pwritev([b"1234", b"5678"], 0) == 4
    point.arm(Arming(point="disk.write", action=Action.SHORT, errno="ENOSPC"))
    with pytest.raises(OSError, match="No space left"):
        file.pwritev([b"abcdefgh"], 4)
    assert (tmp_path / "a").read_bytes() == b"1234abcd"


def test_a_stuck_fsync_ends_with_its_disarming(tmp_path: Path) -> None:
    pair = Pair(tmp_path, random.Random(1))
    file = pair.disk.open("a", create=True)
    write_fully(file, b"one", 0)
    point = pair.points["disk.fsync"]
    point.arm(Arming(point="disk.fsync", action=Action.STUCK))
    thread = threading.Thread(target=file.sync)
    thread.start()
    await_until(lambda: point.report().waiting == 1, "the fsync is stuck")
    point.disarm()
    thread.join(10)
    assert not thread.is_alive()
    pair.disk.sync_directory("")
    assert lose_unsynced(tmp_path).count == 0


def test_the_journal_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the number of names and the size of what a file has: the oldest counts as written back."""
    monkeypatch.setattr("broker.failpoints.undo_journal._NAMES_MAX", 8)
    monkeypatch.setattr("broker.failpoints.undo_journal._GENERATION_SIZE_MAX", 1_000)
    monkeypatch.setattr("broker.failpoints.undo_journal._GENERATIONS_MAX", 4)
    pair = Pair(tmp_path, random.Random(1))
    file = pair.disk.open("a", create=True)
    file.allocate(100_000)
    for number in range(40):
        pair.disk.open("b", create=True).close()
        pair.disk.rename("b", "c")
        write_fully(file, random.Random(number).randbytes(400), 400 * number)
        write_fully(file, random.Random(-number).randbytes(400), 400 * number)
    left = [path.name for path in (tmp_path / DIRECTORY).iterdir()]
    assert sum(name.startswith("kept") for name in left) <= 8
    assert sum(name.startswith("file") for name in left) <= 6
    before = (tmp_path / "a").read_bytes()
    lose_unsynced(tmp_path)
    after = (tmp_path / "a").read_bytes()
    assert after != before
    assert after[:10_000] == before[:10_000], "the oldest stays"


def test_random_operations_are_the_same_with_the_same_seed(tmp_path: Path) -> None:
    seen = []
    for name in ("x", "y"):
        root = tmp_path / name
        root.mkdir()
        pair = Pair(root, random.Random(5))
        for _ in range(40):
            pair.step()
        lose_unsynced(root, random.Random(7))
        seen.append(pair.stands())
    assert seen[0] == seen[1]
