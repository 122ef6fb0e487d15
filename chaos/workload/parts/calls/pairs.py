"""Two members of the part `calls` that share a topic as their settings are by default: they look at
who else is in their group every twenty seconds, and in between when a broker notifies them.

Place in the data path: `client.consume.push_consumer` and the heartbeats of `client.connection`;
one of the two leaves in good order and comes back, over and over, for a while after the load, too,
when no fault is in the way.

Invariant: one of the two is always there, and the last one leaves once all is read.

Source: RocketMQ ConsumerManager (NOTIFY_CONSUMER_IDS_CHANGED), RebalanceService.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from chaos.workload.context import Slot
from chaos.workload.expectations import Expectations
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.owed import Owed
from chaos.workload.parts.common.part import PartKit
from chaos.workload.parts.common.push_members import Deliveries, Member, make_member, rows_of
from client.consume.listener import ConsumeStatus
from client.message import DeliveredMessage, MessageQueue

__all__ = ["GROUP", "Pair"]

GROUP: Final = "calls-pair"
REBALANCE_INTERVAL_MS: Final = 20_000  # of a consumer's settings by default
REBALANCE_MS: Final = 30_000  # for which two members may believe in one queue
SHARED_S: Final = 4.0  # within which members have new shares; a broker notifies them at once
STAY_S: Final = (0.2, 2.0)
HEARTBEATS: Final = 1.2  # periods, within which each member has sent one
POLL_S: Final = 0.05
ROUNDS_AFTER: Final = 3  # behind the load


class Pair:
    """The two members. `owed`: what their group is still to consume."""

    def __init__(self, kit: PartKit, slots: Sequence[Slot], *, topic: str) -> None:
        self._kit = kit
        self._slots = slots
        self._topic = topic
        self._rng = random.Random(kit.rng.getrandbits(64))
        self.owed = Owed()
        self._members: dict[int, Member] = {}  # by the number of the slot
        self._owned: dict[int, Sequence[MessageQueue]] = {}
        self._expectations: Expectations | None = None
        self._begun_ns = 0

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        common = {"kind": "cluster", "ordered": False, "topics": [self._topic]}
        return {GROUP: {**common, "at_least_once": True, "rebalance_ms": REBALANCE_MS}}

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        """Come and go until `stop`, and some more times; then stay until `drained`."""
        client = f"{self._slots[0].next_client()}.asked"
        self._expectations = Expectations(
            self._kit.context.history, client=client, client_group=GROUP
        )
        rounds = 0
        self._begun_ns = time.monotonic_ns()
        try:
            await self._come(0)
            while not drained.is_set() and rounds < ROUNDS_AFTER:
                rounds += stop.is_set()
                (there,) = self._members
                await self._hold_shares("a member comes", partial(self._come, 1 - there), drained)
                await sleep_until_set(drained, self._rng.uniform(*STAY_S))
                leaves = self._rng.randrange(2)
                await self._hold_shares("a member leaves", partial(self._leave, leaves), drained)
                await sleep_until_set(drained, self._rng.uniform(*STAY_S))
            await drained.wait()
        finally:
            for number in list(self._members):
                await self._leave(number)

    async def _come(self, number: int) -> None:
        member = self._members[number] = self._member(number)
        await member.consumer.start()

    async def _leave(self, number: int) -> None:
        member = self._members.pop(number)
        self._owned.pop(number, None)
        await member.consumer.stop()
        with member.actor.operation("assign") as operation:
            operation.complete("ok", assigned=[])

    async def _hold_shares(
        self, what: str, change: Callable[[], Awaitable[None]], drained: asyncio.Event
    ) -> None:
        """Have a member come or leave, and hold that the queues are shared anew soon.

        A broker that a fault made forget a member knows it again by its next heartbeat.
        """
        heartbeat_ns = round(HEARTBEATS * self._slots[0].heartbeat_ms) * 1_000_000
        since_ns = max(self._begun_ns, time.monotonic_ns() - heartbeat_ns)
        await change()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + SHARED_S
        expected = self._shared()
        while self._shares() != expected and loop.time() < end_s:
            if await sleep_until_set(drained, POLL_S):
                return
        assert self._expectations is not None
        self._expectations.hold(
            f"queues of the members, {SHARED_S:g} s after {what}",
            expected=expected,
            answered=self._shares(),
            topic=self._topic,
            calm_since=since_ns,
        )

    def _shared(self) -> list[int]:
        """Return how many queues each member is to have; none of two is to have a queue twice."""
        queues, members = len(self._kit.context.part_queues[self._topic]), len(self._members)
        return sorted(queues // members + (at < queues % members) for at in range(members))

    def _shares(self) -> list[int]:
        """Return how many queues each member has, of those that no other has."""
        shares = []
        for number in self._members:
            others = {
                queue
                for other, queues in self._owned.items()
                if other != number
                for queue in queues
            }
            shares.append(len(set(self._owned.get(number, ())) - others))
        return sorted(shares)

    def _member(self, number: int) -> Member:
        slot = self._slots[number]
        client = slot.next_client()
        deliveries = Deliveries(self._kit, client=client, group=GROUP)

        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            rows = rows_of(messages)
            with deliveries.delivery(messages[0].queue, rows) as operation:
                operation.complete("ok")
            self.owed.consumed(row.value for row in rows)
            return ConsumeStatus.CONSUME_SUCCESS

        def own(queues: Sequence[MessageQueue]) -> None:
            self._owned[number] = [queue for queue in queues if queue.topic == self._topic]

        return make_member(
            self._kit,
            slot,
            listen,
            client=client,
            group=GROUP,
            topics=[self._topic],
            settings={"rebalance_interval_ms": REBALANCE_INTERVAL_MS, "consume_batch_max": 16},
            on_assigned=own,
        )
