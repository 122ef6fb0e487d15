"""Reads the dead letters of a group once its members have ended.

Place in the data path: parts whose listeners refuse messages for ever read `%DLQ%group` at the end,
so that what stands there is seen as a consumer sees it.

Invariant: what can't be read is given up; the log has it, and the rules say what was lost.

Source: RocketMQ's dead-letter queue; rules C6, C7, C18.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.workload.actor import Actor
from chaos.workload.context import Slot, WorkContext
from chaos.workload.pull_reader import complete_poll
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError, NoRouteError
from client.message import MessageQueue
from remoting.protocol.group_topics import DLQ_PREFIX

__all__ = ["DeadLetters"]

READ_ATTEMPTS: Final = 20
READ_PAUSE_S: Final = 0.25
READ_BATCH_MAX: Final = 32
TIMEOUT_MS: Final = 3_000


class DeadLetters:
    """The reader, in group `reader`, of the dead letters of `group`, at the end of the run."""

    def __init__(self, context: WorkContext, slot: Slot, *, group: str, reader: str) -> None:
        self._context = context
        self._slot = slot
        self._group = group
        self._reader = reader

    async def read(self) -> None:
        """Read every queue of `%DLQ%group` from its beginning; what is unread then shows so."""
        client = self._slot.next_client()
        settings = PullConsumerSettings(
            timeout_ms=TIMEOUT_MS, register=False, instance=self._slot.instance_settings()
        )
        actor = Actor(self._context.history, root=client, client=client, client_group=self._reader)
        async with PullConsumer(
            self._reader, self._context.name_servers, self._slot.dial, settings=settings
        ) as consumer:
            try:
                queues = await consumer.queues(DLQ_PREFIX + self._group)
            except NoRouteError:
                return  # the topic is made with the first dead letter
            except ClientError:
                return  # no name server answers: the log has what was not read here
            for queue in queues:
                await self._read_queue(consumer, actor, queue)

    async def _read_queue(self, consumer: PullConsumer, actor: Actor, queue: MessageQueue) -> None:
        position = failures = 0
        while failures < READ_ATTEMPTS:
            with actor.operation(
                "poll",
                broker_group=queue.broker_name,
                topic=queue.topic,
                queue=queue.queue_id,
                offset=position,
            ) as operation:
                try:
                    result = await consumer.pull(queue, position, READ_BATCH_MAX)
                except ClientError as error:
                    operation.failed(error)
                    failures += 1
                    await asyncio.sleep(READ_PAUSE_S)
                    continue
                complete_poll(operation, result, self._context)
            if result.next_begin_offset <= position or not result.messages:
                return
            position = result.next_begin_offset
