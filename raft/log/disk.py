"""The operating system's files behind the `Disk` protocol of `raft.storage`.

Place in the data path: `raft.log.segment_log` and `raft.log.hard_state` write through it; the
simulator substitutes its own disk.

Invariants: a directory operation (create, rename, remove) is durable only after `sync_directory`;
data and size of a file only after `sync`, or a `begin_sync` that has ended. Writes go through
pwritev, so that a full disk is an OSError here and never a SIGBUS; a write inside of what was
allocated needs no block.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from raft.log.kernel_aio import FsyncQueue
from raft.storage import OnSynced

__all__ = ["OsDisk", "OsDiskFile", "make_durable_directory"]

_BUFFERS_PER_WRITE_MAX = 1024  # IOV_MAX of Linux; the caller loops on short writes anyway


class OsDiskFile:
    """One open file descriptor. `sync` may run on another thread while the owner writes."""

    __slots__ = ("_disk", "_fd")

    def __init__(self, fd: int, disk: OsDisk) -> None:
        self._fd = fd
        self._disk = disk

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pread(self, size: int, offset: int) -> bytes:
        return os.pread(self._fd, size, offset)

    def pwritev(self, buffers: Sequence[bytes], offset: int) -> int:
        """Write at most IOV_MAX buffers: the count returned is short where there are more."""
        if len(buffers) > _BUFFERS_PER_WRITE_MAX:
            buffers = buffers[:_BUFFERS_PER_WRITE_MAX]
        return os.pwritev(self._fd, buffers, offset)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def allocate(self, size: int) -> None:
        os.posix_fallocate(self._fd, 0, size)

    def drop_cache(self, offset: int = 0, size: int = 0) -> None:
        """Drop clean pages only: what was not synced yet stays."""
        os.posix_fadvise(self._fd, offset, size, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def begin_sync(self, on_done: OnSynced) -> bool:
        queue = self._disk.fsync_queue
        return queue is not None and queue.submit(self._fd, on_done)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class OsDisk:
    """The directory tree below `root`; paths are relative to it, "/" between the parts."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.fsync_queue: FsyncQueue | None = None

    def open(self, path: str, *, create: bool) -> OsDiskFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsDiskFile(os.open(self._root / path, flags, 0o644), self)

    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted. Raises FileNotFoundError if it is missing."""
        return sorted(entry.name for entry in (self._root / path).iterdir())

    def rename(self, source: str, target: str) -> None:
        (self._root / source).replace(self._root / target)

    def remove(self, path: str) -> None:
        (self._root / path).unlink()

    def make_directory(self, path: str) -> None:
        """Make the directory and its parents, unless it exists."""
        (self._root / path).mkdir(parents=True, exist_ok=True)

    def sync_directory(self, path: str) -> None:
        fd = os.open(self._root / path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def open_syncs(self, path: str) -> None:
        assert self.fsync_queue is None
        queue = FsyncQueue()
        try:
            queue.try_out(self._root / path)
        except OSError:
            queue.close()
            raise
        queue.attach(asyncio.get_running_loop())
        self.fsync_queue = queue

    def wait_for_syncs(self) -> OSError | None:
        return None if self.fsync_queue is None else self.fsync_queue.wait()

    def close_syncs(self) -> None:
        queue, self.fsync_queue = self.fsync_queue, None
        if queue is not None:
            queue.close()


def make_durable_directory(path: Path) -> None:
    """Make the directory and its parents; no power failure removes them. Raises OSError."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    path.mkdir(parents=True, exist_ok=True)
    # Sync the name of an existing directory too: its creator may have been killed.
    for one in missing or (path,):
        _sync_names_in(one.parent)


def _sync_names_in(directory: Path) -> None:
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        os.sync()  # a parent that may be traversed but not read
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
