"""A disk that can be told to fail, to lie and to hang, and that knows what a power failure takes.

Place in the data path: with `--failpoints` it stands in the place of `raft.log.disk.OsDisk`, under
log, hard state, marks and snapshots. Each operation first passes its point (`disk.write`, ...) and
then does what the disk does, noted in the undo journal.

Invariants: unless something is armed it behaves as the disk does; a lie leaves the file unsynced,
and the journal knows; a short write has written what it says.

Derived files (ConsumeQueues, index), the trace and PySyncObj's journal do not pass here: they may
be as far as any kernel could have written them.

Source: `chaos.sim.machine.disk`, which does the same to a simulated node.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from broker.failpoints.orders import ERRORS, Action
from broker.failpoints.points import FailPoint
from broker.failpoints.undo_journal import FileUndo, UndoJournal
from raft.log.disk import OsDisk, OsDiskFile

__all__ = ["FaultyDisk", "FaultyFile"]


class FaultyFile:
    """An open file of a `FaultyDisk`; see `raft.storage.DiskFile`."""

    def __init__(
        self,
        file: OsDiskFile,
        path: str,
        undo: FileUndo,
        points: Mapping[str, FailPoint],
    ) -> None:
        self._file = file
        self._path = path
        self._undo = undo
        self._points = points

    def size(self) -> int:
        return self._file.size()

    def pread(self, size: int, offset: int) -> bytes:
        self._points["disk.read"].passed(self._path)
        return self._file.pread(size, offset)

    def pwritev(self, buffers: Sequence[bytes], offset: int) -> int:
        armed = self._points["disk.write"].passed(self._path)
        if armed is not None and armed.action is Action.SHORT:
            data = b"".join(buffers)
            buffers = [data[: max(1, len(data) // 2)]]
        size = sum(map(len, buffers))
        with self._undo.writing(self._file, offset, size):
            written = self._file.pwritev(buffers, offset)
        if armed is not None and armed.errno:
            number = ERRORS[armed.errno]
            raise OSError(number, f"{os.strerror(number)} (failpoint disk.write)")
        return written

    def truncate(self, size: int) -> None:
        self._points["disk.truncate"].passed(self._path)
        with self._undo.resizing(self._file, size):
            self._file.truncate(size)

    def allocate(self, size: int) -> None:
        self._points["disk.allocate"].passed(self._path)
        with self._undo.resizing(self._file, max(size, self._file.size())):
            self._file.allocate(size)

    def drop_cache(self, offset: int = 0, size: int = 0) -> None:
        self._file.drop_cache(offset, size)

    def sync(self) -> None:
        armed = self._points["disk.fsync"].passed(self._path)
        if armed is None:
            with self._undo.syncing():
                self._file.sync()

    def close(self) -> None:
        """Close the file and its undo journal. It passes no failpoint, and syncs nothing."""
        self._undo.close()
        self._file.close()


class FaultyDisk:
    """The directory tree of one store; see `raft.storage.Disk`."""

    def __init__(self, root: Path, points: Mapping[str, FailPoint]) -> None:
        self._root = root
        self._disk = OsDisk(root)
        self._points = points
        self._journal = UndoJournal(root)

    def open(self, path: str, *, create: bool) -> FaultyFile:
        self._points["disk.open"].passed(path)
        if create and not (self._root / path).exists():
            file = self._journal.creating(path, lambda: self._disk.open(path, create=True))
            inode = (self._root / path).stat().st_ino
            self._journal.forget(inode)  # of a file that had this inode before
        else:
            file = self._disk.open(path, create=create)
            inode = (self._root / path).stat().st_ino
        return FaultyFile(file, path, self._journal.file(inode), self._points)

    def list(self, path: str) -> list[str]:
        return self._disk.list(path)

    def rename(self, source: str, target: str) -> None:
        self._points["disk.rename"].passed(target)
        self._journal.renaming(source, target, lambda: self._disk.rename(source, target))

    def remove(self, path: str) -> None:
        self._points["disk.remove"].passed(path)
        self._journal.removing(path, lambda: self._disk.remove(path))

    def make_directory(self, path: str) -> None:
        self._disk.make_directory(path)

    def sync_directory(self, path: str) -> None:
        if self._points["disk.fsync_directory"].passed(path) is None:
            with self._journal.syncing(path):
                self._disk.sync_directory(path)
