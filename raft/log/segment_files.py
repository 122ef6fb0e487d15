"""Files of the segmented log: which are open, how they grow, and whether there is room.

Place in the data path: under `raft.log.segment_log`, which knows what the bytes mean.

Invariants:
- only the last segment's file is written behind its end, and every byte is allocated before it is
  written: a full disk is detected by `reserve` or by the allocation, never by a write that ends in
  the middle;
- the next segment's file is created and allocated ahead, under the name `next`, which no reader of
  segments takes for a segment;
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
    """Open files of the log in `directory`. Call `open_last` first."""

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
        self._read_files: dict[int, DiskFile] = {}  # by first position, least recently used first
        self._next: DiskFile | None = None
        self._next_size = 0
        self._last: DiskFile | None = None
        self.position = 0  # first byte of the last segment
        self._size = 0  # of the last segment's file

    @property
    def last(self) -> DiskFile:
        assert self._last is not None
        return self._last

    def path(self, position: int) -> str:
        return segment_path(self._directory, position)

    # --- the last segment ----------------------------------------------------------------------

    def open_last(self, position: int, size: int) -> None:
        """Open or create the last segment, cut to `size`, durable with the next sync."""
        if self._last is None or self.position != position:
            known = self._read_files.pop(position, None)
            self._last = known or self._disk.open(self.path(position), create=True)
        self.position = position
        # Cut, not overwrite: only zeros or new entries may follow the last entry.
        self._last.truncate(size)
        self._size = size
        self.cached.restart(position, position + size)

    def reopen_last(self, position: int, size: int, torn_size: int) -> None:
        """Open or create the last segment at a start. Its entries take `size` bytes; `torn_size`
        bytes behind them are no entries and become zeros, durable with the next sync.

        Allocated blocks stay: on a full disk another process would take them.
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
        """Write at the end of the last segment. Raises OSError, of a full disk before any byte."""
        if offset + size > self._size:
            self._grow(offset + size)
        file = self.last
        written = file.pwritev(buffers, offset)
        if written < size:
            write_fully(file, b"".join(buffers)[written:], offset + written)

    def holds(self, size: int) -> bool:
        """Return whether the last segment has blocks for so many bytes in all."""
        return size <= self._size

    def reserve(self, used: int, size: int) -> bool:
        """Return whether the last segment has blocks for `size` bytes behind the `used` ones."""
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
        """Sync the last segment at a start, so that reads return what the disk holds."""
        positions = segment_positions(self._disk, self._directory)
        if positions:
            with closing(self._disk.open(self.path(positions[-1]), create=False)) as file:
                settle(file)

    # --- closed segments -----------------------------------------------------------------------

    def close_lost(self, position: int) -> None:
        """Close the file of a closed segment whose name is lost, so that it is read no more."""
        if position != self.position and not self.exists(position):
            file = self._read_files.pop(position, None)
            if file is not None:
                file.close()

    def closed(self, position: int) -> DiskFile:
        """Return an open file of a closed segment; the least recently used ones are closed."""
        if position == self.position:
            return self.last
        file = self._read_files.pop(position, None)
        if file is None:
            file = self._disk.open(self.path(position), create=False)
        self._keep_open(position, file)
        return file

    def remove(self, position: int) -> None:
        """Remove a segment and its sidecar; durable when this returns."""
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
        """Remove the sidecar before its segment changes, so that it is never outdated."""
        try:
            self._disk.remove(index_path(self._directory, position))
        except FileNotFoundError:
            return
        self._disk.sync_directory(self._directory)

    def write_sidecar(self, position: int, data: bytes) -> None:
        """Write a sidecar, durable when this returns; a full disk leaves none."""
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
        """Open the segment's file, which the caller closes; if it is lost, open one beside it,
        emptied if the repair `begins`."""
        try:
            return self._disk.open(self.path(position), create=False)
        except FileNotFoundError:
            file = self._disk.open(f"{self.path(position)}.repair", create=True)
            if begins:
                file.truncate(0)
            return file

    def end_repair(self, position: int) -> None:
        """Rename a file that was built beside, whole and durable, to the segment's name. Ignore the
        remains of an unfinished one if the segment was made anew."""
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
        """Grow in steps, so that a sync rarely journals the size; exactly, where room is short."""
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
        """Rename the file made ahead to `target`; None if there is none."""
        file, size = self._next, self._next_size
        self._next, self._next_size = None, 0
        if file is not None:
            try:
                self._disk.rename(self._next_path, target)
            except FileNotFoundError:  # somebody removed it; it was empty
                file.close()
                return None, 0
        return file, size

    def _prepare_next(self, size: int) -> None:
        if self._next is None:
            # Reuse what was allocated before this start: nothing was ever written there.
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
    """Return the first positions of the segments that exist, in order."""
    return [int(name) for name in sorted(disk.list(directory)) if _is_segment(name)]


def _is_segment(name: str) -> bool:
    return len(name) == _NAME_LENGTH and name.isdecimal()
