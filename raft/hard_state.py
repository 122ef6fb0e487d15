"""Term and vote on disk (docs/FORMATS.md section 2).

Place in the data path: the shell saves the hard state of a `Ready` before any message that
depends on it leaves, and loads it once at the start.

Invariant: after `save` returns, the state is durable, file and directory; a crash in it leaves
the old state or the new one, never a mixture (temporary file, fsync, rename, directory fsync).

Source: Raft, figure 2 (persistent state); dissertation 3.8.

| offset | size | field |
|---|---|---|
| 0 | 4 | magic `LMQH` |
| 4 | 4 | size of all that follows |
| 8 | 8 | current_term |
| 16 | 2 | length n of voted_for (0: none) |
| 18 | n | voted_for, UTF-8 |
| 18+n | 4 | CRC32 of everything before |
"""

from __future__ import annotations

import struct
import zlib

from raft.log_format import CorruptLogError
from raft.messages import HardState, NodeId
from raft.storage import Disk

__all__ = ["CorruptHardStateError", "HardStateFile", "decode_hard_state", "encode_hard_state"]

_MAGIC = b"LMQH"
_HEAD = struct.Struct(">4sIQH")
_HEAD_SIZE = 18
_CRC_SIZE = 4
_NODE_NAME_SIZE_MAX = 255
_FILE_SIZE_MAX = _HEAD_SIZE + _NODE_NAME_SIZE_MAX + _CRC_SIZE

assert _HEAD.size == _HEAD_SIZE


class CorruptHardStateError(CorruptLogError):
    """The file is there but is not a hard state. Starting anew could vote twice in a term."""


class HardStateFile:
    """Loads and saves the hard state in `directory` of `disk` ("" is the disk's root)."""

    def __init__(self, disk: Disk, directory: str = "") -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/hard_state" if directory else "hard_state"

    def load(self) -> HardState:
        """Term 0 and no vote where the file was never written.

        Raises OSError and CorruptHardStateError.
        """
        try:
            file = self._disk.open(self._path, create=False)
        except FileNotFoundError:
            return HardState(current_term=0, voted_for=None)
        try:
            data = file.pread(_FILE_SIZE_MAX + 1, 0)
        finally:
            file.close()
        return decode_hard_state(data, self._path)

    def save(self, state: HardState) -> None:
        """Durable when this returns. Raises OSError; after that nothing may be sent."""
        temporary = f"{self._path}.tmp"
        data = encode_hard_state(state)
        file = self._disk.open(temporary, create=True)
        try:
            file.truncate(0)
            offset = 0
            while offset < len(data):
                offset += file.pwritev([data[offset:]], offset)
            file.sync()
        finally:
            file.close()
        self._disk.rename(temporary, self._path)
        self._disk.sync_directory(self._directory)


def encode_hard_state(state: HardState) -> bytes:
    name = (state.voted_for or "").encode()
    assert len(name) <= _NODE_NAME_SIZE_MAX, "node names are bounded by the configuration"
    size_after = _HEAD_SIZE - 8 + len(name) + _CRC_SIZE
    head = _HEAD.pack(_MAGIC, size_after, state.current_term, len(name)) + name
    return head + zlib.crc32(head).to_bytes(_CRC_SIZE, "big")


def decode_hard_state(data: bytes, path: str = "hard_state") -> HardState:
    """Raises CorruptHardStateError naming what was wrong."""
    if len(data) < _HEAD_SIZE + _CRC_SIZE:
        raise CorruptHardStateError(path, 0, f"{len(data)} bytes are too few")
    magic, size_after, current_term, name_size = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise CorruptHardStateError(path, 0, f"magic {magic.hex()} is not {_MAGIC.hex()}")
    if len(data) != 8 + size_after:
        raise CorruptHardStateError(path, 4, f"{len(data)} bytes, not {8 + size_after}")
    if len(data) != _HEAD_SIZE + name_size + _CRC_SIZE:
        raise CorruptHardStateError(path, 16, f"voted_for of {name_size} bytes does not fit")
    crc = int.from_bytes(data[-_CRC_SIZE:], "big")
    if crc != zlib.crc32(data[:-_CRC_SIZE]):
        raise CorruptHardStateError(path, len(data) - _CRC_SIZE, "CRC32 does not match")
    try:
        name = data[_HEAD_SIZE:-_CRC_SIZE].decode()
    except UnicodeDecodeError as error:
        raise CorruptHardStateError(path, _HEAD_SIZE, "voted_for is not UTF-8") from error
    return HardState(current_term=current_term, voted_for=NodeId(name) if name else None)
