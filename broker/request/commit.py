"""Proposals to the log: those of a request, answered once their outcome is known, and the broker's
own.

Place in the data path: everything that changes something, but sends, whose answers name a place
(`broker.send.store_send`). The answer follows `broker.request.proposal_answers`: success only for
what is committed, and never "not stored" for what may be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from broker.entry.payload import Command
from broker.entry.record import PendingRecord
from broker.leader.proposer import BusyError, Proposal
from broker.request.leadership import Leadership
from broker.request.proposal_answers import refused_of
from broker.request.request import RefusedError, Request
from raft.replicated_log import ProposalStatus
from remoting.protocol.codes import ResponseCode

__all__ = ["Ended", "answer_done", "commit", "commit_each", "propose"]

_EACH_MAX: Final = 1_000

Ended = Callable[[ProposalStatus | None], None]
"""Called with what became of a proposal; None: surely not stored."""


def propose(
    leadership: Leadership,
    commands: Sequence[Command],
    *,
    records: Sequence[PendingRecord] = (),
    ended: Ended | None = None,
    half_queue_offset: int | None = None,
) -> bool:
    """Propose what no request waits for; False where too many proposals wait, so that whoever
    calls tries again later. `ended` is called once, in this case too."""
    try:
        leadership.proposer.submit(
            Proposal(
                commands=list(commands),
                records=records,
                on_done=_ignore if ended is None else ended,
                half_queue_offset=half_queue_offset,
            )
        )
    except BusyError:
        if ended is not None:
            ended(None)
        return False
    return True


def commit(
    leadership: Leadership,
    request: Request,
    commands: Sequence[Command],
    *,
    records: Sequence[PendingRecord] = (),
    answer: Callable[[], None] | None = None,
    ends_batch: bool = False,
    half_queue_offset: int | None = None,
    ended: Ended | None = None,
) -> None:
    """Propose, and answer the request; `answer` replies where it succeeded and plain 0 won't do.
    `ended` is called before the answer, whatever the outcome, and before this raises.

    Raises RefusedError where too many proposals wait. Caller's duty: `require_leader`.
    """

    def done(status: ProposalStatus | None) -> None:
        if ended is not None:
            ended(status)
        _answer(request, refused_of(status, leadership.not_leader), answer)

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
            ended(None)
        raise RefusedError(ResponseCode.SYSTEM_BUSY, str(error)) from error


def commit_each(
    leadership: Leadership,
    request: Request,
    commands: Sequence[Command],
    *,
    answer: Callable[[], None] | None = None,
) -> None:
    """Propose commands that are no unit, each for an entry of its own, and answer the request once
    the outcome of all is known: in one entry those that take long to apply would hold up all else.

    Raises RefusedError where there are too many, or too many proposals wait for the first of them.
    Caller's duty: `require_leader`.
    """
    if len(commands) > _EACH_MAX:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"a list of {len(commands)}; at most {_EACH_MAX} are done by one request",
        )
    statuses: list[ProposalStatus | None] = []

    def done(status: ProposalStatus | None) -> None:
        statuses.append(status)
        if len(statuses) == len(commands):
            _answer(request, _refused_of_all(statuses, leadership.not_leader), answer)

    for number, command in enumerate(commands):
        try:
            leadership.proposer.submit(Proposal(commands=[command], on_done=done, ends_batch=True))
        except BusyError as error:
            if not number:
                raise RefusedError(ResponseCode.SYSTEM_BUSY, str(error)) from error
            for _ in commands[number:]:
                done(ProposalStatus.TRUNCATED)
            return


def _answer(
    request: Request, refused: RefusedError | None, answer: Callable[[], None] | None
) -> None:
    if refused is not None:
        request.refuse(refused)
    elif answer is not None:
        answer()
    else:
        request.reply(ResponseCode.SUCCESS)


def _refused_of_all(
    statuses: Sequence[ProposalStatus | None], not_leader: Callable[[], RefusedError]
) -> RefusedError | None:
    """Return the refusal of a list that is not certainly done as a whole; None if it is."""
    refused = [one for one in map(partial(refused_of, not_leader=not_leader), statuses) if one]
    if not refused:
        return None
    if all(status is None or status is ProposalStatus.TRUNCATED for status in statuses):
        return refused[0]  # nothing of it is done
    return RefusedError(
        ResponseCode.SYSTEM_ERROR,
        f"outcome unknown: {len(statuses) - len(refused)} of {len(statuses)} are done; "
        f"of another: {refused[0]}",
    )


def answer_done(leadership: Leadership, request: Request, remark: str) -> None:
    """Answer success for what was done before, once that is as safe as such an answer says."""

    def done(status: ProposalStatus) -> None:
        refused = refused_of(status, leadership.not_leader)
        if refused is None:
            request.reply(ResponseCode.SUCCESS, remark)
        else:
            request.refuse(refused)

    leadership.confirm(done)


def _ignore(_: ProposalStatus | None) -> None:
    pass
