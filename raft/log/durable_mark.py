"""Lower bound of the fsynced part of the log, by which recovery tells damage from a torn tail.

Place in the data path: `raft.log.segment_log` raises the mark after each sync and lowers it before
a truncation; recovery reads it. Without it, an invalid entry near the end of the last segment could
be either a write that a power failure tore (drop it) or rotten bytes that had been acknowledged
(never drop them). It names the last durable entry by index, term and chain, so that a lost tail is
known exactly and can be fetched from a peer.

Invariants:
- the mark never claims more than what is durable. Raising is not fsynced (the claim is true
  whenever it reaches the disk); lowering is durable, in both slots, before the log is cut;
- once a segment begins, the mark durably stands at its beginning or beyond.

Source: "Protocol-Aware Recovery for Consensus-Based Storage" (FAST '18): an identity of what was
persisted, kept apart from it. Slots: `raft.log.slot_file`, with magic `LMQM` and this record:

| offset | size | field |
|---|---|---|
| 0 | 8 | position: every byte of the log before it was fsynced |
| 8 | 8 | index of the entry that ends there |
| 16 | 8 | its term |
| 24 | 4 | its chain |
| 28 | 28 | the same of what precedes the last segment |
| 56 | 28 | the same of what precedes the log: a copy of `commitlog.base` |

A store older than these slots has two of 16 bytes, magic `LMQD`, position 8, CRC32: the higher
valid one counts, and holds no index, term or chain.
"""

from __future__ import annotations

import struct

from isal.isal_zlib import crc32
from msgspec import Struct

from raft.log.durable_record import read_now
from raft.log.slot_file import SlotFile
from raft.messages import Index, LogBase, Term
from raft.storage import Disk

__all__ = ["DurableMark", "Mark"]

_RECORD = struct.Struct(">QQQIQQQIQQQI")
_OLD_MAGIC = b"LMQD"
_OLD_SLOT = struct.Struct(">4sQI")
assert _RECORD.size == 84
assert _OLD_SLOT.size == 16


class Mark(Struct, frozen=True, kw_only=True, gc=False):
    """The mark. `cut`: end of the durable part. `last`, `base`: begin of last segment and log."""

    cut: LogBase
    last: LogBase
    base: LogBase


class DurableMark:
    """The mark in the file `path`. Not thread-safe: the log holds its lock around calls."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._slots = SlotFile(disk, path, magic=b"LMQM", record_size=_RECORD.size)

    def read(self) -> Mark | int | None:
        """Return the mark; of an old store only the position of its cut.

        None if no mark is readable. Durable when this returns.
        """
        return self._decoded(self._slots.read())

    def peek(self) -> Mark | int | None:
        """Return the mark as `read` does, without making it durable."""
        return self._decoded(self._slots.peek())

    def _decoded(self, record: bytes | None) -> Mark | int | None:
        if record is None:
            return self._read_old()
        values = _RECORD.unpack(record)
        return Mark(cut=_cut(*values[:4]), last=_cut(*values[4:8]), base=_cut(*values[8:]))

    def reset(self, mark: Mark) -> None:
        """Set the mark, also to a lower cut; durable when this returns."""
        self._slots.save(_encode(mark))

    def raise_to(self, mark: Mark) -> None:
        """Claim a higher cut, not synced. Call `reset` before the first time.

        A write that is torn leaves a slot whose CRC fails, and the other slot counts.
        """
        self._slots.note(_encode(mark))

    def sync(self) -> None:
        """Make the last `raise_to` durable."""
        self._slots.sync()

    def close(self) -> None:
        self._slots.close()

    def _read_old(self) -> int | None:
        data = read_now(self._disk, self._path, 2 * _OLD_SLOT.size) or b""
        claims = (_decode_old(data[: _OLD_SLOT.size]), _decode_old(data[_OLD_SLOT.size :]))
        return max((claim for claim in claims if claim is not None), default=None)


def _encode(mark: Mark) -> bytes:
    cut, last, base = mark.cut, mark.last, mark.base
    return _RECORD.pack(
        *(cut.position, cut.index, cut.term, cut.chain),
        *(last.position, last.index, last.term, last.chain),
        *(base.position, base.index, base.term, base.chain),
    )


def _cut(position: int, index: Index, term: Term, chain: int) -> LogBase:
    return LogBase(index=index, term=term, position=position, chain=chain)


def _decode_old(slot: bytes) -> int | None:
    if len(slot) != _OLD_SLOT.size:
        return None
    magic, position, crc = _OLD_SLOT.unpack(slot)
    if magic != _OLD_MAGIC or crc != crc32(slot[:12]):
        return None
    return int(position)
