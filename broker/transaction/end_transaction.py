"""END_TRANSACTION: the producer's decision on a half message.

Place in the data path: a decision becomes one proposal that holds the op record, the decide
command and, for a commit, the final message: one log entry, so that no crash separates them
(promise G4). Idempotent: the same decision again is answered as done; a contrary one is refused
with 604; the first wins, and while it is in flight later ones wait for it. A half whose topic was
deleted is rolled back, whatever is requested: a commit is refused with 604 as well.

Rules: RocketMQ EndTransactionProcessor, with the checks that it leaves out (that the record at the
offset is really this half, that the message id is its own). Differences: docs/DIVERGENCE.md.
"""

from __future__ import annotations

from typing import Final

from broker.entry.payload import DecideCommand
from broker.entry.record import PendingRecord
from broker.entry.topics import HALF_TOPIC
from broker.leader.proposer import Proposal
from broker.request.commit import answer_done, commit
from broker.request.leadership import Leadership
from broker.request.read_point import answer_at_read_point
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.request.stored_topic import real_place, topic_of
from broker.request.tasks import TaskOwner
from broker.state.half_table import Decision, Half
from broker.transaction.records import (
    final_record,
    is_for_deleted_topic,
    op_record,
)
from remoting.errors import RecordError
from remoting.protocol.codes import ResponseCode
from remoting.protocol.headers import EndTransactionRequestHeader
from remoting.records import sys_flag as flags
from remoting.records.message import MessageRecord, decode_record
from remoting.records.property_names import PropertyName

__all__ = ["PAST", "EndTransactionProcessor"]

_DECISIONS: Final[dict[int, Decision]] = {
    flags.TRANSACTION_COMMIT: "commit",
    flags.TRANSACTION_ROLLBACK: "rollback",
}
PAST: Final = {"commit": "committed", "rollback": "rolled back", "discard": "discarded"}
_WAITING_MAX: Final = 64


class EndTransactionProcessor:
    """Handler of commits and rollbacks of half messages."""

    def __init__(self, replica: Replica, leadership: Leadership, tasks: TaskOwner) -> None:
        self._replica = replica
        self._leadership = leadership
        self._tasks = tasks

    def handle(self, header: EndTransactionRequestHeader, request: Request) -> None:
        """Decide, and answer once the decision is committed. Raises RefusedError."""
        decision = _DECISIONS.get(header.commit_or_rollback)
        if decision is None:  # not decided yet: the check-back comes again
            request.reply(ResponseCode.SUCCESS, "transaction stays undecided")
        elif not self._decide(header, request, decision):
            # A deposed leader may not have applied the half: what it says of one that it does not
            # know would be wrong (promise G6).
            self._tasks.answer(
                request,
                lambda: answer_at_read_point(
                    self._leadership,
                    request,
                    lambda _: self._answer_known(header, request, decision),
                ),
            )

    def _decide(
        self, header: EndTransactionRequestHeader, request: Request, decision: Decision
    ) -> bool:
        """Propose the decision, or wait for the one in flight; False where there is no such
        undecided half. Raises RefusedError."""
        half_offset = header.tran_state_table_offset
        in_flight = self._leadership.proposer.in_flight_decision(half_offset)
        if in_flight is not None:
            self._wait_for(in_flight, header, request)
            return True
        half = self._replica.state.halves.get(half_offset)
        if half is None:
            return False
        record = self._half_record(header, request, half)
        self._propose(header, request, half, record, decision)
        return True

    def _answer_known(
        self, header: EndTransactionRequestHeader, request: Request, decision: Decision
    ) -> None:
        """Answer with the outcome of the transaction. Raises RefusedError."""
        if not self._decide(header, request, decision):
            self._answer_decided(request, header.tran_state_table_offset, decision)

    def _answer_decided(self, request: Request, half_offset: int, decision: Decision) -> None:
        known = self._replica.state.halves.decision(half_offset)
        if known == decision:
            answer_done(self._leadership, request, f"transaction was {PAST[known]} already")
        elif known is not None:
            raise RefusedError(ResponseCode.ILLEGAL_OPERATION, f"transaction already {PAST[known]}")
        elif 0 <= half_offset < self._replica.state.halves.next_offset:
            raise RefusedError(
                ResponseCode.ILLEGAL_OPERATION, "transaction already ended, long ago"
            )
        else:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed"
            )

    def _half_record(
        self, header: EndTransactionRequestHeader, request: Request, half: Half
    ) -> MessageRecord:
        """Return the half, if it is the one that the request means. Raises RefusedError."""
        try:
            record = decode_record(self._replica.read(half.position, half.size))
        except (LookupError, RecordError) as error:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"Find prepared transaction message failed: {error}"
            ) from error
        assert record.topic == HALF_TOPIC
        request.require(topic_of(record), to_write=True)
        properties = record.property_map()
        if properties.get(PropertyName.PGROUP) != header.producer_group:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if record.queue_offset != half.queue_offset:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong"
            )
        if header.commit_log_offset != half.position:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")
        if header.msg_id and header.msg_id != properties.get(PropertyName.UNIQ_KEY):
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"The half message there is not {header.msg_id[:64]}"
            )
        return record

    def _propose(
        self,
        header: EndTransactionRequestHeader,
        request: Request,
        half: Half,
        record: MessageRecord,
        decision: Decision,
    ) -> None:
        replica, leadership, wanted = self._replica, self._leadership, decision
        records: list[PendingRecord] = [op_record(replica, half)]
        properties = record.property_map()
        if is_for_deleted_topic(replica, leadership, half.position, properties):
            decision = "rollback"
        elif decision == "commit":
            records.insert(0, final_record(replica, leadership, half, record))

        def answer() -> None:
            if decision == wanted:
                request.reply(ResponseCode.SUCCESS)
            else:
                request.reply(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"transaction already {PAST[decision]}: "
                    f"its topic[{real_place(properties)[0]}] was deleted",
                )

        command = DecideCommand(
            half.queue_offset, half.position, decision, header.from_transaction_check
        )
        # One entry: no crash separates the final message, the op record and the decision.
        commit(
            leadership,
            request,
            [command],
            records=records,
            answer=answer,
            half_queue_offset=half.queue_offset,
        )

    def _wait_for(
        self, in_flight: Proposal, header: EndTransactionRequestHeader, request: Request
    ) -> None:
        if len(in_flight.waiting) >= _WAITING_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY, "too many decisions wait for this transaction"
            )
        in_flight.waiting += (lambda: self._again(header, request),)

    def _again(self, header: EndTransactionRequestHeader, request: Request) -> None:
        """Handle a request that has waited; leadership may be lost by now."""
        try:
            self._leadership.require_leader()
            self.handle(header, request)
        except RefusedError as refused:
            request.refuse(refused)
