"""Requests of administrators to a group's leader, one attempt at a time.

Place in the data path: parts that change topics and users; `client.connection.broker_call` would
repeat an attempt that went unanswered. Here none is repeated: an attempt that was given up may
still arrive, and undo what was acknowledged after it.

Invariant: at most one attempt of a call can have been carried out; after an unanswered one the call
ends with its error, which is not definite.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import Final

from chaos.workload.parts.common.first_error import first_of
from client.connection.answers import error_of_remoting
from client.connection.broker_call import learn, request_once
from client.connection.instance import ClientInstance
from client.errors import ClientError, DeadlineError, NoRouteError
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.headers import CreateTopicRequestHeader

__all__ = [
    "DEFAULT_TOPIC",
    "create_topic_command",
    "delete_topic_command",
    "pipeline_requests",
    "request_leader",
]

DEFAULT_TOPIC: Final = "TBW102"  # its route names every group
_PAUSE_S: Final = 0.05
_SUCCESS: Final = frozenset({0})


async def request_leader(
    instance: ClientInstance,
    broker_group: str,
    make: Callable[[], RemotingCommand],
    *,
    timeout_ms: int,
    accept: Container[int] = _SUCCESS,
) -> tuple[RemotingCommand, str]:
    """Return the leader's answer with a code in `accept`, and the address it came from.

    Raises ClientError: definite where nothing can have been carried out.
    """
    deadline = instance.now_ms() + timeout_ms
    last: ClientError | None = None
    while (left_ms := deadline - instance.now_ms()) > 0:
        address = None
        try:
            leader = instance.routes.leader(broker_group)
            if leader is None or leader.address is None:
                await instance.routes.refresh(DEFAULT_TOPIC)
            else:
                address = leader.address
                answer = await request_once(
                    instance, broker_group, address, make(), left_ms, accept=accept
                )
                return answer, address
        except ClientError as error:
            learn(instance, broker_group, address, error)
            if not (error.definite and error.retriable):
                raise
            last = error
        await asyncio.sleep(_PAUSE_S)
    raise DeadlineError(f"no leader of {broker_group} within {timeout_ms} ms", last) from last


async def pipeline_requests(
    instance: ClientInstance,
    broker_group: str,
    commands: Sequence[RemotingCommand],
    *,
    timeout_ms: int,
) -> tuple[list[RemotingCommand], str]:
    """Send requests over one connection to whoever is taken for the leader, in this order, none of
    which waits for another's answer; return the answers of those that are not oneway, whatever they
    say, and the address. Raises ClientError; what was sent may have been carried out then."""
    leader = instance.routes.leader(broker_group)
    if leader is None or leader.address is None:
        await instance.routes.refresh(DEFAULT_TOPIC)
        raise NoRouteError(f"no leader of {broker_group} is known yet")
    address = leader.address
    answers: list[asyncio.Task[RemotingCommand]] = []
    lost: RemotingError | None = None
    try:
        await instance.rpc.connect(address, timeout_ms)  # nothing waits for it then
        async with asyncio.TaskGroup() as tasks:  # which begin in the order of their making
            for command in commands:
                if command.is_oneway:
                    tasks.create_task(instance.rpc.oneway(address, command))
                else:
                    request = instance.rpc.request(address, command, timeout_ms)
                    answers.append(tasks.create_task(request))
    except* RemotingError as errors:
        lost = first_of(errors)
    if lost is not None:
        raise error_of_remoting(lost, address) from lost
    return [answer.result() for answer in answers], address


def create_topic_command(
    topic: str, *, queues: int, perm: int, is_ordered: bool = False
) -> RemotingCommand:
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic=DEFAULT_TOPIC,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        topic_filter_type="SINGLE_TAG",
        order=is_ordered,
    )
    return RemotingCommand(
        code=RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=header.to_ext_fields()
    )


def delete_topic_command(topic: str, *, at_name_server: bool = False) -> RemotingCommand:
    code = RequestCode.DELETE_TOPIC_IN_BROKER
    if at_name_server:
        code = RequestCode.DELETE_TOPIC_IN_NAMESRV
    return RemotingCommand(code=code, ext_fields={"topic": topic})
