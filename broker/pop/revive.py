"""Messages that were popped and not acknowledged in time are stored again, for another try.

Place in the data path: runs on the ready leader at each short tick. What is due becomes one
proposal: the messages in `%RETRY%group_topic`, after the group's last retry in `%DLQ%group`, and
the end of their holdings, in ONE log entry, so that no crash and no failover gives a message twice
or not at all. A message whose properties have no room for a handle is a dead letter at once: its
retry could not be acknowledged.

Invariants: nothing is revived before its time by the group's time, nor while an acknowledgement
of it is under way; what can't be read because it is damaged here waits until it is repaired, and
holds up nothing else. Source: RocketMQ PopReviveService.reviveRetry.
"""

from __future__ import annotations

import logging
from typing import Final

from broker.entry.payload import UNIT, Command
from broker.entry.pop_commands import ReviveCommand
from broker.entry.record import PendingRecord
from broker.entry.record_copy import copied_record
from broker.entry.topics import DLQ_PREFIX, RETRY_PREFIX, Topic
from broker.request.commit import propose
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import RefusedError
from broker.state.pop_state import Due
from raft.replicated_log import ProposalStatus
from remoting.errors import RecordError
from remoting.protocol.codes import ResponseCode
from remoting.protocol.group_topics import pop_retry_topic
from remoting.records.message import (
    PROPERTIES_SIZE_MAX,
    MessageRecord,
    decode_record,
    encode_properties,
    offset_msg_id,
)
from remoting.records.message_id import split_host
from remoting.records.property_names import PropertyName

__all__ = ["PopRevive"]

_log = logging.getLogger(__name__)
_COUNT_MAX: Final = 256
_SIZE_MAX: Final = 1 << 20
_RETRIES_DEFAULT: Final = 16
_DAMAGED_WAIT_MS: Final = 1_000
_HANDLE_SIZE_MAX: Final = 512  # what a retried message's properties must have room for


class PopRevive:
    """Periodic revival of messages that were not acknowledged in time, on the leader."""

    def __init__(self, replica: Replica, leadership: Leadership) -> None:
        self._replica = replica
        self._leadership = leadership
        self._under_way = False
        self._unreadable: dict[Due, int] = {}  # when to try again

    def round(self) -> None:
        """Revive what is due. Called by the shell every 100 ms or so."""
        replica, leadership = self._replica, self._leadership
        if not leadership.ready or not leadership.room.for_own or self._under_way:
            return
        records: list[PendingRecord] = []
        commands: list[Command] = []
        revived: list[Due] = []
        size = 0
        for due in self._due(replica.clock_ms()):
            try:
                stored = self._stored(due)
                record = None if stored is None else self._retry(due, stored, commands)
            except RefusedError as refused:
                _log.warning("a popped message waits: %s", refused)
                self._unreadable[due] = replica.monotonic_ms() + _DAMAGED_WAIT_MS
                continue
            if record is not None:
                if records and size + record.size > _SIZE_MAX:
                    break
                records.append(record)
                size += record.size
            revived.append(due)
        if revived:
            self._propose(records, commands, revived)

    def _due(self, now_ms: int) -> list[Due]:
        """Return some of the holdings that may be revived now, the oldest first."""
        monotonic_ms = self._replica.monotonic_ms()
        self._unreadable = {due: ms for due, ms in self._unreadable.items() if ms > monotonic_ms}
        busy = self._leadership.pop_busy
        found = self._replica.state.pop.due(now_ms, _COUNT_MAX + len(self._unreadable) + len(busy))
        return [
            due
            for due in found
            if due not in self._unreadable and (due.key, due.offset) not in busy
            if not self._is_being_deleted(due)
        ][:_COUNT_MAX]

    def _is_being_deleted(self, due: Due) -> bool:
        """Return whether the topic, or the one of which it holds retries, is being deleted: a retry
        that is stored behind the deletion would come into the next topic of that name."""
        group, topic, _ = due.key
        origin = topic.removeprefix(pop_retry_topic("", group))
        proposer = self._leadership.proposer
        return (
            proposer.topic(topic) is None
            or proposer.is_being_deleted(topic)
            or proposer.is_being_deleted(origin)
        )

    def _propose(
        self, records: list[PendingRecord], commands: list[Command], revived: list[Due]
    ) -> None:
        rows = [[*due.key, due.offset, due.pop_ms] for due in revived]
        self._under_way = True

        def ended(_: ProposalStatus | None) -> None:
            self._under_way = False

        if not propose(
            self._leadership, [*commands, ReviveCommand(rows)], records=records, ended=ended
        ):
            _log.info("popped messages wait: too many proposals are pending")

    def _stored(self, due: Due) -> MessageRecord | None:
        """Read the message; None where retention has taken it, since a full disk may force that.
        Raises RefusedError."""
        replica = self._replica
        _, topic, queue_id = due.key
        queue = replica.queues.find(topic, queue_id)
        units = b"" if queue is None else queue.read(due.offset, 1)
        if not units:
            _log.warning(
                "%s/%s at %d is older than the log: it was never acknowledged",
                *due.key[1:],
                due.offset,
            )
            return None
        position, size, _ = UNIT.unpack(units)
        try:
            return decode_record(replica.read(position, size))
        except (LookupError, RecordError) as error:
            if position < replica.log.status().begin_position:
                return None
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"{topic}/{queue_id} at {due.offset}: {error}"
            ) from error

    def _retry(self, due: Due, stored: MessageRecord, commands: list[Command]) -> PendingRecord:
        """Build the message for its next try, or as a dead letter."""
        replica = self._replica
        group = due.key[0]
        attempts = stored.reconsume_times + 1
        has_room = len(stored.properties) <= PROPERTIES_SIZE_MAX - _HANDLE_SIZE_MAX
        is_dead = attempts > self._retries(group) or not has_room
        properties = stored.property_map()
        properties.setdefault(PropertyName.FIRST_POP_TIME, str(due.pop_ms))
        if is_dead:
            origin = stored.topic.removeprefix(pop_retry_topic("", group))
            message_id = offset_msg_id(*split_host(replica.store_address), stored.physical_offset)
            properties.setdefault(PropertyName.ORIGIN_MESSAGE_ID, message_id)
            properties |= {
                PropertyName.RETRY_TOPIC: origin,
                PropertyName.DLQ_ORIGIN_TOPIC: origin,
                PropertyName.DLQ_ORIGIN_MESSAGE_ID: properties[PropertyName.ORIGIN_MESSAGE_ID],
            }
        is_retry = stored.topic.startswith(RETRY_PREFIX)
        name = stored.topic if is_retry else pop_retry_topic(stored.topic, group)
        name = f"{DLQ_PREFIX}{group}" if is_dead else name
        if self._leadership.proposer.topic(name) is None and not any(
            getattr(command, "name", None) == name for command in commands
        ):
            commands.append(Topic(name=name, read_queue_count=1, write_queue_count=1).command())
        try:
            encoded = encode_properties(properties)
        except RecordError:  # no room for more of them
            encoded = stored.properties
        return copied_record(
            stored,
            topic=name,
            queue_id=0,
            store_host_size=len(replica.store_host),
            properties=encoded,
            tags=properties.get(PropertyName.TAGS),
            reconsume_times=attempts,
        )

    def _retries(self, group: str) -> int:
        limit = self._replica.state.groups.get(group, {}).get("retryMaxTimes", _RETRIES_DEFAULT)
        return _RETRIES_DEFAULT if limit < 0 else int(limit)
