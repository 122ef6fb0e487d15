"""Snapshots of the state of a master or slave: when they are written, which one a start restores.

Place in the data path: `broker.ha.engine` reports each turn's last entry; the state is captured
there at once and written on a thread while entries go on being applied.

Invariants: a snapshot counts once the log up to its end, the derived files and the snapshot itself
are durable; the two newest are retained, and of the log what lies behind the older of them; one
that is not of this log (it was cut below it) is removed and never restored; where the disk had no
room for one, the next is begun a second later, or ten times as long as that one took.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Final

from broker.ha.commit_log import CommitLog
from raft.messages import Index, LogBase
from raft.replicated_log import RestorableStateMachine, Snapshot
from raft.snapshots.snapshot import DamagedSnapshotError, SnapshotFiles, SnapshotHeader
from raft.snapshots.state_digest import StateDigest

__all__ = ["StateKeeper"]

_RETAINED_COUNT: Final = 2
_NO_ROOM_PAUSE_S: Final = 1.0
_NO_ROOM_PAUSES: Final = 10  # at most a tenth of the time goes into what finds no room
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

_log = logging.getLogger(__name__)


class StateKeeper:
    """Writes the snapshots of one node; calls `on_written` with a state's index and digest once
    its snapshot is durable."""

    def __init__(
        self,
        log: CommitLog,
        files: SnapshotFiles,
        state_machine: RestorableStateMachine,
        *,
        interval_size_bytes: int,
        membership: bytes,
        on_written: Callable[[Index, int], None],
    ) -> None:
        self._log = log
        self._files = files
        self._state_machine = state_machine
        self._interval_size_bytes = interval_size_bytes
        self._membership = membership
        self._on_written = on_written
        self._retained: list[LogBase] = []  # ascending
        self._work = asyncio.Event()
        self._captured: tuple[LogBase, Snapshot] | None = None
        self._writing = False
        self._wanted = False
        self._not_before = float("-inf")  # in the loop's time: the disk had no room
        self._write_lock = threading.Lock()  # a stop does not wait for the write that it cancels

    @property
    def safe_position(self) -> int:
        """Return the position from which on the log must keep everything."""
        return (
            self._retained[-_RETAINED_COUNT].position
            if len(self._retained) >= _RETAINED_COUNT
            else 0
        )

    def newest_of_this_log(self) -> LogBase | None:
        """Return the end of the newest valid snapshot of this log; others are removed. Raises
        OSError. May run on a thread, before anything else here is called."""
        self._retained = []
        for index in self._files.indexes():
            try:
                last = self._files.verified(index).last
            except DamagedSnapshotError as error:
                _log.error("a snapshot is damaged and not used: %s", error)
                continue
            if self._log.holds(last):
                self._retained.append(last)
            else:
                _log.warning("the snapshot at %d is not of this log: it is removed", index)
                self._files.remove(index)
        return self._retained[-1] if self._retained else None

    def restore(self, last: LogBase) -> None:
        """Restore the snapshot that ends with `last`. Raises OSError, CorruptLogError, ValueError.
        May run on a thread."""
        chunks = self._files.chunks(last.index)
        self._state_machine.prepare_restore(last.index, chunks)()
        self._state_machine.trim(self._log.begin.position)

    def want(self) -> None:
        """Request a snapshot at the next turn, whatever the interval: the older of the two that are
        retained holds back what the log may drop."""
        self._wanted = True

    def applied(self, place: LogBase) -> None:
        """Capture the state if the interval is over; all up to `place` was applied."""
        begin = self._retained[-1].position if self._retained else 0
        grown = place.position - begin
        if self._writing or not (grown >= self._interval_size_bytes or (self._wanted and grown)):
            return
        if asyncio.get_running_loop().time() < self._not_before:
            return  # each turn would capture and write all of the state, for nothing
        self._wanted = False
        self._captured = place, self._state_machine.capture()
        self._writing = True
        self._work.set()

    async def run(self, made_durable: Callable[[int], Awaitable[None]]) -> None:
        """Write captured snapshots until cancelled; `made_durable` waits until the log is, up to a
        position. Raises OSError."""
        while True:
            await self._work.wait()
            self._work.clear()
            captured, self._captured = self._captured, None
            if captured is not None:
                await made_durable(captured[0].position)
                loop = asyncio.get_running_loop()
                began_s = loop.time()
                digest = await asyncio.to_thread(self._write, *captured)
                if digest is None:
                    took_s = loop.time() - began_s
                    self._not_before = loop.time() + max(_NO_ROOM_PAUSE_S, _NO_ROOM_PAUSES * took_s)
                else:
                    self._count(captured[0])
                    self._on_written(captured[0].index, digest)
                    await asyncio.to_thread(
                        self._files.retain, {one.index for one in self._retained}
                    )
            self._writing = False

    def write_last(self, place: LogBase) -> None:
        """Write a snapshot at a clean stop; all up to `place` is applied and durable. Raises
        OSError."""
        newest = self._retained[-1].index if self._retained else 0
        if place.index <= max(newest, self._log.begin.index):
            return
        digest = self._write(place, self._state_machine.capture())
        if digest is not None:
            self._count(place)
            self._files.retain({one.index for one in self._retained})
            self._on_written(place.index, digest)

    def _count(self, place: LogBase) -> None:
        self._retained = [*self._retained[1 - _RETAINED_COUNT :], place]

    def _write(self, place: LogBase, snapshot: Snapshot) -> int | None:
        """Write a snapshot on a thread; return the digest of its state, None where there was no
        room. Raises OSError."""
        with self._write_lock:
            return self._write_alone(place, snapshot)

    def _write_alone(self, place: LogBase, snapshot: Snapshot) -> int | None:
        header = SnapshotHeader(last=place, config_index=0, membership=self._membership)
        self._state_machine.sync_derived()
        digest = StateDigest()
        try:
            size = self._files.write(header, digest.passing(snapshot.encode()))
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            _log.warning("no room for a snapshot at %d: %s", place.index, error)
            self._files.remove_unfinished(place.index)
            return None
        _log.info("snapshot at %d: %d bytes", place.index, size)
        return digest.value
