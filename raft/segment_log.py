"""The Raft log in segment files: the CommitLog itself (docs/FORMATS.md section 3).

Place in the data path: the shell appends and truncates what a `Ready` says, `raft.core` reads
terms and entries, consumers read stored bytes by position. It touches the disk only through
`raft.storage.Disk`, so that the simulator can run it over a disk that loses and tears.

Invariants:
- positions run through all segments without a gap; a segment holds whole entries only, and is
  fsynced whole before its successor is made;
- a truncation really cuts the file, and takes later segments away newest first, each removal made
  durable before the next: no crash can bring an old tail back behind a new one;
- after the first OSError nothing is written any more: every later append, truncate or sync
  raises. What an fsync that failed once left behind is unknown, also to a second fsync.

Threads: everything runs on the loop's thread but `sync`, which may run on one other thread while
the loop goes on reading and appending (a truncation waits for it).

Source: Raft 5.3; DLedger's segments; "Can applications recover from fsync failures?" (ATC '20).
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from raft.durable_mark import DurableMark
from raft.log_format import (
    HEADER_SIZE,
    CorruptLogError,
    EntryDefectError,
    encode_header,
    parse_entry,
)
from raft.log_recovery import RecoveryReport, recover
from raft.messages import Entry, EntryKind, Index, LogBase, Term
from raft.storage import Disk, DiskFile

__all__ = ["SegmentLog", "SyncedTo"]

_SEGMENT_NAME_LENGTH = 20
_TAIL_ENTRIES_MAX = 8192
_READ_FILES_MAX = 64  # open files of closed segments


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncedTo:
    """What a sync covered: every entry up to `index`, which has `term` (0 and 0: none)."""

    index: Index
    term: Term


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tail:
    """The log's end in one value, so that the syncing thread sees it whole."""

    file: DiskFile
    index: Index
    term: Term
    position: int


class SegmentLog:
    """Opens, and recovers, the log in `directory` of `disk`.

    Raises OSError, and CorruptLogError where something durable is damaged or missing.
    Beside the directory stands `DIRECTORY.durable` (raft/durable_mark.py).
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        *,
        segment_size_bytes_max: int = 64 << 20,
        preallocation_size_bytes: int = 4 << 20,
        tail_size_bytes_max: int = 16 << 20,
    ) -> None:
        assert segment_size_bytes_max >= HEADER_SIZE
        self._disk = disk
        self._directory = directory
        self._segment_size_bytes_max = segment_size_bytes_max
        self._preallocation_size_bytes = preallocation_size_bytes
        self._tail_size_bytes_max = tail_size_bytes_max
        self._sync_lock = threading.Lock()
        self._mark = DurableMark(disk, f"{directory}.durable")
        self._failure: OSError | None = None
        self._read_files: dict[int, DiskFile] = {}  # by first position, oldest use first
        self._cached: dict[Index, Entry] = {}  # the newest entries, without a gap
        self._cached_first: Index = 1
        self._cached_size_bytes = 0
        self._open()

    def _open(self) -> None:
        """Recover, cut the torn tail, make what is left durable, and claim it."""
        disk, directory = self._disk, self._directory
        disk.make_directory(directory)
        disk.sync_directory(directory.rpartition("/")[0])
        self._segments = [int(name) for name in sorted(disk.list(directory)) if _is_segment(name)]
        recovered = recover(
            [(first, self._path(first)) for first in self._segments],
            lambda path: disk.open(path, create=False),
            self._mark.read(),
        )
        self._positions: array[int] = recovered.positions
        self._chains: array[int] = recovered.chains
        self._config_indexes: array[int] = recovered.config_indexes
        self._term_starts: array[int] = array("Q", [run[0] for run in recovered.term_runs])
        self._term_values: array[int] = array("Q", [run[1] for run in recovered.term_runs])
        self._end = recovered.end_position
        self.recovery = RecoveryReport(
            entries=len(self._positions),
            bytes=self._end,
            torn_bytes=recovered.torn_bytes,
            torn_reason=recovered.torn_reason,
        )
        if not self._segments:
            self._segments = [0]
        first = self._segments[-1]
        self._file = disk.open(self._path(first), create=True)
        self._file_first = first
        # Cut, and not overwritten: zeros or new entries must be all that follows the last one.
        self._file.truncate(self._end - first)
        self._file_size = self._end - first
        self._file.sync()
        disk.sync_directory(directory)
        self._mark.reset(self._end)
        self._synced_position = self._end
        self._cached_first = self.last_index + 1
        self._publish_tail()

    # --- what the core reads -------------------------------------------------------------------

    @property
    def base(self) -> LogBase:
        return LogBase()

    @property
    def first_index(self) -> Index:
        return 1

    @property
    def config_indexes(self) -> Sequence[Index]:
        """Where CONFIG entries stand, ascending."""
        return tuple(self._config_indexes)

    @property
    def last_index(self) -> Index:
        return len(self._positions)

    @property
    def last_term(self) -> Term:
        return self._term_values[-1] if self._term_values else 0

    def term(self, index: Index) -> Term:
        """Raises IndexError outside [0, last_index]."""
        if not 0 <= index <= len(self._positions):
            raise IndexError(f"index {index} is outside 0..{len(self._positions)}")
        if index == 0:
            return 0
        if index >= self._term_starts[-1]:
            return self._term_values[-1]
        return self._term_values[bisect_right(self._term_starts, index) - 1]

    def entries(self, low: Index, high: Index, size_max: int) -> tuple[Entry, ...]:
        """Entries of [low, high), at least one if low < high, then while within size_max bytes.

        `size_max` counts stored bytes, headers included. Raises IndexError where the log doesn't
        hold all of the range, OSError and CorruptLogError where it can't be read.
        """
        if low >= high:
            return ()
        if low < 1 or high > len(self._positions) + 1:
            raise IndexError(f"[{low}, {high}) is outside 1..{len(self._positions)}")
        positions = self._positions
        start = positions[low - 1]
        if self._entry_end(high - 1) - start > size_max:
            # positions[i] is where entry i ends (it is counted from 1): take what ends in time.
            high = max(low + 1, bisect_right(positions, start + size_max, low, high - 1))
        if low >= self._cached_first:
            cached = self._cached
            return tuple([cached[index] for index in range(low, high)])
        return tuple(self._read_entries(low, high))

    # --- what consumers read -------------------------------------------------------------------

    @property
    def end_position(self) -> int:
        """One past the last byte of the last entry."""
        return self._end

    def position(self, index: Index) -> int:
        """Where the entry's header stands; the payload begins HEADER_SIZE later."""
        if not 1 <= index <= len(self._positions):
            raise IndexError(f"index {index} is outside 1..{len(self._positions)}")
        return self._positions[index - 1]

    def chain(self, index: Index) -> int:
        """The chain of the entry; 0 at index 0."""
        if not 0 <= index <= len(self._chains):
            raise IndexError(f"index {index} is outside 0..{len(self._chains)}")
        return self._chains[index - 1] if index else 0

    def read(self, position: int, size: int) -> bytes:
        """`size` bytes at `position`, all of one segment (a record never spans two).

        Raises LookupError where the log does not have them.
        """
        first = self._file_first
        if position >= first:
            file = self._file
            end = self._end
        else:
            if position < 0:
                raise LookupError(f"position {position} is before the log's beginning")
            number = bisect_right(self._segments, position) - 1
            first = self._segments[number]
            end = self._segments[number + 1]
            file = self._closed_file(first)
        if size < 0 or position + size > end:
            raise LookupError(f"[{position}, {position + size}) is not in the log up to {end}")
        data = file.pread(size, position - first)
        if len(data) != size:
            raise CorruptLogError(
                self._path(first), position + len(data), f"{size} bytes asked, {len(data)} there"
            )
        return data

    # --- what the shell writes -----------------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> None:
        """Write the entries behind the last one; not durable before a `sync` begun after this.

        Raises OSError (a full disk too), and then for every later call.
        """
        self._check_writable()
        buffers: list[bytes] = []
        buffers_size = 0
        chain = self.chain(self.last_index)
        try:
            for entry in entries:
                payload = entry.payload
                size = HEADER_SIZE + len(payload)
                segment_used = self._end - self._file_first + buffers_size
                if segment_used and segment_used + size > self._segment_size_bytes_max:
                    self._write(buffers, buffers_size)
                    buffers, buffers_size = [], 0
                    self._begin_segment()
                assert entry.index == len(self._positions) + 1, "entries go on without a gap"
                assert entry.term >= self.last_term, "terms never fall along the log"
                position = self._end + buffers_size
                header, chain = encode_header(entry, position, chain)
                buffers.append(header)
                if payload:
                    buffers.append(payload)
                buffers_size += size
                self._index_entry(entry, position, chain)
            self._write(buffers, buffers_size)
        except OSError as error:
            self._failure = error
            raise
        self._trim_cache()
        self._publish_tail()

    def truncate_from(self, index: Index) -> None:
        """Drop the entry at `index` and all after it; waits for a sync under way.

        Durable with the next sync. Raises OSError, and then for every later call.
        """
        self._check_writable()
        if not 1 <= index <= len(self._positions) + 1:
            raise IndexError(f"index {index} is outside 1..{len(self._positions) + 1}")
        if index == len(self._positions) + 1:
            return
        end = self._positions[index - 1]
        with self._sync_lock:
            try:
                # First the claim, then the bytes: the mark never names what is gone.
                self._synced_position = min(end, self._synced_position)
                self._mark.reset(self._synced_position)
                self._cut(end)
            except OSError as error:
                self._failure = error
                raise
            self._forget_from(index)
            self._end = end
            self._publish_tail()

    def sync(self) -> SyncedTo:
        """Make durable every entry whose append returned before this call.

        The one method that may run on another thread. Entries appended while it runs may or may
        not be durable after it: they are not covered. Raises OSError, and then for every later
        call: nothing is known any more about what is durable.
        """
        with self._sync_lock:
            self._check_writable()
            tail = self._tail
            try:
                tail.file.sync()
                self._mark.raise_to(tail.position)
            except OSError as error:
                self._failure = error
                raise
            self._synced_position = tail.position
            return SyncedTo(index=tail.index, term=tail.term)

    def close(self) -> None:
        """Close every file; not a sync."""
        with self._sync_lock:
            self._mark.close()
            self._file.close()
            for file in self._read_files.values():
                file.close()
            self._read_files.clear()

    # --- inside --------------------------------------------------------------------------------

    def _check_writable(self) -> None:
        if self._failure is not None:
            raise OSError(
                self._failure.errno, f"the log stopped after: {self._failure}"
            ) from self._failure

    def _path(self, first_position: int) -> str:
        return f"{self._directory}/{first_position:0{_SEGMENT_NAME_LENGTH}d}"

    def _entry_end(self, index: Index) -> int:
        return self._positions[index] if index < len(self._positions) else self._end

    def _index_entry(self, entry: Entry, position: int, chain: int) -> None:
        if not self._term_values or self._term_values[-1] != entry.term:
            self._term_starts.append(entry.index)
            self._term_values.append(entry.term)
        if entry.kind is EntryKind.CONFIG:
            self._config_indexes.append(entry.index)
        self._positions.append(position)
        self._chains.append(chain)
        self._cached[entry.index] = entry
        self._cached_size_bytes += HEADER_SIZE + len(entry.payload)

    def _write(self, buffers: list[bytes], size: int) -> None:
        """Write at the log's end; the file grows in steps, so that a sync rarely journals it."""
        if not size:
            return
        offset = self._end - self._file_first
        if offset + size > self._file_size:
            grown = max(offset + size, self._file_size + self._preallocation_size_bytes)
            grown = max(offset + size, min(grown, self._segment_size_bytes_max))
            self._file.truncate(grown)
            self._file_size = grown
        written = self._file.pwritev(buffers, offset)
        while written < size:
            rest = b"".join(buffers)[written:]
            written += self._file.pwritev([rest], offset + written)
        self._end += size

    def _begin_segment(self) -> None:
        """Close the current segment, durable and cut to its entries, and begin the next."""
        self._file.truncate(self._end - self._file_first)
        self._file.sync()
        self._keep_open(self._file_first, self._file)
        self._file_first = self._end
        self._file = self._disk.open(self._path(self._end), create=True)
        self._file_size = 0
        self._disk.sync_directory(self._directory)
        self._segments.append(self._end)

    def _cut(self, end: int) -> None:
        """Remove the segments that begin behind `end`, newest first, then cut the one it is in."""
        while self._segments[-1] > 0 and self._segments[-1] >= end:
            first = self._segments.pop()
            self._file.close()
            self._disk.remove(self._path(first))
            self._disk.sync_directory(self._directory)
            self._file_first = self._segments[-1]
            self._file = self._closed_file(self._file_first)
            del self._read_files[self._file_first]
        self._file.truncate(end - self._file_first)
        self._file_size = end - self._file_first

    def _forget_from(self, index: Index) -> None:
        del self._positions[index - 1 :]
        del self._chains[index - 1 :]
        while self._term_starts and self._term_starts[-1] >= index:
            self._term_starts.pop()
            self._term_values.pop()
        while self._config_indexes and self._config_indexes[-1] >= index:
            self._config_indexes.pop()
        cached = self._cached
        for gone in range(max(index, self._cached_first), self._cached_first + len(cached)):
            self._cached_size_bytes -= HEADER_SIZE + len(cached.pop(gone).payload)
        self._cached_first = min(self._cached_first, index)

    def _trim_cache(self) -> None:
        cached = self._cached
        while (
            self._cached_size_bytes > self._tail_size_bytes_max or len(cached) > _TAIL_ENTRIES_MAX
        ):
            dropped = cached.pop(self._cached_first)
            self._cached_size_bytes -= HEADER_SIZE + len(dropped.payload)
            self._cached_first += 1

    def _publish_tail(self) -> None:
        self._tail = _Tail(
            file=self._file, index=self.last_index, term=self.last_term, position=self._end
        )

    def _read_entries(self, low: Index, high: Index) -> list[Entry]:
        """Entries of [low, high) from the disk, one read per segment, each checked again."""
        entries: list[Entry] = []
        while low < high:
            start = self._positions[low - 1]
            number = bisect_right(self._segments, start)
            end = self._entry_end(high - 1)
            stop = high
            if number < len(self._segments) and self._segments[number] < end:
                end = self._segments[number]
                stop = bisect_right(self._positions, end - 1, low - 1) + 1
            data = self.read(start, end - start)
            for index in range(low, stop):
                position = self._positions[index - 1]
                try:
                    header = parse_entry(
                        data,
                        position - start,
                        index=index,
                        position=position,
                        chain_before=self.chain(index - 1),
                    )
                except EntryDefectError as defect:
                    path = self._path(self._segments[number - 1])
                    raise CorruptLogError(path, position, str(defect)) from defect
                offset = position - start
                payload = data[offset + HEADER_SIZE : offset + header.size]
                entries.append(
                    Entry(index=index, term=header.term, kind=header.kind, payload=payload)
                )
            low = stop
        return entries

    def _closed_file(self, first_position: int) -> DiskFile:
        """An open file of a closed segment; the least recently used ones are closed."""
        file = self._read_files.pop(first_position, None)
        if file is None:
            file = self._disk.open(self._path(first_position), create=False)
        self._keep_open(first_position, file)
        return file

    def _keep_open(self, first_position: int, file: DiskFile) -> None:
        self._read_files[first_position] = file
        if len(self._read_files) > _READ_FILES_MAX:
            oldest = next(iter(self._read_files))
            self._read_files.pop(oldest).close()


def _is_segment(name: str) -> bool:
    return len(name) == _SEGMENT_NAME_LENGTH and name.isdecimal()
