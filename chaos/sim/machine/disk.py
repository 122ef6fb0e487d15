"""A disk that keeps what was synced, and a random part of the rest.

Place in the data path: one `SimDisk` per node replaces `raft.log.disk.OsDisk` under the real
`SegmentLog` and `HardStateFile`. It outlives the node's crashes.

What it models:
- a process crash loses nothing: the page cache stays, un-fsynced bytes are still readable and still
  not durable;
- a power failure keeps, of each file's un-fsynced operations, none, all, a prefix whose last write
  is torn at any byte, or any subset of their sectors; lost sectors inside the file read as zeros,
  sometimes as garbage;
- names (create, rename, remove, make directory) are durable only after `sync_directory` of the
  parent; of the rest a crash keeps a prefix per directory, as journalling file systems do;
- a sync takes time: after a crash between `begin_sync` and `complete_sync` a random prefix of it is
  done, and what was written in between is not covered by it;
- a sync that the kernel carries out beside the loop (`begin_sync`) covers what was written before
  it, perhaps more, and ends late; whether a crash before its report finds it done is chance;
- a sync that fails drops what it was to write: it stays readable until the page cache is dropped,
  the next sync succeeds without it, and a power failure takes it;
- a disk may be full: where `capacity_bytes` is set, a file grows only while there is room, and what
  was allocated can be written all the same;
- a disk may rot: `spoil` and `lose` change what was durable;
- writes may be short; an armed error raises EIO or ENOSPC; an armed fuse kills the node at the n-th
  operation from now, in the middle of a write too.

Over 500 lines, because a power failure undoes what the operations did, and both stand together.

Source: Pillai et al., "All file systems are not created equal" (OSDI '14); Rebello et al., "Can
applications recover from fsync failures?" (ATC '20).
"""

from __future__ import annotations

import enum
import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

from chaos.sim.machine.violation import CrashNow
from raft.snapshots.snapshot import SnapshotFiles
from raft.storage import OnSynced

_Operation: TypeAlias = tuple[int, bytes | None]
_Operations: TypeAlias = list[_Operation]  # `list` is a method's name below
_NameOperation: TypeAlias = tuple[str, "_Inode | None", str | None]
"""A path; the file that it names from now on, None where it is removed or a directory; the path
that the file had before, the directory's own where it is one.
"""

__all__ = [
    "ADOPTION",
    "BASE_WRITE",
    "TAIL_REMOVAL",
    "DiskFault",
    "Kernel",
    "SimDisk",
    "SimFile",
    "Survival",
    "fail_power",
]

TAIL_REMOVAL = "remove of a tail"
"""The removal of a file whose name is a number, beside one with a lower number: a log is truncated
over the border of a segment, or emptied. Retention removes the lowest.
"""

ADOPTION = "rename of what was received"
"""The snapshot that a leader sent gets its final name: durable or not, the log is emptied next."""

BASE_WRITE = "write of the log's base"
"""The log gets another start: durable or not, oldest segments, or all of them, are removed next."""

_BASE_PATH = "commitlog.base"
_KERNEL_GOES_ON_RATE = 0.5  # share of syncs under way that are done after a crash of their process


class Survival(enum.Enum):
    """Share that a power failure leaves of un-fsynced operations."""

    NONE = "none"
    ALL = "all"
    PREFIX = "prefix"
    SCATTER = "scatter"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFault:
    """An error that a matching operation raises once: the next, or `SimDisk.fault_after` later."""

    operation: str  # "read", "write", "sync", "open", "rename", "truncate", "allocate"
    error: int  # an errno


class Kernel(Protocol):
    """Carries syncs out beside a process, and reports them to its loop."""

    def begin_sync(self, work: Callable[[], None], report: Callable[[], None]) -> None:
        """Do `work` some time from now, also while the process is paused, and let its loop call
        `report` after that."""

    def report_soon(self, report: Callable[[], None]) -> None:
        """Let the loop call `report`."""


class _Inode:
    """A file's bytes as seen by the process and on the platter, and the operations between them."""

    __slots__ = (
        "data",
        "deferred_count",
        "differs",
        "durable",
        "path",
        "pending",
        "settled_count",
        "touched",
    )

    def __init__(self, touched: set[_Inode]) -> None:
        self.touched = touched  # of the disk: inodes that a power failure may change, and others
        self.path = ""
        self.data = bytearray()
        self.durable = bytearray()
        self.differs = False  # whether the two may differ though no operation is pending
        # (offset, bytes) is a write, (size, None) a truncation.
        self.pending: _Operations = []
        self.settled_count = 0  # operations ever made durable: offset of `pending`
        self.deferred_count = 0  # of the sync under way, not done yet

    def do(self, operation: _Operation) -> None:
        self.touched.add(self)
        _perform(self.data, operation)
        self.pending.append(operation)

    def do_deferred(self, operation: _Operation) -> None:
        self.deferred_count -= 1
        self.do(operation)

    def settle(self, count: int) -> None:
        """Make the first `count` operations of the file's life durable."""
        settled = count - self.settled_count
        if settled <= 0:
            return
        for operation in self.pending[:settled]:
            _perform(self.durable, operation)
        del self.pending[:settled]
        self.settled_count = count

    def drop_pending(self) -> None:
        """Drop the pending operations unwritten, as a kernel that marks the pages clean."""
        self.differs = self.differs or bool(self.pending)
        self.settled_count += len(self.pending)
        self.pending = []

    def agrees(self, size: int) -> bool:
        """Return whether the first `size` bytes equal the platter's, leaving pending writes out."""
        if self.differs:
            return self.durable[:size] == self.data[:size]
        return len(self.durable) >= min(size, len(self.data))

    def forget_clean(self, offset: int, size: int) -> None:
        """Reread the bytes without pending writes from the platter; the file keeps its size."""
        size = min(size, len(self.data) - offset)
        platter = bytearray(self.durable)
        for operation in self.pending:
            _perform(platter, operation)
        self.data[offset : offset + size] = platter[offset : offset + size].ljust(size, b"\0")

    @property
    def operation_count(self) -> int:
        return self.settled_count + len(self.pending)


class SimFile:
    """One open file; a handle of a dead incarnation is never used again."""

    __slots__ = ("_disk", "_inode")

    def __init__(self, disk: SimDisk, inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode

    def size(self) -> int:
        return len(self._inode.data)

    def pread(self, size: int, offset: int) -> bytes:
        if self._disk.fault is not None:
            self._disk.fail_if_armed("read")
        return bytes(self._inode.data[offset : offset + size])

    def pwritev(self, buffers: Sequence[bytes], offset: int) -> int:
        return self._disk.write(self._inode, b"".join(buffers), offset)

    def truncate(self, size: int) -> None:
        self._disk.resize(self._inode, size)

    def allocate(self, size: int) -> None:
        self._disk.allocate(self._inode, size)

    def drop_cache(self, offset: int = 0, size: int = 0) -> None:
        self._inode.forget_clean(offset, size or len(self._inode.data))

    def sync(self) -> None:
        self._disk.sync(self._inode)

    def begin_sync(self, on_done: OnSynced) -> bool:
        return self._disk.begin_kernel_sync(self._inode, on_done)

    def close(self) -> None:
        """Close the file; nothing is flushed."""


class _KernelSync:
    """A sync between `begin_sync` and its report; `count` operations were there before it."""

    __slots__ = ("_is_reported", "_on_done", "count", "error", "inode")

    def __init__(self, inode: _Inode, on_done: OnSynced) -> None:
        self.inode = inode
        self.count = inode.operation_count
        self.error: OSError | None = None
        self._on_done = on_done
        self._is_reported = False

    def report(self) -> None:
        if not self._is_reported:
            self._is_reported = True
            self._on_done(self.error)


class SimDisk:
    """Implements `raft.storage.Disk`; `fuse` and `fault` are armed by the nemesis."""

    def __init__(
        self, rng: random.Random, *, short_write_rate: float = 0.0, garbage_rate: float = 0.0
    ) -> None:
        self._rng = rng
        self._short_write_rate = short_write_rate
        self._garbage_rate = garbage_rate
        self._names: dict[str, _Inode] = {}
        self._directories: set[str] = {""}
        self._names_durable: dict[str, _Inode] = {}
        self._touched: set[_Inode] = set()
        self._directories_durable: set[str] = {""}
        # Per directory, operations on names in order, to be replayed on the durable tables.
        self._name_operations: dict[str, list[_NameOperation]] = {}
        self._sync_in_progress: list[Callable[[], None]] | None = None
        self._recording = False
        self.kernel: Kernel | None = None  # None: it carries out no syncs beside a process
        self._kernel_syncs: list[_KernelSync] = []
        self.fuse = 0  # counts operations down; the node dies when it reaches 0
        self.fuse_after: str | None = None  # counting begins behind the next operation of this kind
        self.has_begun_to_count = False  # since it was last cleared by the code that armed the fuse
        self.fault: DiskFault | None = None
        self.fault_after = 0  # matching operations that succeed before it
        self.has_failed = False  # an armed error was raised; the reader clears it
        self.capacity_bytes: int | None = None
        self.lost_bytes = 0
        self.torn_writes = 0

    # --- Disk ----------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool) -> SimFile:
        self._before("open")
        inode = self._names.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            parent = _parent(path)
            if parent not in self._directories:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), parent)
            inode = _Inode(self._touched)
            self._name(path, inode)
            self._note(parent, (path, inode, None))
        return SimFile(self, inode)

    def list(self, path: str) -> list[str]:
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        begin = f"{path}/" if path else ""
        known = (*self._names, *self._directories)
        below = [name[len(begin) :] for name in known if name.startswith(begin)]
        return sorted(name for name in below if name and "/" not in name)

    def rename(self, source: str, target: str) -> None:
        if self._is_deferred(partial(self._rename, source, target)):
            return
        is_adoption = self.fuse_after == ADOPTION and source.endswith(f"/{SnapshotFiles.INCOMING}")
        self._before(ADOPTION if is_adoption else "rename")
        self._rename(source, target)

    def _rename(self, source: str, target: str) -> None:
        parent = _parent(source)
        assert parent == _parent(target), "renames stay within a directory here"
        inode = self._names.pop(source, None)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        self._name(target, inode)
        self._note(parent, (target, inode, source))

    def remove(self, path: str) -> None:
        is_tail = self.fuse_after == TAIL_REMOVAL and self._has_lower_number(path)
        self._before(TAIL_REMOVAL if is_tail else "remove")
        if self._names.pop(path, None) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._note(_parent(path), (path, None, None))

    def make_directory(self, path: str) -> None:
        """Create the directory and its parents; do nothing where it exists."""
        if path in self._directories:
            return
        self.make_directory(_parent(path))
        self._before("make_directory")
        self._directories.add(path)
        self._note(_parent(path), (path, None, path))

    def sync_directory(self, path: str) -> None:
        if self._is_deferred(partial(self._sync_names, path)):
            return
        self._before("sync")
        self._sync_names(path)

    def _name(self, path: str, inode: _Inode) -> None:
        self._names[path] = inode
        inode.path = path
        self._touched.add(inode)

    def _sync_names(self, path: str) -> None:
        for operation in self._name_operations.pop(path, ()):
            self._do_durably(operation)

    # --- files ---------------------------------------------------------------------------------

    def write(self, inode: _Inode, data: bytes, offset: int) -> int:
        if self._is_deferred(partial(inode.do_deferred, (offset, data))):
            inode.deferred_count += 1
            return len(data)
        # The fuse ends in this write: a random prefix of it is done before the node dies.
        if self.fuse == 1 and self.fuse_after is None:
            inode.do((offset, data[: int(self._rng.random() * len(data))]))
        is_base = self.fuse_after == BASE_WRITE and self._names.get(_BASE_PATH) is inode
        self._before(BASE_WRITE if is_base else "write")
        self._find_room(inode, offset + len(data))
        if len(data) > 1 and self._rng.random() < self._short_write_rate:
            data = data[: 1 + int(self._rng.random() * (len(data) - 1))]
        inode.do((offset, data))
        return len(data)

    def resize(self, inode: _Inode, size: int) -> None:
        if self._is_deferred(partial(inode.do_deferred, (size, None))):
            inode.deferred_count += 1
            return
        self._before("truncate")
        if size != len(inode.data):
            inode.do((size, None))

    def allocate(self, inode: _Inode, size: int) -> None:
        self._before("allocate")
        self._find_room(inode, size)
        if size > len(inode.data):
            inode.do((size, None))

    def sync(self, inode: _Inode, upto: int | None = None) -> None:
        """Sync the file, or the first `upto` operations of its life alone."""
        if self._sync_in_progress is not None and not self._recording:
            self.complete_sync()  # as the log's lock does: other syncs wait for the one under way
        try:
            self._before("sync")
        except OSError:
            # A failed fsync marks the pages clean: the next one succeeds without them.
            inode.drop_pending()
            raise
        count = inode.operation_count + inode.deferred_count if upto is None else upto
        if not self._is_deferred(partial(inode.settle, count)):
            inode.settle(count)

    def open_syncs(self, path: str) -> None:
        if self.kernel is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), path)

    def wait_for_syncs(self) -> OSError | None:
        failure = None
        for sync in list(self._kernel_syncs):
            self._do_kernel_sync(sync)
            failure = failure or sync.error
            if self.kernel is not None:
                self.kernel.report_soon(sync.report)
        return failure

    def close_syncs(self) -> None:
        self.kernel = None
        self._kernel_syncs.clear()

    def begin_kernel_sync(self, inode: _Inode, on_done: OnSynced) -> bool:
        if self.kernel is None:
            return False
        self._before("submit")
        sync = _KernelSync(inode, on_done)
        self._kernel_syncs.append(sync)
        self.kernel.begin_sync(partial(self._do_kernel_sync, sync), sync.report)
        return True

    def _do_kernel_sync(self, sync: _KernelSync) -> None:
        """Carry the sync out, unless that was done, or a crash came before."""
        if sync not in self._kernel_syncs:
            return
        self._kernel_syncs.remove(sync)
        try:
            self.sync(sync.inode, self._rng.choice((None, sync.count)))
        except OSError as error:
            sync.error = error

    def begin_sync(self) -> None:
        """Defer the steps of a sync until `complete_sync`, for calls up to `end_begin_sync`."""
        assert self._sync_in_progress is None, "one sync at a time"
        self._sync_in_progress = []
        self._recording = True

    def end_begin_sync(self) -> None:
        self._recording = False

    def _is_deferred(self, step: Callable[[], None]) -> bool:
        """Return whether a sync is being recorded; `complete_sync` then runs its steps in order."""
        if self._recording:
            assert self._sync_in_progress is not None
            self._sync_in_progress.append(step)
        return self._recording

    def complete_sync(self) -> None:
        """Complete the sync under way; do nothing where there is none."""
        steps, self._sync_in_progress = self._sync_in_progress, None
        for step in steps or ():
            step()

    # --- room and damage -----------------------------------------------------------------------

    @property
    def used_bytes(self) -> int:
        return sum(len(inode.data) for inode in self._names.values())

    def paths(self) -> tuple[str, ...]:
        """Return the paths of all files, sorted."""
        return tuple(sorted(self._names))

    def content(self, path: str) -> bytes:
        return bytes(self._names[path].data)

    def is_durable(self, path: str, size: int) -> bool:
        """Return whether the file's name and its first `size` bytes survive any power failure."""
        inode = self._names[path]
        return (
            self._names_durable.get(path) is inode
            and inode.agrees(size)
            and all(place >= size for place, _ in inode.pending)
        )

    def unsettled(self) -> set[str]:
        """Return the paths of the files whose names or bytes a power failure may change."""
        durable = self._names_durable.get
        self._touched -= {
            inode
            for inode in self._touched
            if not (inode.pending or inode.differs) and durable(inode.path) is inode
        }
        named = self._names.get
        self._touched -= {  # removed, and that is durable
            inode
            for inode in self._touched
            if named(inode.path) is not inode and durable(inode.path) is not inode
        }
        return {inode.path for inode in self._touched if named(inode.path) is inode}

    def spoil(self, path: str, data: bytes) -> None:
        """Replace the file's bytes by `data`, durably, without a write."""
        inode = self._names[path]
        inode.drop_pending()
        inode.data, inode.durable = bytearray(data), bytearray(data)
        inode.differs = False

    def lose(self, path: str) -> None:
        """Remove the file's name, durably. Open handles go on reading it."""
        del self._names[path]
        self._names_durable.pop(path, None)

    def _find_room(self, inode: _Inode, size: int) -> None:
        """Raise OSError(ENOSPC) where the file would have to grow and the disk is full."""
        if self.capacity_bytes is None or size <= len(inode.data):
            return
        if self.used_bytes + size - len(inode.data) > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    # --- crashes -------------------------------------------------------------------------------

    def process_crash(self) -> None:
        """Kill the process but not the machine: everything written is still there."""
        self._reset()

    def power_failure(self, survival: Survival) -> None:
        """Kill the machine: un-fsynced bytes and names survive as `survival` says."""
        self._reset()
        rng = self._rng
        for path in sorted(self._name_operations):
            operations = self._name_operations[path]
            survived = len(operations)
            if survival is Survival.NONE:
                survived = 0
            elif survival is not Survival.ALL:
                survived = int(rng.random() * (survived + 1))
            for operation in operations[:survived]:
                self._do_durably(operation)
        self._name_operations.clear()
        self._directories = set(self._directories_durable)
        self._names = {
            path: inode
            for path, inode in self._names_durable.items()
            if _parent(path) in self._directories
        }
        self._names_durable = dict(self._names)
        self._touched.clear()
        for path in sorted(self._names):
            self._names[path].path = path
            self._fail_file(self._names[path], survival)

    def _fail_file(self, inode: _Inode, survival: Survival) -> None:
        if inode.pending:
            for operation in self._surviving(inode.pending, survival):
                _perform(inode.durable, operation)
            lost = sum(len(data) for _, data in inode.pending if data is not None)
            self.lost_bytes += lost if survival is Survival.NONE else 0
        # The previous process held inodes that no name leads to; the next one starts afresh.
        inode.settled_count += len(inode.pending)
        inode.pending = []
        inode.data = bytearray(inode.durable)
        inode.differs = False

    def _surviving(self, pending: Sequence[_Operation], survival: Survival) -> _Operations:
        rng = self._rng
        match survival:
            case Survival.NONE:
                return []
            case Survival.ALL:
                return list(pending)
            case Survival.PREFIX:
                survived = int(rng.random() * (len(pending) + 1))
                survivors = list(pending[:survived])
                if survived < len(pending):
                    offset, data = pending[survived]
                    self.lost_bytes += sum(len(lost) for _, lost in pending[survived:] if lost)
                    if data:
                        survivors.append((offset, data[: int(rng.random() * len(data))]))
                        self.torn_writes += 1
                return survivors
            case Survival.SCATTER:
                sector = rng.choice((16, 64, 512, 4096))
                survivors = []
                for offset, data in pending:
                    if data is None:
                        if rng.random() < 0.7:
                            survivors.append((offset, None))
                    else:
                        survivors += self._scatter(offset, data, sector)
                return survivors

    def _scatter(self, offset: int, data: bytes, sector: int) -> _Operations:
        """Split the write into sectors; garbage only where the write would have been."""
        rng = self._rng
        survivors: _Operations = []
        start = offset
        end = offset + len(data)
        survival_rate = rng.choice((0.3, 0.7, 0.95))
        lost_bytes = 0
        while start < end:
            stop = min(end, (start // sector + 1) * sector)
            if rng.random() < survival_rate:
                survivors.append((start, data[start - offset : stop - offset]))
            else:
                lost_bytes += stop - start
                if rng.random() < self._garbage_rate:
                    survivors.append((start, rng.randbytes(stop - start)))
            start = stop
        self.lost_bytes += lost_bytes
        self.torn_writes += 0 < lost_bytes < len(data)
        return survivors

    def _reset(self) -> None:
        # A crash leaves a random prefix of the sync under way done.
        under_way = self._sync_in_progress or []
        for step in under_way[: int(self._rng.random() * (len(under_way) + 1))]:
            step()
        self._sync_in_progress = None
        self._recording = False
        for sync in self._kernel_syncs:
            if self._rng.random() < _KERNEL_GOES_ON_RATE:
                sync.inode.settle(sync.count)
        self._kernel_syncs.clear()
        self.kernel = None
        for inode in self._names.values():
            inode.deferred_count = 0
        self.fuse = 0
        self.fuse_after = None
        self.fault = None
        self.fault_after = 0

    # --- names ---------------------------------------------------------------------------------

    def _note(self, directory: str, operation: _NameOperation) -> None:
        self._name_operations.setdefault(directory, []).append(operation)

    def _do_durably(self, operation: _NameOperation) -> None:
        path, inode, source = operation
        if inode is not None:
            if source is not None:
                self._names_durable.pop(source, None)
            self._names_durable[path] = inode
        elif source is not None:
            self._directories_durable.add(path)
        else:
            self._names_durable.pop(path, None)

    def _has_lower_number(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        return name.isdecimal() and any(
            other.isdecimal() and int(other) < int(name) for other in self.list(_parent(path))
        )

    def _before(self, operation: str) -> None:
        if self.fuse and self.fuse_after is not None:
            if operation.startswith(self.fuse_after):
                self.fuse_after = None
                self.has_begun_to_count = True
        elif self.fuse:
            self.fuse -= 1
            if not self.fuse:
                raise CrashNow(f"disk {operation}")
        if self.fault is not None:
            self.fail_if_armed(operation)

    def fail_if_armed(self, operation: str) -> None:
        """Raise the OSError that is armed for such an operation, if its turn has come."""
        fault = self.fault
        if fault is None or fault.operation != operation:
            return
        if self.fault_after:
            self.fault_after -= 1
            return
        self.fault = None
        self.has_failed = True
        raise OSError(fault.error, os.strerror(fault.error))


def fail_power(disk: SimDisk, survival: Survival, counts: dict[str, int]) -> None:
    """Fail the disk's power, and count what a campaign counts of it."""
    lost_bytes, torn_writes = disk.lost_bytes, disk.torn_writes
    disk.power_failure(survival)
    counts["power_failures"] += 1
    counts["lost_unsynced_bytes"] += disk.lost_bytes - lost_bytes
    counts["torn_writes"] += disk.torn_writes - torn_writes


def _perform(content: bytearray, operation: _Operation) -> None:
    place, data = operation
    if data is None:
        if place < len(content):
            del content[place:]
        else:
            content.extend(bytes(place - len(content)))
        return
    if place > len(content):
        content.extend(bytes(place - len(content)))
    content[place : place + len(data)] = data


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
