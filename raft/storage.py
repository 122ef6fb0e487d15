"""Protocols between the consensus core, its log and the disk under it.

`Disk` is what `raft.log.segment_log` and `raft.log.hard_state` write to: the operating system's
files (`raft.log.disk.OsDisk`) or the simulator's disk, which loses un-fsynced writes at a crash and
tears tails. `LogStorage` is what `raft.core.core` reads from. Both are synchronous: the shell
decides on which thread a sync runs. `begin_sync` alone is not: where the disk can, a sync goes on
beside the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from raft.messages import Entry, Index, LogBase, Term

__all__ = ["Disk", "DiskFile", "LogBase", "LogStorage", "OnSynced", "write_fully"]

OnSynced: TypeAlias = Callable[[OSError | None], None]
"""Called on the event loop once a sync has ended, with what it failed with."""


class DiskFile(Protocol):
    """One open file. Every method raises OSError as the system call under it does."""

    def size(self) -> int: ...

    def pread(self, size: int, offset: int) -> bytes:
        """Read up to `size` bytes at `offset`; shorter only at the end of the file."""

    def pwritev(self, buffers: Sequence[bytes], offset: int) -> int:
        """Write all buffers at `offset`; return the number of bytes written, which may be short."""

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Extend the file to at least `size` bytes, with real blocks under all of them.

        A later write inside never meets a full disk. New bytes read as zeros.
        """

    def drop_cache(self, offset: int = 0, size: int = 0) -> None:
        """Drop cached pages: the next read there should come from the disk, not from memory. A
        hint.

        Size 0: up to the end. What was not synced stays. Raises OSError.
        """

    def sync(self) -> None:
        """Make data and size durable (fdatasync). May run on another thread."""

    def begin_sync(self, on_done: OnSynced) -> bool:
        """Begin to make durable what was written before this call, data and size, and return.

        What is written meanwhile may become durable with it, or not. Later the loop calls `on_done`
        once, in any order where several are under way. The file may be closed meanwhile. False:
        nothing was begun and `on_done` is not called; `sync` still works. Call it on the loop,
        between `open_syncs` and `close_syncs` of the disk.
        """

    def close(self) -> None: ...


class Disk(Protocol):
    """One directory tree, paths relative to its root, "/" between parts."""

    def open(self, path: str, *, create: bool) -> DiskFile: ...

    def list(self, path: str) -> list[str]: ...

    def rename(self, source: str, target: str) -> None:
        """Replace atomically; durable only after `sync_directory` of the parent."""

    def remove(self, path: str) -> None: ...

    def make_directory(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...

    def open_syncs(self, path: str) -> None:
        """Prepare `begin_sync` for all files, on the running event loop; try it on the file `path`.

        Raises OSError where this disk, file system or machine can't, and says why.
        """

    def wait_for_syncs(self) -> OSError | None:
        """Wait, on the loop, until no sync is under way; return what one of them has failed with.

        The loop calls each `on_done` all the same, after this call.
        """

    def close_syncs(self) -> None:
        """End what `open_syncs` began; no `on_done` is called any more. Safe without it."""


class LogStorage(Protocol):
    """The core's view of the log: every entry from first_index to last_index.

    Invariant: `base` is the place right before first_index == base.index + 1; a whole log begins
    behind index 0, which has term 0. Where the log holds nothing else, last_index == base.index.
    """

    @property
    def base(self) -> LogBase: ...

    @property
    def first_index(self) -> Index: ...

    @property
    def last_index(self) -> Index: ...

    @property
    def config_indexes(self) -> Sequence[Index]:
        """Indexes of the log's CONFIG entries, ascending; few. Read once, at the start."""

    def term(self, index: Index) -> Term | None:
        """Return the entry's term; None if it is damaged and its term unknown. A core is created
        only over a log in which every such entry is committed. The base and the last entry have
        their terms. Raises IndexError outside [base.index, last_index]."""

    def entries(self, low: Index, high: Index, size_max: int) -> tuple[Entry, ...]:
        """Return entries of [low, high), at least one if low < high, then while within size_max
        bytes.

        Empty where the first of them can't be read now; it can be later. Not while the core is
        created: it reads the CONFIG entries then.
        """


def write_fully(file: DiskFile, data: bytes, offset: int) -> None:
    """Write all of `data`, however short single writes are. Raises OSError."""
    written = file.pwritev([data], offset) if data else 0
    while written < len(data):
        written += file.pwritev([data[written:]], offset + written)
