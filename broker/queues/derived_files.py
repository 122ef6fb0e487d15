"""Files of all ConsumeQueues of a store: which are open, which are durable, and their checks.

Place in the data path: `broker.queues.consume_queue` reports what it opens and writes; a snapshot
has everything synced before it counts, and a rebuild from the log has it synced, too; a restart
checks whether a file is as it was synced.

Invariants: at most `files_max` files are open, those opened last; a check (`FILE.crc`) is written
after the units that it covers are durable, and covers units from the file's beginning, which never
change. Units behind it are written again by the replay. A start takes no unit for durable that no
check covers: a file that was being rebuilt when the power failed has its end, and perhaps not its
middle.

| offset | size | field of FILE.crc          |
|--------|------|----------------------------|
| 0      | 4    | magic `LMQU`               |
| 4      | 4    | units that it covers       |
| 8      | 4    | CRC32 of these units       |
"""

from __future__ import annotations

import errno
import logging
import os
import struct
import threading
from collections import deque
from pathlib import Path
from typing import Protocol

from isal.isal_zlib import crc32

from broker.entry.payload import UNIT_SIZE

__all__ = [
    "CHECK_SUFFIX",
    "FILES_MAX",
    "FILE_SIZE",
    "FILE_UNITS",
    "NO_ROOM",
    "DerivedFiles",
    "is_sound",
]

FILE_UNITS = 300_000
FILE_SIZE = FILE_UNITS * UNIT_SIZE
FILES_MAX = 1_024
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
CHECK_SUFFIX = ".crc"
_CHECK = struct.Struct(">4sII")
assert _CHECK.size == 12
_MAGIC = b"LMQU"
_READ_SIZE = 1 << 20

_log = logging.getLogger(__name__)


class _Owner(Protocol):
    """Interface of a ConsumeQueue, as far as it is used here."""

    def path(self, file_start: int) -> Path: ...

    def written_units(self, file_start: int) -> int:
        """Return how many units of the file are on disk, from its beginning. Thread-safe."""

    def close_file(self, file_start: int) -> None: ...

    def write_held(self) -> bool: ...


class DerivedFiles:
    """Registry that closes the file opened first when there are too many. First in, first out:
    reads and writes need not be noted, and opening one again is cheap."""

    __slots__ = ("_checks", "_dirty", "_files_max", "_order", "_syncing", "held")

    def __init__(self, files_max: int = FILES_MAX) -> None:
        assert files_max > 0
        self._files_max = files_max
        self._order: deque[tuple[_Owner, int]] = deque()
        # Written since the last sync; noted after the write. One thread takes from it while the
        # loop adds, each by single calls of dict (a set would have an order that nobody repeats).
        self._dirty: dict[tuple[_Owner, int], None] = {}
        self._syncing = threading.Lock()
        self._checks: dict[Path, tuple[int, int, int]] = {}  # inode, units, CRC as synced last
        self.held: dict[_Owner, None] = {}  # with units that wait for room on the disk

    def opened(self, queue: _Owner, file_start: int) -> None:
        """Register an open file of `queue`, named by its first unit. Where more than `files_max`
        are open, the one opened first is closed; it is not synced by that."""
        self._order.append((queue, file_start))
        if len(self._order) > self._files_max:
            oldest, oldest_start = self._order.popleft()
            oldest.close_file(oldest_start)

    def closed(self, queue: _Owner, file_start: int) -> None:
        """Forget a file that was closed for another reason than the number of open files."""
        self._order.remove((queue, file_start))

    def removed(self, path: Path) -> None:
        self._checks.pop(path, None)

    def written(self, queue: _Owner, file_start: int) -> None:
        self._dirty[queue, file_start] = None

    def sync(self, root: Path) -> None:
        """Make durable what was written before this call. Thread-safe. Raises OSError."""
        with self._syncing:  # a second caller relies on the files that the first took from `_dirty`
            self._sync(root)

    def _sync(self, root: Path) -> None:
        directories: set[Path] = set()
        for queue, file_start in list(self._dirty):
            # First, so that what is written meanwhile is noted anew.
            self._dirty.pop((queue, file_start), None)
            path, count = queue.path(file_start), queue.written_units(file_start)
            try:
                self._sync_file(path, count)
                has_check = self._write_check(path)
            except FileNotFoundError:
                self._checks.pop(path, None)
                continue  # retention or an install took it meanwhile
            if not has_check:
                self.written(queue, file_start)  # again with the next sync
            elif count == FILE_UNITS:
                self._checks.pop(path, None)  # its last change
            directories |= {path.parent, path.parent.parent}
        for directory in sorted(directories | ({root} if directories else set())):
            descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _sync_file(self, path: Path, count: int) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
            inode = os.fstat(descriptor).st_ino
            known_inode, covered, crc = self._checks.get(path, (inode, 0, 0))
            if known_inode != inode or covered > count:
                covered = crc = 0
            crc = _crc(descriptor, covered * UNIT_SIZE, count * UNIT_SIZE, crc)
        finally:
            os.close(descriptor)
        self._checks[path] = inode, count, crc

    def _write_check(self, path: Path) -> bool:
        """Write a file's check; False if the disk is full: then the next start rebuilds it."""
        _, count, crc = self._checks[path]
        try:
            path.with_name(path.name + CHECK_SUFFIX).write_bytes(_CHECK.pack(_MAGIC, count, crc))
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            _log.warning("%s goes without a check, the disk is full", path)
            return False
        return True


def is_sound(path: Path, count: int) -> bool:
    """Whether there is a whole file that matches its check, and the check covers `count` units.
    Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        if os.fstat(descriptor).st_size != FILE_SIZE:
            return False
        return _fits_check(path, descriptor, count)
    finally:
        os.close(descriptor)


def _fits_check(path: Path, descriptor: int, count: int) -> bool:
    check = path.with_name(path.name + CHECK_SUFFIX)
    stored = check.read_bytes() if check.exists() else b""
    if len(stored) != _CHECK.size:  # a crash of the machine, or a full disk, may cost it
        return False
    magic, covered, crc = _CHECK.unpack(stored)
    if magic != _MAGIC or not count <= covered <= FILE_UNITS:
        return False
    return bool(_crc(descriptor, 0, covered * UNIT_SIZE, 0) == crc)


def _crc(descriptor: int, begin: int, end: int, crc: int) -> int:
    while begin < end:
        data = os.pread(descriptor, min(_READ_SIZE, end - begin), begin)
        if not data:
            return -1  # shorter than it was when it was looked at: fits no check
        crc = crc32(data, crc)
        begin += len(data)
    return crc
