"""The broker as a state machine over the replicated log.

Place in the data path: the log calls `apply` with committed entries; they change `BrokerState`,
their units go to the ConsumeQueues, and held pulls hear of new messages. Only committed entries
get here, so nobody ever consumes what can be taken back.

Invariants: entries are applied once, in order; the ConsumeQueue of a queue never ends before or
behind the state's next offset. An entry that can't be decoded stops the node: going on would make
replicas differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.state import BrokerState
from broker.store.consume_queue import ConsumeQueues
from broker.store.payload import Run, decode_payload
from raft.messages import EntryKind
from raft.replicated_log import CommittedEntry, LogStatus

__all__ = ["BrokerStateMachine"]


class BrokerStateMachine:
    """Implements raft.replicated_log.StateMachine.

    `on_arrival(topic, queue_id, units)` is called after the units are readable; `on_role` on every
    change of role, term, leader or readiness.
    """

    def __init__(
        self,
        state: BrokerState,
        queues: ConsumeQueues,
        *,
        on_arrival: Callable[[Run], None],
        on_role: Callable[[LogStatus], None],
        on_topics: Callable[[], None],
    ) -> None:
        self.state = state
        self._queues = queues
        self._on_arrival = on_arrival
        self._on_role = on_role
        self._on_topics = on_topics

    def apply(self, entries: Sequence[CommittedEntry]) -> None:
        """Raises PayloadError or OSError, either of which must stop the node."""
        topics_version = self.state.topics_version
        for entry in entries:
            if entry.kind is not EntryKind.DATA:
                continue
            payload = decode_payload(entry.payload)
            self.state.apply(payload)
            for run in payload.runs:
                self._queues.get(run.topic, run.queue_id).append(run.first_queue_offset, run.units)
                self._on_arrival(run)
        if self.state.topics_version != topics_version:
            self._on_topics()

    def on_role_change(self, status: LogStatus) -> None:
        self._on_role(status)
