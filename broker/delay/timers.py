"""Delivery and recall of messages that wait for a time of their own.

Place in the data path: on the ready leader. `round`, called at each short tick, puts what is due
into one proposal: the final messages and their removal from the table, in ONE log entry, so that no
crash and no failover delivers a message twice or not at all (promise G5). `recall` removes one.

Invariants: no message is delivered before its time by the group's time; one that was sent to a
topic that is deleted is only removed; a message is under delivery or under recall at most once at a
time, so one of the two wins; a message that is damaged here waits until it is repaired, and blocks
no other.
Rules: RocketMQ TimerMessageStore (TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS on what is delivered).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from broker.delay.records import delivered_record
from broker.delay.waiting import DelayError, Waiting, waiting_of
from broker.entry.payload import DeliverTimersCommand, RecallTimerCommand
from broker.entry.record import PendingRecord
from broker.request.commit import commit, propose
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from raft.replicated_log import ProposalStatus
from remoting.protocol.codes import ResponseCode
from remoting.records.message import MessageRecord
from remoting.records.property_names import PropertyName

__all__ = ["Timers", "checked_waiting", "waiting_when_committed"]

_log = logging.getLogger(__name__)
_COUNT_MAX: Final = 256
_SIZE_MAX: Final = 1 << 20
_UNDER_WAY_MAX: Final = 4 * _COUNT_MAX
_DAMAGED_WAIT_MS: Final = 1_000
_SOON_MS: Final = 100  # an idle round waits for no longer


def checked_waiting(replica: Replica, properties: Mapping[str, str]) -> Waiting | None:
    """Return where a message with a delaying property waits; None: nowhere, its time has come.
    Raises RefusedError where it may not wait."""
    limit_ms = replica.config.timer_max_delay_sec * 1_000
    waiting = _waiting(replica, properties, delay_ms_max=limit_ms)
    if waiting is not None and waiting.deliver_ms is not None:
        _check_timers(replica)
    return waiting


def waiting_when_committed(replica: Replica, properties: Mapping[str, str]) -> Waiting | None:
    """Return where a committed half waits. It might as it was stored, and it may: a setting that
    has changed since, or a full table, refuses no commit. Raises RefusedError where its delay is
    none."""
    return _waiting(replica, properties, delay_ms_max=None)


def _waiting(
    replica: Replica, properties: Mapping[str, str], *, delay_ms_max: int | None
) -> Waiting | None:
    try:
        return waiting_of(properties, now_ms=replica.clock_ms(), delay_ms_max=delay_ms_max)
    except DelayError as error:
        raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error


def _check_timers(replica: Replica) -> None:
    """Raise RefusedError where no more messages may wait for a time of their own."""
    if not replica.config.timer_wheel_enable:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            "accurate timer message is not enabled, timerWheelEnable is false",
        )
    limit = replica.state.limits.timers_max
    if len(replica.state.timers) >= limit:
        raise RefusedError(
            ResponseCode.SYSTEM_BUSY,
            f"timer message is under flow control, max num limit is {limit}",
        )


class Timers:
    """Periodic delivery of messages with a time of their own, and their recall, on the leader."""

    def __init__(self, replica: Replica, leadership: Leadership, desk: Desk) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk
        self._under_way: set[int] = set()
        self._unreadable: dict[int, int] = {}  # queue offset -> when to try again

    def round(self) -> None:
        """Deliver what is due. Called by the shell every 100 ms or so."""
        replica, leadership = self._replica, self._leadership
        if not leadership.ready or not leadership.room.for_own or not replica.state.timers:
            return
        now_ms = replica.clock_ms()
        while len(self._under_way) <= _UNDER_WAY_MAX - _COUNT_MAX:
            if not self._deliver_some(now_ms):
                return

    def is_idle(self) -> bool:
        """Return whether no message here is due soon."""
        first_ms = self._replica.state.timers.first_ms
        return first_ms is None or first_ms > self._replica.clock_ms() + _SOON_MS

    def recall(self, request: Request, queue_offset: int, answer: Callable[[], None]) -> None:
        """Remove a waiting message; `answer` replies once it is committed. Raises RefusedError."""
        if queue_offset in self._under_way:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY, "recall failed, the message is just being taken out"
            )
        self._under_way.add(queue_offset)
        commit(
            self._leadership,
            request,
            [RecallTimerCommand(queue_offset)],
            answer=answer,
            ended=lambda _: self._under_way.discard(queue_offset),
        )

    def _deliver_some(self, now_ms: int) -> bool:
        """Propose the delivery of some messages that are due; False where there are none, or too
        many proposals wait."""
        monotonic_ms = self._replica.monotonic_ms()
        self._unreadable = {at: ms for at, ms in self._unreadable.items() if ms > monotonic_ms}
        due = self._replica.state.timers.due(
            now_ms, but=self._under_way | self._unreadable.keys(), count_max=_COUNT_MAX
        )
        records: list[PendingRecord] = []
        offsets: list[int] = []
        size_total = 0
        for offset in due:
            try:
                record = self._final_record(offset, now_ms)
            except RefusedError as refused:
                _log.warning("timer message %d waits: %s", offset, refused)
                self._unreadable[offset] = monotonic_ms + _DAMAGED_WAIT_MS
                continue
            if record is not None:
                if records and size_total + record.size > _SIZE_MAX:
                    break
                records.append(record)
                size_total += record.size
            offsets.append(offset)
        if not offsets:
            return False

        def ended(status: ProposalStatus | None) -> None:
            self._under_way.difference_update(offsets)
            if status is ProposalStatus.COMMITTED:
                self._desk.stats.timers_delivered(len(records))

        self._under_way.update(offsets)
        if propose(self._leadership, [DeliverTimersCommand(offsets)], records=records, ended=ended):
            return True
        _log.info("the delivery of timer messages waits: too many proposals are pending")
        return False

    def _final_record(self, queue_offset: int, now_ms: int) -> PendingRecord | None:
        """Build the message to deliver; None where its topic was deleted. Raises RefusedError where
        it has to wait."""
        timer = self._replica.state.timers.get(queue_offset)
        assert timer is not None

        def change(record: MessageRecord, properties: dict[str, str]) -> None:
            del properties[PropertyName.REAL_TOPIC], properties[PropertyName.REAL_QUEUE_ID]
            properties[PropertyName.TIMER_ENQUEUE_MS] = str(record.store_timestamp_ms)
            properties[PropertyName.TIMER_DEQUEUE_MS] = str(now_ms)

        stored = self._replica.read(timer.position, timer.size)
        return delivered_record(self._replica, self._leadership, stored, change)
