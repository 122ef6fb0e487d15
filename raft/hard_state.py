"""Term and vote on disk (docs/FORMATS.md section 2).

Place in the data path: the shell saves the hard state of a `Ready` before any message that
depends on it leaves, and loads it once at the start.

Two files hold the same record, `hard_state` and `hard_state.copy`, each of a fixed size that is
overwritten in place: a vote never needs a block of a full disk, and where one file is torn, rotten
or gone the other one tells.

Invariants:
- after `save` returns, the state is durable in both files. It writes them one after the other, so
  a crash in it leaves one of them whole: the old state or the new one, never a mixture;
- term and vote only ever go forward (within a term from no vote to one), so of two readable files
  the further one was written last. `load` makes both alike before anybody acts on its answer.

Source: Raft, figure 2 (persistent state); dissertation 3.8.

| offset | size | field |
|---|---|---|
| 0 | 4 | magic `LMQH` |
| 4 | 4 | size of all that follows, without the padding |
| 8 | 8 | current_term |
| 16 | 2 | length n of voted_for (0: none) |
| 18 | n | voted_for, UTF-8 |
| 18+n | 4 | CRC32 of everything before |
| 22+n | 490-n | zeros (none in a store of before the copy) |
"""

from __future__ import annotations

import logging
import struct
import zlib

from raft.log_format import CorruptLogError
from raft.messages import HardState, NodeId
from raft.storage import Disk, write_fully

__all__ = [
    "CorruptHardStateError",
    "HardStateFile",
    "decode_hard_state",
    "encode_hard_state",
    "read_hard_state",
]

_MAGIC = b"LMQH"
_HEAD = struct.Struct(">4sIQH")
_HEAD_SIZE = 18
_CRC_SIZE = 4
_NODE_NAME_SIZE_MAX = 255
_FILE_SIZE = 512  # one sector
_NAMES = ("hard_state", "hard_state.copy")

assert _HEAD.size == _HEAD_SIZE
assert _HEAD_SIZE + _NODE_NAME_SIZE_MAX + _CRC_SIZE <= _FILE_SIZE

_log = logging.getLogger(__name__)


class CorruptHardStateError(CorruptLogError):
    """The file is there but is not a hard state. Starting anew could vote twice in a term."""


class HardStateFile:
    """Loads and saves the hard state in `directory` of `disk` ("" is the disk's root)."""

    def __init__(self, disk: Disk, directory: str = "") -> None:
        self._disk = disk
        self._directory = directory
        self._paths = _paths(directory)

    def load(self) -> HardState:
        """Term 0 and no vote where it was never written. Both files are alike and whole after it.

        Raises OSError, and CorruptHardStateError where neither file is readable.
        """
        state = read_hard_state(self._disk, self._directory)
        image = _image(state)
        for path in self._paths:
            if _content(self._disk, path) != image:
                self._make(path, image)
        return state

    def save(self, state: HardState) -> None:
        """Durable when this returns. Raises OSError; after that nothing may be sent."""
        image = _image(state)
        for path in self._paths:
            try:
                file = self._disk.open(path, create=False)
            except FileNotFoundError:
                self._make(path, image)
                continue
            try:
                write_fully(file, image, 0)
                file.sync()
            finally:
                file.close()

    def _make(self, path: str, image: bytes) -> None:
        """A whole new file beside the old one, then in its place."""
        temporary = f"{path}.tmp"
        file = self._disk.open(temporary, create=True)
        try:
            file.truncate(0)
            write_fully(file, image, 0)
            file.sync()
        finally:
            file.close()
        self._disk.rename(temporary, path)
        self._disk.sync_directory(self._directory)


def read_hard_state(disk: Disk, directory: str = "") -> HardState:
    """What a store's files say, without touching them. Raises as `HardStateFile.load` does."""
    found: list[HardState] = []
    defects: list[CorruptHardStateError] = []
    for path in _paths(directory):
        data = _content(disk, path)
        if data is None:
            continue
        try:
            found.append(decode_hard_state(data, path))
        except CorruptHardStateError as defect:
            defects.append(defect)
    if not found:
        if defects:
            raise defects[0]
        return HardState(current_term=0, voted_for=None)
    for known in defects:
        _log.info("%s; the other copy is used", known)
    return max(found, key=lambda state: (state.current_term, state.voted_for is not None))


def _paths(directory: str) -> tuple[str, ...]:
    return tuple(f"{directory}/{name}" if directory else name for name in _NAMES)


def _content(disk: Disk, path: str) -> bytes | None:
    try:
        file = disk.open(path, create=False)
    except FileNotFoundError:
        return None
    try:
        return file.pread(_FILE_SIZE + 1, 0)
    finally:
        file.close()


def _image(state: HardState) -> bytes:
    return encode_hard_state(state).ljust(_FILE_SIZE, b"\0")


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
    size = 8 + size_after
    if len(data) < size or len(data) > _FILE_SIZE or any(data[size:]):
        raise CorruptHardStateError(path, 4, f"{len(data)} bytes, not {size} and zeros")
    data = data[:size]
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
