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

Invariants: units are written before the slots that name them, and count once the header names them;
a unit never changes once it counts. So a killed process leaves slots that name units which do not
count yet; they are right ones, and their chain leads on to those that do (`_head`).

Files are sparse, written with pwrite and read with pread: neither touches the process's memory, and
a full disk is an OSError. Source: RocketMQ IndexFile, IndexHeader.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import mul
from pathlib import Path
from typing import Final, NamedTuple

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
_SECONDS_MAX: Final = (1 << 31) - 1
_READ_SIZE: Final = 1 << 20

_POWERS_COUNT: Final = 256
# 31^255 .. 31^0, modulo 2^32: a key of n characters needs the last n.
_POWERS: Final = tuple(pow(31, _POWERS_COUNT - 1 - at, 1 << 32) for at in range(_POWERS_COUNT))
_POWERS_OF: Final = tuple(_POWERS[_POWERS_COUNT - n :] for n in range(_POWERS_COUNT))


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


class IndexedKey(NamedTuple):
    """One key of one message."""

    hash: int
    position: int
    stored_ms: int


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
    value: int
    if key.isascii() and length < _POWERS_COUNT:
        own = sum(map(mul, key.encode(), _POWERS_OF[length]))
        value = (of_topic * pow(31, length, 1 << 32) + own) & 0xFFFF_FFFF
    else:
        units = len(key.encode("utf-16-be", "surrogatepass")) // 2
        value = (of_topic * pow(31, units, 1 << 32) + java_string_hash(key)) & 0xFFFF_FFFF
    if value < 1 << 31:
        return value
    return 0 if value == 1 << 31 else (1 << 32) - value


class IndexFile:
    """One file, open for writing. `mark` says what counts of it."""

    def __init__(self, directory: Path, shape: IndexShape, mark: IndexFileMark) -> None:
        """Opens or makes the file. Raises OSError."""
        self.path = directory / mark.name
        self.mark = mark
        self._shape = shape
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(self._descriptor).st_size != shape.file_size:
                os.truncate(self._descriptor, shape.file_size)
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
        shape, mark = self._shape, self.mark
        begin_ms = mark.begin_ms if mark.next_number > 1 else keys[0].stored_ms
        fresh: dict[int, int] = {}
        new_slots = 0
        units: list[bytes] = []
        for number, (hashed, position, stored_ms) in enumerate(keys, mark.next_number):
            slot = hashed % shape.slot_count
            before = fresh.get(slot)
            if before is None:
                before = self._head(slot)
                new_slots += before == 0
            fresh[slot] = number
            seconds = min(max(stored_ms - begin_ms, 0) // 1000, _SECONDS_MAX)
            units.append(UNIT.pack(hashed, position, seconds, before))
        packed = b"".join(units)
        self._write(packed, shape.units_at + mark.next_number * UNIT_SIZE)
        for slot, number in fresh.items():
            self._write(_SLOT.pack(number), HEADER_SIZE + 4 * slot)
        first, last = keys[0], keys[-1]
        after = replace(
            mark,
            begin_ms=begin_ms,
            end_ms=last.stored_ms,
            begin_position=mark.begin_position if mark.next_number > 1 else first.position,
            end_position=last.position,
            used_slots=mark.used_slots + new_slots,
            next_number=mark.next_number + len(keys),
            crc=zlib.crc32(packed, mark.crc),
        )
        self._write(
            HEADER.pack(
                after.begin_ms,
                after.end_ms,
                after.begin_position,
                after.end_position,
                after.used_slots,
                after.next_number,
            ),
            0,
        )
        self.mark = after

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

    def close(self) -> None:
        os.close(self._descriptor)

    def _head(self, slot: int) -> int:
        """The newest unit of a slot that counts, 0 for none."""
        number: int = _SLOT.unpack(os.pread(self._descriptor, 4, HEADER_SIZE + 4 * slot))[0]
        return _counting(self._descriptor, self._shape, number, self.mark.next_number)

    def _write(self, data: bytes, offset: int) -> None:
        written = 0
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], offset + written)


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
    begin_ms: int,
    end_ms: int,
    count_max: int,
) -> list[int]:
    """Positions of records whose key may have this hash and that may have been stored within
    [begin_ms, end_ms], newest first: a second may be missing to either side. Raises OSError."""
    positions: list[int] = []
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        slot = HEADER_SIZE + 4 * (hashed % shape.slot_count)
        (number,) = _SLOT.unpack(os.pread(descriptor, 4, slot))
        number = _counting(descriptor, shape, number, mark.next_number)
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
