"""A disk in memory that, at a crash, forgets what was not synced: each write on its own.

Writes and truncations of a file since its last sync survive as a random subset, the surviving
ones possibly only in part (torn at any byte); directory operations since the last
sync_directory survive as a prefix. Small and independent of the simulator's disk.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence

from raft.storage import OnSynced


class _Inode:
    def __init__(self) -> None:
        self.durable = bytearray()
        self.current = bytearray()
        self.pending: list[tuple[str, int, bytes]] = []


class _File:
    def __init__(self, disk: ForgetfulDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._epoch = disk.epoch
        self._closed = False

    def _check(self) -> None:
        assert not self._closed, "the file is closed"
        assert self._epoch == self._disk.epoch, "the file was opened before the crash"

    def size(self) -> int:
        self._check()
        return len(self._inode.current)

    def pread(self, size: int, offset: int) -> bytes:
        self._check()
        return bytes(self._inode.current[offset : offset + size])

    def pwritev(self, buffers: Sequence[bytes], offset: int) -> int:
        self._check()
        if self._disk.fail_writes:
            raise OSError(errno.ENOSPC, "No space left on device")
        data = b"".join(buffers)
        if len(data) > 1 and self._disk.rng.random() < 0.2:
            data = data[: self._disk.rng.randrange(1, len(data))]  # a short write is legal
        self._inode.pending.append(("write", offset, data))
        _apply(self._inode.current, "write", offset, data)
        return len(data)

    def truncate(self, size: int) -> None:
        self._check()
        self._inode.pending.append(("truncate", size, b""))
        _apply(self._inode.current, "truncate", size, b"")

    def allocate(self, size: int) -> None:
        self._check()
        if self._disk.fail_writes or self._disk.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        if size > len(self._inode.current):
            self.truncate(size)

    def drop_cache(self, offset: int = 0, size: int = 0) -> None:
        self._check()

    def sync(self) -> None:
        self._check()
        if self._disk.fail_syncs:
            raise OSError(errno.EIO, "Input/output error")
        self._inode.durable = bytearray(self._inode.current)
        self._inode.pending.clear()

    def begin_sync(self, on_done: OnSynced) -> bool:
        return False

    def close(self) -> None:
        self._closed = True


class ForgetfulDisk:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.epoch = 0
        self.fail_writes = False
        self.fail_syncs = False
        self.is_full = False  # no new blocks; what is allocated can be written
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self._pending_names: list[Callable[[dict[str, _Inode]], object]] = []

    def crash(self, *, keep: float) -> None:
        """Lose un-synced writes, each kept with probability `keep`; open files go stale."""
        self.epoch += 1
        kept = sum(self.rng.random() < keep for _ in self._pending_names)
        for operation in self._pending_names[:kept]:
            operation(self._durable_names)
        self._pending_names.clear()
        self._names = dict(self._durable_names)
        for inode in self._names.values():
            for kind, offset, data in inode.pending:
                if self.rng.random() >= keep:
                    continue
                low, high = 0, len(data)
                if kind == "write" and keep < 1.0 and self.rng.random() < 0.3:
                    low, high = sorted(self.rng.randrange(high + 1) for _ in range(2))
                _apply(inode.durable, kind, offset + low, data[low:high])
            inode.pending.clear()
            inode.current = bytearray(inode.durable)

    def _change(self, operation: Callable[[dict[str, _Inode]], object]) -> None:
        operation(self._names)
        self._pending_names.append(operation)

    def open(self, path: str, *, create: bool) -> _File:
        if path not in self._names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file", path)
            inode = _Inode()
            self._change(lambda names: names.__setitem__(path, inode))
        return _File(self, self._names[path])

    def content(self, path: str) -> bytearray:
        """The file's bytes, to be spoilt: what is done to them survives every crash."""
        inode = self._names[path]
        inode.durable = inode.current = bytearray(inode.current)
        inode.pending.clear()
        return inode.current

    def list(self, path: str) -> list[str]:
        prefix = f"{path}/" if path else ""
        return sorted(
            name[len(prefix) :]
            for name in self._names
            if name.startswith(prefix) and "/" not in name[len(prefix) :]
        )

    def rename(self, source: str, target: str) -> None:
        self._change(lambda names: names.__setitem__(target, names.pop(source)))

    def remove(self, path: str) -> None:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "No such file", path)
        self._change(lambda names: names.pop(path))

    def make_directory(self, path: str) -> None:
        """Directories are implied by the names in them."""

    def sync_directory(self, path: str) -> None:
        """All directories at once: the log never relies on one without the other."""
        self._durable_names = dict(self._names)
        self._pending_names.clear()


def _apply(content: bytearray, kind: str, offset: int, data: bytes) -> None:
    if kind == "truncate":
        if offset < len(content):
            del content[offset:]
        else:
            content.extend(bytes(offset - len(content)))
        return
    if not data:
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data
