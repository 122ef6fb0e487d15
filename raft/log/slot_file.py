"""A small record that is overwritten in place: two slots of it in each of two files.

Place in the data path: under the durable mark and the log's base, which change while the disk may
be full. The files, PATH and PATH.copy, are made once, at their full size; from then on no write to
them needs a block of the file system.

Invariants:
- the two slots stand in different pages, and a write touches one of them: a torn page leaves the
  other slot, and a file that is rotten or lost leaves the other file;
- the newest readable slot counts, and one slot is always durable: it is not written before the
  other one is. `save` writes both, so that an older value can't come back when one page rots;
  `note` writes again and again the one that is not known to be durable and syncs nothing, for
  values of which an older one is true as well;
- what `read` found newest is the durable slot from then on, so `read` makes it durable: a process
  that was killed may have left it in the page cache.

Source: the superblock copies of any file system; SQLite's and TigerBeetle's do the same.

| offset | size | field |
|---|---|---|
| 0 and 4096 | 4 | magic |
| +4 | 8 | sequence: the newer slot has the higher one |
| +12 | n | the record |
| +12+n | 4 | CRC32 of everything before |
"""

from __future__ import annotations

import struct

from isal.isal_zlib import crc32

from raft.log.durable_record import read_durable, read_now, replace
from raft.storage import Disk, DiskFile, write_fully

__all__ = ["SLOT_FILE_SIZE", "SlotFile"]

_STRIDE = 4096
SLOT_FILE_SIZE = 2 * _STRIDE
_HEAD = struct.Struct(">4sQ")
_CRC = struct.Struct(">I")
_HEAD_SIZE = 12

assert _HEAD.size == _HEAD_SIZE


class SlotFile:
    """The record of `record_size` bytes in `path` and its copy. Not thread-safe."""

    def __init__(self, disk: Disk, path: str, *, magic: bytes, record_size: int) -> None:
        assert len(magic) == 4
        assert _HEAD_SIZE + record_size + _CRC.size <= _STRIDE
        self._disk = disk
        self._paths = (path, f"{path}.copy")
        self._magic = magic
        self._record_size = record_size
        self._files: list[DiskFile] = []
        self._sequence = 0
        self._durable_slot = 0
        self._is_whole = False  # both of full size, all slots readable

    def read(self) -> bytes | None:
        """Return the newest record, durable; None if no slot is readable. Raises OSError."""
        slots: list[tuple[int, int, bytes]] = []
        count_whole = 0
        for path in self._paths:
            data = read_durable(self._disk, path, SLOT_FILE_SIZE + 1) or b""
            found = self._slots_in(data)
            count_whole += len(found) == 2 and len(data) == SLOT_FILE_SIZE
            slots += found
        self._is_whole = count_whole == 2
        if not slots:
            return None
        self._sequence, self._durable_slot, record = max(slots)
        return record

    def peek(self) -> bytes | None:
        """Return the newest record as it stands now, durable or not. Raises OSError."""
        slots: list[tuple[int, int, bytes]] = []
        for path in self._paths:
            slots += self._slots_in(read_now(self._disk, path, SLOT_FILE_SIZE + 1) or b"")
        return max(slots)[2] if slots else None

    def save(self, record: bytes) -> None:
        """Write the record to all slots; durable when this returns. Raises OSError."""
        if not self._is_whole:
            self._make(record)
            return
        # One slot after the other: a crash leaves one whole.
        for _ in range(2):
            self._write_next(record)
            self.sync()

    def note(self, record: bytes) -> None:
        """Overwrite the non-durable slot, without a `sync`. Call `save` first."""
        assert self._is_whole, "save() comes first"
        self._write_next(record)

    def sync(self) -> None:
        """Make durable what was written last. After a `note` only."""
        for file in self._opened():
            file.sync()
        self._durable_slot = 1 - self._durable_slot

    def close(self) -> None:
        files, self._files = self._files, []
        for file in files:
            file.close()

    def _make(self, record: bytes) -> None:
        """Write whole new files beside the old ones, then rename them, one after the other."""
        self.close()
        image = bytearray(SLOT_FILE_SIZE)
        for number in (0, 1):
            slot = self._next_slot(record)
            image[number * _STRIDE : number * _STRIDE + len(slot)] = slot
        for path in self._paths:
            replace(self._disk, path, bytes(image))
        self._is_whole = True
        self._durable_slot = 1

    def _opened(self) -> list[DiskFile]:
        if not self._files:
            self._files = [self._disk.open(path, create=False) for path in self._paths]
        return self._files

    def _write_next(self, record: bytes) -> None:
        slot = self._next_slot(record)
        for file in self._opened():
            write_fully(file, slot, (1 - self._durable_slot) * _STRIDE)

    def _next_slot(self, record: bytes) -> bytes:
        assert len(record) == self._record_size
        self._sequence += 1
        head = _HEAD.pack(self._magic, self._sequence) + record
        return head + _CRC.pack(crc32(head))

    def _slots_in(self, data: bytes) -> list[tuple[int, int, bytes]]:
        return [slot for number in (0, 1) if (slot := self._decode(data, number))]

    def _decode(self, data: bytes, number: int) -> tuple[int, int, bytes] | None:
        """Return sequence, number and record of a slot; None if it is not readable."""
        data = data[number * _STRIDE :]
        end = _HEAD_SIZE + self._record_size
        if len(data) < end + _CRC.size or data[:4] != self._magic:
            return None
        if _CRC.unpack_from(data, end)[0] != crc32(data[:end]):
            return None
        return _HEAD.unpack_from(data)[1], number, data[_HEAD_SIZE:end]
