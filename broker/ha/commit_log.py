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
- behind the log's end its file holds zeros;
- once an fsync has failed nothing more is claimed as durable: the kernel takes the pages for clean,
  so that the next fsync succeeds without them.

Source: RocketMQ CommitLog, MappedFileQueue, StoreCheckpoint.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from broker.ha.framing import (
    BLANK_SIZE_MIN,
    HEAD_OVERHEAD,
    MAGIC_BLANK,
    SLOT_AHEAD,
    TERM,
    CutShortError,
    Framed,
    FramingError,
    encode_blank,
    encode_entry,
    parse,
    place_before,
)
from broker.ha.log_files import LogFiles
from raft.log.durable_mark import DurableMark, Mark
from raft.log.durable_record import settle
from raft.log.log_format import CorruptLogError
from raft.messages import LogBase
from raft.storage import Disk, DiskFile, write_fully
from remoting.errors import RecordError

__all__ = ["CommitLog", "Standing"]

_EMPTY: Final = LogBase(index=0, term=TERM, position=0, chain=0)
_SIZE_AND_MAGIC: Final = struct.Struct(">II")
_FIRST_READ_SIZE: Final = 4_096


@dataclass(frozen=True, slots=True)
class Standing:
    """An entry of the log, and the places on its two sides, `before` and `after`.

    `payload` is what was proposed; `position` is as in `CommittedEntry`.
    """

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
        self._files = LogFiles(disk, directory, file_size)
        self._mark_path = f"{directory}.durable"
        self._mark = DurableMark(disk, self._mark_path)
        mark = self._read_mark()
        self.begin, self._last_begin, self.durable = mark.base, mark.last, mark.cut
        self.torn_size = 0
        self._failed_sync: OSError | None = None
        self._previous: LogBase | None = None  # the place before the last entry, if it is known
        self.end = self._recover()
        self.raw_end = self.end.position
        self.durable = self.end  # `_recover` has synced it
        self._mark.reset(self._marked())

    # --- opening -------------------------------------------------------------------------------

    def _read_mark(self) -> Mark:
        mark = self._mark.read()
        if isinstance(mark, Mark):
            return mark
        if self._files.begins():
            raise CorruptLogError(self._mark_path, 0, "neither it nor its copy is readable")
        fresh = Mark(cut=_EMPTY, last=_EMPTY, base=_EMPTY)
        self._mark.reset(fresh)
        return fresh

    def _recover(self) -> LogBase:
        """Find the log's end, and cut off what is behind it. Raises OSError, CorruptLogError."""
        files = self._files
        # A crash has interrupted their removal.
        files.remove([begin for begin in files.begins() if begin < self.begin.position])
        for begin in range(self.begin.position, self._last_begin.position, files.size):
            files.check(begin)
        place, defect = self._last_begin, "the file is missing"
        while (begin := files.begin_of(place.position)) in files.begins():
            # What a killed process wrote may be in the page cache alone, and where its fsync failed
            # it is in no other place.
            settle(files.at(begin))
            place, defect = self._scan(place)
            if files.begin_of(place.position) == begin:
                break
            self._last_begin = place
        if place.position < self.durable.position:
            raise CorruptLogError(
                files.path(files.begin_of(place.position)),
                place.position,
                f"{defect}, and the log was durable up to {self.durable.position}",
            )
        self.torn_size = files.cut(place.position)
        return place

    def _scan(self, place: LogBase) -> tuple[LogBase, str]:
        """Return the place behind the last whole entry of the file that `place` is in, or the
        beginning of the next file where a BLANK ends it; and what is wrong there."""
        begin = self._files.begin_of(place.position)
        limit = begin + self._files.at(begin).size()
        while self._files.begin_of(place.position) == begin:
            try:
                framed = self._framed(place, limit)
            except FramingError as error:
                return place, str(error)
            if framed.payload is not None:
                self._previous = place
            place = _behind(place, framed)
        return place, "the file is missing"

    # --- appending -----------------------------------------------------------------------------

    def fits(self, payload_size: int) -> bool:
        """Return whether an entry of that payload fits in the file that the log ends in."""
        size = HEAD_OVERHEAD + payload_size + BLANK_SIZE_MIN
        return size <= self._files.left(self.end.position)

    def roll(self) -> None:
        """End the file with a BLANK, and begin the next one. Raises OSError.

        All before is durable then: an fsync of the last file alone covers the whole log.
        """
        left = self._files.left(self.end.position)
        if left == self._files.size:
            return  # it has just begun
        file = self._writable()
        write_fully(file, encode_blank(left), self._files.size - left)
        self._sync(file)
        self._begin_file(self.end.position + left)

    def reserve(self) -> None:
        """Make the file that the log ends in. Raises OSError where there is no room."""
        self._writable()

    def append(self, payload: bytes) -> Standing:
        """Write an entry at the log's end. Caller's duty: it `fits`. Raises OSError, of a full disk
        before any byte."""
        assert self.raw_end == self.end.position, "a master's bytes are being received"
        assert self.fits(len(payload))
        file = self._writable()
        before = self.end
        pieces, after = encode_entry(payload, before)
        offset = before.position - self._files.begin_of(before.position)
        size = after.position - before.position
        written = file.pwritev(pieces, offset)
        if written < size:
            write_fully(file, b"".join(pieces)[written:], offset + written)
        self.end, self.raw_end, self._previous = after, after.position, before
        return Standing(before, after, payload, before.position + HEAD_OVERHEAD)

    def receive(self, data: bytes) -> None:
        """Write bytes of a master behind `raw_end`; `take` then returns what is whole.

        Raises OSError, and FramingError where they cross the end of a file.
        """
        if len(data) > self._files.left(self.raw_end):
            raise FramingError(f"{len(data)} bytes at {self.raw_end} cross the end of a file")
        begin = self._files.begin_of(self.raw_end)
        if begin != self._last_begin.position:
            raise FramingError(f"the file before {self.raw_end} ends in no BLANK")
        write_fully(self._writable(), data, self.raw_end - begin)
        self.raw_end += len(data)

    def take(self, *, named: bool = False) -> Standing | None:
        """Return the next whole entry of what was received; None where there is none yet. With
        `named` it has to name the chain before it, as a RocketMQ master's record does not.

        Raises FramingError where the bytes are no such entry: this log and the master's differ.
        """
        while self.raw_end > self.end.position:
            before = self.end
            try:
                framed = self._framed(before, self.raw_end)
            except CutShortError:
                return None
            if framed.payload is not None:
                if named and framed.position != before.position + SLOT_AHEAD:
                    raise FramingError(f"the record at {before.position} names no chain")
                self.end, self._previous = _behind(before, framed), before
                return Standing(before, self.end, framed.payload, framed.position)
            if self.raw_end - before.position < framed.size:
                return None  # the rest of the BLANK is on its way
            self._sync(self._writable())
            self._begin_file(before.position + framed.size)
        return None

    def _begin_file(self, position: int) -> None:
        """Let the log end at the beginning of the next file, which is made when it is needed."""
        self._files.end_last()
        self.end = LogBase(index=self.end.index, term=TERM, position=position, chain=self.end.chain)
        self.raw_end = max(self.raw_end, position)
        self._last_begin = self.durable = self.end
        self._mark.reset(self._marked())

    def _writable(self) -> DiskFile:
        """Return the last file, made where it is missing. Raises OSError."""
        return self._files.open_last(self._last_begin.position)

    # --- durability ----------------------------------------------------------------------------

    @property
    def last_file(self) -> DiskFile | None:
        """Return the file whose fsync makes the whole log durable; None if the log is durable."""
        return self._files.last

    def claim(self, place: LogBase) -> None:
        """Note that everything up to `place`, the log's `end` at some time before, is durable.

        Raises OSError: of this write, or of an earlier fsync that failed.
        """
        if self._failed_sync is not None:
            raise self._failed_sync
        if place.position > self.durable.position:
            self.durable = place
            self._mark.raise_to(self._marked())

    def sync(self) -> None:
        """Fsync everything that was appended. Raises OSError."""
        end = self.end
        if self._files.last is not None and end.position > self.durable.position:
            self._sync(self._files.last)
            self.claim(end)

    def _sync(self, file: DiskFile) -> None:
        try:
            file.sync()
        except OSError as error:
            self._failed_sync = error
            raise

    def _marked(self) -> Mark:
        return Mark(cut=self.durable, last=self._last_begin, base=self.begin)

    # --- reading -------------------------------------------------------------------------------

    def read(self, position: int, size: int) -> bytes:
        """Return `size` bytes at `position`. Raises LookupError where the log has not all of them,
        and OSError."""
        if not (self.begin.position <= position and position + size <= self.raw_end):
            raise LookupError(f"the log has no {size} bytes at {position}")
        begin = self._files.begin_of(position)
        data = self._files.at(begin).pread(size, position - begin)
        if len(data) < size:
            raise LookupError(f"{size} bytes at {position} cross the end of a file")
        return data

    def read_chunk(self, position: int, size_max: int) -> bytes:
        """Return up to `size_max` bytes of one file at `position`; empty at the log's end. Raises
        LookupError where they are gone, and OSError."""
        left = min(size_max, self.raw_end - position, self._files.left(position))
        return self.read(position, left) if left > 0 else b""

    def entries_behind(self, place: LogBase) -> Iterator[Standing]:
        """Yield the entries behind `place`, up to the log's end when it is reached.

        Raises OSError, and CorruptLogError where one is damaged.
        """
        while place.position < self.end.position:
            try:
                framed = self._framed(place, self.end.position)
            except FramingError as error:
                raise self._corrupt(place.position, error) from error
            after = _behind(place, framed)
            if framed.payload is not None:
                yield Standing(place, after, framed.payload, framed.position)
            place = after

    def last_before(self) -> LogBase:
        """Return the place before the last entry; the log's beginning where it has none. Raises
        OSError, CorruptLogError."""
        if self._previous is None:
            self._previous = self.begin
            for back in (1, 2):  # the last file may have no entry yet
                newest = deque(self.entries_behind(self.file_begin(back)), maxlen=1)
                if newest:
                    self._previous = newest[0].before
                    break
        return self._previous

    def file_begin(self, back: int) -> LogBase:
        """Return the place at the beginning of the last file (1), of the one before (2), and so on;
        the log's beginning where there are fewer. Raises OSError, CorruptLogError."""
        position = self._last_begin.position - (back - 1) * self._files.size
        if position <= self.begin.position:
            return self.begin
        return self._place_of(position)

    def holds(self, place: LogBase) -> bool:
        """Return whether `place` is one of this log, between two entries or at an end. Raises
        OSError."""
        if place.position in (self.begin.position, self.end.position):
            return place in (self.begin, self.end)
        if not self.begin.position < place.position < self.end.position:
            return False
        try:
            self._framed(place, self.end.position)
        except FramingError:
            return False
        return True

    def entry_at(self, position: int) -> Framed:
        """Return the entry, or the BLANK, that begins at `position`, whatever precedes it. Raises
        LookupError, CorruptLogError, OSError."""
        size, magic = _SIZE_AND_MAGIC.unpack(self.read(position, _SIZE_AND_MAGIC.size))
        place: LogBase | None = None
        try:
            if magic != MAGIC_BLANK:
                place = place_before(self.read(position, size))
            if place is None:
                place = LogBase(index=0, term=TERM, position=position, chain=0)
            return self._framed(place, self.end.position)
        except (FramingError, RecordError) as error:
            raise self._corrupt(position, error) from error

    def _framed(self, place: LogBase, limit: int) -> Framed:
        """Parse what is behind `place`, of bytes below `limit`. Raises FramingError, OSError."""
        begin = self._files.begin_of(place.position)
        file, left = self._files.at(begin), self._files.left(place.position)
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

    def _corrupt(self, position: int, error: Exception) -> CorruptLogError:
        path = self._files.path(self._files.begin_of(position))
        return CorruptLogError(path, position, str(error))

    # --- cutting -------------------------------------------------------------------------------

    def truncate(self, place: LogBase) -> None:
        """Drop all behind `place`, which a walk of this log has found; durable. Raises OSError."""
        assert self.begin.position <= place.position <= self.raw_end
        begin = self._files.begin_of(place.position)
        if begin < self._last_begin.position:
            self._last_begin = self._place_of(begin)
        if place.position < self.durable.position:
            self.durable = place
            self._mark.reset(self._marked())  # lowered before the log is
        self._files.cut(place.position)
        self.end, self.raw_end, self._previous = place, place.position, None

    def drop_before(self, position: int, files_max: int | None = None) -> int:
        """Drop whole files below `position`, the oldest `files_max` of them; return where the log
        begins now. Raises OSError, CorruptLogError."""
        first = min(self._files.begin_of(position), self._last_begin.position)
        if files_max is not None:
            begin = self._files.begin_of(self.begin.position)
            first = min(first, begin + files_max * self._files.size)
        if first > self.begin.position:
            self.begin = self._place_of(first)
            self._mark.reset(self._marked())
            self._files.remove([begin for begin in self._files.begins() if begin < first])
        return self.begin.position

    def _place_of(self, begin: int) -> LogBase:
        """Return the place at the beginning of a file: its first record names it, or else all
        entries from the log's beginning on are counted. Raises OSError, CorruptLogError."""
        if begin == self._last_begin.position:
            return self._last_begin
        try:
            size = int.from_bytes(self.read(begin, 4), "big")
            named = place_before(self.read(begin, size))
        except (RecordError, LookupError) as error:
            raise self._corrupt(begin, error) from error
        if named is not None:
            return named
        place = self.begin
        for standing in self.entries_behind(self.begin):
            if standing.after.position > begin:
                break
            place = standing.after
        return LogBase(index=place.index, term=TERM, position=begin, chain=place.chain)

    def close(self) -> None:
        self._files.close()
        self._mark.close()


def _behind(place: LogBase, framed: Framed) -> LogBase:
    """Return the place behind an entry or a BLANK."""
    index = place.index if framed.payload is None else place.index + 1
    return LogBase(
        index=index, term=TERM, position=place.position + framed.size, chain=framed.chain
    )
