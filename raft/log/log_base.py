"""What precedes the log's first entry, on disk (`commitlog.base`).

Place in the data path: `raft.log.segment_log` writes it before it drops the log's oldest segments,
and before it empties the log for an installed snapshot; recovery reads it first.

Invariants:
- it is durable before the first file is removed: segments below its position are leftovers of a
  drop that a crash interrupted, and recovery removes them. What recovery reads is durable, too;
- while `resetting` is set no segment counts at all: recovery goes on emptying the log.

Slots: `raft.log.slot_file`, with magic `LMQB` and this record:

| offset | size | field |
|---|---|---|
| 0 | 8 | position of the log's first byte |
| 8 | 8 | index of the entry before it, 0 for none |
| 16 | 8 | term of that entry |
| 24 | 4 | chain of that entry |
| 28 | 4 | 1 while the log is being emptied, else 0 |
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from raft.log.slot_file import SlotFile
from raft.storage import Disk, LogBase

__all__ = ["BaseFile", "StoredBase"]

_RECORD = struct.Struct(">QQQII")
assert _RECORD.size == 32


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBase:
    base: LogBase
    resetting: bool


class BaseFile:
    """The base in the file `path`."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._slots = SlotFile(disk, path, magic=b"LMQB", record_size=_RECORD.size)

    def read(self) -> StoredBase | None:
        """Return the base, durable; None if no copy is readable. Raises OSError."""
        return _decoded(self._slots.read())

    def peek(self) -> StoredBase | None:
        """Return the base as `read` does, without making it durable."""
        return _decoded(self._slots.peek())

    def save(self, base: LogBase, *, resetting: bool = False) -> None:
        """Save the base; durable when this returns. Raises OSError."""
        record = _RECORD.pack(base.position, base.index, base.term, base.chain, resetting)
        self._slots.save(record)

    def close(self) -> None:
        self._slots.close()


def _decoded(record: bytes | None) -> StoredBase | None:
    if record is None:
        return None
    position, index, term, chain, resetting = _RECORD.unpack(record)
    base = LogBase(index=index, term=term, position=position, chain=chain)
    return StoredBase(base=base, resetting=resetting != 0)
