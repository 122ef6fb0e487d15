"""Decides when a snapshot of the application's state is written, and what the log must retain for
it.

Place in the data path: `raft.node.applier` reports the end of a segment, on the loop, between two
applies; the state is captured there at once and written on a thread while entries go on being
applied. A clean stop writes a last one.

Invariants:
- one snapshot is written at a time; a segment that ends meanwhile is skipped, and a snapshot that
  an install has overtaken does not count;
- a snapshot holds the group's configuration. A node that joined a group whose initial members stand
  in no entry (stores older than configurations in the log) learns them with the first change: what
  it applied before looks like an empty group, and no snapshot of it is taken;
- before a snapshot counts, the derived files are fsynced, and so is the log up to its index;
- the two newest valid ones are kept, and of the log what lies behind the older of them. While there
  is only one, the log keeps everything. If only snapshots hold back what retention would drop, the
  next two are taken sooner.

A snapshot that meets a full disk is given up, and tried again at the next end of a segment: that
costs a longer replay, not the node. Any other failure stops the node.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from raft.log.segment_log import SegmentLog
from raft.membership import Configuration, encode_membership
from raft.messages import Index, LogBase
from raft.replicated_log import RestorableStateMachine, Snapshot
from raft.snapshots.snapshot import SnapshotFiles, SnapshotHeader
from raft.snapshots.state_digest import StateDigest
from raft.stalls import Stalls, section

__all__ = ["SnapshotKeeper", "WrittenState"]

_RETAINED_COUNT = 2
_PAUSE_NOTED_S = 0.010
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenState:
    """The state after `index` was applied. `digest`: XXH3-64 of its bytes, as a signed integer;
    equal on nodes that have applied the same entries."""

    index: Index
    digest: int


class SnapshotKeeper:
    """Snapshots of one node. `configuration_at` returns the configuration of an index; `on_written`
    is called with each state once its snapshot is durable."""

    def __init__(
        self,
        log: SegmentLog,
        files: SnapshotFiles,
        state_machine: RestorableStateMachine,
        *,
        interval_size_bytes: int,
        configuration_at: Callable[[Index], Configuration],
        on_written: Callable[[WrittenState], None],
        stalls: Stalls | None = None,
    ) -> None:
        self._on_written = on_written
        self._stalls = stalls
        self._log = log
        self._files = files
        self._state_machine = state_machine
        self._retained: list[LogBase] = []  # the existing valid ones, ascending
        self._interval_size_bytes = interval_size_bytes
        self._configuration_at = configuration_at
        self._work: asyncio.Event = asyncio.Event()
        self._wanted = False  # before the interval is over
        self._captured: tuple[SnapshotHeader, Snapshot] | None = None
        self._writing = False
        self._settled = True  # all is written, and the others are removed
        self._write_lock = threading.Lock()  # a stop does not wait for the write that it cancels

    def begin_with(self, retained: Sequence[LogBase]) -> None:
        """Set the snapshots that the start has found."""
        self._retained = list(retained)

    @property
    def safe_position(self) -> int:
        """Position behind which the log must keep everything."""
        return (
            self._retained[-_RETAINED_COUNT].position
            if len(self._retained) >= _RETAINED_COUNT
            else 0
        )

    @property
    def newest_index(self) -> Index:
        return self._retained[-1].index if self._retained else 0

    def want(self) -> None:
        """Capture at the end of the next segment: the log keeps much for the older one alone."""
        self._wanted = True

    def segment_ended(self, index: Index) -> None:
        """Capture if the interval is over; entry `index`, the last of a segment, was applied."""
        begin = self._retained[-1].position if self._retained else 0
        end = self._log.position(index)
        if self._writing or (end - begin < self._interval_size_bytes and not self._wanted):
            return
        self._wanted = False
        self._captured = self._capture(index)
        if self._captured is not None:
            self._writing = True
            self._begin_work()

    async def run(self) -> None:
        """Write captured snapshots and remove others, until cancelled. Raises OSError."""
        while True:
            await self._work.wait()
            self._work.clear()
            captured, self._captured = self._captured, None
            if captured is not None:
                written = await asyncio.to_thread(self._write, *captured)
                if written is not None:
                    self._count(captured[0].last)
                    self._on_written(written)
                self._writing = False
            await asyncio.to_thread(self._files.retain, self._retained_indexes())
            self._settled = not self._work.is_set()

    def write_last(self, applied_index: Index) -> None:
        """Write a snapshot at a clean stop, after the last apply. Raises OSError."""
        if applied_index > max(self.newest_index, self._log.base.index):
            captured = self._capture(applied_index)
            written = None if captured is None else self._write(*captured)
            if captured is not None and written is not None:
                self._count(captured[0].last)
                self._on_written(written)
                self._files.retain(self._retained_indexes())

    def installed(self, last: LogBase) -> None:
        """Count the installed snapshot that ends with `last`, whose file exists."""
        self._count(last)
        self._begin_work()

    def _begin_work(self) -> None:
        self._settled = False
        self._work.set()

    def _count(self, last: LogBase) -> None:
        """Count the durable snapshot that ends with `last`, unless a later one does."""
        if last.index > self.newest_index:
            self._retained = [*self._retained[1 - _RETAINED_COUNT :], last]

    def _retained_indexes(self) -> set[Index]:
        return {one.index for one in self._retained[-_RETAINED_COUNT:]}

    def _capture(self, index: Index) -> tuple[SnapshotHeader, Snapshot] | None:
        """Capture the state; None where the group's configuration at `index` is unknown."""
        begin = time.perf_counter()
        log = self._log
        configuration = self._configuration_at(index)
        if not configuration.membership.voters:
            return None
        header = SnapshotHeader(
            last=LogBase(
                index=index,
                term=log.term(index),
                position=log.entry_end(index),
                chain=log.chain(index),
            ),
            config_index=configuration.index,
            membership=encode_membership(configuration.membership),
        )
        with section(self._stalls, "snapshot capture"):
            snapshot = self._state_machine.capture()
        pause_s = time.perf_counter() - begin
        if pause_s > _PAUSE_NOTED_S:
            _log.info("capturing the state at %d took %.1f ms", index, pause_s * 1000)
        return header, snapshot

    def _write(self, header: SnapshotHeader, snapshot: Snapshot) -> WrittenState | None:
        """Write a snapshot on a thread; None where there was no room. Raises OSError."""
        with self._write_lock:
            begin = time.monotonic()
            index = header.last.index
            self._state_machine.sync_derived()
            self._log.sync()
            digest = StateDigest()
            try:
                size = self._files.write(header, digest.passing(snapshot.encode()))
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                _log.warning("no room for a snapshot at %d: %s", index, error)
                self._files.remove_unfinished(index)
                return None
            _log.info("snapshot at %d: %d bytes in %.2f s", index, size, time.monotonic() - begin)
            return WrittenState(index=index, digest=digest.value)
