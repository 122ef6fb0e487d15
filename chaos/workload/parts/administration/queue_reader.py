"""A process that reads one topic's queues in turn, whatever becomes of the topic.

Place in the data path: `client.consume.pull_consumer`, for parts whose topics are deleted or taken
away from their readers.

Invariants: a queue is read on from where the last answer ended, under an `assign` of the process
that reads it; a reader that finds its position gone begins anew where the queue begins now; a
refusal tells its code.

Source: the run format (assign, poll).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chaos.workload.actor import Actor
from chaos.workload.context import WorkContext, queue_row
from chaos.workload.pull_reader import complete_poll
from client.consume.pull_consumer import PullConsumer
from client.consume.queue_requests import PullStatus
from client.errors import BrokerRefusedError, ClientError
from client.message import MessageQueue

__all__ = ["QueueReader"]

BATCH_MAX: Final = 32


class QueueReader:
    """The process. `client` is its client's name in the history."""

    def __init__(
        self,
        context: WorkContext,
        consumer: PullConsumer,
        client: str,
        queues: Sequence[MessageQueue],
    ) -> None:
        self._context = context
        self._consumer = consumer
        self._queues = queues
        self._positions = dict.fromkeys(queues, 0)
        self._assigned_as: dict[MessageQueue, str] = {}
        self._turn = 0
        self._actor = Actor(
            context.history, root=client, client=client, client_group=consumer.group
        )

    async def poll_next(self) -> None:
        """Poll the queue whose turn it is."""
        queue = self._queues[self._turn % len(self._queues)]
        self._turn += 1
        await self._poll(queue, self._positions[queue])

    async def poll_beginning(self, queue: MessageQueue) -> None:
        """Query what stood first of all: of a deleted topic it must not come back."""
        self._assigned_as.pop(queue, None)
        await self._poll(queue, 0)

    async def _poll(self, queue: MessageQueue, offset: int) -> None:
        if self._assigned_as.get(queue) != self._actor.name:
            with self._actor.operation("assign") as operation:
                self._assigned_as[queue] = self._actor.name
                operation.complete("ok", assigned=[queue_row(queue)])
        with self._actor.operation(
            "poll",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            offset=offset,
        ) as operation:
            try:
                result = await self._consumer.pull(queue, offset, BATCH_MAX)
            except BrokerRefusedError as error:
                node = self._context.node(error.address)
                operation.failed(error, status=str(error.code), node=node)
                return
            except ClientError as error:
                operation.failed(error)
                return
            complete_poll(operation, result, self._context)
        if result.status is PullStatus.OFFSET_ILLEGAL:
            # What stood there is gone with its topic: begin where the queue begins now.
            self._positions[queue] = result.min_offset
            self._assigned_as.pop(queue, None)
        else:
            self._positions[queue] = result.next_begin_offset
