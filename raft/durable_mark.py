"""A lower bound of what was fsynced of the log, so that recovery can tell damage from a torn tail.

Place in the data path: `raft.segment_log` raises the mark after each sync and lowers it before a
truncation; recovery reads it. Without it, an invalid entry near the end of the last segment could
be either a write that a power failure tore (drop it) or rotten bytes that had been acknowledged
(never drop them).

Invariant: the mark never claims more than what is durable. Raising is not fsynced (the claim is
true whenever it reaches the disk); lowering is atomic and durable before the log is cut.

Two slots of 16 bytes: the first is written with the file (temporary file, fsync, rename, directory
fsync), the second is the running one and may be torn. The higher valid slot counts.

| offset | size | field |
|---|---|---|
| 0 | 4 | magic `LMQD` |
| 4 | 8 | position: every byte of the log before it was fsynced |
| 12 | 4 | CRC32 of everything before |
"""

from __future__ import annotations

import struct
import zlib

from raft.storage import Disk, DiskFile

__all__ = ["DurableMark"]

_MAGIC = b"LMQD"
_SLOT = struct.Struct(">4sQI")
assert _SLOT.size == 16


class DurableMark:
    """The mark in the file `path`. Not thread-safe: the log holds its lock around calls."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._file: DiskFile | None = None

    def read(self) -> int | None:
        """The highest position claimed; None where there is no readable mark."""
        try:
            file = self._disk.open(self._path, create=False)
        except FileNotFoundError:
            return None
        try:
            data = file.pread(2 * _SLOT.size, 0)
        finally:
            file.close()
        claims = (_decode(data[: _SLOT.size]), _decode(data[_SLOT.size :]))
        return max((claim for claim in claims if claim is not None), default=None)

    def reset(self, position: int) -> None:
        """Set the mark, also to a lower position; durable when this returns."""
        self.close()
        temporary = f"{self._path}.tmp"
        file = self._disk.open(temporary, create=True)
        try:
            file.truncate(0)
            data = _encode(position)
            offset = 0
            while offset < len(data):
                offset += file.pwritev([data[offset:]], offset)
            file.sync()
        finally:
            file.close()
        self._disk.rename(temporary, self._path)
        self._disk.sync_directory(_parent(self._path))
        self._file = self._disk.open(self._path, create=False)

    def raise_to(self, position: int) -> None:
        """Claim a higher position, not synced. Call `reset` before the first time.

        A short write leaves a slot whose CRC fails, and the other slot counts.
        """
        assert self._file is not None, "reset() comes first"
        self._file.pwritev([_encode(position)], _SLOT.size)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _encode(position: int) -> bytes:
    head = _SLOT.pack(_MAGIC, position, 0)[:12]
    return head + zlib.crc32(head).to_bytes(4, "big")


def _decode(slot: bytes) -> int | None:
    if len(slot) != _SLOT.size:
        return None
    magic, position, crc = _SLOT.unpack(slot)
    if magic != _MAGIC or crc != zlib.crc32(slot[:12]):
        return None
    return int(position)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
