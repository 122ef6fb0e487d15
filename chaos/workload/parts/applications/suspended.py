"""A push consumer that is suspended: it pulls nothing until it is resumed, whatever it gains.

Place in the data path: `client.consume.push_consumer`. A member is suspended before its start, and
before it gains queues: of a member that leaves, of a subscription, or of a topic that has grown.

Invariant: what must not be given is judged in any case; what must be, without faults.

Source: RocketMQ DefaultMQPushConsumer.suspend, resume; docs/CLIENT.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from client.consume.listener import ConsumeStatus
from client.consume.push_consumer import PushConsumer
from client.message import DeliveredMessage, MessageQueue

__all__ = ["SuspendedMember"]

QUEUES: Final = 4
MORE_QUEUES: Final = 2
SHARED_S: Final = 5.0
QUIET_S: Final = 0.7
GIVEN_S: Final = 4.0
GROWN_S: Final = 8.0  # routes are polled every so often


class SuspendedMember:
    """The member, and one that comes and leaves."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._given: dict[PushConsumer, set[bytes]] = {}
        self._producer = bench.producer()
        self._queues: list[MessageQueue] = []

    async def run(self) -> None:
        """Suspend and resume. Raises ClientError."""
        bench = self._bench
        self._queues = await bench.make_topic(QUEUES)
        member = self._member()
        member.suspend()
        async with self._producer, member:
            bodies = await self._send()
            await self._hold_quiet("before its start", member, bodies)
            member.resume()
            await self._hold_given(member, bodies)
            ways = [self._gain_of_member, self._gain_of_topic]
            bench.rng.shuffle(ways)
            for gain in ways:
                bodies = await gain(member)
                member.resume()
                await self._hold_given(member, bodies)

    def _member(self) -> PushConsumer:
        given: set[bytes] = set()

        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            given.update(message.body for message in messages)
            return ConsumeStatus.CONSUME_SUCCESS

        consumer = self._bench.consumer(listen, suspend_ms=1_000)
        consumer.subscribe(self._bench.topic)
        self._given[consumer] = given
        return consumer

    async def _send(self) -> set[bytes]:
        """Send a message to each queue."""
        bodies: set[bytes] = set()
        for queue in self._queues:
            message = self._bench.message()
            await self._producer.send(message, queue=queue)
            bodies.add(message.body)
        return bodies

    async def _gain_of_member(self, member: PushConsumer) -> set[bytes]:
        """Have another member come, and leave when this one is suspended."""
        other = self._member()
        async with other:
            half = len(self._queues) // 2
            await self._owns(member, half, "another came")
            await self._owns(other, half, "it came")
            member.suspend()
        bodies = await self._send()
        await self._hold_quiet("before a member left", member, bodies)
        return bodies

    async def _gain_of_topic(self, member: PushConsumer) -> set[bytes]:
        """Have it subscribe anew when it is suspended."""
        member.unsubscribe(self._bench.topic)
        await self._owns(member, 0, "it had unsubscribed")
        member.suspend()
        member.subscribe(self._bench.topic)
        bodies = await self._send()
        await self._hold_quiet("before it subscribed", member, bodies)
        return bodies

    async def _owns(self, member: PushConsumer, count: int, when: str) -> None:
        await self._bench.becomes(
            f"queues of a member, when {when}",
            lambda: sum(queue.topic == self._bench.topic for queue in member.queues),
            expected=count,
            within_s=SHARED_S,
        )

    async def _hold_quiet(self, since: str, member: PushConsumer, bodies: set[bytes]) -> None:
        await self._owns(member, len(self._queues), f"it was suspended {since}")
        await self._bench.stays(
            f"messages that a member was given, suspended {since}",
            lambda: len(self._given[member] & bodies),
            expected=0,
            for_s=QUIET_S,
        )

    async def _hold_given(self, member: PushConsumer, bodies: set[bytes]) -> None:
        await self._bench.becomes(
            "messages that a member was not given, once resumed",
            lambda: len(bodies - self._given[member]),
            expected=0,
            within_s=GIVEN_S,
        )
