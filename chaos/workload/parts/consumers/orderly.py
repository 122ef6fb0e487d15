"""Orderly consumption: a push group that consumes each queue under its broker's lock.

Place in the data path: a feed with shards sends to the part's topic; members join, leave and crash,
suspend queues for a while, and refuse some messages, which makes the queue wait a moment, or, what
is refused too often, go on without it: a dead letter.

Invariants: a delivery lasts from the listener's call to its answer, recorded by a process per
queue, so that two members at one queue show as overlapping operations; a member crashes only in the
first quarter of the load and at most `crashes` times in a run, since its locks stay for a while
(`lease_ms`), which each failover begins anew.

Source: RocketMQ ConsumeMessageOrderlyService; guarantees G3 and G5; rules C3, C4, C6 to C8, C12,
A13, M12.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from chaos.recording.history import MessageRow
from chaos.scenario.part_sections import OrderlySection
from chaos.workload.context import Slot
from chaos.workload.expectations import Expectations
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.failing_listener import CONSUME_TIMEOUT_MS, refuse
from chaos.workload.parts.common.fed_part import FedPart
from chaos.workload.parts.common.feed import Feed
from chaos.workload.parts.common.owed import Owed
from chaos.workload.parts.common.part import PartKit, PartSpec
from chaos.workload.parts.common.push_members import (
    COMMON_SETTINGS,
    Deliveries,
    Member,
    PushMembers,
    make_member,
    rows_of,
)
from chaos.workload.parts.consumers.dead_letters import DeadLetters
from chaos.workload.parts.consumers.locked_commits import LockedCommits
from chaos.workload.parts.consumers.redeliveries import Redeliveries, hold_counts
from client.consume.listener import ConsumeStatus
from client.consume.push_consumer import PushConsumer
from client.message import DeliveredMessage, MessageQueue
from remoting.protocol.group_topics import DLQ_PREFIX

__all__ = ["SPEC"]

NAME: Final = "orderly"
GROUP: Final = f"{NAME}-consumers"
CRASHES_UNTIL: Final = 0.25  # of the load
SUSPEND_S_MAX: Final = 1.0
SUSPEND_EVERY_S: Final = 4.0
REDELIVERY_MS: Final = 200  # how long a refused message makes its queue wait
RENEWALS: Final = 3  # in a lease, as by RocketMQ's defaults
# Some members believe in a lock no more before they renew it, as one whose machine stands still.
DOUBTING_SHARE: Final = 0.4  # of the members
DOUBTING_MS: Final = 1_000  # between renewals, at most
DOUBTING_FROM: Final = 0.6  # of the time between renewals on
READER_GROUP: Final = f"{NAME}-dead-letters"
LAST_REFUSAL_MS: Final = 4_000 + CONSUME_TIMEOUT_MS


class OrderlyPart(FedPart):
    def __init__(self, kit: PartKit) -> None:
        self._kit = kit
        self._section: OrderlySection = kit.section
        self._owed = Owed()
        self._stopped = False
        self._refused_s = 0.0  # when a message was refused for the last time
        self._crashes_left = int(self._section.crashes)
        self._crashes_until_s = 0.0
        self._feed = Feed(
            kit,
            NAME,
            f"{NAME}-sender",
            rate=self._section.rate,
            shards=int(self._section.shards),
            on_acked=self._acked,
        )
        self._members = [
            self._slot_members(kit.slots[f"{NAME}-{i}"], random.Random(kit.rng.getrandbits(64)))
            for i in range(int(self._section.clients))
        ]

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        """A message that is always refused is never read ok, so C6 takes the place of A5."""
        return {
            GROUP: {
                "kind": "cluster",
                "at_least_once": False,
                "ordered": True,
                "exclusive": True,
                "lease_ms": int(self._section.lease_ms),
                "retries_max": int(self._section.retries_max),
                "topics": [NAME],
            },
            READER_GROUP: {
                "kind": "cluster",
                "at_least_once": False,
                "ordered": False,
                "topics": [DLQ_PREFIX + GROUP],
            },
        }

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        load_s = self._kit.context.scenario.load.seconds
        self._crashes_until_s = asyncio.get_running_loop().time() + load_s * CRASHES_UNTIL
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._note(stop))
            tasks.create_task(super().run(stop, drained))
        await DeadLetters(
            self._kit.context, self._kit.slots[f"{NAME}-dead"], group=GROUP, reader=READER_GROUP
        ).read()

    async def _note(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._stopped = True

    def is_settled(self) -> bool:
        """What is refused is refused in place, and a dead letter soon behind its last time."""
        quiet_s = asyncio.get_running_loop().time() - self._refused_s
        return quiet_s >= LAST_REFUSAL_MS / 1000

    def has_read(self) -> bool:
        return self._owed.is_empty

    def _acked(self, row: MessageRow) -> None:
        self._owed.acknowledged(row.value)

    def _draw_crash(self) -> bool:
        in_time = asyncio.get_running_loop().time() < self._crashes_until_s
        share = self._section.crash_share
        if not in_time or not self._crashes_left or self._kit.rng.random() >= share:
            return False
        self._crashes_left -= 1
        return True

    def _slot_members(self, slot: Slot, rng: random.Random) -> PushMembers:
        def make(client: str) -> Member:
            deliveries = Deliveries(self._kit, client=client, group=GROUP)
            interval_ms = int(self._section.lease_ms) // RENEWALS
            held_ms = int(self._section.lease_ms) // 2
            commit_ms = COMMON_SETTINGS["commit_interval_ms"]
            if rng.random() < DOUBTING_SHARE:
                interval_ms = min(interval_ms, DOUBTING_MS)
                held_ms = round(DOUBTING_FROM * interval_ms)
                commit_ms = interval_ms // RENEWALS
            model = Redeliveries(
                limit=int(self._section.retries_max), wait_s=REDELIVERY_MS / 1000, ordered=True
            )
            expectations = Expectations(
                self._kit.context.history, client=client, client_group=GROUP
            )
            owned: set[MessageQueue] = set()

            def forget_lost(queues: Sequence[MessageQueue]) -> None:
                """Expect nothing of queues that went away; they begin anew where they come back."""
                for queue in owned.symmetric_difference(queues):
                    model.forget(queue)
                owned.clear()
                owned.update(queues)

            async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
                hold_counts(expectations, model, messages)
                queue, offsets = messages[0].queue, [each.queue_offset for each in messages]
                if await self._consume(messages, deliveries, rng):
                    model.consumed(queue, offsets)
                    return ConsumeStatus.CONSUME_SUCCESS
                model.refused(queue, offsets, asyncio.get_running_loop().time())
                return await refuse(rng)

            return make_member(
                self._kit,
                slot,
                listen,
                client=client,
                group=GROUP,
                topics=[NAME],
                settings={
                    "ordered": True,
                    "consume_batch_max": int(self._section.batch),
                    "redelivery_ms_min": REDELIVERY_MS,
                    "reconsume_times_max": int(self._section.retries_max),
                    "consume_timeout_ms": CONSUME_TIMEOUT_MS + 2 * int(self._section.slow_ms),
                    "commit_interval_ms": commit_ms,
                    "lock_interval_ms": interval_ms,
                    "lock_held_ms": held_ms,
                },
                on_assigned=forget_lost,
                observe=partial(LockedCommits, held_ms=held_ms),
            )

        async def disturb(consumer: PushConsumer, over: asyncio.Event) -> None:
            await self._suspend_now_and_then(consumer, over, rng)

        return PushMembers(
            slot,
            make,
            restart_s=self._section.restart_s,
            crash=self._draw_crash,
            rng=rng,
            disturb=disturb,
        )

    async def _consume(
        self, messages: Sequence[DeliveredMessage], deliveries: Deliveries, rng: random.Random
    ) -> bool:
        """Record a call of the listener; return whether it consumes."""
        rows = rows_of(messages)
        # A lock may keep a queue for long behind the load: then nothing more is to be stored.
        poisoned = not self._stopped and any(
            _luck(row.value) < self._section.poison_share for row in rows
        )
        with deliveries.delivery(messages[0].queue, rows) as operation:
            slow = rng.random() < self._section.slow_share
            longest_ms = self._section.slow_ms if slow else 2 * self._section.consume_ms
            await asyncio.sleep(rng.uniform(0, longest_ms / 1000))
            refused = poisoned or rng.random() < self._section.refuse_share
            operation.complete("fail" if refused else "ok")
        lasts = [
            row.value
            for row, message in zip(rows, messages, strict=True)
            if refused and message.reconsume_times >= self._section.retries_max
        ]
        if lasts:  # by chance they may be behind the load, too
            self._refused_s = asyncio.get_running_loop().time()
        self._owed.consumed(lasts if refused else [row.value for row in rows])
        return not refused

    async def _suspend_now_and_then(
        self, consumer: PushConsumer, over: asyncio.Event, rng: random.Random
    ) -> None:
        while not await sleep_until_set(over, rng.expovariate(1 / SUSPEND_EVERY_S)):
            if not consumer.queues:
                continue
            queue = rng.choice(consumer.queues)
            consumer.suspend([queue])
            await sleep_until_set(over, rng.uniform(0, SUSPEND_S_MAX))
            consumer.resume([queue])


def _luck(value: str) -> float:
    return zlib.crc32(value.encode()) / 2**32


def _slots(section: OrderlySection) -> Sequence[str]:
    return [f"{NAME}-sender", f"{NAME}-dead", *(f"{NAME}-{i}" for i in range(int(section.clients)))]


SPEC: Final = PartSpec(
    name=NAME,
    summary="a push group that consumes each queue in order, under its broker's lock",
    topics=lambda _: [NAME],
    slots=_slots,
    make=OrderlyPart,
    judged_by=("C3", "C4", "C6", "C7", "C8", "C12", "C18", "A12", "A13", "A22", "M12"),
)
