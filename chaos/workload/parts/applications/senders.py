"""Producers that use a message again, whose sends fail in the middle of others, and whose
connections are closed right behind sends that nobody awaits.

Place in the data path: `client.produce.producer`, with its defaults but for how many sends may be
in progress; what was stored is read back by a reader.

Invariants: a Message is the application's: whatever was sent of it, its body, keys and properties
are what they were; each send of it stores that body. A send that fails gives its place to the next.
What was sent before its connection is closed is sent.

Source: docs/CLIENT.md; RocketMQ DefaultMQProducerImpl (prevBody is put back after a send).
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from client.errors import ClientError
from client.message import Message, MessageQueue
from client.produce.producer import Producer

__all__ = ["BusySenders"]

STORED_S: Final = 2.0
TIMES: Final = 3
SIZES: Final = (10, 3_000, 9_000)  # of bodies; from 4 KiB on they are compressed
IN_FLIGHT: Final = 2
FAILURES: Final = 5
ONEWAYS: Final = 3
LATE_S: Final = 5.0


class BusySenders:
    """One producer, and a queue for each of its messages."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def run(self) -> None:
        """Send messages again and again, and behind sends that fail. Raises ClientError."""
        queues = await self._bench.make_topic(len(SIZES) + 2)
        async with self._bench.producer(in_flight_max=IN_FLIGHT) as producer:
            for queue, size in zip(queues, SIZES, strict=False):
                await self._send_again(producer, queue, size)
            await self._send_behind_failures(producer, queues[-2])
        await self._close_behind_sends(queues[-1])

    async def _send_again(self, producer: Producer, queue: MessageQueue, size: int) -> None:
        bench = self._bench
        body = (b"%d " % size) * (size // 4)
        message = bench.message(keys=("again",), properties={"mine": "kept"})
        message.body = body
        for _ in range(TIMES):
            message.uniq_key = None  # else the broker would take it for a retry of the first
            await producer.send(message, queue=queue)
        bench.hold(
            f"a message of {len(body)} bytes, once it was sent {TIMES} times",
            expected=(True, ("again",), "kept"),
            answered=(message.body == body, message.keys, message.properties.get("mine")),
        )

        async def stored() -> list[object]:
            found = (await bench.reader.pull(queue, 0, TIMES + 1)).messages
            return [len(each.body) if each.body == body else "other" for each in found]

        await bench.comes(  # a follower that answers may be behind
            f"what was stored of a message of {len(body)} bytes that was sent {TIMES} times",
            stored,
            expected=[len(body)] * TIMES,
            within_s=STORED_S,
        )

    async def _send_behind_failures(self, producer: Producer, queue: MessageQueue) -> None:
        """More sends fail than may be in progress: none of them keeps its place."""
        bench = self._bench
        failed = 0
        nobody = Message(topic="no/such topic", body=b"x")
        for _ in range(FAILURES):
            try:
                async with asyncio.timeout(LATE_S * bench.patience):
                    await (await producer.send_async(nobody))
            except (ClientError, TimeoutError) as error:
                failed += isinstance(error, ClientError)
        try:
            async with asyncio.timeout(LATE_S * bench.patience):
                sent = await (await producer.send_async(bench.message(), queue=queue))
            answered = f"stored at {sent.queue_offset}"
        except TimeoutError:
            answered = "it waits for a place"
        bench.hold(
            f"a send behind {FAILURES} that failed, where {IN_FLIGHT} may be in progress",
            expected=(FAILURES, "stored at 0"),
            answered=(failed, answered),
        )

    async def _close_behind_sends(self, queue: MessageQueue) -> None:
        """Send without an answer, and close in the same turn of the loop."""
        bench = self._bench
        async with bench.producer() as producer:
            await producer.send(bench.message(), queue=queue)  # it is connected from here on
            for _ in range(ONEWAYS):
                await producer.send_oneway(bench.message(), queue=queue)
            await producer.instance.rpc.close()

        async def stored() -> int:
            return await bench.reader.max_offset(queue)

        await bench.comes(
            f"messages of a queue, whose sender closed its connection behind {ONEWAYS}",
            stored,
            expected=1 + ONEWAYS,
            within_s=LATE_S,
        )
