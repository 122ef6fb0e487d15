"""Check-back: queries the producers of undecided halves for the outcome of their transactions.

Place in the data path: runs on the ready leader; a half is checked once it is as old as
`transaction_timeout_ms`, and again every `transaction_check_interval_ms`, in the order of
`broker.transaction.check_schedule`. Each check is first counted in the log (so that no failover
starts the count anew), then sent to a live producer of the half's group; while that takes longer
than the interval, the half is not checked again, so that each check has a number of its own. After
`transaction_check_max` checks, or past its retention, a half is discarded into
TRANS_CHECK_MAX_TIME_TOPIC. A half whose topic was deleted is not checked: it is rolled back.

Unlike RocketMQ a half is never appended anew, and a check that could be sent to no producer is not
counted: the half waits until one is there, and costs nothing meanwhile. The half queue's progress
is committed when it has moved. Rules: RocketMQ TransactionalMessageServiceImpl.check; facts
section 5.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import islice
from typing import Final

from broker.entry.payload import CheckCommand, DecideCommand, DiscardCommand, OffsetCommand
from broker.entry.topics import HALF_TOPIC
from broker.request.commit import propose
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.proposal_answers import store_code_of
from broker.request.replica import Replica
from broker.request.request import RefusedError
from broker.request.stored_topic import real_place
from broker.state.half_table import Half
from broker.transaction.check_schedule import CheckSchedule, Place
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
_SLICE_MAX: Final = 50  # halves that are read without a pause: some 5 ms
_SHARE: Final = 8  # of them at least for each line, if so many are due there
_IMMUNITY_DIGITS_MAX = 9


class _Outcome(Enum):
    """What an examination has come to, and with it when the next one is."""

    CHECKED = "a check is under way, or can't be now: after an interval"
    NO_PRODUCER = "nobody can be asked: once a producer of its group is there"
    IMMUNE = "once its immunity is over"
    PENDING = "at the next round, if it is undecided then"


class CheckBack:
    """Periodic checks of undecided halves, on the leader."""

    def __init__(self, replica: Replica, leadership: Leadership, desk: Desk) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk
        self._schedule = CheckSchedule()
        self._is_behind = False  # the last slice has left halves that are due
        self._being_counted: set[int] = set()  # halves with a check in flight, of any term

    def lost_leadership(self) -> None:
        """Forget when halves were checked last."""
        self._schedule = CheckSchedule()
        self._is_behind = False

    def round(self) -> None:
        """Examine some of the undecided halves that are due. Called by the shell once a second, or
        at each interval where that is shorter."""
        if not self._leadership.ready:
            return
        self._schedule.begin_round()
        self._slice()
        self._commit_progress()

    def proceed(self) -> None:
        """Examine more of them, where the last call has left some. Called by the shell in short
        intervals, so that a million halves neither block the loop nor wait for rounds."""
        if self._leadership.ready and self._is_behind:
            self._slice()

    def is_idle(self) -> bool:
        """Return whether the last slice left no half that is due."""
        return not self._is_behind

    def _slice(self) -> None:
        """Examine up to _SLICE_MAX halves: of each line a share, and then who is first."""
        replica, schedule, halves = self._replica, self._schedule, self._replica.state.halves
        config, now_ms = replica.config, replica.clock_ms()
        young_ms = now_ms - config.transaction_timeout_ms
        expired_ms = now_ms - config.transaction_retention_ms - 1
        due: list[tuple[Iterator[int], bool]] = [
            (schedule.expired(halves, expired_ms), False),
            (schedule.retried(), True),
            (schedule.with_producer(self._may_go_on), True),
            (schedule.checked(now_ms - config.transaction_check_interval_ms), True),
            (schedule.immune(now_ms), True),
            (schedule.fresh(halves, young_ms), True),
        ]
        left = _SLICE_MAX
        for share in (_SHARE, _SLICE_MAX):
            for line, is_put_again in due:
                for queue_offset in islice(line, min(share, left)):
                    left -= 1
                    half = halves.get(queue_offset)
                    if half is not None:
                        self._examine_one(half, now_ms, is_put_again=is_put_again)
        self._is_behind = left == 0

    def _examine_one(self, half: Half, now_ms: int, *, is_put_again: bool) -> None:
        outcome, about = self._examine(half, now_ms)
        schedule, queue_offset = self._schedule, half.queue_offset
        if not is_put_again:
            return
        match outcome:
            case _Outcome.PENDING:
                schedule.put_next_round(queue_offset)
            case _Outcome.CHECKED:
                schedule.put_checked(queue_offset, now_ms)
            case _Outcome.NO_PRODUCER:
                place = about.get(PropertyName.PGROUP, ""), real_place(about)[0]
                schedule.put_without_producer(queue_offset, place)
            case _Outcome.IMMUNE:
                schedule.put_immune(queue_offset, half.stored_ms + (_immunity_ms(about) or 0))

    def _may_go_on(self, place: Place, queue_offset: int) -> bool:
        """Return whether a producer of the place can be asked, or its topic may have been deleted
        behind the half that waits there longest."""
        group, topic = place
        if self._producer_of(group, topic) is not None:
            return True
        if self._leadership.proposer.is_being_deleted(topic):
            return True
        half = self._replica.state.halves.get(queue_offset)
        return half is None or self._replica.state.deletions.took(topic, half.position)

    def _examine(self, half: Half, now_ms: int) -> tuple[_Outcome, Mapping[str, str]]:
        """Check, discard or roll back the half where that is due; return the half's properties,
        too, where they were read."""
        replica, config = self._replica, self._replica.config
        age_ms = now_ms - half.stored_ms
        if age_ms < config.transaction_timeout_ms:
            return _Outcome.PENDING, {}
        if half.queue_offset in self._being_counted:
            return _Outcome.PENDING, {}
        if self._leadership.proposer.in_flight_decision(half.queue_offset) is not None:
            return _Outcome.PENDING, {}
        try:
            record = decode_record(replica.read(half.position, half.size))
        except RefusedError as refused:  # it waits until it is repaired
            _log.warning("half message %d: %s", half.queue_offset, refused)
            return _Outcome.CHECKED, {}
        except (LookupError, RecordError):
            _log.exception("half message at %d can't be read", half.position)
            raise
        properties = record.property_map()
        try:
            if is_for_deleted_topic(replica, self._leadership, half.position, properties):
                self._roll_back(half)
                return _Outcome.PENDING, properties
        except RefusedError:  # a deletion is on its way
            return _Outcome.PENDING, properties
        immunity_ms = _immunity_ms(properties)
        if immunity_ms is not None and age_ms < immunity_ms:
            return _Outcome.IMMUNE, properties
        if half.checks >= config.transaction_check_max or age_ms > config.transaction_retention_ms:
            self._discard(half, record)
            return _Outcome.PENDING, properties
        if self._producer(properties) is None:
            return _Outcome.NO_PRODUCER, properties
        self._count_check(half, record, properties)
        return _Outcome.CHECKED, properties

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
        if store_code_of(status) is None:
            return  # whether it counts is not known; where only slaves are late it does
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
        return self._producer_of(properties.get(PropertyName.PGROUP, ""), real_place(properties)[0])

    def _producer_of(self, group: str, topic: str) -> Connection | None:
        desk = self._desk
        return desk.clients.producer(
            group, lambda account, peer: desk.may_publish(account, peer, topic)
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


def _immunity_ms(properties: Mapping[str, str]) -> int | None:
    """Return CHECK_IMMUNITY_TIME_IN_SECONDS in milliseconds, where it is a number above 0."""
    text = properties.get(PropertyName.CHECK_IMMUNITY_TIME, "")
    if not text.isdecimal() or len(text) > _IMMUNITY_DIGITS_MAX:
        return None
    return int(text) * 1000 or None
