"""Keeps two processes from using one store: flock on STORE/lock, held while the node lives."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

__all__ = ["StoreLock", "StoreLockedError"]


class StoreLockedError(OSError):
    """Another process uses the store."""


class StoreLock:
    """Taken at construction; raises StoreLockedError, with the holder's pid where it is known."""

    def __init__(self, store: Path) -> None:
        self._path = store / "lock"
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._fd, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise StoreLockedError(
                f"{store} is used by another process (pid {holder}): {self._path} is locked"
            ) from error
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
