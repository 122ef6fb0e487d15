"""The files that a broker writes beside its log, and their state after a power failure.

Place in the data path: ConsumeQueues and their checks are real files in memory
(`settings.memory_directory`); `broker_machine` records here what was fsynced, and on a power
failure drops from the rest what a disk might have lost.

What it models: of a file's bytes since its last fsync each sector is there or is what it was; a
file that never was fsynced may be gone, empty, all zeros, or lack some of its sectors. Names are
not lost by themselves. A file that was created again under its name has no bytes of the one before:
no disk shows a file what stood in another. They are told apart by their inodes, whose numbers a
tmpfs gives once.
"""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

from chaos.sim.machine.disk import Survival

__all__ = ["DerivedState"]

_SECTOR = 64
_DIRECTORY = "consumequeue"
_FOLDERS = (f"{_DIRECTORY}/", "index/")


class DerivedState:
    """The derived files of one machine's store, over all its processes."""

    def __init__(self, store: Path, rng: random.Random) -> None:
        self._store = store
        self._rng = rng
        # By path: inode, size, and the bytes up to the zeros of its preallocation.
        self._synced: dict[Path, tuple[int, int, bytes]] = {}
        self.lost_files = 0

    def names(self) -> list[str]:
        """List the files, by their paths in the store."""
        return [
            str(path.relative_to(self._store))
            for folder in _FOLDERS
            for path in (self._store / folder).rglob("*")
            if path.is_file()
        ]

    def has(self, name: str) -> bool:
        """Return whether a file of that path in the store is, or would be, derived."""
        return name.startswith(_FOLDERS)

    def path(self, name: str) -> Path:
        return self._store / name

    def forget(self) -> None:
        """Forget every fsync: the disk was wiped."""
        self._synced.clear()

    def on_fsync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_file() and path.is_relative_to(self._store / _DIRECTORY):
            file = os.fstat(descriptor)
            written = os.pread(descriptor, _data_end(descriptor, file.st_size), 0)
            self._synced[path] = file.st_ino, file.st_size, written.rstrip(b"\0")

    def power_failure(self, survival: Survival) -> None:
        if survival is Survival.ALL or not self._store.is_dir():
            return
        directory = self._store / _DIRECTORY
        paths = [path for path in sorted(directory.rglob("*")) if path.is_file()]
        for path in paths:
            if survival is Survival.NONE or self._rng.random() < 0.5:
                self._lose(path)

    def _lose(self, path: Path) -> None:
        now = path.read_bytes()
        inode, size, written = self._synced.get(path, (None, 0, b""))
        then: bytes | None = None
        if inode == path.stat().st_ino:
            then = written.ljust(size, b"\0")
        if now == then:
            return
        self.lost_files += 1
        if then is None:
            match self._rng.randrange(4):
                case 0:
                    path.unlink()
                    return
                case 1:
                    path.write_bytes(b"")
                    return
                case 2:
                    path.write_bytes(bytes(len(now)))
                    return
            then = b""
        data = bytearray(now)
        then = then.ljust(len(now), b"\0")
        for start in range(0, len(now), _SECTOR):
            if self._rng.random() < 0.5:
                data[start : start + _SECTOR] = then[start : start + _SECTOR][: len(now) - start]
        path.write_bytes(bytes(data))


def _data_end(descriptor: int, size: int) -> int:
    """Return where the file's last data ends: behind it is a hole, which reads as zeros."""
    place, end = os.lseek(descriptor, 0, os.SEEK_CUR), 0
    try:
        while end < size:
            end = os.lseek(descriptor, os.lseek(descriptor, end, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError as error:
        if error.errno != errno.ENXIO:  # no more data
            raise
    finally:
        os.lseek(descriptor, place, os.SEEK_SET)
    return end
