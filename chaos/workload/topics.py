"""Creates the workload's topics and waits until every client can find their queues.

Place in the data path: before the load, through a tool client's own proxies.

Invariant: the queues returned are in one fixed order (topic as in the scenario, group, queue id),
so that shard n of a run goes to the same queue in every process.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Final

from client.connection.broker_call import call_group
from client.connection.retry import RetryPolicy
from client.connection.route_view import TopicRoute
from client.consume.pull_consumer import PullConsumer
from client.errors import ClientError
from client.message import MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.headers import CreateTopicRequestHeader

__all__ = ["make_topics"]

PERM_READ_WRITE: Final = 6
DEFAULT_TOPIC: Final = "TBW102"  # its route names every group before any topic exists
TIMEOUT_MS: Final = 60_000  # the caller's deadline is shorter, or as long
# RocketMQ answers once all name servers have the topic, which takes seconds on a busy machine.
ATTEMPT_TIMEOUT_MS: Final = 10_000
ROUTE_POLL_S: Final = 0.05


async def make_topics(
    consumer: PullConsumer,
    groups: Sequence[str],
    topics: Sequence[str],
    *,
    queues: int,
    deadline_s: float,
    attributes: str | None = None,
) -> list[MessageQueue]:
    """Create the topics and return their queues.

    `attributes`: theirs, as mqadmin takes them ("+name=value,..."). `deadline_s`: loop time. Raises
    ClientError or TimeoutError where they are not created.
    """
    async with asyncio.timeout_at(deadline_s):
        await _await_leaders(consumer, groups)
        for topic in topics:
            for group in groups:
                header = CreateTopicRequestHeader(
                    topic=topic,
                    default_topic=DEFAULT_TOPIC,
                    read_queue_nums=queues,
                    write_queue_nums=queues,
                    perm=PERM_READ_WRITE,
                    topic_filter_type="SINGLE_TAG",
                    attributes=attributes,
                )
                make = functools.partial(
                    RemotingCommand,
                    code=RequestCode.UPDATE_AND_CREATE_TOPIC,
                    ext_fields=header.to_ext_fields(),
                )
                await call_group(
                    consumer.instance,
                    group,
                    make,
                    topic=DEFAULT_TOPIC,
                    timeout_ms=TIMEOUT_MS,
                    policy=RetryPolicy(attempt_timeout_ms=ATTEMPT_TIMEOUT_MS),
                )
        return [
            queue
            for topic in topics
            for queue in await _await_route(consumer, topic, queues * len(groups))
        ]


async def _await_leaders(consumer: PullConsumer, groups: Sequence[str]) -> None:
    """Wait until the name servers know a leader of every group."""
    missing = set(groups)
    while missing:
        route = await _look_up(consumer, DEFAULT_TOPIC)
        if route is not None:
            missing -= {name for name, addresses in route.groups.items() if 0 in addresses}
        if missing:
            await asyncio.sleep(ROUTE_POLL_S)


async def _await_route(consumer: PullConsumer, topic: str, count: int) -> tuple[MessageQueue, ...]:
    while True:
        route = await _look_up(consumer, topic)
        if route is not None and len(route.read_queues) == count:
            return tuple(sorted(route.read_queues))
        await asyncio.sleep(ROUTE_POLL_S)


async def _look_up(consumer: PullConsumer, topic: str) -> TopicRoute | None:
    """Return the route; None where it is not registered yet, and the caller's deadline decides."""
    try:
        return await consumer.instance.routes.refresh(topic)
    except ClientError:
        return None
