"""Commands of a request, proposed to the log, and its answer once their outcome is known.

Place in the data path: every request that changes something, but sends (`broker.send.store_send`).
The answer follows `broker.request.proposal_answers`: success only for what is committed, and never
"not stored" for what may be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.entry.payload import Command
from broker.entry.record import PendingRecord
from broker.leader.proposer import BusyError, Proposal
from broker.request.leadership import Leadership
from broker.request.proposal_answers import refused_of
from broker.request.request import RefusedError, Request
from raft.replicated_log import ProposalStatus
from remoting.protocol.codes import ResponseCode

__all__ = ["commit"]


def commit(
    leadership: Leadership,
    request: Request,
    commands: Sequence[Command],
    *,
    records: Sequence[PendingRecord] = (),
    answer: Callable[[], None] | None = None,
    ends_batch: bool = False,
    half_queue_offset: int | None = None,
    ended: Callable[[], None] | None = None,
) -> None:
    """Propose, and answer the request; `answer` replies where it succeeded and plain 0 won't do.
    `ended` is called before the answer, whatever the outcome, and before this raises.

    Raises RefusedError where too many proposals wait. Caller's duty: `require_leader`.
    """

    def done(status: ProposalStatus | None) -> None:
        if ended is not None:
            ended()
        refused = refused_of(status, leadership.not_leader_remark)
        if refused is not None:
            request.refuse(refused)
        elif answer is not None:
            answer()
        else:
            request.reply(ResponseCode.SUCCESS)

    try:
        leadership.proposer.submit(
            Proposal(
                commands=list(commands),
                records=list(records),
                on_done=done,
                ends_batch=ends_batch,
                half_queue_offset=half_queue_offset,
            )
        )
    except BusyError as error:
        if ended is not None:
            ended()
        raise RefusedError(ResponseCode.SYSTEM_BUSY, str(error)) from error
