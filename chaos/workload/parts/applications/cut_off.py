"""An orderly member that is cut off for longer than its locks last, while another one consumes in
its place and leaves again.

Place in the data path: `client.consume.queue_locks`. What had been granted is not its own any more
when it is back: its queues start again where the group has got to.

Invariants: the cut is of this drill's slot alone and is no fault of the run; brokers' lease is the
scenario's, and where it is long the drill is left out.

Source: RocketMQ RebalanceLockManager (REBALANCE_LOCK_MAX_LIVE_TIME), ProcessQueue.isLockExpired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from chaos.scenario.part_sections import part_settings
from chaos.workload.parts.applications.bench import Bench
from client.consume.listener import ConsumeStatus
from client.consume.push_consumer import PushConsumer
from client.message import DeliveredMessage, MessageQueue

__all__ = ["CutOffMember", "lease_ms_of"]

QUEUES: Final = 2
LEASE_MS: Final = 60_000  # a broker's, where a scenario sets none
LEASE_MS_MAX: Final = 8_000
RENEWALS: Final = 3  # in a lease
FIRST: Final = 4  # messages of a queue, before the cut
GIVEN_S: Final = 5.0
COMMIT_MS: Final = 600
AFTER_S: Final = 3.0


def lease_ms_of(bench: Bench) -> int:
    """Return how long brokers keep a lock that is not renewed."""
    settings = part_settings(bench.kit.context.scenario.parts)
    return int(settings.get("lock_lease_ms", LEASE_MS))


class CutOffMember:
    """The member at `bench`, whose links are cut, and the others at `others`."""

    def __init__(self, bench: Bench, others: Bench) -> None:
        self._bench = bench
        self._others = others
        self._lease_ms = lease_ms_of(bench)
        self._given: dict[PushConsumer, list[tuple[MessageQueue, bytes]]] = {}
        self._producer = others.producer()
        self._queues: list[MessageQueue] = []

    @property
    def is_possible(self) -> bool:
        return self._lease_ms <= LEASE_MS_MAX

    async def run(self) -> None:
        """Cut the member off, and have it back. Raises ClientError, LinksError."""
        self._queues = await self._bench.make_topic(QUEUES)
        member, other = self._member(self._bench), self._member(self._others)
        async with self._producer, member:
            seen = await self._send(FIRST)
            await self._is_given("a member that holds the locks", member, seen)
            await asyncio.sleep(COMMIT_MS * 2 / 1000)  # what it consumed is committed
            async with self._bench.unheard(both=True), other:
                # Some that the first one has, and what came since.
                more = await self._send(FIRST)
                await self._is_given(
                    "a member whose group's other one is cut off",
                    other,
                    more,
                    within_s=GIVEN_S + 2 * self._lease_ms / 1000,
                )
            had = len(self._given[member])
            last = await self._send(1)
            await self._is_given(
                "a member that was cut off, of what came since",
                member,
                last,
                within_s=GIVEN_S + 2 * self._lease_ms / 1000,
            )
            await asyncio.sleep(AFTER_S)
            again = [body for _, body in self._given[member][had:] if body in more | seen]
            self._bench.hold(
                "messages that another member had consumed, and that one which had been cut off"
                " for longer than its locks last was given",
                expected=0,
                answered=len(again),
            )
        await self._hold_committed()

    def _member(self, bench: Bench) -> PushConsumer:
        given: list[tuple[MessageQueue, bytes]] = []

        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            given.extend((message.queue, message.body) for message in messages)
            return ConsumeStatus.CONSUME_SUCCESS

        consumer = bench.consumer(
            listen,
            group=f"{self._bench.name}-consumers",
            ordered=True,
            suspend_ms=1_000,
            answer_slack_ms=500,
            commit_interval_ms=COMMIT_MS,
            lock_interval_ms=self._lease_ms // RENEWALS,
            lock_held_ms=self._lease_ms // 2,
        )
        consumer.subscribe(self._bench.topic)
        self._given[consumer] = given
        return consumer

    async def _send(self, count: int) -> set[bytes]:
        bodies: set[bytes] = set()
        for queue in self._queues:
            for _ in range(count):
                message = self._bench.message()
                await self._producer.send(message, queue=queue)
                bodies.add(message.body)
        return bodies

    async def _is_given(
        self, who: str, member: PushConsumer, bodies: set[bytes], within_s: float = GIVEN_S
    ) -> None:
        await self._others.becomes(
            f"messages that were not given to {who}",
            lambda: len(bodies - {body for _, body in self._given[member]}),
            expected=0,
            within_s=within_s,
        )

    async def _hold_committed(self) -> None:
        """Hold that the group has committed all, once both have left."""
        group = f"{self._bench.name}-consumers"
        progress = await self._others.admin.consumer_progress(group, self._bench.topic)
        ends = {queue: await self._others.reader.max_offset(queue) for queue in self._queues}
        self._bench.hold(
            "progress of an orderly group behind a cut",
            expected=sorted(ends.values()),
            answered=sorted(progress[queue].consumer_offset for queue in progress),
        )
