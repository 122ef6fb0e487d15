"""State machine of the broker over the replicated log.

Place in the data path: the log calls `apply` with committed entries; they change `BrokerState`,
their units go to the ConsumeQueues, and held pulls are notified of new messages. Only committed
entries get here, so nobody ever consumes what can be truncated. `capture` and `prepare_restore`
carry the state over restarts and to nodes that join late; `index_only` builds ConsumeQueues for a
restored state.

Invariants: entries are applied once, in order; the ConsumeQueue of a queue never ends before or
behind the state's next offset, but while it is being filled after a restore. An entry that can't be
decoded stops the node: going on would make replicas differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from broker.entry.applied_entries import AppliedEntries
from broker.entry.payload import Run, decode_payload
from broker.queues.consume_queues import ConsumeQueues
from broker.state.state import BrokerState
from broker.state.state_image import StateImage, decode_image
from raft.messages import EntryKind, Index
from raft.replicated_log import CommittedEntry, LogStatus

__all__ = ["BrokerStateMachine"]


class BrokerStateMachine:
    """Implementation of raft.replicated_log.RestorableStateMachine.

    `on_arrival(run)` is called after the run's units are readable; `on_role` on every change of
    role, term, leader or readiness; `on_topics` after the topics changed. `applied`, if any, gets
    the applied entries.
    """

    def __init__(
        self,
        state: BrokerState,
        queues: ConsumeQueues,
        *,
        on_arrival: Callable[[Run], None],
        on_role: Callable[[LogStatus], None],
        on_topics: Callable[[], None],
        applied: AppliedEntries | None = None,
    ) -> None:
        self.state = state
        self._queues = queues
        self._on_arrival = on_arrival
        self._on_role = on_role
        self._on_topics = on_topics
        self._applied = applied
        self._notified_topics_version = 0
        self.applied_position = 0  # the log's, behind the last entry that passed by here

    def apply(self, entries: Sequence[CommittedEntry]) -> None:
        """Apply committed entries. Raises PayloadError or OSError, either of which must stop the
        node."""
        if self._queues.is_filling:
            self._queues.end_filling()
        applied = self._applied
        for entry in entries:
            if entry.kind is not EntryKind.DATA:
                if applied is not None:
                    applied.put(entry, None)
                continue
            payload = decode_payload(entry.payload)
            if applied is not None:
                applied.put(entry, payload)
            deleted = self.state.apply(payload, entry.position)
            if payload.runs:
                self._queues.note_begins()
            for run in payload.runs:
                self._queues.get(run.topic, run.queue_id).append(run.first_queue_offset, run.units)
                self._on_arrival(run)
            if deleted:
                self._queues.delete_topics(deleted)
        self._queues.note_begins()
        self._passed(entries)
        if self.state.topics_version != self._notified_topics_version:
            self._notified_topics_version = self.state.topics_version
            self._on_topics()

    def _passed(self, entries: Sequence[CommittedEntry]) -> None:
        if entries:
            last = entries[-1]
            self.applied_position = last.position + len(last.payload)

    def on_role_change(self, status: LogStatus) -> None:
        self._on_role(status)

    # Snapshots ---------------------------------------------------------------------------------

    def capture(self) -> StateImage:
        """See RestorableStateMachine."""
        return self.state.capture()

    def prepare_restore(self, index: Index, chunks: Iterable[bytes]) -> Callable[[], None]:
        """See RestorableStateMachine; what it returns raises OSError of the ConsumeQueues.

        The state doesn't hold the index: the snapshot does.
        """
        restored = BrokerState(self.state.limits, {})
        restored.restore(decode_image(chunks))
        return partial(self._become, restored)

    def _become(self, restored: BrokerState) -> None:
        self.state.become(restored)
        self._queues.restore(self.state.next_offsets, self.state.floors.all())

    @property
    def needs_indexing(self) -> bool:
        return self._queues.is_filling

    def index_only(self, entries: Sequence[CommittedEntry]) -> None:
        """See RestorableStateMachine. Raises PayloadError or OSError, which must stop the node."""
        for entry in entries:
            if entry.kind is EntryKind.DATA:
                for run in decode_payload(entry.payload).runs:
                    if self._queues.fill(run):
                        self._on_arrival(run)
        self._passed(entries)

    def trim(self, position: int) -> None:
        """See RestorableStateMachine."""
        self._queues.trim(position)

    def sync_derived(self) -> None:
        """See RestorableStateMachine."""
        self._queues.sync()
