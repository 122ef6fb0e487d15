"""ConsumeQueues: per topic and queue, where each message stands in the log.

Place in the data path: `broker.state_machine` appends ready units after commit; pulls read ranges
of them. Derived: deleting the files loses nothing, the log rebuilds them.

Invariants: unit n is at byte 20·n; only committed records have units; units are dense from the
queue's first offset; an append at an offset that is already filled must be the same bytes (a
replay after a restart writes what stands there). All queues together hold at most `files_max` files
open, those opened last.

Files are 6,000,000 bytes, sparse. Units are written with pwrite, so that a full disk is an OSError
and never a SIGBUS, and read through a memory map, so that a pull costs a slice. The page cache
keeps them across a kill. A machine crash may lose units; the replay of the log at the next start
writes them again. Source: RocketMQ ConsumeQueue.
"""

from __future__ import annotations

import mmap
import os
from collections import deque
from pathlib import Path

from broker.store.payload import UNIT_SIZE

__all__ = ["FILES_MAX", "FILE_SIZE", "ConsumeQueue", "ConsumeQueues"]

FILE_UNITS = 300_000
FILE_SIZE = FILE_UNITS * UNIT_SIZE
FILES_MAX = 1_024
_NO_UNITS = bytes(0)


class _OpenFiles:
    """Closes the file that was opened first when there are too many.

    First in, first out: reads and writes need not be noted, and opening one again is cheap.
    """

    __slots__ = ("_files_max", "_order")

    def __init__(self, files_max: int) -> None:
        assert files_max > 0
        self._files_max = files_max
        self._order: deque[tuple[ConsumeQueue, int]] = deque()

    def opened(self, queue: ConsumeQueue, file_start: int) -> None:
        self._order.append((queue, file_start))
        if len(self._order) > self._files_max:
            oldest, oldest_start = self._order.popleft()
            oldest.close_file(oldest_start)


class ConsumeQueue:
    """One queue's units. `next_offset` is the number of units ever appended (its max offset)."""

    __slots__ = ("_directory", "_files", "_open_files", "next_offset")

    def __init__(self, directory: Path, open_files: _OpenFiles | None = None) -> None:
        self._directory = directory
        self._open_files = open_files or _OpenFiles(FILES_MAX)
        self._files: dict[int, tuple[int, mmap.mmap]] = {}
        self.next_offset = 0

    @property
    def min_offset(self) -> int:
        return 0

    def append(self, first_offset: int, units: bytes) -> None:
        """Write units at `first_offset`, which must be the next offset. Raises OSError."""
        assert first_offset == self.next_offset, (
            f"{self._directory}: units for offset {first_offset}, next is {self.next_offset}"
        )
        start, size = first_offset * UNIT_SIZE, len(units)
        assert size % UNIT_SIZE == 0, f"{size} bytes are no whole units"
        written = 0
        while written < size:
            file_start = (start + written) // FILE_SIZE * FILE_SIZE
            at = start + written - file_start
            piece = units[written : written + FILE_SIZE - at]
            written += os.pwrite(self._file(file_start)[0], piece, at)
        self.next_offset = first_offset + size // UNIT_SIZE

    def read(self, offset: int, count_max: int) -> bytes:
        """Units of [offset, offset + count_max), fewer where the queue or the file ends."""
        count = min(count_max, self.next_offset - offset)
        if count <= 0 or offset < 0:
            return _NO_UNITS
        start = offset * UNIT_SIZE
        file_start = start // FILE_SIZE * FILE_SIZE
        at = start - file_start
        return self._file(file_start)[1][at : min(at + count * UNIT_SIZE, FILE_SIZE)]

    def close(self) -> None:
        for file_start in list(self._files):
            self.close_file(file_start)

    def close_file(self, file_start: int) -> None:
        """The next read or append opens it again."""
        descriptor, area = self._files.pop(file_start)
        area.close()
        os.close(descriptor)

    def _file(self, file_start: int) -> tuple[int, mmap.mmap]:
        file = self._files.get(file_start)
        if file is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            path = self._directory / f"{file_start:020d}"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                if os.fstat(descriptor).st_size != FILE_SIZE:
                    os.truncate(descriptor, FILE_SIZE)
                file = (descriptor, mmap.mmap(descriptor, FILE_SIZE, prot=mmap.PROT_READ))
            except OSError:
                os.close(descriptor)
                raise
            self._files[file_start] = file
            self._open_files.opened(self, file_start)
        return file


class ConsumeQueues:
    """All queues of one store. Each open file costs two descriptors, its map holding one."""

    def __init__(self, directory: Path, *, files_max: int = FILES_MAX) -> None:
        self._directory = directory
        self._open_files = _OpenFiles(files_max)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, empty if it was never written."""
        key = (topic, queue_id)
        queue = self._queues.get(key)
        if queue is None:
            queue = ConsumeQueue(self._directory / topic / str(queue_id), self._open_files)
            self._queues[key] = queue
        return queue

    def find(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue if it was ever written to."""
        return self._queues.get((topic, queue_id))

    def items(self) -> list[tuple[str, int, ConsumeQueue]]:
        return [(topic, queue_id, queue) for (topic, queue_id), queue in self._queues.items()]

    def close(self) -> None:
        for queue in self._queues.values():
            queue.close()
