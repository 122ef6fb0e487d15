"""One IndexFile: where messages of a key stand in the log, as a hash table of chains on the disk.

Place in the data path: `broker.store.message_index` has a row of them, `broker.indexer` feeds that
from committed entries, QUERY_MESSAGE asks. Derived: deleting the files loses nothing.

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
since single ones would cost a system call per key. Units are written at once.

Invariants: units are written before the slots that name them, and a unit never changes once it
counts. So a killed process may leave slots that name units which do not count yet; they are right
ones, and their chain leads on to those that do (`_counting`).

Files are sparse, written with pwrite and read with pread: a full disk is an OSError, and what is
not used takes neither disk nor memory. Source: RocketMQ IndexFile, IndexHeader.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import mul
from pathlib import Path
from typing import Final, TypeAlias

from remoting.message_id import java_string_hash

__all__ = [
    "HEADER_SIZE",
    "UNIT_SIZE",
    "IndexFile",
    "IndexFileMark",
    "IndexShape",
    "IndexedKey",
    "find_positions",
    "is_sound",
    "key_hash",
    "topic_hash",
]

HEADER: Final = struct.Struct(">qqqqii")
HEADER_SIZE: Final = 40
UNIT: Final = struct.Struct(">iqii")
UNIT_SIZE: Final = 20
_SLOT: Final = struct.Struct(">i")
assert HEADER.size == HEADER_SIZE
assert UNIT.size == UNIT_SIZE
_PAGE_SLOTS: Final = 1_024
_SECONDS_MAX: Final = (1 << 31) - 1
_READ_SIZE: Final = 1 << 20

_TAIL_SIZE: Final = 4  # a UNIQ_KEY's last four characters count; those before change less often
_REMEMBERED_SIZE_MAX: Final = 64
_POWERS: Final = tuple(pow(31, at, 1 << 32) for at in reversed(range(_REMEMBERED_SIZE_MAX)))
"""31^63 .. 31^0, modulo 2^32: what the characters of a text are multiplied with, the last n."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexShape:
    """RocketMQ's maxHashSlotNum and maxIndexNum; files of another shape are built anew."""

    slot_count: int = 5_000_000
    unit_count: int = 20_000_000  # unit 0 included

    @property
    def units_at(self) -> int:
        return HEADER_SIZE + 4 * self.slot_count

    @property
    def file_size(self) -> int:
        return self.units_at + UNIT_SIZE * self.unit_count


IndexedKey: TypeAlias = tuple[int, int, int]
"""One key of one message: its hash, the record's position and its store timestamp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFileMark:
    """What a file holds. `from_position`: the log's entry from which on its keys come; `crc` is
    that of the units that count; `sealed`: no more are added, and all of it was fsynced."""

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


def topic_hash(topic: str) -> int:
    """What `key_hash` goes on from: the hash of `topic#`, 32 bits without a sign."""
    return java_string_hash(f"{topic}#") & 0xFFFF_FFFF


def key_hash(of_topic: int, key: str) -> int:
    """The hash of `topic#key` as a unit holds it: 31 bits (Java's abs; its minimum becomes 0)."""
    length = len(key)
    if _TAIL_SIZE <= length <= _REMEMBERED_SIZE_MAX and key.isascii():
        tail = key.encode()[-_TAIL_SIZE:]
        begun = _begun_hash(of_topic, key[:-_TAIL_SIZE])
        value = ((((begun * 31) + tail[0]) * 31 + tail[1]) * 31 + tail[2]) * 31 + tail[3]
    else:
        units = len(key.encode("utf-16-be", "surrogatepass")) // 2
        value = of_topic * pow(31, units, 1 << 32) + java_string_hash(key)
    value &= 0xFFFF_FFFF
    if value < 1 << 31:
        return value
    return 0 if value == 1 << 31 else (1 << 32) - value


@lru_cache(maxsize=1 << 13)
def _begun_hash(of_topic: int, begin: str) -> int:
    """The hash of `topic#` and these, which are few and ASCII; not cut to 32 bits."""
    length = len(begin)
    own: int = sum(map(mul, begin.encode(), _POWERS[_REMEMBERED_SIZE_MAX - length :]))
    return of_topic * pow(31, length, 1 << 32) + own


class IndexFile:
    """One file, open for writing. `mark` says what counts of it."""

    def __init__(self, directory: Path, shape: IndexShape, mark: IndexFileMark) -> None:
        """Opens or makes the file. Raises OSError."""
        self.path = directory / mark.name
        self.mark = mark
        self._shape = shape
        self._slots: memoryview | None = None  # of 4 bytes; until the file is sealed
        self._dirty: set[int] = set()  # pages of slots
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
        """How many more units fit."""
        return self._shape.unit_count - self.mark.next_number

    def append(self, keys: Sequence[IndexedKey]) -> None:
        """Add units, in the order given. Caller's duty: they fit. Raises OSError; nothing counts
        then, and the same keys may be added again."""
        assert 0 < len(keys) <= self.room, f"{len(keys)} keys, room for {self.room}"
        assert self._slots is not None, f"{self.path} is sealed"
        mark, slots, slot_count = self.mark, self._slots, self._shape.slot_count
        next_number = mark.next_number
        begin_ms = mark.begin_ms if next_number > 1 else keys[0][2]
        pack = UNIT.pack
        new_slots = 0
        units: list[bytes] = []
        fresh: dict[int, int] = {}
        number = next_number
        for hashed, position, stored_ms in keys:
            slot = hashed % slot_count
            before = fresh.get(slot)
            if before is None:
                before = slots[slot]
                if before >= next_number:
                    before = _counting(self._descriptor, self._shape, before, next_number)
                if not before:
                    new_slots += 1
            fresh[slot] = number
            seconds = (stored_ms - begin_ms) // 1000
            units.append(pack(hashed, position, min(max(seconds, 0), _SECONDS_MAX), before))
            number += 1
        packed = b"".join(units)
        self._write(packed, self._shape.units_at + next_number * UNIT_SIZE)
        for slot, number in fresh.items():
            slots[slot] = number
        self._dirty.update([slot // _PAGE_SLOTS for slot in fresh])
        self.mark = replace(
            mark,
            begin_ms=begin_ms,
            end_ms=keys[-1][2],
            begin_position=mark.begin_position if next_number > 1 else keys[0][1],
            end_position=keys[-1][1],
            used_slots=mark.used_slots + new_slots,
            next_number=next_number + len(keys),
            crc=zlib.crc32(packed, mark.crc),
        )

    def flush(self) -> None:
        """Write the slots that changed, and the header. Raises OSError; it may be done again."""
        if not self._dirty:
            return
        assert self._slots is not None
        for page in sorted(self._dirty):
            first = page * _PAGE_SLOTS
            values = array("i", self._slots[first : first + _PAGE_SLOTS])
            self._write(_big_endian(values), HEADER_SIZE + 4 * first)
            self._dirty.discard(page)
        mark = self.mark
        header = HEADER.pack(
            mark.begin_ms,
            mark.end_ms,
            mark.begin_position,
            mark.end_position,
            mark.used_slots,
            mark.next_number,
        )
        self._write(header, 0)

    def head(self, hashed: int) -> int:
        """The newest unit of the hash's slot, 0 for none."""
        slot = hashed % self._shape.slot_count
        if self._slots is not None:
            number = self._slots[slot]
        else:
            number = _SLOT.unpack(os.pread(self._descriptor, 4, HEADER_SIZE + 4 * slot))[0]
        return _counting(self._descriptor, self._shape, number, self.mark.next_number)

    def sync(self) -> bool:
        """On any thread; False where retention took it meanwhile. Raises OSError."""
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
        """It is full, and was flushed and then fsynced: its slots need no memory any more."""
        assert not self._dirty, f"{self.path}: {len(self._dirty)} pages were not written"
        self.mark = replace(self.mark, sealed=True)
        self._slots = None

    def close(self) -> None:
        self._slots = None
        os.close(self._descriptor)

    def _read_slots(self) -> memoryview:
        """As they are on the disk; a new file's take no memory until they are used."""
        area = mmap.mmap(-1, 4 * self._shape.slot_count)
        if self.mark.next_number > 1:
            at = 0
            while at < len(area):
                data = os.pread(self._descriptor, min(_READ_SIZE, len(area) - at), HEADER_SIZE + at)
                if not data:
                    raise OSError(f"{self.path} ends within its slots")
                area[at : at + len(data)] = _big_endian(array("i", data))
                at += len(data)
        return memoryview(area).cast("i")

    def _write(self, data: bytes, offset: int) -> None:
        written = 0
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], offset + written)


def _big_endian(values: array[int]) -> bytes:
    """To the file's order of bytes, or back from it."""
    if sys.byteorder == "little":
        values.byteswap()
    return values.tobytes()


# Reading, on any thread --------------------------------------------------------------------------


def _counting(descriptor: int, shape: IndexShape, number: int, next_number: int) -> int:
    """The first unit on the chain from `number` on that counts, 0 for none."""
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
    """Positions of records whose key may have this hash and that may have been stored within
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
    """Whether the file holds the units that the mark names. Raises OSError."""
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
            crc = zlib.crc32(data, crc)
            at += len(data)
        return crc == mark.crc
    finally:
        os.close(descriptor)
