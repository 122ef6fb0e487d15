"""Plain producers: each process sends one message after another and records how each send ended.

Place in the data path: `client.produce.producer` through the slot's own proxies. A share of the
messages belongs to shards: each shard is sent by one process alone, always to the same queue, so
that its order is the order of that process's sends. Another share are batches, which are stored as
a whole or not at all.

Invariants: a retry sends the same message object again (same value, same UNIQ_KEY) to the same
queue, in the same process or, after an `info`, its successor; a definite rejection that no retry
can repair ends the message.

Source: the run format (ops: send); guarantee G2.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final

from chaos.recording.history import MessageRow
from chaos.workload.actor import Actor
from chaos.workload.context import Slot, WorkContext
from chaos.workload.key_reader import KnownKeys
from chaos.workload.messages import MessageMaker, row_of_message, row_of_stored, wall_ms
from chaos.workload.pace import Pace, impatience
from client.errors import ClientError
from client.message import Message, MessageQueue, SendResult, SendStatus
from client.produce.producer import Producer, ProducerSettings

__all__ = ["PlainClient", "PlainSender"]

BATCH_COUNT_MIN: Final = 2
BATCH_COUNT_MAX: Final = 4


class PlainClient:
    """One slot's producer and its processes, for the whole load."""

    def __init__(
        self,
        context: WorkContext,
        slot: Slot,
        *,
        group: str,
        shards: Sequence[Sequence[int]],
        known: KnownKeys,
        rng: random.Random,
    ) -> None:
        """Make the client; `shards` holds those of each of its processes."""
        self._context = context
        self._slot = slot
        self._group = group
        self._shards = shards
        self._known = known
        self._rng = rng

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set and pending sends are completed."""
        settings = self._context.scenario.workload
        client = self._slot.next_client()
        rate = settings.send_rate / (settings.plain_clients * settings.plain_processes)
        if rate <= 0:
            return
        producer = Producer(
            self._group,
            self._context.name_servers,
            self._slot.dial,
            settings=ProducerSettings(
                timeout_ms=settings.send_timeout_ms,
                compression=self._slot.compression(),
                instance=self._slot.instance_settings(),
            ),
        )
        async with producer, asyncio.TaskGroup() as group:
            for number, shards in enumerate(self._shards):
                sender = PlainSender(
                    self._context,
                    producer,
                    root=f"{client}.p{number}",
                    client=client,
                    shards=shards,
                    known=self._known,
                    rate=rate,
                    rng=random.Random(self._rng.getrandbits(64)),
                )
                group.create_task(sender.run(stop))


class PlainSender:
    """One process. `shards` are its own."""

    def __init__(
        self,
        context: WorkContext,
        producer: Producer,
        *,
        root: str,
        client: str,
        shards: Sequence[int],
        known: KnownKeys,
        rate: float,
        rng: random.Random,
        on_acked: Callable[[MessageRow], None] | None = None,
    ) -> None:
        """Make the process; `on_acked` gets each message whose send was acknowledged."""
        self._context = context
        self._producer = producer
        self._actor = Actor(context.history, root=root, client=client, client_group=producer.group)
        self._settings = context.scenario.workload
        self._queues = context.queues
        self._shards = shards
        self._known = known
        self._pace = Pace(rate, rng)
        self._rng = rng
        self._on_acked = on_acked
        self._maker = MessageMaker(
            prefix=root,
            body_bytes=self._settings.body_bytes,
            sizes_share=self._settings.sizes_share,
            rng=rng,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set; the pending send is completed first."""
        while await self._pace.wait(stop):
            messages, queue = self._next_messages()
            timeout_ms = impatience(self._settings, self._rng)
            for _ in range(1 + self._settings.send_retries_max):
                if not await self._send(messages, queue, timeout_ms) or stop.is_set():
                    break
                timeout_ms = self._settings.send_timeout_ms

    def _next_messages(self) -> tuple[list[Message], MessageQueue]:
        """Return one message, or a batch, which belongs to no shard."""
        shard = None
        count = 1
        if self._rng.random() < self._settings.batch_share:
            count = self._rng.randint(BATCH_COUNT_MIN, BATCH_COUNT_MAX)
        if count == 1 and self._shards and self._rng.random() < self._settings.shard_share:
            number = self._rng.choice(self._shards)
            queue = self._queues[number % len(self._queues)]
            shard = f"shard-{number}"
        else:
            queue = self._rng.choice(self._queues)
        return [self._next_message(queue, shard) for _ in range(count)], queue

    def _next_message(self, queue: MessageQueue, shard: str | None) -> Message:
        uniq_key = self._producer.instance.next_uniq_key(wall_ms())
        return self._maker.make(queue.topic, uniq_key=uniq_key, shard=shard)

    async def _send(self, messages: list[Message], queue: MessageQueue, timeout_ms: int) -> bool:
        """Send as one operation; return whether the messages are to be sent once more.

        Now and then that is so for acknowledged ones too: a stored message must not be stored again
        (G2).
        """
        rows = [
            row_of_message(message, broker_group=queue.broker_name, queue=queue.queue_id)
            for message in messages
        ]
        with self._actor.operation(
            "send",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            messages=rows,
        ) as operation:
            try:
                result = await self._deliver(messages, queue, timeout_ms)
            except ClientError as error:
                operation.failed(error)
                return error.retriable or not error.definite
            acked = result.status is SendStatus.SEND_OK
            # The other statuses mean "stored here, the rest unknown": not an acknowledgement.
            stored = [
                row_of_stored(message, result, number) for number, message in enumerate(messages)
            ]
            operation.complete(
                "ok" if acked else "info",
                messages=stored,
                status=result.status.value,
                node=self._context.node(result.address),
            )
        if acked:
            for message in messages:
                self._known.acknowledged(message, result.queue, in_batch=len(messages) > 1)
            if self._on_acked is not None:
                for row in stored:
                    self._on_acked(row)
        return acked and self._rng.random() < self._settings.repeat_share

    async def _deliver(
        self, messages: list[Message], queue: MessageQueue, timeout_ms: int
    ) -> SendResult:
        if len(messages) == 1:
            return await self._producer.send(messages[0], timeout_ms=timeout_ms, queue=queue)
        return await self._producer.send_batch(messages, timeout_ms=timeout_ms, queue=queue)
