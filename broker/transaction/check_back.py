"""Check-back: queries the producers of undecided halves for the outcome of their transactions.

Place in the data path: runs on the ready leader every `transaction_check_interval_ms`; each check
is first counted in the log (so that no failover starts the count anew), then sent to a live
producer of the half's group; while that takes longer than the interval, the half is not checked
again, so that each check has a number of its own. After `transaction_check_max` checks, or past its
retention, a half is discarded into TRANS_CHECK_MAX_TIME_TOPIC. A half whose topic was deleted is
not checked: it is rolled back.

Unlike RocketMQ a half is never appended anew, and a check that could be sent to no producer is not
counted: it waits until one is there. The half queue's progress is committed when it has moved.
Rules: RocketMQ TransactionalMessageServiceImpl.check; facts section 5.
"""

from __future__ import annotations

import contextlib
import logging

from broker.entry.payload import CheckCommand, DecideCommand, DiscardCommand, OffsetCommand
from broker.entry.topics import HALF_TOPIC
from broker.request.commit import propose
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import RefusedError
from broker.request.stored_topic import real_place
from broker.state.half_table import Half
from broker.transaction.records import (
    discarded_record,
    is_for_deleted_topic,
    op_record,
)
from raft.replicated_log import ProposalStatus
from remoting.connections.connection import Connection
from remoting.errors import RecordError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import FLAG_ONEWAY, RemotingCommand
from remoting.protocol.headers import CheckTransactionStateRequestHeader
from remoting.records.message import (
    MessageRecord,
    append_properties,
    decode_record,
    encode_record,
    offset_msg_id,
)
from remoting.records.message_id import split_host
from remoting.records.property_names import PropertyName

__all__ = ["CHECK_GROUP", "CheckBack"]

_log = logging.getLogger(__name__)
CHECK_GROUP = "CID_RMQ_SYS_TRANS"
_CHECKS_PER_ROUND_MAX = 2_000
_IMMUNITY_DIGITS_MAX = 9


class CheckBack:
    """Periodic checks of undecided halves, on the leader."""

    def __init__(self, replica: Replica, leadership: Leadership, desk: Desk) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk
        self._last_check_ms: dict[int, int] = {}
        self._being_counted: set[int] = set()  # halves with a check in flight, of any term

    def lost_leadership(self) -> None:
        """Forget when halves were checked last."""
        self._last_check_ms.clear()

    def round(self) -> None:
        """Examine every undecided half once. Called by the shell at each interval."""
        replica, leadership = self._replica, self._leadership
        if not leadership.ready:
            return
        now_ms = replica.clock_ms()
        checked = 0
        for half in replica.state.halves.undecided():
            if checked >= _CHECKS_PER_ROUND_MAX:
                break
            if leadership.proposer.in_flight_decision(half.queue_offset) is None:
                checked += self._examine(half, now_ms)
        self._commit_progress()
        if len(self._last_check_ms) > 2 * len(replica.state.halves) + 1_000:
            live = {half.queue_offset for half in replica.state.halves.undecided()}
            self._last_check_ms = {k: v for k, v in self._last_check_ms.items() if k in live}

    def _examine(self, half: Half, now_ms: int) -> int:
        """Check, discard or roll back the half where that is due; 1 if it was, else 0."""
        replica, config = self._replica, self._replica.config
        age_ms = now_ms - half.stored_ms
        if age_ms < config.transaction_timeout_ms:
            return 0
        last_ms = self._last_check_ms.get(half.queue_offset)
        if last_ms is not None and now_ms - last_ms < config.transaction_check_interval_ms:
            return 0
        if half.queue_offset in self._being_counted:
            return 0
        try:
            record = decode_record(replica.read(half.position, half.size))
        except RefusedError as refused:  # it waits until it is repaired
            _log.warning("half message %d: %s", half.queue_offset, refused)
            return 0
        except (LookupError, RecordError):
            _log.exception("half message at %d can't be read", half.position)
            raise
        properties = record.property_map()
        try:
            if is_for_deleted_topic(replica, self._leadership, half.position, properties):
                self._roll_back(half)
                return 1
        except RefusedError:  # a deletion is on its way
            return 0
        immunity_ms = _immunity_ms(properties)
        if immunity_ms is not None and age_ms < immunity_ms:
            return 0
        if half.checks >= config.transaction_check_max or age_ms > config.transaction_retention_ms:
            self._discard(half, record)
            return 1
        if self._producer(properties) is None:
            return 0
        self._last_check_ms[half.queue_offset] = now_ms
        self._count_check(half, record, properties)
        return 1

    def _count_check(self, half: Half, record: MessageRecord, properties: dict[str, str]) -> None:
        """Count one more check of the half in the log, and send it once that is committed."""

        def counted(status: ProposalStatus | None) -> None:
            self._being_counted.discard(half.queue_offset)
            self._send_check(half, record, properties, status)

        self._being_counted.add(half.queue_offset)
        _log_if_busy(propose(self._leadership, [CheckCommand(half.queue_offset)], ended=counted))

    def _roll_back(self, half: Half) -> None:
        _log.warning("half message %d is rolled back: its topic was deleted", half.queue_offset)
        _log_if_busy(
            propose(
                self._leadership,
                [DecideCommand(half.queue_offset, half.position, "rollback", False)],
                records=[op_record(self._replica, half)],
                half_queue_offset=half.queue_offset,
            )
        )

    def _discard(self, half: Half, record: MessageRecord) -> None:
        _log.warning("half message %d is discarded after %d checks", half.queue_offset, half.checks)
        _log_if_busy(
            propose(
                self._leadership,
                [DiscardCommand(half.queue_offset)],
                records=[discarded_record(self._replica, record)],
                half_queue_offset=half.queue_offset,
            )
        )

    def _send_check(
        self,
        half: Half,
        record: MessageRecord,
        properties: dict[str, str],
        status: ProposalStatus | None,
    ) -> None:
        """Send the check, which is counted now, unless the half was decided meanwhile."""
        replica = self._replica
        if status is not ProposalStatus.COMMITTED:
            return
        if replica.state.halves.get(half.queue_offset) is None:
            return
        connection = self._producer(properties)
        if connection is None:
            return
        topic, queue_id = real_place(properties)
        record.topic = topic
        record.queue_id = queue_id
        with contextlib.suppress(RecordError):  # producers give up by it; a few bytes may lack room
            record.properties = append_properties(
                record.properties, {PropertyName.TRANSACTION_CHECK_TIMES: str(half.checks + 1)}
            )
        key = properties.get(PropertyName.UNIQ_KEY, "")
        header = CheckTransactionStateRequestHeader(
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.position,
            msg_id=key,
            transaction_id=key,
            offset_msg_id=offset_msg_id(*split_host(replica.store_address), half.position),
            topic=HALF_TOPIC,
            broker_name=replica.config.group,
        )
        connection.send(
            RemotingCommand(
                code=RequestCode.CHECK_TRANSACTION_STATE,
                flag=FLAG_ONEWAY,
                ext_fields=header.to_ext_fields(),
                body=encode_record(record),
            )
        )

    def _producer(self, properties: dict[str, str]) -> Connection | None:
        """Return the connection of a producer of the half's group; None where there is none.

        The check carries the message, and any client may claim to be of the group: where access
        control is on, only a client that may send to the message's topic gets it.
        """
        topic = real_place(properties)[0]
        desk = self._desk
        return desk.clients.producer(
            properties.get(PropertyName.PGROUP, ""),
            lambda account: desk.may_publish(account, topic),
        )

    def _commit_progress(self) -> None:
        state = self._replica.state
        progress = state.halves.progress
        if state.consumer_offsets.get((CHECK_GROUP, HALF_TOPIC, 0), 0) != progress:
            _log_if_busy(
                propose(self._leadership, [OffsetCommand(CHECK_GROUP, HALF_TOPIC, 0, progress)])
            )


def _log_if_busy(proposed: bool) -> None:
    if not proposed:
        _log.info("the check-back waits: too many proposals are pending")


def _immunity_ms(properties: dict[str, str]) -> int | None:
    """Return CHECK_IMMUNITY_TIME_IN_SECONDS in milliseconds, where it is a number above 0."""
    text = properties.get(PropertyName.CHECK_IMMUNITY_TIME, "")
    if not text.isdecimal() or len(text) > _IMMUNITY_DIGITS_MAX:
        return None
    return int(text) * 1000 or None
