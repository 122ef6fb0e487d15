"""One send's way from its records to its answer, duplicates included.

Place in the data path: `broker.send.send` hands over the records of a request that passed its
checks. A UNIQ_KEY that is stored already is answered with its first place and not stored again
(promise G2); for one that is in flight the send waits; the rest is proposed, and answered once the
entry is committed and applied. Source: RocketMQ SendMessageProcessor.handlePutMessageResult.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from broker.delay.recall_handle import recall_handle
from broker.entry.payload import Command
from broker.entry.record import PendingRecord
from broker.entry.topics import HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from broker.leader.proposer import BusyError, Proposal
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.proposal_answers import refused_of, store_code_of
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.send.duplicates import (
    Place,
    are_surely_new,
    maybe_stored,
    require_open_half,
    stored_place,
)
from raft.replicated_log import ProposalStatus
from remoting.protocol.codes import ResponseCode

__all__ = ["StoreSend"]

_WAITING_TOPICS: Final = frozenset({HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC})


class StoreSend:
    """One send whose records are to be stored, once."""

    __slots__ = (
        "_commands",
        "_desk",
        "_leadership",
        "_queue_id",
        "_records",
        "_replica",
        "_request",
        "_topic",
        "_transaction_id",
    )

    def __init__(
        self,
        replica: Replica,
        leadership: Leadership,
        desk: Desk,
        request: Request,
        *,
        records: list[PendingRecord],
        commands: list[Command],
        topic: str,
        queue_id: int,
        transaction_id: str | None,
    ) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk
        self._request = request
        self._records = records
        self._commands = commands
        self._topic = topic  # this and the queue as the sender named them
        self._queue_id = queue_id
        self._transaction_id = transaction_id

    def start(self) -> None:
        """Propose, wait for the same keys in flight, or answer with the stored places. Raises
        RefusedError."""
        proposer = self._leadership.proposer
        duplicates: list[Place] = []
        in_flight: str | None = None
        if not self._is_surely_new():
            for record in self._records:
                key = record.dedupe_key
                if key is None:
                    continue
                place = stored_place(self._replica, record, self._topic)
                if place is not None:
                    if record.topic == HALF_TOPIC:
                        require_open_half(self._replica, self._leadership, key, place)
                    duplicates.append(place)
                elif in_flight is None and proposer.in_flight_key(key) is not None:
                    in_flight = key
        if not duplicates:
            if in_flight is None:
                self._propose()
            else:
                try:
                    proposer.join_key(in_flight, self._after_first_attempt)
                except BusyError as error:
                    raise RefusedError(ResponseCode.SYSTEM_BUSY, str(error)) from error
        elif len(duplicates) == len(self._records):
            self._leadership.confirm(partial(self._answer_stored, duplicates))
        else:
            raise maybe_stored(
                f"{len(duplicates)} of the {len(self._records)} messages are stored already, and "
                "a batch is stored as a whole or not at all"
            )

    def _is_surely_new(self) -> bool:
        """Return whether no key of a batch is stored, expired or in flight; False may be wrong."""
        if len(self._records) == 1:
            return False  # judging it is as quick
        keys = [record.dedupe_key for record in self._records if record.dedupe_key is not None]
        return are_surely_new(
            self._replica, self._leadership, keys, born_ms=self._records[0].template.born_ms
        )

    def _propose(self) -> None:
        try:
            self._leadership.proposer.submit(
                Proposal(records=self._records, commands=self._commands, on_done=self.on_done)
            )
        except BusyError as error:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY, f"[REJECTREQUEST]too many requests: {error}"
            ) from error

    def _after_first_attempt(self, status: ProposalStatus | None) -> None:
        """Start again, once the outcome of the attempt in flight with this key is known."""
        try:
            if status is None:
                self._leadership.require_room()
            if (
                status in {None, ProposalStatus.TRUNCATED} or store_code_of(status) is not None
            ):  # stored, or surely not
                self.start()
            else:  # these records were not stored and have no places
                self._refuse(status)
        except RefusedError as refused:
            self._request.refuse(refused)

    def _refuse(self, status: ProposalStatus | None) -> None:
        refused = refused_of(status, self._leadership.not_leader)
        assert refused is not None
        self._request.refuse(refused)

    def on_done(self, status: ProposalStatus | None) -> None:
        """Answer by what became of the proposal that holds the records."""
        code = store_code_of(status)
        if code is None:
            self._refuse(status)
            return
        answer = partial(self._answer, code, status, self._records)
        if self._commands:  # it created its topic: the sender may query name servers for it now
            self._desk.when_routes_registered(answer)
        else:
            answer()

    def _answer_stored(self, places: Sequence[Place], status: ProposalStatus) -> None:
        """Answer a retry with its first places, by how safe they are now."""
        code = store_code_of(status)
        if code is None:
            self._refuse(status)
        else:
            self._answer(code, status, places)

    def _answer(
        self,
        code: ResponseCode,
        status: ProposalStatus | None,
        places: Sequence[Place | PendingRecord],
    ) -> None:
        prefix = self._replica.store_host_hex
        fields = {
            "msgId": ",".join([f"{prefix}{place.position:016X}" for place in places]),
            "queueId": str(
                self._queue_id if places[0].topic in _WAITING_TOPICS else places[0].queue_id
            ),
            "queueOffset": str(places[0].queue_offset),
            "MSG_REGION": self._replica.config.region,
            "TRACE_ON": "true",
            "ledgermqTerm": str(self._leadership.term),
        }
        if self._transaction_id is not None:
            fields["transactionId"] = self._transaction_id
            if places[0].topic == TIMER_TOPIC:
                self._add_recall_handle(fields, places[0])
        remark = None if status in {None, ProposalStatus.COMMITTED} else status.value
        self._request.reply(code, remark, fields)

    def _add_recall_handle(self, fields: dict[str, str], place: Place | PendingRecord) -> None:
        """Add the handle that RECALL_MESSAGE takes, unless the message was delivered already."""
        timer = self._replica.state.timers.get(place.queue_offset)
        key = self._transaction_id
        if timer is not None and key is not None and not self._topic.startswith(RETRY_PREFIX):
            fields["recallHandle"] = recall_handle(
                topic=self._topic,
                broker_name=self._replica.config.group,
                deliver_ms=timer.deliver_ms,
                uniq_key=key,
                queue_offset=place.queue_offset,
            )
