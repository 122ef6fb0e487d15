"""Queries maximum offsets all the time: answers must be linearizable (G6).

Place in the data path: `client.consume.pull_consumer` through the slot's own proxies, without a
group that reads; each answer is a max_offset operation.

Source: the run format (max_offset; A15).
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from chaos.workload.actor import Actor
from chaos.workload.context import Slot, WorkContext
from chaos.workload.pace import Pace
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError
from client.message import MessageQueue

__all__ = ["OffsetReader", "make_tool", "read_max_offset", "read_min_offset"]

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


def make_tool(context: WorkContext, slot: Slot) -> PullConsumer:
    """Return a client that queries queues and belongs to no group that brokers know."""
    return PullConsumer(
        GROUP,
        context.name_servers,
        slot.dial,
        settings=PullConsumerSettings(
            timeout_ms=TIMEOUT_MS, register=False, instance=slot.instance_settings()
        ),
    )


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
    """Return the first offset kept; None without an answer. Not an operation of the run format."""
    try:
        return await consumer.min_offset(queue)
    except ClientError:
        return None  # the caller queries again until its deadline
