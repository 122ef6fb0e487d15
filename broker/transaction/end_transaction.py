"""END_TRANSACTION: the producer's decision on a half message.

Place in the data path: a decision becomes one proposal that holds the op record, the decide
command and, for a commit, the final message: one log entry, so that no crash separates them
(promise G4). Idempotent: the same decision again is answered as done; a contrary one is refused
with 604; the first wins, and while it is in flight later ones wait for it. A half whose topic was
deleted is rolled back, whatever is asked for: a commit is told so with 604 as well.

Rules: RocketMQ EndTransactionProcessor, with the checks that it leaves out (that the record at the
offset is really this half, that the message id is its own). Differences: docs/DIVERGENCE.md.
"""

from __future__ import annotations

from typing import Final

from broker.entry.payload import DecideCommand
from broker.entry.record import PendingRecord
from broker.entry.topics import HALF_TOPIC
from broker.leader.proposer import BusyError, Proposal
from broker.request.context import BrokerContext
from broker.request.proposal_answers import refused_of
from broker.request.request import RefusedError, Request
from broker.request.stored_topic import topic_of
from broker.request.tasks import TaskOwner
from broker.state.half_table import Decision, Half
from broker.transaction.records import (
    final_record,
    is_for_deleted_topic,
    op_record,
    real_place,
)
from raft.replicated_log import NotLeaderError, ProposalStatus
from remoting.errors import RecordError
from remoting.protocol.codes import ResponseCode
from remoting.records import sys_flag as flags
from remoting.records.message import MessageRecord, decode_record

__all__ = ["EndTransactionProcessor"]

_DECISIONS: Final[dict[int, Decision]] = {
    flags.TRANSACTION_COMMIT: "commit",
    flags.TRANSACTION_ROLLBACK: "rollback",
}
_PAST: Final = {"commit": "committed", "rollback": "rolled back", "discard": "discarded"}


class EndTransactionProcessor:
    def __init__(self, context: BrokerContext, tasks: TaskOwner) -> None:
        self._context = context
        self._tasks = tasks

    def handle(self, request: Request) -> None:
        """Raises RefusedError; else the answer follows once the decision is committed."""
        self._context.require_leader()
        decision = _DECISIONS.get(request.integer("commitOrRollback"))
        if decision is None:  # not decided yet: the check-back will ask again
            request.reply(ResponseCode.SUCCESS, "transaction stays undecided")
            return
        half_offset = request.integer("tranStateTableOffset")
        in_flight = self._context.proposer.in_flight_decision(half_offset)
        if in_flight is not None:
            self._wait_for(in_flight, request)
            return
        if not self._decide(request, half_offset, decision):
            self._tasks.answer(
                request, lambda: self._answer_at_read_point(request, half_offset, decision)
            )

    def _decide(self, request: Request, half_offset: int, decision: Decision) -> bool:
        """Propose the decision; False where there is no such undecided half."""
        half = self._context.state.halves.get(half_offset)
        if half is None:
            return False
        self._propose(request, half, self._half_record(request, half), decision)
        return True

    async def _answer_at_read_point(
        self, request: Request, half_offset: int, decision: Decision
    ) -> None:
        """Say what became of the transaction, as the leader that this node has just proved to be.

        What a deposed leader knows would be true as well, but not all that is (promise G6).
        """
        try:
            await self._context.log.read_index()
            in_flight = self._context.proposer.in_flight_decision(half_offset)
            if in_flight is not None:
                self._wait_for(in_flight, request)
            elif not self._decide(request, half_offset, decision):
                self._answer_decided(request, half_offset, decision)
        except NotLeaderError:
            request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, self._context.not_leader_remark())
        except RefusedError as refused:
            request.refuse(refused)

    def _answer_decided(self, request: Request, half_offset: int, decision: Decision) -> None:
        known = self._context.state.halves.decision(half_offset)
        if known == decision:
            request.reply(ResponseCode.SUCCESS, f"transaction was {_PAST[known]} already")
        elif known is not None:
            raise RefusedError(
                ResponseCode.ILLEGAL_OPERATION, f"transaction already {_PAST[known]}"
            )
        elif 0 <= half_offset < self._context.state.halves.next_offset:
            raise RefusedError(
                ResponseCode.ILLEGAL_OPERATION, "transaction already ended, long ago"
            )
        else:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed"
            )

    def _half_record(self, request: Request, half: Half) -> MessageRecord:
        """The half, if it is the one that the request means. Raises RefusedError."""
        try:
            record = decode_record(self._context.read(half.position, half.size))
        except (LookupError, RecordError) as error:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"Find prepared transaction message failed: {error}"
            ) from error
        assert record.topic == HALF_TOPIC
        request.require(topic_of(record), to_write=True)
        properties = record.property_map()
        if properties.get("PGROUP") != request.text("producerGroup"):
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if record.queue_offset != half.queue_offset:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong"
            )
        if request.integer("commitLogOffset") != half.position:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")
        message_id = request.fields.get("msgId")
        if message_id and message_id != properties.get("UNIQ_KEY"):
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"The half message there is not {message_id[:64]}"
            )
        return record

    def _propose(
        self, request: Request, half: Half, record: MessageRecord, decision: Decision
    ) -> None:
        context, asked = self._context, decision
        records: list[PendingRecord] = [op_record(context, half)]
        properties = record.property_map()
        if is_for_deleted_topic(context, half.position, properties):
            decision = "rollback"
        elif decision == "commit":
            records.insert(0, final_record(context, half, record))

        def done(status: ProposalStatus | None) -> None:
            refused = refused_of(status, context.not_leader_remark)
            if refused is not None:
                request.refuse(refused)
            elif decision == asked:
                request.reply(ResponseCode.SUCCESS)
            else:
                request.reply(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"transaction already {_PAST[decision]}: "
                    f"its topic[{real_place(properties)[0]}] was deleted",
                )

        proposal = Proposal(
            records=records,
            commands=[
                DecideCommand(
                    half.queue_offset,
                    half.position,
                    decision,
                    request.boolean_or("fromTransactionCheck", False),
                )
            ],
            on_done=done,
            half_queue_offset=half.queue_offset,
        )
        try:
            context.proposer.submit(proposal)
        except BusyError as error:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, str(error)) from error

    def _wait_for(self, in_flight: Proposal, request: Request) -> None:
        if len(in_flight.waiting) >= _WAITING_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY, "too many decisions wait for this transaction"
            )
        in_flight.waiting.append(lambda: self._again(request))

    def _again(self, request: Request) -> None:
        try:
            self.handle(request)
        except RefusedError as refused:
            request.refuse(refused)


_WAITING_MAX: Final = 64
