"""Files of one size that make up a CommitLog: their names, which are open, how they are made.

Place in the data path: under `broker.ha.commit_log`, which knows what the bytes mean.

Invariants: a file has all its blocks, and its name is durable, before anything is written to it;
behind a cut it holds zeros; the last file stays open.

Source: RocketMQ MappedFileQueue, AllocateMappedFileService.
"""

from __future__ import annotations

from typing import Final

from raft.log.log_format import CorruptLogError
from raft.storage import Disk, DiskFile

__all__ = ["LogFiles"]

_NAME_LENGTH: Final = 20
_READ_FILES_MAX: Final = 16  # open files besides the last one
_CHUNK_SIZE: Final = 1 << 20


class LogFiles:
    """Files in `directory` of `disk`, each of `size` bytes, named by their first positions."""

    def __init__(self, disk: Disk, directory: str, size: int) -> None:
        self._disk = disk
        self._directory = directory
        self.size = size
        self.last: DiskFile | None = None  # None: it is not made yet
        self._last_begin = 0
        self._others: dict[int, DiskFile] = {}  # by first position, least recently used first
        disk.make_directory(directory)
        disk.sync_directory(directory.rpartition("/")[0])

    def path(self, begin: int) -> str:
        return f"{self._directory}/{begin:0{_NAME_LENGTH}d}"

    def begin_of(self, position: int) -> int:
        """Return the first position of the file that `position` is in."""
        return position - position % self.size

    def left(self, position: int) -> int:
        """Return how many bytes of its file are at `position` and behind it."""
        return self.size - position % self.size

    def begins(self) -> list[int]:
        """Return the first positions of the files that exist, ascending. Raises OSError."""
        names = self._disk.list(self._directory)
        return sorted(int(n) for n in names if len(n) == _NAME_LENGTH and n.isdecimal())

    def at(self, begin: int) -> DiskFile:
        """Return a file, opened. Raises LookupError where it does not exist, and OSError."""
        if self.last is not None and begin == self._last_begin:
            return self.last
        file = self._others.pop(begin, None)
        if file is None:
            try:
                file = self._disk.open(self.path(begin), create=False)
            except FileNotFoundError as error:
                raise LookupError(f"the log has no file {begin}") from error
        self._keep_open(begin, file)
        return file

    def check(self, begin: int) -> None:
        """Raises CorruptLogError where a file before the last one is missing or of another size."""
        try:
            size = self.at(begin).size()
        except LookupError as error:
            raise CorruptLogError(self.path(begin), begin, "the file is missing") from error
        if size != self.size:
            raise CorruptLogError(
                self.path(begin),
                begin,
                f"the file has {size} bytes, where segment_size_bytes_max says {self.size}",
            )

    def open_last(self, begin: int) -> DiskFile:
        """Return the last file, made where it is missing. Raises OSError, of a full disk with
        nothing made that counts."""
        if self.last is None:
            file = self._disk.open(self.path(begin), create=True)
            try:
                file.allocate(self.size)
                file.sync()
                self._disk.sync_directory(self._directory)
            except OSError:
                file.close()
                raise
            self.last, self._last_begin = file, begin
        return self.last

    def end_last(self) -> None:
        """Keep the last file open, but no longer as the last one."""
        if self.last is not None:
            self._keep_open(self._last_begin, self.last)
            self.last = None

    def cut(self, position: int) -> int:
        """Make `position` the end: zeros behind it, no later files; durable. Return how many bytes
        were cut off its file. Raises OSError, and CorruptLogError where that is too large.

        A file that nothing is left of goes, too: the fsync may have failed that was to make its
        blocks and size durable, and none after it would notice. It is made anew when it is needed.
        """
        self.end_last()
        begin = self.begin_of(position)
        self.remove([one for one in reversed(self.begins()) if one > begin])
        if begin not in self.begins():
            return 0
        file = self.at(begin)
        if file.size() > self.size:
            self.check(begin)
        offset = position - begin
        used_size = _used_size(file, offset)
        if offset == 0:
            self.remove([begin])
            return used_size
        if used_size or file.size() < self.size:
            file.truncate(offset)
            file.allocate(self.size)
            file.sync()
        self.last, self._last_begin = self._others.pop(begin), begin
        return used_size

    def remove(self, begins: list[int]) -> None:
        """Remove these files in their order, durably. Raises OSError."""
        for begin in begins:
            if begin == self._last_begin:
                self.end_last()
            self._close(begin)
            self._disk.remove(self.path(begin))
        self._disk.sync_directory(self._directory)

    def close(self) -> None:
        self.end_last()
        for begin in list(self._others):
            self._close(begin)

    def _keep_open(self, begin: int, file: DiskFile) -> None:
        self._others[begin] = file
        while len(self._others) > _READ_FILES_MAX:
            self._close(next(iter(self._others)))

    def _close(self, begin: int) -> None:
        file = self._others.pop(begin, None)
        if file is not None:
            file.close()


def _used_size(file: DiskFile, offset: int) -> int:
    """Return how many bytes from `offset` to the last one that is not zero."""
    end = file.size()
    while end > offset:
        begin = max(offset, end - _CHUNK_SIZE)
        used = len(file.pread(end - begin, begin).rstrip(b"\0"))
        if used:
            return begin + used - offset
        end = begin
    return 0
