"""Traces at their limits of size: nothing of them is lost that is not counted.

Place in the data path: `client.trace`. A traced producer sends batches of many messages, long tags
and many keys within the time for which records wait to be sent together, into a trace topic of its
own.

Invariants: what is in the topic is read as the dashboard reads it, by `trace_records`; what was
acknowledged and is not there is in `lost`.

Source: RocketMQ AsyncTraceDispatcher (limits of a trace message), TraceDataEncoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chaos.workload.parts.app_bench import Bench
from chaos.workload.parts.drill import UNLISTED
from chaos.workload.parts.trace_records import traces_of
from client.message import Message
from client.trace.tracer import TraceSettings

__all__ = ["FullTraces"]

KEYS_SIZE_MAX: Final = 20_000  # of a trace message, RocketMQ's
SENDS: Final = (8, 14)
BATCH: Final = (1, 150)
TAG_SIZE: Final = (8_000, 25_000)
KEY_SIZE: Final = (500, 2_500)
KINDS: Final = 3
LINGER_MS: Final = (200, 2_000)


class FullTraces:
    """One producer for each kind of large record."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._topic = f"{UNLISTED}{bench.name}-records"
        self._sent: set[str] = set()

    async def run(self) -> None:
        """Send, stop, and read what was traced. Raises ClientError."""
        bench = self._bench
        await bench.make_topic(1)
        await bench.admin.create_topic(self._topic, queues=1, broker_names=[bench.broker_group])
        for kind in range(KINDS):
            await self._send(kind)
        traced = await self._read()
        bench.hold(
            "messages of a traced client that had stopped, without a trace",
            expected="none",
            answered=", ".join(sorted(self._sent - traced)) or "none",
        )

    async def _send(self, kind: int) -> None:
        rng = self._bench.rng
        settings = TraceSettings(topic=self._topic, linger_ms=rng.choice(LINGER_MS))
        async with self._bench.producer(trace=settings, compression=None) as producer:
            for _ in range(rng.randint(*SENDS)):
                messages = self._messages(kind)
                if len(messages) == 1:
                    await producer.send(messages[0])
                else:
                    await producer.send_batch(messages)
                self._sent.update(str(message.uniq_key) for message in messages)

    def _messages(self, kind: int) -> Sequence[Message]:
        rng, bench = self._bench.rng, self._bench
        if kind == 0:
            return [bench.message() for _ in range(rng.randint(*BATCH))]
        if kind == 1:
            return [bench.message(tags="t" * rng.randint(*TAG_SIZE))]
        keys = tuple(str(n) * rng.randint(*KEY_SIZE) for n in range(rng.randint(1, 3)))
        return [bench.message(keys=keys)]

    async def _read(self) -> set[str]:
        """Read the trace topic to its end; return the ids in it. Raises ClientError."""
        bench, ids = self._bench, set[str]()
        (queue,) = await bench.reader.queues(self._topic)
        position, end = 0, await bench.reader.max_offset(queue)
        while position < end:
            result = await bench.reader.pull(queue, position)
            for message in result.messages:
                found = [trace["msg_id"] for trace in traces_of(message.body)]
                ids.update(key for text in found for key in text.split(","))
                one_alone = len(found) == 1
                bench.hold(
                    "whether a trace message of several records is within its limit",
                    expected=True,
                    answered=one_alone or len(" ".join(message.keys)) <= KEYS_SIZE_MAX,
                )
            if result.next_begin_offset <= position:
                break
            position = result.next_begin_offset
        return ids
