"""A disk that can be told to fail, to lie and to hang, and that knows what a power failure takes.

Place in the data path: with `--failpoints` it stands in the place of `raft.log.disk.OsDisk`, under
log, hard state, marks and snapshots. Each operation first passes its point (`disk.write`, ...) and
then does what the disk does, noted in the undo journal.

A sync beside the loop passes `disk.fsync` like any other, so that none slips past what is armed
there. The kernel carries it out while nothing is armed. Else a thread does, which may wait, fail
and lie as a kernel would; the log gets the outcome late and on its loop in both cases.

Invariants: unless something is armed it behaves as the disk does; a lie leaves the file unsynced,
and the journal knows; a short write has written what it says.

Derived files (ConsumeQueues, index), the trace and PySyncObj's journal do not pass here: they may
be as far as any kernel could have written them.

Source: `chaos.sim.machine.disk`, which does the same to a simulated node.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from broker.failpoints.orders import ERRORS, Action
from broker.failpoints.points import FailPoint
from broker.failpoints.undo_journal import FileUndo, UndoJournal
from raft.log.disk import OsDisk, OsDiskFile
from raft.storage import OnSynced

__all__ = ["FaultyDisk", "FaultyFile"]


class FaultyFile:
    """An open file of a `FaultyDisk`; see `raft.storage.DiskFile`."""

    def __init__(
        self,
        file: OsDiskFile,
        path: str,
        undo: FileUndo,
        points: Mapping[str, FailPoint],
        threads: _SyncThreads,
    ) -> None:
        self._threads = threads
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

    def begin_sync(self, on_done: OnSynced) -> bool:
        point = self._points["disk.fsync"]
        if point.is_armed:
            self._threads.begin(self.sync, on_done)
            return True
        covered = self._undo.begin_sync()
        if not self._file.begin_sync(partial(self._end_sync, covered, on_done)):
            return False
        point.passed(self._path)
        return True

    def _end_sync(self, covered: list[int], on_done: OnSynced, error: OSError | None) -> None:
        if error is None:
            self._undo.end_sync(covered)
        on_done(error)

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
        self._threads = _SyncThreads()

    def open(self, path: str, *, create: bool) -> FaultyFile:
        self._points["disk.open"].passed(path)
        if create and not (self._root / path).exists():
            file = self._journal.creating(path, lambda: self._disk.open(path, create=True))
            inode = (self._root / path).stat().st_ino
            self._journal.forget(inode)  # of a file that had this inode before
        else:
            file = self._disk.open(path, create=create)
            inode = (self._root / path).stat().st_ino
        return FaultyFile(file, path, self._journal.file(inode), self._points, self._threads)

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

    def open_syncs(self, path: str) -> None:
        self._disk.open_syncs(path)

    def wait_for_syncs(self) -> OSError | None:
        return self._threads.wait() or self._disk.wait_for_syncs()

    def close_syncs(self) -> None:
        self._disk.close_syncs()


class _SyncThreads:
    """Syncs that passed an armed point: each on a thread of its own until it returns or fails."""

    def __init__(self) -> None:
        self._under_way: dict[threading.Thread, list[OSError]] = {}

    def begin(self, sync: Callable[[], None], on_done: OnSynced) -> None:
        loop, failures = asyncio.get_running_loop(), list[OSError]()
        thread = threading.Thread(
            target=self._run, args=(sync, on_done, loop, failures), name="armed fsync", daemon=True
        )
        self._under_way[thread] = failures
        thread.start()

    def wait(self) -> OSError | None:
        """Wait until all have returned; return what one of them has failed with."""
        found: list[OSError] = []
        for thread, failures in list(self._under_way.items()):
            thread.join()
            found += failures
        return found[0] if found else None

    def _run(
        self,
        sync: Callable[[], None],
        on_done: OnSynced,
        loop: asyncio.AbstractEventLoop,
        failures: list[OSError],
    ) -> None:
        try:
            sync()
        except OSError as error:
            failures.append(error)
        if not loop.is_closed():
            thread = threading.current_thread()
            loop.call_soon_threadsafe(self._end, thread, on_done)

    def _end(self, thread: threading.Thread, on_done: OnSynced) -> None:
        failures = self._under_way.pop(thread)
        on_done(failures[0] if failures else None)
