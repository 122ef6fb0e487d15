"""A request to a broker group's leader: try, learn where the leader is, try again.

Place in the data path: offset commits, transaction ends and every other request that belongs to one
group and may be repeated without harm go through `call_group`; `client.produce.producer` has the
same loop with the choice of a queue in it.

Invariant: all attempts go to the same group. An unanswered attempt is followed by another one only
where the caller says that the request is idempotent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from typing import Final

from client.connection.answers import error_of, error_of_remoting
from client.connection.instance import ClientInstance
from client.connection.retry import Retries, RetryPolicy
from client.errors import (
    BrokerBusyError,
    BrokerUnreachableError,
    ClientError,
    GroupNotExistError,
    NoRouteError,
    NotLeaderError,
    SubscriptionNotReadyError,
    UnansweredError,
)
from remoting.errors import RemotingError
from remoting.protocol.command import RemotingCommand

__all__ = ["call_group", "learn", "request_once"]

_SUCCESS: Final = frozenset({0})


async def call_group(
    instance: ClientInstance,
    broker_name: str,
    make: Callable[[], RemotingCommand],
    *,
    topic: str,
    timeout_ms: int,
    policy: RetryPolicy,
    accept: Container[int] = _SUCCESS,
    is_idempotent: bool = True,
) -> tuple[RemotingCommand, str]:
    """Return the leader's answer with a code in `accept`, and the table address it came from.

    `make` builds the command for each attempt; `topic` is the one whose route names the group.
    Where the request is not idempotent, an attempt that may have been carried out is the last one,
    and gets the whole time. Raises ClientError: definite where no attempt can have been carried
    out.
    """
    now_ms = instance.now_ms
    deadline_ms = now_ms() + timeout_ms
    retries = Retries(policy, deadline_ms=deadline_ms, may_move=False)
    last: ClientError | None = None
    while True:
        budget_ms = retries.begin_attempt(now_ms())
        if budget_ms <= 0:
            raise retries.out_of_time(last) from last
        if not is_idempotent:
            budget_ms = deadline_ms - now_ms()
        address = None
        try:
            instance.check_running()
            address = await _leader_address(instance, broker_name, topic, budget_ms)
            answer = await request_once(
                instance, broker_name, address, make(), budget_ms, accept=accept
            )
        except ClientError as error:
            last = error
            if not (is_idempotent or error.definite):
                learn(instance, broker_name, address, error)
                raise
        else:
            return answer, address
        learn(instance, broker_name, address, last)
        again = retries.after(last, now_ms=now_ms(), luck=instance.random.random())
        if isinstance(again, ClientError):
            raise again from last
        if again.refresh_route:
            instance.routes.want_refresh(topic)
        if again.wait_ms:
            await asyncio.sleep(again.wait_ms / 1000)


async def request_once(
    instance: ClientInstance,
    broker_name: str,
    address: str,
    command: RemotingCommand,
    timeout_ms: float,
    *,
    accept: Container[int] = _SUCCESS,
) -> RemotingCommand:
    """Make one attempt at `address`. Raises ClientError; an accepted answer confirms the leader."""
    try:
        answer = await instance.rpc.request(address, command, max(1, round(timeout_ms)))
    except RemotingError as error:
        raise error_of_remoting(error, address) from error
    if answer.code not in accept:
        raise error_of(answer.code, answer.remark, address)
    instance.routes.confirm(broker_name, address)
    return answer


def learn(
    instance: ClientInstance, broker_name: str, address: str | None, error: ClientError
) -> None:
    """Record what a failed attempt at `address` says about the group's leader."""
    if address is None:
        return
    if isinstance(error, NotLeaderError) and error.leader is not None:
        if error.leader != address:
            instance.routes.hint(broker_name, error.leader)
    elif isinstance(error, (SubscriptionNotReadyError, GroupNotExistError)):
        # The broker does not know this client (yet): a heartbeat has to register it.
        instance.greet_soon(address)
    elif isinstance(error, BrokerBusyError):
        # RocketMQ's slaves answer so, too (rejectRequest of its pull and send processors).
        instance.routes.refuse(broker_name, address)
    elif isinstance(error, (NotLeaderError, BrokerUnreachableError, UnansweredError)):
        instance.routes.fail(broker_name, address)


async def _leader_address(
    instance: ClientInstance, broker_name: str, topic: str, timeout_ms: float
) -> str:
    leader = instance.routes.leader(broker_name)
    if leader is None:
        await instance.routes.route(topic, timeout_ms=timeout_ms)
        leader = instance.routes.leader(broker_name)
    if leader is None or leader.address is None:
        raise NoRouteError(f"no node of broker group {broker_name} is known")
    return leader.address
