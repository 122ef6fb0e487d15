"""Messages that are looked for by key in a topic on all broker groups, as tools look for them.

Place in the data path: `client.administer.admin`, which asks each broker group and puts their
answers together. The drill sends to groups in turn and at random, under a key of many messages, one
of the same hash, and keys of their own, and reads all queues.

Invariant: what is to be found is computed from the messages read: those with the key, of them those
within the time, of them the newest; by times of storing only, since equal ones tell no order.

Source: RocketMQ MQAdminImpl.queryMessage (maxNum, begin, end, _UNIQUE_KEY_QUERY), IndexFile (by
hash alone).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from chaos.workload.parts.app_bench import Bench
from client.message import DeliveredMessage, MessageQueue

__all__ = ["KeyLookups"]

QUEUES: Final = 2  # of each broker group
MESSAGES: Final = 20
APART_S: Final = 0.003
SHARED: Final = "Aa"
TWIN: Final = "BB"  # Java's String.hashCode is the same
LOOKUPS: Final = 14
COUNT_MAX: Final = 32
PAGE: Final = 32


class KeyLookups:
    """One topic, filled first."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def run(self) -> None:
        """Fill the topic, and look for messages. Raises ClientError."""
        bench = self._bench
        groups = sorted(bench.kit.context.world.layout.groups)
        await bench.admin.create_topic(bench.topic, queues=QUEUES, broker_names=groups)
        queues = [MessageQueue(bench.topic, name, at) for name in groups for at in range(QUEUES)]
        async with bench.producer() as producer:
            for number in range(MESSAGES):
                shared = (SHARED, TWIN, "")[bench.rng.choice((0, 0, 0, 1, 2))]
                keys = tuple(key for key in (f"own-{number}", shared) if key)
                message = bench.message(keys=bench.rng.sample(keys, len(keys)))
                await producer.send(message, queue=bench.rng.choice(queues))
                await asyncio.sleep(APART_S)
        there = [message for queue in queues for message in await self._read(queue)]
        there.sort(key=lambda message: message.store_timestamp_ms)
        for _ in range(LOOKUPS):
            await self._look_up(there, bench.rng.choice((SHARED, SHARED, TWIN, "own-0", "none")))
        await self._look_up_unique(bench.rng.choice(there))

    async def _read(self, queue: MessageQueue) -> Sequence[DeliveredMessage]:
        return (await self._bench.reader.pull(queue, 0, PAGE)).messages

    async def _look_up(self, there: Sequence[DeliveredMessage], key: str) -> None:
        rng, times = self._bench.rng, [message.store_timestamp_ms for message in there]
        count_max = rng.choice((1, 2, 5, COUNT_MAX))
        begin_ms, end_ms = 0, times[-1] + 1
        if rng.random() < 0.5:
            begin_ms, end_ms = sorted((rng.choice(times), rng.choice(times)))
        found = await self._bench.admin.query_messages(
            self._bench.topic, key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms
        )
        expected = [
            message.store_timestamp_ms
            for message in there
            if key in message.keys and begin_ms <= message.store_timestamp_ms <= end_ms
        ]
        what = f"the newest {count_max} with {key}, of {begin_ms} to {end_ms}"
        self._bench.hold(
            f"times of storing of {what}",
            expected=expected[-count_max:],
            answered=[message.store_timestamp_ms for message in found],
        )
        bodies = {message.body for message in there if key in message.keys}
        strange = len([message for message in found if message.body not in bodies])
        self._bench.hold(f"messages that lack the key, among {what}", expected=0, answered=strange)

    async def _look_up_unique(self, message: DeliveredMessage) -> None:
        found = await self._bench.admin.query_messages(
            self._bench.topic, message.uniq_key, unique=True
        )
        self._bench.hold(
            "places of a message that is looked for by its id",
            expected=[(message.queue, message.queue_offset)],
            answered=[(each.queue, each.queue_offset) for each in found],
        )
