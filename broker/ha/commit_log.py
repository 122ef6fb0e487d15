"""The CommitLog of a master or a slave: files of one size, records back to back.

Place in the data path: the engine appends entries to it, or a master's bytes as they come; pulls
read from it. Entries are framed by `broker.ha.framing`, files named by the position of their first
byte (20 digits).

Invariants:
- an entry, and the BLANK behind the last one of a file, fit in one file; files before the last one
  end in a BLANK and are durable whole;
- each byte is allocated before it is written, so a full disk is met by `append`'s `OSError` before
  any byte, never in the middle of an entry;
- at a start, whatever is no whole entry behind the durable mark is a torn tail and cut off as a
  whole; before the mark it is damage, and the log is refused;
- behind the log's end its file holds zeros.

Source: RocketMQ CommitLog, MappedFileQueue, StoreCheckpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from broker.ha.framing import (
    BLANK_SIZE_MIN,
    HEAD_OVERHEAD,
    TERM,
    CutShortError,
    Framed,
    FramingError,
    encode_blank,
    encode_entry,
    parse,
    place_before,
)
from raft.log.durable_mark import DurableMark, Mark
from raft.log.log_format import CorruptLogError
from raft.messages import LogBase
from raft.storage import Disk, DiskFile, write_fully
from remoting.errors import RecordError

__all__ = ["CommitLog", "Standing"]

_EMPTY: Final = LogBase(index=0, term=TERM, position=0, chain=0)
_NAME_LENGTH: Final = 20
_FIRST_READ_SIZE: Final = 4_096
_READ_FILES_MAX: Final = 16  # open files besides the last one


@dataclass(frozen=True, slots=True)
class Standing:
    """An entry where it stands: between the places `before` and `after`. `payload` as it was
    proposed, `position` as in `CommittedEntry`."""

    before: LogBase
    after: LogBase
    payload: bytes
    position: int


class CommitLog:
    """The log in `directory` of `disk`, opened and recovered at construction.

    `begin` and `end` are the places before its first entry and behind its last one; `raw_end` is
    the position behind the bytes of an entry that has not come whole; up to `durable` all is
    fsynced. Raises OSError and CorruptLogError.
    """

    def __init__(self, disk: Disk, directory: str, *, file_size: int) -> None:
        self._disk = disk
        self._directory = directory
        self._file_size = file_size
        self._mark = DurableMark(disk, f"{directory}.durable")
        self._last: DiskFile | None = None  # None: it has to be made
        self._read_files: dict[int, DiskFile] = {}  # by first position, least recently used first
        disk.make_directory(directory)
        disk.sync_directory(directory.rpartition("/")[0])
        self.torn_size = 0
        mark = self._read_mark()
        self.begin, self._last_begin, self.durable = mark.base, mark.last, mark.cut
        self.end = self._recover()
        self.raw_end = self.end.position
        self.durable = self.end  # `_recover` has synced it
        self._mark.reset(self._marked())

    # --- opening -------------------------------------------------------------------------------

    def _read_mark(self) -> Mark:
        mark = self._mark.read()
        if isinstance(mark, Mark):
            return mark
        if self._positions():
            raise CorruptLogError(
                f"{self._directory}.durable", 0, "neither it nor its copy is readable"
            )
        fresh = Mark(cut=_EMPTY, last=_EMPTY, base=_EMPTY)
        self._mark.reset(fresh)
        return fresh

    def _positions(self) -> list[int]:
        """Return the first positions of the files, ascending."""
        names = self._disk.list(self._directory)
        return sorted(int(n) for n in names if len(n) == _NAME_LENGTH and n.isdecimal())

    def _recover(self) -> LogBase:
        """Find the log's end, and cut off what is behind it. Raises OSError, CorruptLogError."""
        for position in self._positions():
            if position < self.begin.position:
                self._disk.remove(self._path(position))  # a removal that a crash interrupted
        there = self._positions()
        for position in range(self.begin.position, self._last_begin.position, self._file_size):
            if position not in there:
                raise CorruptLogError(self._path(position), position, "the file is missing")
            self._check_size(position, self._disk.open(self._path(position), create=False))
        place = self._last_begin
        self._defect = "the file is missing"
        while self._has_file(place.position):
            file = self._disk.open(self._path(self._first_file(place.position)), create=False)
            file.sync()  # what a killed process wrote may be in the page cache alone
            begin = self._first_file(place.position)
            self._read_files[begin] = file
            place = self._scan(place)
            if self._first_file(place.position) == begin:
                break
            self._last_begin = place
        if place.position < self.durable.position:
            raise CorruptLogError(
                self._path(self._first_file(place.position)),
                place.position,
                f"{self._defect}, and the log was durable up to {self.durable.position}",
            )
        self._cut_at(place)
        return place

    def _check_size(self, position: int, file: DiskFile) -> None:
        size = file.size()
        file.close()
        if size != self._file_size:
            raise CorruptLogError(
                self._path(position),
                position,
                f"the file has {size} bytes, where segment_size_bytes_max says {self._file_size}",
            )

    def _has_file(self, position: int) -> bool:
        return self._first_file(position) in self._positions()

    def _scan(self, place: LogBase) -> LogBase:
        """Return the place behind the last whole entry of the file that `place` is in, or the
        beginning of the next file where a BLANK ends it."""
        begin = self._first_file(place.position)
        limit = begin + self._read_files[begin].size()
        while self._first_file(place.position) == begin:
            try:
                framed = self._framed(place, limit)
            except FramingError as error:
                self._defect = str(error)
                break
            place = _behind(place, framed)
        return place

    def _cut_at(self, place: LogBase) -> None:
        """Make `place` the log's end on the disk: zeros behind it, no later files; durable."""
        begin = self._first_file(place.position)
        for position in reversed(self._positions()):
            if position > begin:
                self._forget(position)
                self._disk.remove(self._path(position))
        self._disk.sync_directory(self._directory)
        self._last = None
        if not self._has_file(place.position):
            return
        file = self._read_files.pop(begin, None) or self._disk.open(self._path(begin), create=False)
        size = file.size()
        if size > self._file_size:
            self._check_size(begin, file)
        self.torn_size = _used_size(file, place.position - begin)
        if self.torn_size or size < self._file_size:
            file.truncate(place.position - begin)
            file.allocate(self._file_size)
            file.sync()
        self._last = file

    # --- appending -----------------------------------------------------------------------------

    @property
    def payload_size_max(self) -> int:
        return self._file_size - HEAD_OVERHEAD - BLANK_SIZE_MIN

    def fits(self, payload_size: int) -> bool:
        """Return whether an entry of that payload fits in the file that the log ends in."""
        size = HEAD_OVERHEAD + payload_size + BLANK_SIZE_MIN
        return size <= self._file_left(self.end.position)

    def roll(self) -> None:
        """End the file with a BLANK, and begin the next one. Raises OSError.

        All before is durable then: an fsync of the last file alone covers the whole log.
        """
        left = self._file_left(self.end.position)
        if left == self._file_size:
            return  # it has just begun
        file = self._writable()
        write_fully(file, encode_blank(left), self._file_size - left)
        file.sync()
        self._begin_file(self.end.position + left)

    def append(self, payload: bytes) -> Standing:
        """Write an entry at the log's end. Caller's duty: it `fits`. Raises OSError, of a full disk
        before any byte."""
        assert self.raw_end == self.end.position, "a master's bytes are being received"
        assert self.fits(len(payload))
        file = self._writable()
        before = self.end
        pieces, after = encode_entry(payload, before)
        offset = before.position - self._first_file(before.position)
        size = after.position - before.position
        written = file.pwritev(pieces, offset)
        if written < size:
            write_fully(file, b"".join(pieces)[written:], offset + written)
        self.end, self.raw_end = after, after.position
        return Standing(before, after, payload, before.position + HEAD_OVERHEAD)

    def receive(self, data: bytes) -> None:
        """Write bytes of a master behind `raw_end`; `take` then returns what is whole.

        Raises OSError, and FramingError where they cross the end of a file.
        """
        if len(data) > self._file_left(self.raw_end):
            raise FramingError(f"{len(data)} bytes at {self.raw_end} cross the end of a file")
        if self._first_file(self.raw_end) != self._last_begin.position:
            raise FramingError(f"the file before {self.raw_end} ends in no BLANK")
        file = self._writable()
        write_fully(file, data, self.raw_end - self._first_file(self.raw_end))
        self.raw_end += len(data)

    def take(self) -> Standing | None:
        """Return the next whole entry of what was received; None where there is none yet.

        Raises FramingError where the bytes are no entry: this log and the master's differ.
        """
        while self.raw_end > self.end.position:
            before = self.end
            try:
                framed = self._framed(before, self.raw_end)
            except CutShortError:
                return None
            if framed.payload is not None:
                self.end = _behind(before, framed)
                return Standing(before, self.end, framed.payload, framed.position)
            if self.raw_end - before.position < framed.size:
                return None  # the rest of the BLANK is on its way
            self._writable().sync()
            self._begin_file(before.position + framed.size)
        return None

    def _begin_file(self, position: int) -> None:
        """Let the log end at the beginning of the next file, which is made when it is needed."""
        begin = self._last_begin.position
        if self._last is not None:
            self._keep_open(begin, self._last)
        self._last = None
        self.end = LogBase(index=self.end.index, term=TERM, position=position, chain=self.end.chain)
        self.raw_end = max(self.raw_end, position)
        self._last_begin = self.durable = self.end
        self._mark.reset(self._marked())

    def _writable(self) -> DiskFile:
        """Return the last file, made and allocated where it is missing. Raises OSError."""
        if self._last is None:
            begin = self._first_file(self.end.position)
            file = self._disk.open(self._path(begin), create=True)
            try:
                file.allocate(self._file_size)
                file.sync()
                self._disk.sync_directory(self._directory)
            except OSError:
                file.close()
                raise
            self._last = file
        return self._last

    # --- durability ----------------------------------------------------------------------------

    @property
    def last_file(self) -> DiskFile | None:
        """The file whose sync makes all durable that was appended before it; None: all is."""
        return self._last

    def claim(self, place: LogBase) -> None:
        """Note that all up to `place`, an earlier `end`, is durable. Raises OSError."""
        if place.position > self.durable.position:
            self.durable = place
            self._mark.raise_to(self._marked())

    def sync(self) -> None:
        """Make all durable that was appended. Raises OSError."""
        end = self.end
        if self._last is not None and end.position > self.durable.position:
            self._last.sync()
            self.claim(end)

    def _marked(self) -> Mark:
        return Mark(cut=self.durable, last=self._last_begin, base=self.begin)

    # --- reading -------------------------------------------------------------------------------

    def read(self, position: int, size: int) -> bytes:
        """Return `size` bytes at `position`. Raises LookupError where the log has not all of them,
        and OSError."""
        if not (self.begin.position <= position and position + size <= self.raw_end):
            raise LookupError(f"the log has no {size} bytes at {position}")
        begin = self._first_file(position)
        data = self._file_at(begin).pread(size, position - begin)
        if len(data) < size:
            raise LookupError(f"{size} bytes at {position} cross the end of a file")
        return data

    def read_chunk(self, position: int, size_max: int) -> bytes:
        """Return up to `size_max` bytes of one file at `position`; empty at the log's end. Raises
        LookupError where they are gone, and OSError."""
        left = min(size_max, self.raw_end - position, self._file_left(position))
        return self.read(position, left) if left > 0 else b""

    def entries_behind(self, place: LogBase) -> Iterator[Standing]:
        """Yield the entries behind `place`, up to the log's end when it is reached.

        Raises OSError, and CorruptLogError where one is damaged.
        """
        while place.position < self.end.position:
            try:
                framed = self._framed(place, self.end.position)
            except FramingError as error:
                path = self._path(self._first_file(place.position))
                raise CorruptLogError(path, place.position, str(error)) from error
            after = _behind(place, framed)
            if framed.payload is not None:
                yield Standing(place, after, framed.payload, framed.position)
            place = after

    def _framed(self, place: LogBase, limit: int) -> Framed:
        """Parse what is behind `place`, of bytes below `limit`. Raises FramingError, OSError."""
        begin = self._first_file(place.position)
        file, left = self._file_at(begin), self._file_left(place.position)
        available = min(left, limit - place.position)
        size = min(_FIRST_READ_SIZE, available)
        while True:
            buffer = file.pread(size, place.position - begin)
            try:
                return parse(buffer, place, file_left=left)
            except CutShortError as error:
                if error.size > available or len(buffer) < size:
                    raise
                size = error.size

    def _file_at(self, begin: int) -> DiskFile:
        if begin == self._last_begin.position and self._last is not None:
            return self._last
        file = self._read_files.pop(begin, None)
        if file is None:
            try:
                file = self._disk.open(self._path(begin), create=False)
            except FileNotFoundError as error:
                raise LookupError(f"the log has no file {begin}") from error
        self._keep_open(begin, file)
        return file

    def _keep_open(self, begin: int, file: DiskFile) -> None:
        self._read_files[begin] = file
        while len(self._read_files) > _READ_FILES_MAX:
            self._forget(next(iter(self._read_files)))

    def _forget(self, begin: int) -> None:
        file = self._read_files.pop(begin, None)
        if file is not None:
            file.close()

    # --- cutting -------------------------------------------------------------------------------

    def truncate(self, place: LogBase) -> None:
        """Drop all behind `place`, which a walk of this log has found; durable. Raises OSError."""
        assert self.begin.position <= place.position <= self.raw_end
        begin = self._first_file(place.position)
        if begin < self._last_begin.position:
            self._last_begin = self._begin_of(begin)
        if place.position < self.durable.position:
            self.durable = place
            self._mark.reset(self._marked())  # lowered before the log is
        if self._last is not None:
            self._last.close()
            self._last = None
        self._cut_at(place)
        self.end, self.raw_end = place, place.position

    def reset(self, position: int) -> None:
        """Empty the log; it begins anew at `position`, where a file begins. Raises OSError."""
        assert position % self._file_size == 0
        place = LogBase(index=0, term=TERM, position=position, chain=0)
        if self._last is not None:
            self._last.close()
        for begin in list(self._read_files):
            self._forget(begin)
        for begin in self._positions():
            self._disk.remove(self._path(begin))
        self._disk.sync_directory(self._directory)
        self._last = None
        self.begin = self.end = self.durable = self._last_begin = place
        self.raw_end = position
        self._mark.reset(self._marked())

    def drop_before(self, position: int) -> int:
        """Drop whole files below `position`; return where the log begins now. Raises OSError."""
        first = min(self._first_file(position), self._last_begin.position)
        if first <= self.begin.position:
            return self.begin.position
        self.begin = self._begin_of(first)
        self._mark.reset(self._marked())
        for begin in self._positions():
            if begin < first:
                self._forget(begin)
                self._disk.remove(self._path(begin))
        self._disk.sync_directory(self._directory)
        return first

    def _begin_of(self, begin: int) -> LogBase:
        """Return the place at the beginning of a file: its first record names it, or else all
        entries from the log's beginning on are counted. Raises OSError, CorruptLogError."""
        if begin == self._last_begin.position:
            return self._last_begin
        size = int.from_bytes(self.read(begin, 4), "big")
        try:
            named = place_before(self.read(begin, size))
        except (RecordError, LookupError) as error:
            raise CorruptLogError(self._path(begin), begin, str(error)) from error
        if named is not None:
            return named
        place = self.begin
        for standing in self.entries_behind(self.begin):
            if standing.after.position > begin:
                break
            place = standing.after
        return LogBase(index=place.index, term=TERM, position=begin, chain=place.chain)

    # --- the rest ------------------------------------------------------------------------------

    def close(self) -> None:
        if self._last is not None:
            self._last.close()
            self._last = None
        for begin in list(self._read_files):
            self._forget(begin)
        self._mark.close()

    def _path(self, begin: int) -> str:
        return f"{self._directory}/{begin:0{_NAME_LENGTH}d}"

    def _first_file(self, position: int) -> int:
        return position - position % self._file_size

    def _file_left(self, position: int) -> int:
        return self._file_size - position % self._file_size


def _behind(place: LogBase, framed: Framed) -> LogBase:
    """Return the place behind an entry or a BLANK."""
    index = place.index if framed.payload is None else place.index + 1
    return LogBase(
        index=index, term=TERM, position=place.position + framed.size, chain=framed.chain
    )


def _used_size(file: DiskFile, offset: int) -> int:
    """Return how many bytes from `offset` to the last one that is not zero."""
    end, chunk = file.size(), 1 << 20
    while end > offset:
        begin = max(offset, end - chunk)
        used = len(file.pread(end - begin, begin).rstrip(b"\0"))
        if used:
            return begin + used - offset
        end = begin
    return 0
