"""Answers that tell how far things are: given by a leader that has just proved itself.

Place in the data path: offsets, bounds and progress are read after a ReadIndex round (promise G6).
"""

from __future__ import annotations

from collections.abc import Callable

from broker.request.context import BrokerContext
from broker.request.request import RefusedError, Request
from raft.replicated_log import NotLeaderError
from remoting.protocol.codes import ResponseCode

__all__ = ["answer_at_read_point", "wait_for_read_point"]


async def wait_for_read_point(context: BrokerContext) -> None:
    """Return once what was committed before the call is applied here.

    Raises RefusedError (14) where this node can't prove that it leads.
    """
    try:
        await context.log.read_index()
    except NotLeaderError as error:
        raise RefusedError(
            ResponseCode.SERVICE_NOT_AVAILABLE, context.not_leader_remark()
        ) from error


async def answer_at_read_point(
    context: BrokerContext, request: Request, answer: Callable[[Request], None]
) -> None:
    """Call `answer` once what was committed before is applied; refuse with 14 elsewhere."""
    try:
        await wait_for_read_point(context)
        answer(request)
    except RefusedError as refused:
        request.refuse(refused)
