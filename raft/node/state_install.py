"""The state that a leader's snapshot brings: parsed before the log is reset, restored behind it.

Place in the data path: `raft.snapshots.install_stream` has received a snapshot; `raft.node.node`
passes what becomes of it here, and to the core.

Invariant: a log is reset only for a state that was read whole; a node that can't read its group's
state has no place in it, and stops with its log as it was.

Source: Raft, section 7 and figure 13.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from raft.events import ChunkStored, Install, SnapshotStored
from raft.messages import InstallSnapshot, LogBase
from raft.replicated_log import RestorableStateMachine
from raft.snapshots.install import Received
from raft.snapshots.snapshot import SnapshotHeader
from raft.snapshots.snapshot_keeper import SnapshotKeeper

__all__ = ["StateInstall", "event_of"]

_log = logging.getLogger(__name__)


class StateInstall:
    """Installs of one node; at most one state is prepared at a time."""

    def __init__(self, state_machine: RestorableStateMachine, snapshots: SnapshotKeeper) -> None:
        self._state_machine = state_machine
        self._snapshots = snapshots
        self._prepared: tuple[LogBase, Callable[[], None]] | None = None

    def prepare(self, header: SnapshotHeader, chunks: Iterable[bytes]) -> None:
        """Parse the state of a snapshot that was received whole, on a thread. Raises OSError, and
        ValueError where it holds none."""
        index = header.last.index
        self._prepared = header.last, self._state_machine.prepare_restore(index, chunks)

    def restore(self, install: Install) -> None:
        """Restore the prepared state; the log begins behind `install.base` now. Raises OSError."""
        begin = time.monotonic()
        index = install.snapshot_index
        assert self._prepared is not None, "it was accepted before the core heard of it"
        last, restore = self._prepared
        assert last.index == index, f"{last.index} was accepted, {index} is installed"
        restore()
        self._state_machine.trim(install.base.position)
        self._snapshots.installed(last)
        _log.info("installed the state at %d in %.3f s", index, time.monotonic() - begin)

    def forget(self) -> None:
        """Drop the prepared state: the core has decided about it."""
        self._prepared = None


def event_of(
    chunk: InstallSnapshot, received: Received, now_ms: int
) -> ChunkStored | SnapshotStored:
    """Return what the core has to know of a chunk that is stored."""
    if received.whole:
        return SnapshotStored(
            now_ms=now_ms,
            leader=chunk.sender,
            base=chunk.base,
            configuration=chunk.configuration,
            snapshot_index=chunk.snapshot_index,
            next_offset=received.next_offset,
        )
    return ChunkStored(
        now_ms=now_ms,
        leader=chunk.sender,
        base_index=chunk.base.index,
        snapshot_index=chunk.snapshot_index,
        next_offset=received.next_offset,
    )
