"""The log's beginning moves up: whole segments go once nothing that is retained needs them.

Place in the data path: none; the broker's retention requests it through `raft.node.node`.

Invariants: nothing goes that the oldest retained snapshot would need to be completed; where that
stands in the way, a newer one is wanted; derived files are trimmed with the log; removing a
segment takes some 30 ms, so that heartbeats go on between two batches.

Source: Raft, section 7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from raft.events import Role
from raft.fail_stop import FailStop
from raft.log.segment_log import SegmentLog
from raft.node.core_shell import CoreShell
from raft.replicated_log import RestorableStateMachine, RetentionBounds
from raft.snapshots.snapshot_keeper import SnapshotKeeper

__all__ = ["LogCompaction"]

_DROPPED_AT_ONCE_MAX: Final = 2
_DROP_PAUSE_S: Final = 0.1


class LogCompaction:
    """Compaction of one node's log, while it `is_running`."""

    def __init__(
        self,
        log: SegmentLog,
        snapshots: SnapshotKeeper,
        state_machine: RestorableStateMachine,
        *,
        fail_stop: FailStop,
        is_running: Callable[[], bool],
        election_timeout_ms: int,
    ) -> None:
        self._log = log
        self._snapshots = snapshots
        self._state_machine = state_machine
        self._fail_stop = fail_stop
        self._is_running = is_running
        self._election_timeout_ms = election_timeout_ms

    def bounds(self, shell: CoreShell | None) -> RetentionBounds:
        """See `ReplicatedLog.retention_bounds`. `shell`: None before this node takes part."""
        log = self._log
        return RetentionBounds(
            begin_position=log.base.position,
            end_position=log.end_position,
            follower_position=None if shell is None else self._follower_position(shell),
        )

    async def retain_from(self, position: int) -> int:
        """See `ReplicatedLog.retain_from`."""
        log = self._log
        while self._is_running():
            with self._fail_stop:
                before, safe_position = log.base, self._snapshots.safe_position
                if log.drop_before(min(position, safe_position), _DROPPED_AT_ONCE_MAX) == before:
                    if safe_position < log.first_segment_end <= position:
                        self._snapshots.want()
                    break
                self._state_machine.trim(log.base.position)
            await asyncio.sleep(_DROP_PAUSE_S)
        return log.base.position

    def _follower_position(self, shell: CoreShell) -> int | None:
        """Position of the first entry that the slowest live follower lacks; None unless leader."""
        core, log = shell.core, self._log
        if core.role is not Role.LEADER:
            return None
        live_ms = shell.now_ms() - self._election_timeout_ms
        matches = [
            peer.match_index for peer in core.progress.values() if peer.contact_ms >= live_ms
        ]
        slowest = min([*matches, log.last_index])
        if slowest <= log.base.index:
            return log.base.position
        return log.entry_end(slowest)
