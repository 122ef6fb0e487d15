"""One IndexFile: positions of messages by key, as a hash table of chains on the disk.

Place in the data path: `broker.index.message_index` has a row of them, `broker.index.indexer` feeds
that from committed entries, QUERY_MESSAGE reads it. Derived: deleting the files loses nothing.

Layout, RocketMQ's: header, then `slot_count` slots of 4 bytes (the number of the newest unit whose
hash falls on the slot, 0 for none), then units of 20 bytes; unit 0 is never used.

| offset | size | field of the header               |
|--------|------|-----------------------------------|
| 0      | 8    | store timestamp of the first unit |
| 8      | 8    | store timestamp of the last unit  |
| 16     | 8    | position of the first unit        |
| 24     | 8    | position of the last unit         |
| 32     | 4    | slots in use                      |
| 36     | 4    | number of the next unit, from 1   |

| offset | size | field of a unit                                                |
|--------|------|----------------------------------------------------------------|
| 0      | 4    | hash of `topic#key`: Java's, without its sign                  |
| 4      | 8    | position of the record in the log                              |
| 12     | 4    | seconds since the store timestamp of the first unit            |
| 16     | 4    | number of the unit before on the same slot, 0 where it ends    |

The file that grows has its slots in memory; those that changed are written by pages, with `flush`,
since single ones would cost a system call per key. Units are written at once. Keys come as arrays,
thousands at a time: one costs a share of a few array operations.

Invariants: units are written before the slots that name them, and a unit never changes once it
counts. So a killed process may leave slots that name units which do not count yet; those are the
right ones, and their chain leads on to units that count (`_counting`).

Files are sparse, written with pwrite and read with pread: a full disk is an OSError, and unused
parts take neither disk nor memory. Source: RocketMQ IndexFile, IndexHeader.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from isal.isal_zlib import crc32

from broker.index.key_hashes import IndexedKeys

__all__ = [
    "HEADER_SIZE",
    "UNIT_SIZE",
    "IndexFile",
    "IndexFileMark",
    "IndexShape",
    "find_positions",
    "is_sound",
    "write_fully",
]

HEADER: Final = struct.Struct(">qqqqii")
HEADER_SIZE: Final = 40
UNIT: Final = struct.Struct(">iqii")
UNIT_SIZE: Final = 20
_UNIT_FIELDS: Final = np.dtype(
    [("hash", ">i4"), ("position", ">i8"), ("seconds", ">i4"), ("before", ">i4")]
)
_SLOT: Final = struct.Struct(">i")
assert HEADER.size == HEADER_SIZE
assert UNIT.size == _UNIT_FIELDS.itemsize == UNIT_SIZE
_PAGE_SLOTS: Final = 1_024
_PAGES_PER_WRITE: Final = 64
_SECONDS_MAX: Final = (1 << 31) - 1
_READ_SIZE: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexShape:
    """Size of the files, RocketMQ's maxHashSlotNum and maxIndexNum; those of another shape are
    rebuilt."""

    slot_count: int = 5_000_000
    unit_count: int = 20_000_000  # unit 0 included

    @property
    def units_at(self) -> int:
        return HEADER_SIZE + 4 * self.slot_count

    @property
    def file_size(self) -> int:
        return self.units_at + UNIT_SIZE * self.unit_count


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFileMark:
    """Extent of a file. `from_position`: position of the log's entry from which on its keys come;
    `crc` is that of the units that count; `sealed`: no more are added, and all of it was fsynced.
    """

    name: str
    from_position: int
    begin_ms: int = 0
    end_ms: int = 0
    begin_position: int = 0
    end_position: int = 0
    used_slots: int = 0
    next_number: int = 1
    crc: int = 0
    sealed: bool = False


class IndexFile:
    """One file, open for writing. `mark` says which units count.

    One owner appends; `flush` and `sync` may run on another thread meanwhile.
    """

    def __init__(self, directory: Path, shape: IndexShape, mark: IndexFileMark) -> None:
        """Open or create the file. Raises OSError."""
        self.path = directory / mark.name
        self.mark = mark
        self._shape = shape
        self._slots: npt.NDArray[np.int32] | None = None  # until the file is sealed
        self._dirty = np.zeros(-(-shape.slot_count // _PAGE_SLOTS), np.bool_)  # pages of slots
        self._closing = threading.Lock()  # held while `flush` writes and while the file is closed
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(self._descriptor).st_size != shape.file_size:
                os.truncate(self._descriptor, shape.file_size)
            if not mark.sealed:
                self._slots = self._read_slots()
        except OSError:
            os.close(self._descriptor)
            raise

    @property
    def room(self) -> int:
        """Number of units that still fit."""
        return self._shape.unit_count - self.mark.next_number

    def append(self, keys: IndexedKeys) -> None:
        """Add units, in the order given. Caller's duty: they fit. Raises OSError; none of them
        counts then, and the same keys may be added again."""
        assert 0 < len(keys) <= self.room, f"{len(keys)} keys, room for {self.room}"
        assert self._slots is not None, f"{self.path} is sealed"
        mark = self.mark
        first = mark.next_number
        begin_ms = mark.begin_ms if first > 1 else int(keys.stored_ms[0])
        slots = keys.hashes % self._shape.slot_count
        numbers = np.arange(first, first + len(keys), dtype=np.int32)
        # The new units by slot, those of one slot in their order.
        order = np.argsort(slots, kind="stable")
        alike = slots[order[1:]] == slots[order[:-1]]
        before, used_slots = self._before(slots, numbers, order, alike)
        units = np.empty(len(keys), _UNIT_FIELDS)
        units["hash"] = keys.hashes
        units["position"] = keys.positions
        units["seconds"] = np.clip((keys.stored_ms - begin_ms) // 1000, 0, _SECONDS_MAX)
        units["before"] = before
        packed = units.tobytes()
        write_fully(self._descriptor, packed, self._shape.units_at + first * UNIT_SIZE)
        newest = order[np.append(~alike, True)]
        self._slots[slots[newest]] = numbers[newest]
        self._dirty[slots // _PAGE_SLOTS] = True
        self.mark = replace(
            mark,
            begin_ms=begin_ms,
            end_ms=int(keys.stored_ms[-1]),
            begin_position=mark.begin_position if first > 1 else int(keys.positions[0]),
            end_position=int(keys.positions[-1]),
            used_slots=mark.used_slots + used_slots,
            next_number=first + len(keys),
            crc=crc32(packed, mark.crc),
        )

    def _before(
        self,
        slots: npt.NDArray[np.int32],
        numbers: npt.NDArray[np.int32],
        order: npt.NDArray[np.intp],
        alike: npt.NDArray[np.bool_],
    ) -> tuple[npt.NDArray[np.int32], int]:
        """Return the number of the unit before each new one on its slot, and how many slots come
        into use. `alike`: in this order, the next one has the same slot. Raises OSError."""
        assert self._slots is not None
        before = self._slots[slots]
        for at in np.flatnonzero(before >= numbers[0]):
            before[at] = _counting(self._descriptor, self._shape, int(before[at]), int(numbers[0]))
        later = order[1:][alike]  # not the first of the new ones on their slot
        used_slots = np.count_nonzero(before == 0) - np.count_nonzero(before[later] == 0)
        before[later] = numbers[order[:-1][alike]]
        return before, int(used_slots)

    def flush(self) -> None:
        """Write the slots that have changed until now, and the header. On any thread.

        Units that are appended meanwhile may be named too: a slot that names a unit which does not
        count yet does no harm. Does nothing once the file is closed or sealed. Raises OSError; it
        may be called again.
        """
        pages = np.flatnonzero(self._dirty)
        if not len(pages):
            return
        for stretch in np.split(pages, np.flatnonzero(np.diff(pages) != 1) + 1):
            for at in range(0, len(stretch), _PAGES_PER_WRITE):
                end = min(len(stretch), at + _PAGES_PER_WRITE)
                self._write_pages(int(stretch[at]), int(stretch[end - 1]) + 1)
        with self._closing:
            if self._slots is None:
                return
            mark = self.mark
            header = HEADER.pack(
                mark.begin_ms,
                mark.end_ms,
                mark.begin_position,
                mark.end_position,
                mark.used_slots,
                mark.next_number,
            )
            write_fully(self._descriptor, header, 0)

    def _write_pages(self, first: int, end: int) -> None:
        with self._closing:
            if self._slots is None:
                return
            self._dirty[first:end] = False  # before the slots are read: none is missed
            slots = self._slots[first * _PAGE_SLOTS : end * _PAGE_SLOTS]
            try:
                data = slots.astype(">i4").tobytes()
                write_fully(self._descriptor, data, HEADER_SIZE + 4 * first * _PAGE_SLOTS)
            except OSError:
                self._dirty[first:end] = True
                raise

    def head(self, hashed: int) -> int:
        """Return the newest unit of the hash's slot, 0 for none."""
        slot = hashed % self._shape.slot_count
        if self._slots is not None:
            number = int(self._slots[slot])
        else:
            number = _SLOT.unpack(os.pread(self._descriptor, 4, HEADER_SIZE + 4 * slot))[0]
        return _counting(self._descriptor, self._shape, number, self.mark.next_number)

    def sync(self) -> bool:
        """Fsync the file, on any thread; False where retention removed it meanwhile. Raises
        OSError."""
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return True

    def seal(self) -> None:
        """Free the slots of a full file. Caller's duty: it was flushed and then fsynced."""
        assert not self._dirty.any(), f"{self.path}: {self._dirty.sum()} pages were not written"
        self.mark = replace(self.mark, sealed=True)
        with self._closing:
            self._slots = None

    def close(self) -> None:
        """Close the file as it is."""
        with self._closing:
            self._slots = None
            os.close(self._descriptor)

    def _read_slots(self) -> npt.NDArray[np.int32]:
        """Read the slots from the disk; a new file's take no memory until they are used."""
        count = self._shape.slot_count
        slots = np.frombuffer(mmap.mmap(-1, 4 * count), np.int32)
        if self.mark.next_number > 1:
            at = 0
            while at < count:
                size = 4 * min(_READ_SIZE, count - at)
                data = os.pread(self._descriptor, size, HEADER_SIZE + 4 * at)
                if len(data) != size:
                    raise OSError(f"{self.path} ends within its slots")
                slots[at : at + size // 4] = np.frombuffer(data, ">i4")
                at += size // 4
        return slots


def write_fully(descriptor: int, data: bytes, offset: int) -> None:
    """Write all of `data`, however short single writes are. Raises OSError."""
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, data[written:], offset + written)


# Reading, on any thread --------------------------------------------------------------------------


def _counting(descriptor: int, shape: IndexShape, number: int, next_number: int) -> int:
    """Return the first unit on the chain from `number` on that counts, 0 for none."""
    while number >= next_number:
        if number >= shape.unit_count:
            return 0
        before: int = UNIT.unpack(_unit(descriptor, shape, number))[3]
        if before >= number:
            return 0
        number = before
    return max(number, 0)


def _unit(descriptor: int, shape: IndexShape, number: int) -> bytes:
    return os.pread(descriptor, UNIT_SIZE, shape.units_at + number * UNIT_SIZE)


def find_positions(
    path: Path,
    shape: IndexShape,
    mark: IndexFileMark,
    hashed: int,
    *,
    head: int,
    begin_ms: int,
    end_ms: int,
    count_max: int,
) -> list[int]:
    """Return positions of records whose key may have this hash and that may have been stored within
    [begin_ms, end_ms], newest first: a second may be missing to either side. `head` is the newest
    unit on the hash's slot. Raises OSError."""
    positions: list[int] = []
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        number = head
        while number > 0 and len(positions) < count_max:
            unit_hash, position, seconds, before = UNIT.unpack(_unit(descriptor, shape, number))
            stored_ms = mark.begin_ms + 1000 * seconds
            if stored_ms + 999 < begin_ms or before >= number:
                break
            if unit_hash == hashed and stored_ms <= end_ms:
                positions.append(position)
            number = before
    finally:
        os.close(descriptor)
    return positions


def is_sound(path: Path, shape: IndexShape, mark: IndexFileMark) -> bool:
    """Return whether the file holds the units that the mark names. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        if os.fstat(descriptor).st_size != shape.file_size:
            return False
        if not 1 <= mark.next_number <= shape.unit_count:
            return False
        at, crc = shape.units_at + UNIT_SIZE, 0
        end = shape.units_at + UNIT_SIZE * mark.next_number
        while at < end:
            data = os.pread(descriptor, min(_READ_SIZE, end - at), at)
            if not data:
                return False
            crc = crc32(data, crc)
            at += len(data)
        return crc == mark.crc
    finally:
        os.close(descriptor)
