"""Requests that a follower hands on to its leader, since RocketMQ's tools ask every replica.

Place in the data path: `mqadmin deleteTopic` and `deleteSubGroup` tell each broker of a group to
delete a topic, masters and slaves; here one deletion in the log is all. The leader's answer is
handed back as it is.

Invariants: a follower that knows no leader, or can't reach it, refuses with 14 (definite: nothing
was asked); one that gets no answer says that the outcome is unknown; a request is handed on once.
"""

from __future__ import annotations

from typing import Final

from broker.context import BrokerContext
from broker.request import RefusedError, Request
from remoting.codes import ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectError, OverloadedError, RemotingError

__all__ = ["forward_to_leader", "is_forwarded"]

_TIMEOUT_MS: Final = 3_000
_MARK: Final = "ledgermqForwarded"


def is_forwarded(request: Request) -> bool:
    """Whether another replica has handed it on: then it goes no further."""
    return _MARK in request.fields


async def forward_to_leader(context: BrokerContext, request: Request) -> None:
    """Ask the leader in this replica's place, and answer."""
    leader = context.log.status().leader_id
    address = None if leader is None else context.broker_addresses.get(leader)
    if address is None or context.remoting is None or leader == context.config.node:
        request.refuse(
            RefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, context.not_leader_remark())
        )
        return
    asked = RemotingCommand(
        code=request.command.code,
        ext_fields={**request.fields, _MARK: "true"},
        body=request.command.body,
    )
    try:
        answer = await context.remoting.request(address, asked, _TIMEOUT_MS)
    except (ConnectError, OverloadedError):
        request.refuse(
            RefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, context.not_leader_remark())
        )
    except RemotingError as error:
        request.reply(ResponseCode.SYSTEM_ERROR, f"outcome unknown: {error}")
    else:
        request.reply(answer.code, answer.remark, answer.ext_fields, answer.body)
