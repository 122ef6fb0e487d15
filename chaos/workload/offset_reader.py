"""Queries maximum offsets all the time: answers must be linearizable (G6).

Place in the data path: `client.consume.pull_consumer` through the slot's own proxies, without a
group that reads; each answer is a max_offset operation.

Source: the run format (max_offset; A15).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import AsyncIterator
from typing import Final

from chaos.workload.actor import Actor
from chaos.workload.context import Slot, WorkContext
from chaos.workload.pace import Pace
from client.connection.instance import ClientInstance
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError
from client.message import MessageQueue
from remoting.protocol.command import SerializeType

__all__ = ["OffsetReader", "make_tool", "make_tools", "read_max_offset", "read_min_offset"]

GROUP: Final = "offset-tools"
TIMEOUT_MS: Final = 2_000


class OffsetReader:
    def __init__(
        self, context: WorkContext, slot: Slot, *, rate: float, rng: random.Random
    ) -> None:
        self._context = context
        self._slot = slot
        self._rate = rate
        self._rng = rng

    async def run(self, stop: asyncio.Event) -> None:
        client = self._slot.next_client()
        actor = Actor(self._context.history, root=client, client=client, client_group=GROUP)
        pace = Pace(self._rate, self._rng)
        async with make_tool(self._context, self._slot) as consumer:
            while await pace.wait(stop):
                queue = self._rng.choice(self._context.queues)
                await read_max_offset(consumer, actor, queue)


def make_tool(context: WorkContext, slot: Slot, *, is_other_encoding: bool = False) -> PullConsumer:
    """Return a client that queries queues and belongs to no group that brokers know.

    `is_other_encoding`: its headers are not encoded as those of the slot's other clients."""
    settings = slot.instance_settings()
    if is_other_encoding:
        is_json = settings.serialize_type is SerializeType.JSON
        other = SerializeType.ROCKETMQ if is_json else SerializeType.JSON
        settings = dataclasses.replace(settings, serialize_type=other)
    return PullConsumer(
        GROUP,
        context.name_servers,
        slot.dial,
        settings=PullConsumerSettings(timeout_ms=TIMEOUT_MS, register=False, instance=settings),
    )


@contextlib.asynccontextmanager
async def make_tools(
    context: WorkContext, slot: Slot
) -> AsyncIterator[tuple[ClientInstance, ClientInstance]]:
    """Yield two such clients, one with headers in either encoding, that end with the block."""
    async with (
        make_tool(context, slot) as tool,
        make_tool(context, slot, is_other_encoding=True) as other,
    ):
        yield tool.instance, other.instance


async def read_max_offset(consumer: PullConsumer, actor: Actor, queue: MessageQueue) -> int | None:
    """Read the max offset as one recorded operation; return None where no answer came."""
    with actor.operation(
        "max_offset", broker_group=queue.broker_name, topic=queue.topic, queue=queue.queue_id
    ) as operation:
        try:
            offset = await consumer.max_offset(queue)
        except ClientError as error:
            operation.failed(error)
            return None
        operation.complete("ok", offset=offset)
        return offset


async def read_min_offset(consumer: PullConsumer, queue: MessageQueue) -> int | None:
    """Return the first retained offset; None without an answer. No operation of the run format."""
    try:
        return await consumer.min_offset(queue)
    except ClientError:
        return None  # the caller queries again until its deadline
