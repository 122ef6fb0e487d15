"""A small file that is one record: replaced whole, and durable before anybody acts on it.

Place in the data path: under all small files of a store: term and vote, identity, the slots of mark
and base, the checkpoint.

Invariants:
- a file that is replaced holds the old record or the new one after every crash, never a mixture: a
  temporary file is written, fsynced and renamed, then the directory is fsynced;
- what `read_durable` returned is durable, file and name. What a killed process wrote may be in the
  page cache alone, and a start that acted on it (removed segments, sent a vote) would have acted on
  what a power failure takes back. It is read from the disk, too: pages on which an earlier fsync
  failed are clean in memory and may be missing on the disk, where a second fsync doesn't find them.

Source: Pillai et al., "All file systems are not created equal" (OSDI '14); Rebello et al., "Can
applications recover from fsync failures?" (ATC '20).
"""

from __future__ import annotations

from contextlib import closing

from raft.storage import Disk, DiskFile, write_fully

__all__ = ["adopt", "overwrite", "read_durable", "read_now", "replace", "settle"]


def read_durable(disk: Disk, path: str, size_max: int) -> bytes | None:
    """Return up to `size_max` bytes of the file, durable; None if it is missing. Raises OSError."""
    try:
        file = disk.open(path, create=False)
    except FileNotFoundError:
        return None
    with closing(file):
        settle(file)
        data = file.pread(size_max, 0)
    disk.sync_directory(_parent(path))
    return data


def settle(file: DiskFile) -> None:
    """Sync the file, so that later reads return what the disk holds. Raises OSError."""
    file.sync()
    file.drop_cache()


def read_now(disk: Disk, path: str, size_max: int) -> bytes | None:
    """Read without making durable: a power failure may leave other bytes. Else as
    `read_durable`."""
    try:
        file = disk.open(path, create=False)
    except FileNotFoundError:
        return None
    with closing(file):
        return file.pread(size_max, 0)


def replace(disk: Disk, path: str, data: bytes, *, durable: bool = True) -> None:
    """Replace the file's content by `data`, durable when this returns.

    Not `durable`: a power failure may leave the old record, the new one, or neither whole. Raises
    OSError, and leaves the file as it was.
    """
    temporary = f"{path}.tmp"
    with closing(disk.open(temporary, create=True)) as file:
        file.truncate(0)
        write_fully(file, data, 0)
        if durable:
            file.sync()
    if durable:  # only whole and durable bytes get the name
        adopt(disk, temporary, path)
    else:
        disk.rename(temporary, path)


def adopt(disk: Disk, source: str, path: str) -> None:
    """Rename a file that was written and fsynced, durably. Raises OSError."""
    disk.rename(source, path)
    disk.sync_directory(_parent(path))


def overwrite(disk: Disk, path: str, data: bytes) -> None:
    """Overwrite the file's first bytes, durably: that needs no block.

    A crash may leave any mixture: use it only where another file holds the record. Raises OSError,
    FileNotFoundError if the file is missing.
    """
    with closing(disk.open(path, create=False)) as file:
        write_fully(file, data, 0)
        file.sync()


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
