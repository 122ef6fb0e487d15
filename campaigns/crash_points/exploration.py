"""Every place where a store may die: what each operation of a disk leaves, for each way to die.

A `CrashDisk` is the simulator's disk that shows, ahead of each of its operations, what a crash
there would leave: the process killed (within a write, too), the process stopped by an fsync that
failed, and the power failed with each survival of what was not fsynced. `explore` runs a script
over a real store (`store_life`) and starts the store again from each of these images; that second
life, start and all, dies at each of its operations in turn; the third start is only looked at.
Images that hold the same bytes, and follow the same promises, are tried once.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from campaigns.crash_points.ha_life import HA_AFTERLIFE, HaLife, HaPromise
from campaigns.crash_points.store_life import BrokenPromiseError, Promise, StoreLife
from campaigns.crash_points.store_scripts import AFTERLIFE, Script
from chaos.sim.machine.disk import SimDisk, Survival, _Inode
from raft.log.damage import DamagedLogError
from raft.log.log_format import CorruptLogError

__all__ = ["HOW_ALL", "HOW_FEW", "CrashDisk", "Exploration", "explore"]

KILL = "kill"
KILL_IN_WRITE = "kill in a write"
FAILED_FSYNC = "failed fsync"
HOW_ALL = (
    KILL,
    KILL_IN_WRITE,
    FAILED_FSYNC,
    "none",
    "all",
    "prefix 1",
    "prefix 2",
    "scatter 1",
    "scatter 2",
    "scatter 3",
)
"""A process that dies, and failures of power by what survives; chance draws the numbered ones."""
HOW_FEW = (KILL, FAILED_FSYNC, "none", "all", "scatter 1")


class CrashDisk(SimDisk):
    """`watch(operation, images)` is called ahead of each operation; `guard` with each write to a
    file (path, place, bytes) and each cut of one (path, place, None)."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng, garbage_rate=0.3)
        self.watch: Callable[[str], None] = lambda operation: None
        self.guard: Callable[[str, int, bytes | None], None] = lambda path, place, data: None
        self._writing: tuple[_Inode, bytes, int] | None = None
        self._syncing: _Inode | None = None
        self.is_changed = True  # since the last call of `watch`

    @classmethod
    def of(cls, image: SimDisk, seed: str) -> CrashDisk:
        disk = cls(random.Random(seed))
        disk.__dict__.update(
            {name: value for name, value in image.__dict__.items() if name in _CONTENT}
        )
        return disk

    def images(self, how: str, seed: str) -> SimDisk | None:
        """What a crash now, ahead of this operation, leaves; None where it leaves nothing new."""
        rng = random.Random(seed)
        if how == KILL_IN_WRITE:
            if self._writing is None:
                return None
            return self._image_within_write(rng)
        if how == FAILED_FSYNC:
            return None if self._syncing is None else self._image_of_failed_sync(rng)
        if not self.is_changed:
            return None
        image = self.copy(rng)
        if how == KILL:
            image.process_crash()
        else:
            image.power_failure(Survival(how.partition(" ")[0]))
        return image

    def copy(self, rng: random.Random) -> SimDisk:
        """As it is now, to be crashed in this disk's place; no sync may be under way."""
        assert self._sync_in_progress is None
        other = SimDisk(
            rng, short_write_rate=self._short_write_rate, garbage_rate=self._garbage_rate
        )
        copies: dict[int, _Inode] = {}

        def copied(inode: _Inode) -> _Inode:
            if id(inode) not in copies:
                copies[id(inode)] = _copied(inode, other)
            return copies[id(inode)]

        other._names = {path: copied(inode) for path, inode in self._names.items()}
        other._names_durable = {p: copied(inode) for p, inode in self._names_durable.items()}
        other._directories = set(self._directories)
        other._directories_durable = set(self._directories_durable)
        other._name_operations = {
            directory: [(path, inode and copied(inode), was) for path, inode, was in operations]
            for directory, operations in self._name_operations.items()
        }
        other.capacity_bytes = self.capacity_bytes
        return other

    def _image_within_write(self, rng: random.Random) -> SimDisk:
        assert self._writing is not None
        inode, data, offset = self._writing
        whole = bytes(inode.data)
        inode.do((offset, data[: int(rng.random() * len(data))]))
        image = self.copy(rng)
        inode.pending.pop()
        inode.data[:] = whole
        image.process_crash()
        return image

    def _image_of_failed_sync(self, rng: random.Random) -> SimDisk:
        assert self._syncing is not None
        inode = self._syncing
        before = inode.pending, inode.settled_count, inode.differs
        inode.drop_pending()
        image = self.copy(rng)
        inode.pending, inode.settled_count, inode.differs = before
        image.process_crash()
        return image

    # What the store does.

    def open(self, path: str, *, create: bool):  # type: ignore[no-untyped-def]
        was_there = path in self._names
        file = super().open(path, create=create)
        self.is_changed = not was_there
        return file

    def write(self, inode: _Inode, data: bytes, offset: int) -> int:
        self.guard(self._path_of(inode), offset, data)
        outer, self._writing = self._writing, (inode, data, offset)
        try:
            return super().write(inode, data, offset)
        finally:
            self._writing = outer

    def resize(self, inode: _Inode, size: int) -> None:
        self.guard(self._path_of(inode), size, None)
        super().resize(inode, size)

    def sync(self, inode: _Inode, upto: int | None = None) -> None:
        outer, self._syncing = self._syncing, inode
        try:
            super().sync(inode, upto)
        finally:
            self._syncing = outer

    def _path_of(self, inode: _Inode) -> str:
        return next((path for path, other in self._names.items() if other is inode), "")

    def _before(self, operation: str) -> None:
        self.watch(operation)
        super()._before(operation)
        self.is_changed = True


def _copied(inode: _Inode, disk: SimDisk) -> _Inode:
    other = _Inode(disk._touched)
    other.data, other.durable = bytearray(inode.data), bytearray(inode.durable)
    other.pending = list(inode.pending)
    other.settled_count = inode.settled_count
    other.path, other.differs = inode.path, inode.differs
    disk._touched.add(other)
    return other


def _digest(disk: SimDisk) -> bytes:
    """Of all that a later read, sync or crash depends on."""
    numbers: dict[int, int] = {}
    digest = hashlib.blake2b(digest_size=16)

    def hash_values(*values: object) -> None:
        digest.update(repr(values).encode())

    def hash_inode(inode: _Inode | None) -> None:
        if inode is None or id(inode) in numbers:
            hash_values(None if inode is None else numbers[id(inode)])
            return
        numbers[id(inode)] = len(numbers)
        hash_values(len(inode.data), len(inode.durable), inode.pending)
        digest.update(inode.data)
        digest.update(inode.durable)

    for names in (disk._names, disk._names_durable):
        for path in sorted(names):
            hash_values(path)
            hash_inode(names[path])
    hash_values(sorted(disk._directories), sorted(disk._directories_durable))
    for directory in sorted(disk._name_operations):
        for path, inode, was in disk._name_operations[directory]:
            hash_values(directory, path, was)
            hash_inode(inode)
    return digest.digest()


_CONTENT = {
    "_names",
    "_names_durable",
    "_directories",
    "_directories_durable",
    "_name_operations",
    "capacity_bytes",
}


@dataclass(slots=True)
class Exploration:
    """What was tried: `combinations` of two crashes, `starts` from images that differ."""

    operations: int = 0
    combinations: int = 0
    starts: int = 0
    findings: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)

    def add(self, other: Exploration) -> None:
        self.operations += other.operations
        self.combinations += other.combinations
        self.starts += other.starts
        self.findings += other.findings
        self.kinds += other.kinds
        self.actions += other.actions


def explore(
    script: Script,
    directory: Path,
    *,
    how: tuple[str, ...] = HOW_ALL,
    how_again: tuple[str, ...] = HOW_ALL,
    one_in: int = 1,
    doing: str | None = None,
    findings_max: int = 5,
    in_kernel: bool = False,
    is_ha: bool = False,
) -> Exploration:
    """Run `script` with two crashes at each pair of operations. `directory` is for locks alone.

    `one_in`: of the images that the first crash leaves, only every so many live on. `doing`: the
    first crash is within such an action. `in_kernel`: see `StoreLife`. `is_ha`: the store is that
    of a master or slave (`HaLife`).
    """
    explorer = _Explorer(script, directory, (how, how_again), one_in, doing, findings_max)
    explorer.is_ha = is_ha
    explorer.in_kernel = in_kernel
    return explorer.run()


class _Explorer:
    def __init__(
        self,
        script: Script,
        directory: Path,
        how: tuple[tuple[str, ...], tuple[str, ...]],
        one_in: int,
        doing: str | None,
        findings_max: int,
    ) -> None:
        self._script = script
        self._directory = directory
        self._how = how
        self._one_in = one_in
        self._doing = doing
        self._findings_max = findings_max
        self.in_kernel = False
        self.is_ha = False
        self._done = Exploration()
        self._seen: tuple[set[tuple[bytes, object]], ...] = (set(), set())
        self._numbers: list[int] = [0, 0]
        self._path: list[str] = []
        self._images = 0

    def run(self) -> Exploration:
        disk = CrashDisk(random.Random(f"{self._script.name}"))
        self._live(0, disk, HaPromise() if self.is_ha else Promise())
        return self._done

    def _life(self, disk: CrashDisk, folder: str, past: Any, name: str, in_kernel: bool) -> Any:
        kind = HaLife if self.is_ha else StoreLife
        return kind(disk, self._directory / folder, past, name=name, in_kernel=in_kernel)

    def _live(self, level: int, disk: CrashDisk, past: Promise | HaPromise) -> None:
        """A life that dies at each operation in turn, in images of its disk, and goes on itself."""
        afterlife = HA_AFTERLIFE if self.is_ha else AFTERLIFE
        script = self._script if level == 0 else afterlife
        life = self._life(disk, str(level), past, script.name, self.in_kernel)
        self._numbers[level] = 0
        disk.watch = lambda operation: self._crash(level, life, operation)
        disk.guard = life.guard
        with self._reporting():
            life.start()
            life.play(script)
            self._crash(level, life, "the end")
        life.end()
        if level == 0:
            self._done.actions += life.actions

    def _crash(self, level: int, life: StoreLife | HaLife, operation: str) -> None:
        if len(self._done.findings) >= self._findings_max:
            return
        life.before_operation()
        self._numbers[level] += 1
        if level == 0:
            self._done.operations += 1
        if level == 0 and self._doing not in {None, life.doing}:
            return
        place = f"{life.doing}, operation {self._numbers[level]} ({operation})"
        for how in self._how[level]:
            seed = f"{self._script.name}/{self._path}/{self._numbers[level]}/{how}"
            image = life.disk.images(how, seed)
            if level == 1:
                self._done.combinations += 1
            if image is None:
                continue
            key = (_digest(image), life.promise.key())
            if key in self._seen[0] or key in self._seen[level]:
                continue
            self._seen[level].add(key)
            self._path.append(f"{how} in {place}")
            self._after(level, image, life.promise, how)
            self._path.pop()
        life.disk.is_changed = False

    def _after(self, level: int, image: SimDisk, promise: Promise | HaPromise, how: str) -> None:
        self._done.starts += 1
        self._done.kinds[how.partition(" ")[0]] += 1
        disk = CrashDisk.of(image, f"{self._path}")
        if level == 0:
            self._images += 1
            if self._images % self._one_in == 0:
                self._live(1, disk, promise)
                return
        life = self._life(disk, "last", promise, "last", False)
        disk.guard = life.guard
        with self._reporting():
            life.start()
        life.end()

    def _reporting(self) -> _Reporting:
        return _Reporting(self._done.findings, self._script.name, self._path)


_BROKEN = (
    OSError,
    AssertionError,
    LookupError,
    CorruptLogError,
    DamagedLogError,
    BrokenPromiseError,
)
"""What a store may raise that should have started, or gone on."""


class _Reporting:
    """Notes what broke, with the way there, and lets the exploration go on."""

    def __init__(self, findings: list[str], script: str, path: list[str]) -> None:
        self._findings = findings
        self._way = f"{script}: " + "; then ".join(path)

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: object, _: object) -> bool:
        if kind is None or not issubclass(kind, _BROKEN):
            return False
        self._findings.append(f"{self._way}: {kind.__name__}: {error}")
        return True
