"""Topics of several broker groups: made at all of them, and consumed while one of them is silent.

Place in the data path: `client.administer` awaits a new topic's route; `client.consume` shares
queues out by the members that any of the topic's groups names.

Invariants: the silent group is the first by name, which a client that asks in order would ask
first; it is cut off from the drill's clients alone, and is back once the member has left.

Source: RocketMQ MQClientInstance.findConsumerIdList (any broker of the topic); docs/CLIENT.md.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from client.consume.listener import ConsumeStatus
from client.message import DeliveredMessage

__all__ = ["SeveralGroups"]

QUEUES: Final = 2
TOPICS: Final = 4
OWNED_S: Final = 12.0


class SeveralGroups:
    """Topics at all groups, and one member."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._groups = sorted(bench.kit.context.world.layout.groups)

    async def run(self) -> None:
        """Make topics, then join their consumers while a group is silent. Raises ClientError,
        LinksError."""
        if len(self._groups) < 2:
            return
        for number in range(TOPICS):
            await self._make(f"{self._bench.topic}-{number}")
        await self._join(f"{self._bench.topic}-0")

    async def _make(self, topic: str) -> None:
        """Make a topic; once that is answered, another client sees all of it."""
        bench = self._bench
        await bench.admin.create_topic(topic, queues=QUEUES, broker_names=self._groups)
        async with bench.admin_of("") as other:
            route = await other.instance.routes.refresh(topic)
        found = collections.Counter(queue.broker_name for queue in route.read_queues)
        bench.hold(
            "queues by broker group of a topic that was made at several",
            expected=[(name, QUEUES) for name in self._groups],
            answered=sorted(found.items()),
        )

    async def _join(self, topic: str) -> None:
        bench = self._bench
        silent, *others = self._groups
        consumer = bench.consumer(_take)
        consumer.subscribe(topic)
        async with bench.unheard(both=True, groups=[silent]), consumer:
            await bench.becomes(
                "broker groups whose queues the only member owns while the first one is silent",
                lambda: sorted(
                    {queue.broker_name for queue in consumer.queues if queue.topic == topic}
                    - {silent}
                ),
                expected=others,
                within_s=OWNED_S,
            )


async def _take(_: Sequence[DeliveredMessage]) -> ConsumeStatus:
    return ConsumeStatus.CONSUME_SUCCESS
