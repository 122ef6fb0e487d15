"""The status that a node reports: its role, whether it is ready, and each change of these.

Place in the data path: `raft.node.core_shell` checks it before every proposal and read, and has it
notify the state machine behind each step that may have changed what was notified last.

Invariants: a leader is ready only once the first entry of its own term is applied here, and with it
all that earlier leaders have committed: what it proposes builds on that state; the state machine
hears of every status once, in order, outside of the step that has brought it about.
"""

from __future__ import annotations

import asyncio
from collections import deque

from raft.core.core import Core
from raft.events import Ready, Role
from raft.fail_stop import FailStop, stops_node
from raft.log.segment_log import SegmentLog
from raft.messages import Index
from raft.node.applier import Applier
from raft.node.log_room import LogRoom
from raft.replicated_log import (
    LogStatus,
    NotLeaderError,
    Phase,
    RestorableStateMachine,
)
from raft.store.node_store import NodeStore

__all__ = ["NodeStatus", "status_before_serving"]


class NodeStatus:
    """Status of one node from SERVING on."""

    def __init__(
        self,
        core: Core,
        log: SegmentLog,
        applier: Applier,
        room: LogRoom,
        state_machine: RestorableStateMachine,
        *,
        fail_stop: FailStop,
        store_id: str,
    ) -> None:
        self._core = core
        self._log = log
        self._applier = applier
        self._room = room
        self._state_machine = state_machine
        self._store_id = store_id
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[LogStatus] = deque()
        self.notified = (Role.FOLLOWER, core.current_term, core.leader_id, False, True)
        """Role, term, leader, whether ready and writable, as they were notified last."""
        self.noop_index: Index = 0
        """Of the term led; proposals are accepted once it is applied."""
        self.fail_stop = fail_stop
        self.stopped = False

    def now(self) -> LogStatus:
        core, log = self._core, self._log
        return LogStatus(
            role=core.role,
            term=core.current_term,
            leader_id=core.leader_id,
            ready=self.is_ready(),
            first_index=log.first_index,
            last_index=log.last_index,
            commit_index=core.commit_index,
            applied_index=self._applier.applied_index,
            voters=core.voters,
            learners=core.configuration.membership.learner_ids,
            begin_position=log.base.position,
            writable=self._room.writable and not self.stopped,
            phase=Phase.SERVING,
            store_id=self._store_id,
        )

    def is_ready(self) -> bool:
        return (
            not self.stopped and self._core.ready and self._applier.applied_index >= self.noop_index
        )

    def check_ready(self) -> None:
        """Raise NotLeaderError unless this node is a leader that is ready."""
        if not self.is_ready():
            raise NotLeaderError(None if self.stopped else self._core.leader_id)

    def is_news(self, ready: Ready) -> bool:
        """Return whether a Ready has another role, term or leader than was notified last."""
        notified = self.notified
        return (
            ready.role is not notified[0]
            or ready.term != notified[1]
            or ready.leader_id != notified[2]
        )

    def notify_if_changed(self) -> None:
        """Notify the state machine, in the loop's next turn, if something has changed."""
        core = self._core
        notified = (
            core.role,
            core.current_term,
            core.leader_id,
            self.is_ready(),
            self._room.writable,
        )
        if notified == self.notified:
            return
        self.notified = notified
        if not self._waiting:
            self._loop.call_soon(self._notify)
        self._waiting.append(self.now())

    @stops_node
    def _notify(self) -> None:
        while self._waiting:
            self._state_machine.on_role_change(self._waiting.popleft())


def status_before_serving(store: NodeStore, phase: Phase, commit_index: Index) -> LogStatus:
    """Return the status of a node that has no core yet."""
    log = store.log
    return LogStatus(
        role=Role.FOLLOWER,
        term=store.hard_state.current_term,
        leader_id=None,
        ready=False,
        first_index=log.first_index,
        last_index=log.last_index,
        commit_index=commit_index,
        applied_index=0,
        voters=(),
        learners=(),
        begin_position=log.base.position,
        writable=False,
        phase=phase,
        store_id=store.identity.store_id,
    )
