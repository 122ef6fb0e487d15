"""Long polls: readers whose pulls a broker holds until a message comes, or their time is up.

Place in the data path: a feed sends to the part's topic, slowly, so that most of the time a pull is
held at each queue. A queue has one reader at a time, a client of its own. Its offset rides on its
pulls, as with RocketMQ's own consumers, and a successor begins where the group's offset is.

Invariants: a reader that begins records an assign of its queue; its position moves only by what an
ok poll returned; nothing beyond its position rides on a poll.

Source: RocketMQ PullRequestHoldService, PullMessageProcessor's storeOffsetEnable; rules C15, S5.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Final

from chaos.scenario.part_sections import LongPollsSection
from chaos.workload.actor import Actor
from chaos.workload.context import Slot, queue_row
from chaos.workload.messages import row_of_delivered
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.fed_part import FedPart
from chaos.workload.parts.common.feed import Feed
from chaos.workload.parts.common.owed import Owed
from chaos.workload.parts.common.part import PartKit, PartSpec
from chaos.workload.pull_reader import complete_poll
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError
from client.message import MessageQueue

__all__ = ["SPEC"]

NAME: Final = "longpolls"
GROUP: Final = f"{NAME}-readers"
TIMEOUT_MS: Final = 3_000
BATCH_MAX: Final = 8
CRASH_SHARE: Final = 0.5
FETCH_SHARE: Final = 0.3  # of the polls, behind which the group's offset is queried
ERROR_PAUSE_S: Final = 0.1
RESTART_PAUSE_S: Final = 0.5


class LongPollsPart(FedPart):
    def __init__(self, kit: PartKit) -> None:
        self._kit = kit
        section: LongPollsSection = kit.section
        self._owed = Owed()
        self._feed = Feed(
            kit,
            NAME,
            f"{NAME}-sender",
            rate=section.rate,
            on_acked=lambda row: self._owed.acknowledged(row.value),
        )
        self._members = [
            _QueueReaders(kit, kit.slots[f"{NAME}-reader"], queue, self._owed)
            for queue in kit.context.part_queues[NAME]
        ]

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        return {
            GROUP: {
                "kind": "cluster",
                "at_least_once": True,
                "ordered": False,
                "wake_ms": int(self._kit.section.wake_ms),
                "topics": [NAME],
            }
        }

    def has_read(self) -> bool:
        return self._owed.is_empty


class _QueueReaders:
    """The readers of one queue, one after another."""

    def __init__(self, kit: PartKit, slot: Slot, queue: MessageQueue, owed: Owed) -> None:
        self._kit = kit
        self._section: LongPollsSection = kit.section
        self._slot = slot
        self._queue = queue
        self._owed = owed
        self._rng = random.Random(kit.rng.getrandbits(64))

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        """Run readers that come and go until `stop`, then one until `drained`."""
        restart_s = self._section.restart_s
        while not drained.is_set():
            consumer = PullConsumer(
                GROUP,
                self._kit.context.name_servers,
                self._slot.dial,
                settings=PullConsumerSettings(
                    timeout_ms=TIMEOUT_MS, instance=self._slot.instance_settings()
                ),
            )
            reader = _Reader(
                self._kit,
                consumer,
                self._queue,
                self._owed,
                client=self._slot.next_client(),
                rng=random.Random(self._rng.getrandbits(64)),
            )
            life_s = max(1.0, self._rng.expovariate(1 / restart_s)) if restart_s > 0 else None
            crashes = False
            await consumer.start()
            try:
                work = asyncio.create_task(reader.run(drained))
                try:
                    await _outlive(work, stop, None if stop.is_set() else life_s)
                    crashes = not stop.is_set() and self._rng.random() < CRASH_SHARE
                finally:
                    work.cancel()
                    await asyncio.wait([work])
                    if not work.cancelled():
                        work.result()
            finally:
                if crashes:
                    await consumer.crash()
                else:
                    await consumer.stop()
            await sleep_until_set(drained, RESTART_PAUSE_S)


async def _outlive(work: asyncio.Task[None], stop: asyncio.Event, life_s: float | None) -> None:
    """Wait until the reader's time is up or, once `stop` is set, until it has ended by itself."""
    if life_s is not None and not await sleep_until_set(stop, life_s):
        return
    await asyncio.wait([work])


class _Reader:
    """One reader of one queue."""

    def __init__(
        self,
        kit: PartKit,
        consumer: PullConsumer,
        queue: MessageQueue,
        owed: Owed,
        *,
        client: str,
        rng: random.Random,
    ) -> None:
        self._context = kit.context
        self._hold_ms = int(kit.section.hold_ms)
        self._consumer = consumer
        self._queue = queue
        self._owed = owed
        self._rng = rng
        self._actor = Actor(kit.context.history, root=client, client=client, client_group=GROUP)
        self._assigned_as = ""
        self._position = 0

    async def run(self, drained: asyncio.Event) -> None:
        """Begin at the group's offset and poll until `drained`."""
        stored = await self._fetch()
        while stored is None and not await sleep_until_set(drained, ERROR_PAUSE_S):
            stored = await self._fetch()
        self._position = stored or 0
        while not drained.is_set():
            if self._actor.name != self._assigned_as:
                self._assign()  # an unknown outcome retired the process; its successor reads on
            if not await self._poll():
                await asyncio.sleep(ERROR_PAUSE_S)
            elif self._rng.random() < FETCH_SHARE:
                await self._fetch()

    def _assign(self) -> None:
        with self._actor.operation("assign") as operation:
            self._assigned_as = self._actor.name
            operation.complete("ok", assigned=[queue_row(self._queue)])

    async def _fetch(self) -> int | None:
        """Return where to begin; None where no answer came."""
        with self._actor.operation("fetch_offset", **self._place()) as operation:
            try:
                stored = await self._consumer.fetch_offset(self._queue)
            except ClientError as error:
                operation.failed(error)
                return None
            operation.complete("ok", offset=stored)
        return stored or 0

    async def _poll(self) -> bool:
        """Poll once, for as long as the broker holds it; return whether it was answered."""
        position = self._position
        rides = position or None
        with self._actor.operation(
            "poll",
            **self._place(),
            offset=position,
            due=self._context.history.now_ns() + self._hold_ms * 1_000_000,
            commit_offset=rides,
        ) as operation:
            try:
                result = await self._consumer.pull(
                    self._queue,
                    position,
                    BATCH_MAX,
                    suspend_ms=self._hold_ms,
                    commit_offset=rides,
                )
            except ClientError as error:
                operation.failed(error)
                return False
            complete_poll(operation, result, self._context)
        self._owed.consumed(row_of_delivered(message).value for message in result.messages)
        self._position = result.next_begin_offset
        return True

    def _place(self) -> dict[str, str | int]:
        return {
            "broker_group": self._queue.broker_name,
            "topic": self._queue.topic,
            "queue": self._queue.queue_id,
        }


SPEC: Final = PartSpec(
    name=NAME,
    summary="readers whose pulls are held, and carry the group's offset",
    topics=lambda _: [NAME],
    slots=lambda _: [f"{NAME}-sender", f"{NAME}-reader"],
    make=LongPollsPart,
    judged_by=("C15", "S5", "A5", "A12"),
)
