"""A process that sends single messages of a part and records how each send ended.

Place in the data path: `client.produce.producer`, one process of a part.

Invariants: a message is sent once, at once or to be delivered later; what is retried meanwhile is
the client's affair. `ref` says who
may lawfully refuse the send, which is then no loss of availability.

Source: the run format (ops: send).
"""

from __future__ import annotations

import random

from chaos.workload.actor import Actor
from chaos.workload.context import WorkContext
from chaos.workload.messages import MessageMaker, row_of_message, row_of_stored, wall_ms
from client.errors import BrokerRefusedError, ClientError
from client.message import Message, MessageQueue, SendStatus
from client.produce.producer import Producer
from remoting.records.property_names import PropertyName

__all__ = ["PartSender"]


class PartSender:
    """Sends messages as one process of a part. `ref` goes into each of its operations."""

    def __init__(
        self,
        context: WorkContext,
        producer: Producer,
        *,
        root: str,
        ref: str | None,
        rng: random.Random,
    ) -> None:
        self._context = context
        self._producer = producer
        self._ref = ref
        self.refused_with: int | None = None  # the code that the last send was refused with
        self._actor = Actor(context.history, root=root, client=root, client_group=producer.group)
        settings = context.scenario.workload
        self._maker = MessageMaker(
            prefix=root,
            body_bytes=settings.body_bytes,
            sizes_share=settings.sizes_share,
            rng=rng,
        )

    def make(self, topic: str) -> Message:
        return self._maker.make(topic, uniq_key=self._producer.instance.next_uniq_key(wall_ms()))

    async def send_later(self, message: Message, queue: MessageQueue, delay_ms: int) -> bool:
        """Send to be delivered `delay_ms` later, as one operation; return whether it was
        acknowledged."""
        message.properties = {**message.properties, PropertyName.TIMER_DELAY_MS: str(delay_ms)}
        row = row_of_message(message, broker_group=queue.broker_name, queue=queue.queue_id)
        with self._actor.operation(
            "delay",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            messages=[row],
            due=self._context.history.now_ns() + delay_ms * 1_000_000,
        ) as operation:
            try:
                result = await self._producer.send(message, queue=queue)
            except ClientError as error:
                operation.failed(error)
                return False
            acked = result.status is SendStatus.SEND_OK
            operation.complete(
                "ok" if acked else "info",
                status=result.status.value,
                node=self._context.node(result.address),
            )
        return acked

    async def send(self, message: Message, queue: MessageQueue) -> bool:
        """Send a message, record that as one operation, and return whether SEND_OK was answered.

        A send that was refused, or whose outcome is unknown, is recorded and raises nothing: False
        does not say whether the message is stored.
        """
        self.refused_with = None
        row = row_of_message(message, broker_group=queue.broker_name, queue=queue.queue_id)
        with self._actor.operation(
            "send",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            messages=[row],
            ref=self._ref,
        ) as operation:
            try:
                result = await self._producer.send(message, queue=queue)
            except BrokerRefusedError as error:
                self.refused_with = error.code
                node = self._context.node(error.address)
                operation.failed(error, status=str(error.code), node=node)
                return False
            except ClientError as error:
                operation.failed(error)
                return False
            acked = result.status is SendStatus.SEND_OK
            operation.complete(
                "ok" if acked else "info",
                messages=[row_of_stored(message, result)],
                status=result.status.value,
                node=self._context.node(result.address),
            )
        return acked
