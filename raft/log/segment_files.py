"""The files of the segmented log: which are open, how they grow, and whether there is room.

Place in the data path: under `raft.log.segment_log`, which knows what the bytes mean.

Invariants:
- only the last segment's file is written behind its end, and every byte is allocated before it is
  written: a full disk is found out by `reserve` or by the allocation, never by a write that ends
  in the middle;
- the file of the segment to come is made and allocated ahead, under the name `next`, which no
  reader of segments takes for one;
- a removal is durable before the next one.

Source: posix_fallocate(3); DLedger allocates its mapped files ahead in the same way.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import closing

from raft.log.durable_record import settle
from raft.log.page_cache import PageCacheWindow
from raft.storage import Disk, DiskFile, write_fully

__all__ = ["NO_ROOM", "SegmentFiles", "index_path", "segment_path", "segment_positions"]

_NAME_LENGTH = 20
_ZEROS_SIZE = 1 << 20
_READ_FILES_MAX = 64  # open files of closed segments
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


class SegmentFiles:
    """Call `open_last` first."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        segment_size_bytes_max: int,
        preallocation_size_bytes: int,
        cached_size_bytes: int,
    ) -> None:
        self.cached = PageCacheWindow(disk, self.path, cached_size_bytes)
        self._disk = disk
        self._directory = directory
        self._segment_size_bytes_max = segment_size_bytes_max
        self._preallocation_size_bytes = preallocation_size_bytes
        self._read_files: dict[int, DiskFile] = {}  # by first position, oldest use first
        self._next: DiskFile | None = None
        self._next_size = 0
        self._last: DiskFile | None = None
        self.position = 0  # first byte of the last segment
        self._size = 0  # of its file

    @property
    def last(self) -> DiskFile:
        assert self._last is not None
        return self._last

    def path(self, position: int) -> str:
        return segment_path(self._directory, position)

    # --- the last segment ----------------------------------------------------------------------

    def open_last(self, position: int, size: int) -> None:
        """Open or make the last segment, cut to `size`, durable with the next sync."""
        if self._last is None or self.position != position:
            known = self._read_files.pop(position, None)
            self._last = known or self._disk.open(self.path(position), create=True)
        self.position = position
        # Cut, and not overwritten: zeros or new entries must be all that follows the last one.
        self._last.truncate(size)
        self._size = size
        self.cached.restart(position, position + size)

    def reopen_last(self, position: int, size: int, torn_size: int) -> None:
        """At a start: open or make the last segment, whose entries take `size` bytes; `torn_size`
        bytes behind them are no entries and become zeros, durable with the next sync.

        What was allocated stays so: on a full disk somebody else would have it.
        """
        self._last = file = self._disk.open(self.path(position), create=True)
        self.position = position
        self._size = file.size()
        if self._size < size:
            file.truncate(size)
            self._size = size
        offset, end = size, size + torn_size
        while offset < end:
            zeros = bytes(min(_ZEROS_SIZE, end - offset))
            write_fully(file, zeros, offset)
            offset += len(zeros)
        self.cached.restart(position, position + size)

    def write(self, buffers: Sequence[bytes], size: int, offset: int) -> None:
        """Write at the end of the last segment. Raises OSError, of a full disk before a byte."""
        if offset + size > self._size:
            self._grow(offset + size)
        file = self.last
        written = file.pwritev(buffers, offset)
        if written < size:
            write_fully(file, b"".join(buffers)[written:], offset + written)

    def reserve(self, used: int, size: int) -> bool:
        """Whether `size` more bytes behind the `used` ones of the last segment have blocks."""
        if used + size <= self._size:
            return True
        try:
            within = min(used + size, max(self._segment_size_bytes_max, size if not used else 0))
            if within > self._size:
                self._grow(within)
            if used and used + size > self._segment_size_bytes_max:
                self._prepare_next(size)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            return False
        return True

    def finish_last(self, used: int) -> None:
        """Cut the last segment to its entries and make it durable."""
        self.last.truncate(used)
        self.last.sync()
        self._size = used

    def begin(self, position: int) -> None:
        """Make the next segment the last one; the one before stays open for reading."""
        self._keep_open(self.position, self.last)
        target = self.path(position)
        self._last, self._size = self._take_next(target)
        if self._last is None:
            self._last, self._size = self._disk.open(target, create=True), 0
        self.position = position
        self.cached.begin(position)
        self._disk.sync_directory(self._directory)

    def remove_last(self) -> None:
        """Remove the last segment; durable when this returns. `open_last` comes next."""
        self.last.close()
        self._last = None
        self.remove(self.position)

    def settle_last(self) -> None:
        """At a start: what is read of the last segment from now on is durable."""
        positions = segment_positions(self._disk, self._directory)
        if positions:
            with closing(self._disk.open(self.path(positions[-1]), create=False)) as file:
                settle(file)

    # --- closed segments -----------------------------------------------------------------------

    def close_lost(self, position: int) -> None:
        """Where a closed segment's name is gone, read no more of the file that had it."""
        if position != self.position and not self.exists(position):
            file = self._read_files.pop(position, None)
            if file is not None:
                file.close()

    def closed(self, position: int) -> DiskFile:
        """An open file of a closed segment; the least recently used ones are closed."""
        if position == self.position:
            return self.last
        file = self._read_files.pop(position, None)
        if file is None:
            file = self._disk.open(self.path(position), create=False)
        self._keep_open(position, file)
        return file

    def remove(self, position: int) -> None:
        """Remove a segment and what stands beside it; durable when this returns."""
        file = self._read_files.pop(position, None)
        if file is not None:
            file.close()
        for path in (self.path(position), index_path(self._directory, position)):
            try:
                self._disk.remove(path)
            except FileNotFoundError:
                continue  # lost before, or never written
        self._disk.sync_directory(self._directory)

    def remove_sidecar(self, position: int) -> None:
        """Before the segment is changed, so that what the sidecar says never outlives it."""
        try:
            self._disk.remove(index_path(self._directory, position))
        except FileNotFoundError:
            return
        self._disk.sync_directory(self._directory)

    def write_sidecar(self, position: int, data: bytes) -> None:
        """Its bytes are durable when this returns; where there is no room, there is none."""
        try:
            # A new name needs room too.
            with closing(self._disk.open(index_path(self._directory, position), create=True)) as f:
                f.truncate(0)
                write_fully(f, data, 0)
                f.sync()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise

    def exists(self, position: int) -> bool:
        return segment_name(position) in self._disk.list(self._directory)

    def open_for_repair(self, position: int, *, begins: bool) -> DiskFile:
        """The segment's file, to be closed by the caller; one beside it where it is gone, empty
        where the repair `begins`."""
        try:
            return self._disk.open(self.path(position), create=False)
        except FileNotFoundError:
            file = self._disk.open(f"{self.path(position)}.repair", create=True)
            if begins:
                file.truncate(0)
            return file

    def end_repair(self, position: int) -> None:
        """A file that was built beside is whole and durable: it takes its place. What is left of
        one that was not finished is of no use where the segment was made anew."""
        names = self._disk.list(self._directory)
        name = segment_name(position)
        if f"{name}.repair" in names and name not in names:
            self._disk.rename(f"{self.path(position)}.repair", self.path(position))
            self._disk.sync_directory(self._directory)

    def sync_directory(self) -> None:
        self._disk.sync_directory(self._directory)

    def close(self) -> None:
        for file in (self._last, self._next, *self._read_files.values()):
            if file is not None:
                file.close()
        self._last = self._next = None
        self._read_files.clear()

    # --- inside --------------------------------------------------------------------------------

    @property
    def _next_path(self) -> str:
        return f"{self._directory}/next"

    def _grow(self, needed: int) -> None:
        """In steps, so that a sync rarely journals it; exactly, where there is room for no more."""
        step = min(self._size + self._preallocation_size_bytes, self._segment_size_bytes_max)
        size = max(needed, step)
        try:
            self.last.allocate(size)
        except OSError as error:
            if error.errno not in NO_ROOM or size == needed:
                raise
            size = needed
            self.last.allocate(size)
        self._size = size

    def _take_next(self, target: str) -> tuple[DiskFile | None, int]:
        """The file made ahead, under its name; None where there is none any more."""
        file, size = self._next, self._next_size
        self._next, self._next_size = None, 0
        if file is not None:
            try:
                self._disk.rename(self._next_path, target)
            except FileNotFoundError:  # nothing was in it: somebody tidied up
                file.close()
                return None, 0
        return file, size

    def _prepare_next(self, size: int) -> None:
        if self._next is None:
            # A start finds what was allocated before it: nothing was ever written there.
            self._next = self._disk.open(self._next_path, create=True)
            self._next_size = self._next.size()
        if self._next_size < size:
            step = max(size, min(self._preallocation_size_bytes, self._segment_size_bytes_max))
            self._next.allocate(step)
            self._next_size = step

    def _keep_open(self, position: int, file: DiskFile) -> None:
        self._read_files[position] = file
        if len(self._read_files) > _READ_FILES_MAX:
            oldest = next(iter(self._read_files))
            self._read_files.pop(oldest).close()


def segment_name(position: int) -> str:
    return f"{position:0{_NAME_LENGTH}d}"


def segment_path(directory: str, position: int) -> str:
    return f"{directory}/{segment_name(position)}"


def index_path(directory: str, position: int) -> str:
    return f"{segment_path(directory, position)}.index"


def segment_positions(disk: Disk, directory: str) -> list[int]:
    """Of the segments that are there, in order."""
    return [int(name) for name in sorted(disk.list(directory)) if _is_segment(name)]


def _is_segment(name: str) -> bool:
    return len(name) == _NAME_LENGTH and name.isdecimal()
