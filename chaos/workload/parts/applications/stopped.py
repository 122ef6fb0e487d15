"""Clients that are stopped in the midst of their work: what they had begun is done in full.

Place in the data path: `client.produce.producer` with its tracer, and
`client.consume.push_consumer`, on one queue.

Invariants: a stop waits for what is under way, so that each send that was answered is in the trace
topic, and what a listener took is not given to the group again.

Source: docs/CLIENT.md (stop); RocketMQ DefaultMQPushConsumerImpl.shutdown, which awaits its threads
before it persists offsets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.common.drill import UNLISTED
from chaos.workload.parts.common.trace_records import traces_of
from client.consume.listener import ConsumeStatus
from client.errors import ClientError
from client.message import DeliveredMessage, MessageQueue
from client.trace.tracer import TraceSettings

__all__ = ["StoppedClients"]

SENT: Final = 12
TRACED_S: Final = 5.0
BEGINS_S: Final = 6.0
WORK_S: Final = 1.5
COMMITTED_S: Final = 3.0


class StoppedClients:
    """A producer that is stopped while it sends, and a consumer while its listener is at work."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._traces = f"{UNLISTED}{bench.name}-records"
        self._taken: list[int] = []
        self._ended = 0

    async def run(self) -> None:
        """Stop a producer, then a consumer of what it has sent. Raises ClientError."""
        (queue,) = await self._bench.make_topic(1)
        await self._stop_producer(queue)
        await self._stop_consumer(queue)

    async def _stop_producer(self, queue: MessageQueue) -> None:
        bench = self._bench
        await bench.admin.create_topic(self._traces, queues=1, broker_names=[bench.broker_group])
        producer = bench.producer(trace=TraceSettings(topic=self._traces))
        async with producer:
            sends = [
                asyncio.create_task(producer.send(bench.message(), queue=queue))
                for _ in range(SENT)
            ]
            await asyncio.sleep(0)  # so that each has begun
        sent = set()
        for send in sends:
            try:
                sent.add((await send).msg_id)
            except ClientError:
                continue  # a fault: nothing is known of it, and nothing is said
        bench.hold("sends under way that a stop has awaited", expected=SENT, answered=len(sent))
        await bench.comes(
            "sends under way at a stop that are in no trace",
            lambda: self._untraced(sent),
            expected=0,
            within_s=TRACED_S,
        )

    async def _untraced(self, sent: set[str]) -> int:
        """Return how many of these are in no trace. Raises ClientError."""
        traces = await self._bench.read(MessageQueue(self._traces, self._bench.broker_group, 0))
        traced = {record["msg_id"] for message in traces for record in traces_of(message.body)}
        return len(sent - traced)

    async def _stop_consumer(self, queue: MessageQueue) -> None:
        bench = self._bench
        consumer = bench.consumer(self._listen, consume_batch_max=SENT)
        consumer.subscribe(bench.topic)
        async with consumer:
            await bench.becomes(
                "whether a listener has begun that is at work for long",
                lambda: bool(self._taken),
                expected=True,
                within_s=BEGINS_S,
            )
        ended, taken = self._ended, len(self._taken)
        bench.hold("messages of calls that a stop has awaited", expected=taken, answered=ended)
        async with bench.tool(consumer.group) as tool:

            async def committed() -> int | None:
                return await tool.fetch_offset(queue)

            await bench.comes(
                "offset of a group whose member was stopped at work",
                committed,
                expected=max(self._taken, default=-1) + 1,
                within_s=COMMITTED_S,
            )

    async def _listen(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        self._taken += [message.queue_offset for message in messages]
        await asyncio.sleep(WORK_S)
        self._ended += len(messages)
        return ConsumeStatus.CONSUME_SUCCESS
