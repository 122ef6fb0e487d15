"""ConsumeQueue: the log position of each message of one queue.

Place in the data path: `broker.queues.state_machine` appends ready units after commit, through
`broker.queues.consume_queues`; pulls read ranges of them. Derived: deleting the files loses
nothing, the log rebuilds them.

Invariants: unit n is at byte 20·n; only committed records have units; units are dense from
`min_offset` to `next_offset`; an append at an offset that is already filled must be the same bytes
(a replay after a restart writes what stands there); positions rise along a queue.

Files are 6,000,000 bytes, sparse. Units are written with pwrite, so that a full disk is an OSError
and never a SIGBUS, and read through a memory map, so that a pull costs a slice. Where the disk is
full the units stay in memory until there is room: what is committed must become readable, and the
log itself, which takes nothing more then, bounds them. The page cache keeps units across a kill. A
machine crash may lose those that no snapshot has seen; the replay behind the snapshot writes them
again. Source: RocketMQ ConsumeQueue.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from broker.entry.payload import UNIT, UNIT_SIZE
from broker.queues.derived_files import (
    CHECK_SUFFIX,
    FILE_SIZE,
    FILE_UNITS,
    NO_ROOM,
    DerivedFiles,
    is_sound,
)

__all__ = ["NO_ROOM", "ConsumeQueue", "DamagedQueueError"]

_NO_UNITS = bytes(0)


class DamagedQueueError(Exception):
    """Error of a unit that names no record of its queue. The broker must restart: it rebuilds the
    queue from the log then."""


class ConsumeQueue:
    """Units of one queue, from `min_offset` to `next_offset` (RocketMQ's max offset)."""

    __slots__ = (
        "_begin_position",
        "_directory",
        "_files",
        "_held",
        "_store",
        "min_offset",
        "next_offset",
    )

    def __init__(self, directory: Path, store: DerivedFiles | None = None) -> None:
        self._directory = directory
        self._store = store or DerivedFiles()
        self._files: dict[int, tuple[int, mmap.mmap]] = {}
        self._begin_position = 0  # no unit names a record below it
        self._held = bytearray()  # the last units, where the disk had no room for them
        self.min_offset = 0
        self.next_offset = 0

    # Writing -----------------------------------------------------------------------------------

    def append(self, first_offset: int, units: bytes) -> None:
        """Write units at `first_offset`, which must be the next offset.

        Raises OSError, but not if the disk is full.
        """
        assert first_offset == self.next_offset, (
            f"{self._directory}: units for offset {first_offset}, next is {self.next_offset}"
        )
        assert len(units) % UNIT_SIZE == 0, f"{len(units)} bytes are no whole units"
        if self._held:
            self._held += units
        else:
            self._write_or_hold(first_offset, units)
        self.next_offset = first_offset + len(units) // UNIT_SIZE

    def write_held(self) -> bool:
        """Write units that wait for room on the disk; True if none is left. Raises OSError."""
        units = bytes(self._held)
        self._held.clear()
        self._store.held.pop(self, None)
        self._write_or_hold(self.next_offset - len(units) // UNIT_SIZE, units)
        return not self._held

    def _write_or_hold(self, first_offset: int, units: bytes) -> None:
        start, size = first_offset * UNIT_SIZE, len(units)
        written = 0
        try:
            while written < size:
                file_start = (start + written) // FILE_SIZE * FILE_SIZE
                at = start + written - file_start
                piece = units[written : written + FILE_SIZE - at]
                written += os.pwrite(self._file(file_start)[0], piece, at)
                self._store.written(self, file_start)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            # Whole units: half of one on the disk is written again.
            self._held += units[written - written % UNIT_SIZE :]
            self._store.held[self] = None

    # Reading -----------------------------------------------------------------------------------

    def read(self, offset: int, count_max: int) -> bytes:
        """Return the units of [offset, offset + count_max), fewer if the queue or the file ends."""
        count = min(count_max, self.next_offset - offset)
        if count <= 0 or offset < self.min_offset:
            return _NO_UNITS
        if self._held:
            held_from = self.next_offset - len(self._held) // UNIT_SIZE
            if offset >= held_from:
                at = (offset - held_from) * UNIT_SIZE
                return bytes(self._held[at : at + count * UNIT_SIZE])
            count = min(count, held_from - offset)
        start = offset * UNIT_SIZE
        file_start = start // FILE_SIZE * FILE_SIZE
        at = start - file_start
        return self._file(file_start)[1][at : min(at + count * UNIT_SIZE, FILE_SIZE)]

    def damaged(self, offset: int) -> DamagedQueueError:
        """Invalidate the file of a wrong unit at `offset` for the next start, and return the error
        to raise. Raises OSError."""
        path = self.path(offset * UNIT_SIZE // FILE_SIZE * FILE_SIZE)
        path.unlink(missing_ok=True)
        return DamagedQueueError(f"{path}: the unit of offset {offset} names no such message")

    # Beginning and end -------------------------------------------------------------------------

    def trim(self, position: int) -> bool:
        """Drop the units of records below `position` of the log; True if that drops a file.

        Units that were never written, at the front of an installed queue, count as dropped.
        Caller's duty: `drop_files`, once the new beginning is noted.
        """
        if self._begin_position >= position or self.min_offset == self.next_offset:
            return False
        low, high = self.min_offset, self.next_offset
        while low < high:
            middle = (low + high) // 2
            if self._position(middle) < position:
                low = middle + 1
            else:
                high = middle
        crossed = low // FILE_UNITS > self.min_offset // FILE_UNITS
        self.min_offset = low
        self._begin_position = position if low == self.next_offset else self._position(low)
        return crossed

    def drop_files(self) -> None:
        """Delete the files that hold only dropped units. Raises OSError."""
        retained = self.min_offset // FILE_UNITS * FILE_SIZE
        for file_start in self._files_there():
            if file_start < retained:
                self._remove(file_start)

    def adopt(self, min_offset: int, next_offset: int) -> bool:
        """Adopt the files as they are for the units of [min_offset, next_offset).

        False, and nothing changed, if one is missing or short, or its check does not cover all of
        these units.
        """
        assert min_offset <= next_offset, f"{self._directory}: {min_offset} to {next_offset}"
        begin, end = min_offset * UNIT_SIZE, next_offset * UNIT_SIZE
        for file_start in range(begin // FILE_SIZE * FILE_SIZE, end, FILE_SIZE):
            count = min(FILE_UNITS, next_offset - file_start // UNIT_SIZE)
            if begin < end and not is_sound(self.path(file_start), count):
                return False
        self._forget()
        self.min_offset, self.next_offset = min_offset, next_offset
        self.drop_files()
        return True

    def begin_at(self, offset: int) -> None:
        """Empty the queue; the next unit gets `offset`. Raises OSError."""
        for file_start in sorted({*self._files_there(), *self._files}):  # open ones may be gone
            self._remove(file_start)
        self._forget()
        self.min_offset = self.next_offset = offset

    def _forget(self) -> None:
        self._begin_position = 0
        self._held.clear()
        self._store.held.pop(self, None)

    def _position(self, offset: int) -> int:
        position: int = UNIT.unpack(self.read(offset, 1))[0]
        return position

    # Files -------------------------------------------------------------------------------------

    def close(self) -> None:
        for file_start in list(self._files):
            self.close_file(file_start)

    def close_file(self, file_start: int) -> None:
        """Close a file; the next read or append opens it again."""
        descriptor, area = self._files.pop(file_start)
        area.close()
        os.close(descriptor)

    def path(self, file_start: int) -> Path:
        return self._directory / f"{file_start:020d}"

    def written_units(self, file_start: int) -> int:
        """Return how many units of the file are on disk, from its beginning. Thread-safe."""
        written = self.next_offset - len(self._held) // UNIT_SIZE
        return max(0, min(FILE_UNITS, written - file_start // UNIT_SIZE))

    def _files_there(self) -> list[int]:
        if not self._directory.is_dir():
            return []
        return [int(path.name) for path in self._directory.iterdir() if path.name.isdecimal()]

    def _remove(self, file_start: int) -> None:
        if file_start in self._files:
            self._store.closed(self, file_start)
            self.close_file(file_start)
        path = self.path(file_start)
        path.unlink(missing_ok=True)
        path.with_name(path.name + CHECK_SUFFIX).unlink(missing_ok=True)
        self._store.removed(path)

    def _file(self, file_start: int) -> tuple[int, mmap.mmap]:
        file = self._files.get(file_start)
        if file is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(
                self.path(file_start), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644
            )
            try:
                if os.fstat(descriptor).st_size != FILE_SIZE:
                    os.truncate(descriptor, FILE_SIZE)
                file = (descriptor, mmap.mmap(descriptor, FILE_SIZE, prot=mmap.PROT_READ))
            except OSError:
                os.close(descriptor)
                raise
            self._files[file_start] = file
            self._store.opened(self, file_start)
        return file
