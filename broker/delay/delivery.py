"""Delivery of delayed messages whose time has come.

Place in the data path: runs on the ready leader at each short tick. What is due in a schedule
queue becomes one proposal: the final messages and the queue's progress, in ONE log entry, so that
no crash and no failover delivers a message twice or not at all (promise G5).

Invariants: a message is never delivered before its time by the group's time; within a level,
delivery keeps the order; one delivery per queue is in flight at a time; messages that were sent to
a topic that is deleted are skipped. RocketMQ stores the progress in a file that is written every
ten seconds and repeats deliveries after a failover.
Rules: RocketMQ ScheduleMessageService.
"""

from __future__ import annotations

import logging
from typing import Final

from broker.delay.records import delivered_record
from broker.entry.levels import DELAY_LEVEL_MAX
from broker.entry.payload import UNIT, DeliverCommand
from broker.entry.record import PendingRecord
from broker.entry.topics import SCHEDULE_TOPIC
from broker.request.commit import propose
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import RefusedError
from raft.replicated_log import ProposalStatus
from remoting.records.message import MessageRecord
from remoting.records.property_names import DELAYING

__all__ = ["DelayDelivery"]

_log = logging.getLogger(__name__)
_COUNT_MAX: Final = 256
_SIZE_MAX: Final = 1 << 20


class DelayDelivery:
    """Periodic delivery of messages with a delay level, on the leader."""

    def __init__(self, replica: Replica, leadership: Leadership) -> None:
        self._replica = replica
        self._leadership = leadership
        self._under_way: set[int] = set()

    def round(self) -> None:
        """Deliver what is due. Called by the shell every 100 ms or so."""
        leadership = self._leadership
        if not leadership.ready or not leadership.room.for_own:
            return
        now_ms = self._replica.clock_ms()
        for queue_id in range(DELAY_LEVEL_MAX):
            if queue_id not in self._under_way:
                self._deliver(queue_id, now_ms)

    def _deliver(self, queue_id: int, now_ms: int) -> None:
        replica = self._replica
        queue = replica.queues.find(SCHEDULE_TOPIC, queue_id)
        first = replica.state.delay_offsets.get(queue_id, 0)
        if queue is None or first >= queue.next_offset:
            return
        records: list[PendingRecord] = []
        size_total = count = 0
        is_full = False
        for position, size, deliver_ms in UNIT.iter_unpack(queue.read(first, _COUNT_MAX)):
            is_full = bool(records) and size_total + size > _SIZE_MAX
            if is_full or deliver_ms > now_ms:
                break
            try:
                record = self._final_record(replica.read(position, size))
            except RefusedError as refused:  # until it is repaired, or its topic's end is known
                _log.warning("delayed messages wait: %s", refused)
                break
            count += 1
            if record is not None:
                records.append(record)
                size_total += size
        if not count:
            return
        is_full |= count == _COUNT_MAX

        def ended(status: ProposalStatus | None) -> None:
            self._under_way.discard(queue_id)
            if is_full and status is ProposalStatus.COMMITTED:
                self._go_on(queue_id)

        self._under_way.add(queue_id)
        if not propose(
            self._leadership,
            [DeliverCommand(queue_id, first, first + count)],
            records=records,
            ended=ended,
        ):
            _log.info("the delivery of delayed messages waits: too many proposals are pending")

    def _go_on(self, queue_id: int) -> None:
        """Deliver what is due behind a full batch: at the next round only, a level that gets more
        than a batch in that time would fall ever further behind."""
        if self._leadership.ready and self._leadership.room.for_own:
            self._deliver(queue_id, self._replica.clock_ms())

    def _final_record(self, stored: bytes) -> PendingRecord | None:
        return delivered_record(self._replica, self._leadership, stored, _without_delay)


def _without_delay(_: MessageRecord, properties: dict[str, str]) -> None:
    for name in DELAYING:
        properties.pop(name, None)
