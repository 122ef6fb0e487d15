"""Snapshot files: the application's state after one committed entry.

Place in the data path: `raft.snapshots.snapshot_keeper` writes one, on a thread, where a segment
ends and at a clean stop; a restart restores the newest; `raft.snapshots.install` sends the file,
byte by byte, to a follower whose log ends before the leader's begins, and stores it there under the
same name.

Invariants:
- a file under its final name was fsynced whole (temporary file, fsync, rename, directory fsync),
  and the name itself is durable before it counts, also where a start finds it;
- a restored file was checked whole before: header, each block, and all of it once more;
- a damaged file is not used, the one before it is: two are kept, and the log behind the older.

File `snapshots/<20-digit index>.snapshot` (docs/FORMATS.md section 14):

| offset | size | field |
|---|---|---|
| 0 | 4 | magic `LMQS` |
| 4 | 4 | version 1 |
| 8 | 8 | index of the last entry that the state contains |
| 16 | 8 | its term |
| 24 | 8 | position one past its last byte |
| 32 | 4 | its chain |
| 36 | 8 | index of the configuration in force there, 0 where it stands in no entry |
| 44 | 4 | size M of that configuration |
| 48 | M | configuration, as in a CONFIG entry |
| 48+M | 4 | CRC32 of everything before |

then blocks of the state: size (4, at least 1), CRC32 of the data (4), data; then the trailer:

| offset | size | field |
|---|---|---|
| 0 | 4 | 0 |
| 4 | 8 | bytes of state in all blocks |
| 12 | 4 | CRC32 of everything before in the file |
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from isal.isal_zlib import crc32

from raft.log.durable_record import adopt
from raft.log.log_format import CorruptLogError
from raft.messages import Index, LogBase
from raft.storage import Disk, DiskFile, write_fully

__all__ = [
    "BLOCK_SIZE_BYTES_MAX",
    "DamagedSnapshotError",
    "SnapshotFiles",
    "SnapshotHeader",
    "read_blocks",
    "read_header",
    "verify",
]

BLOCK_SIZE_BYTES_MAX = 1 << 20
_MAGIC = b"LMQS"
_VERSION = 1
_FIXED = struct.Struct(">4sIQQQIQI")
_BLOCK = struct.Struct(">II")
_TRAILER = struct.Struct(">IQI")
_CRC = struct.Struct(">I")
_MEMBERSHIP_SIZE_MAX = 64 << 10
_NAME_DIGITS = 20
_SUFFIX = ".snapshot"

assert _FIXED.size == 48
assert _TRAILER.size == 16


class DamagedSnapshotError(CorruptLogError):
    """The file is no whole snapshot; the text says where it is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeader:
    """Header of the file. `last` is the last entry in the state. `membership` is encoded."""

    last: LogBase
    config_index: Index
    membership: bytes


def encode_header(header: SnapshotHeader) -> bytes:
    assert len(header.membership) <= _MEMBERSHIP_SIZE_MAX, "members are bounded"
    last = header.last
    data = (
        _FIXED.pack(
            _MAGIC,
            _VERSION,
            last.index,
            last.term,
            last.position,
            last.chain,
            header.config_index,
            len(header.membership),
        )
        + header.membership
    )
    return data + _CRC.pack(crc32(data))


def read_header(file: DiskFile, path: str) -> tuple[SnapshotHeader, int]:
    """Return the header and the offset of the blocks. Raises OSError and DamagedSnapshotError."""
    fixed = file.pread(_FIXED.size, 0)
    if len(fixed) < _FIXED.size:
        raise DamagedSnapshotError(path, len(fixed), "the header is cut short")
    magic, version, index, term, position, chain, config_index, size = _FIXED.unpack(fixed)
    if magic != _MAGIC or version != _VERSION or size > _MEMBERSHIP_SIZE_MAX:
        raise DamagedSnapshotError(path, 0, "no header of a snapshot")
    rest = file.pread(size + _CRC.size, _FIXED.size)
    if len(rest) != size + _CRC.size:
        raise DamagedSnapshotError(path, _FIXED.size + len(rest), "the header is cut short")
    membership, crc = rest[:size], rest[size:]
    if _CRC.unpack(crc)[0] != crc32(membership, crc32(fixed)):
        raise DamagedSnapshotError(path, _FIXED.size + size, "the header's CRC32 does not match")
    header = SnapshotHeader(
        last=LogBase(index=index, term=term, position=position, chain=chain),
        config_index=config_index,
        membership=membership,
    )
    return header, _FIXED.size + len(rest)


def read_blocks(file: DiskFile, path: str) -> Iterator[bytes]:
    """Yield the state's chunks, each block checked, the whole file at the end.

    Raises OSError and DamagedSnapshotError; chunks yielded before are not to be used then.
    """
    _, offset = read_header(file, path)
    whole = crc32(file.pread(offset, 0))
    state_size = 0
    while True:
        head = file.pread(_BLOCK.size, offset)
        if len(head) < _BLOCK.size:
            raise DamagedSnapshotError(path, offset, "a block is cut short")
        size, crc = _BLOCK.unpack(head)
        if size == 0:
            break
        if size > BLOCK_SIZE_BYTES_MAX:
            raise DamagedSnapshotError(path, offset, f"a block of {size} bytes")
        data = file.pread(size, offset + _BLOCK.size)
        if len(data) != size or crc32(data) != crc:
            raise DamagedSnapshotError(path, offset, "a block is cut short or its CRC32 is wrong")
        whole = crc32(data, crc32(head, whole))
        offset += _BLOCK.size + size
        state_size += size
        yield data
    trailer = file.pread(_TRAILER.size + 1, offset)
    if len(trailer) != _TRAILER.size:
        raise DamagedSnapshotError(path, offset, "the trailer is cut short, or not the end")
    _, stored_size, crc = _TRAILER.unpack(trailer)
    if stored_size != state_size or crc32(trailer[: -_CRC.size], whole) != crc:
        raise DamagedSnapshotError(path, offset, "the trailer does not match what precedes it")


def verify(file: DiskFile, path: str) -> SnapshotHeader:
    """Read the whole file once. Raises OSError and DamagedSnapshotError."""
    header, _ = read_header(file, path)
    for _ in read_blocks(file, path):
        pass
    return header


class SnapshotFiles:
    """Snapshots of one store, in `directory` of `disk`, which is created.

    One thread at a time writes snapshots and one receives them; others may read and remove
    meanwhile.
    """

    INCOMING = "incoming.tmp"

    def __init__(self, disk: Disk, directory: str = "snapshots") -> None:
        self._disk = disk
        self._directory = directory
        self._removing = threading.Lock()
        disk.make_directory(directory)
        disk.sync_directory(directory.rpartition("/")[0])
        for name in disk.list(directory):
            if name.endswith(".tmp"):
                disk.remove(f"{directory}/{name}")  # at a start no thread writes
        # The name of a file whose writer was killed may not be durable: it counts from here on.
        disk.sync_directory(directory)

    def indexes(self) -> list[Index]:
        """Return the indexes of the existing files, valid or not, ascending."""
        names = [name for name in self._disk.list(self._directory) if name.endswith(_SUFFIX)]
        stems = [name.removesuffix(_SUFFIX) for name in sorted(names)]
        return [int(stem) for stem in stems if len(stem) == _NAME_DIGITS and stem.isdecimal()]

    def path(self, index: Index) -> str:
        return f"{self._directory}/{index:0{_NAME_DIGITS}d}{_SUFFIX}"

    @property
    def incoming_path(self) -> str:
        """Path of the snapshot that is being received."""
        return f"{self._directory}/{self.INCOMING}"

    def open(self, index: Index) -> DiskFile:
        """Open a snapshot. Raises OSError, FileNotFoundError where it was removed."""
        return self._disk.open(self.path(index), create=False)

    def open_incoming(self) -> DiskFile:
        """Open the incoming file, empty or as far as it has come. Raises OSError."""
        return self._disk.open(self.incoming_path, create=True)

    def verified(self, index: Index) -> SnapshotHeader:
        """Verify a snapshot and return its header. Raises OSError and DamagedSnapshotError."""
        path = self.path(index)
        file = self._disk.open(path, create=False)
        try:
            header = verify(file, path)
        finally:
            file.close()
        if header.last.index != index:
            raise DamagedSnapshotError(path, 8, f"it is of index {header.last.index}")
        return header

    def chunks(self, index: Index) -> Iterator[bytes]:
        """Yield the snapshot's state. Raises OSError and DamagedSnapshotError."""
        file = self.open(index)
        try:
            yield from read_blocks(file, self.path(index))
        finally:
            file.close()

    def write(self, header: SnapshotHeader, chunks: Iterable[bytes]) -> int:
        """Write a snapshot, durable under its name when this returns its size. Raises OSError."""
        temporary = self._temporary(header.last.index)
        file = self._disk.open(temporary, create=True)
        try:
            file.truncate(0)
            size = _write_all(file, header, chunks)
            file.sync()
        finally:
            file.close()
        self._adopt(temporary, header.last.index)
        return size

    def remove_unfinished(self, index: Index) -> None:
        """Remove the remains of a failed `write`. Raises OSError."""
        if f"{index:0{_NAME_DIGITS}d}.tmp" in self._disk.list(self._directory):
            self._disk.remove(self._temporary(index))

    def adopt_incoming(self, index: Index) -> None:
        """Rename the received file, which is whole and fsynced. Raises OSError."""
        self._adopt(self.incoming_path, index)

    def retain(self, indexes: Collection[Index]) -> None:
        """Remove others that are older than the newest of these: a newer one has just arrived from
        a leader. Raises OSError."""
        newest = max(indexes, default=0)
        with self._removing:
            for index in self.indexes():
                if index < newest and index not in indexes:
                    self._disk.remove(self.path(index))
            self._disk.sync_directory(self._directory)

    def remove(self, index: Index) -> None:
        """Remove a snapshot, if it still exists. Raises OSError."""
        with self._removing:
            if index in self.indexes():
                self._disk.remove(self.path(index))
            self._disk.sync_directory(self._directory)

    def _temporary(self, index: Index) -> str:
        return f"{self._directory}/{index:0{_NAME_DIGITS}d}.tmp"

    def _adopt(self, source: str, index: Index) -> None:
        adopt(self._disk, source, self.path(index))


def _write_all(file: DiskFile, header: SnapshotHeader, chunks: Iterable[bytes]) -> int:
    data = encode_header(header)
    whole = crc32(data)
    offset = _write(file, [data], 0)
    state_size = 0
    for chunk in chunks:
        assert 0 < len(chunk) <= BLOCK_SIZE_BYTES_MAX, f"a chunk of {len(chunk)} bytes"
        head = _BLOCK.pack(len(chunk), crc32(chunk))
        whole = crc32(chunk, crc32(head, whole))
        offset = _write(file, [head, chunk], offset)
        state_size += len(chunk)
    trailer = _TRAILER.pack(0, state_size, 0)[: -_CRC.size]
    return _write(file, [trailer, _CRC.pack(crc32(trailer, whole))], offset)


def _write(file: DiskFile, buffers: list[bytes], offset: int) -> int:
    """Write all buffers, joined; return the next offset."""
    data = b"".join(buffers)
    write_fully(file, data, offset)
    return offset + len(data)
