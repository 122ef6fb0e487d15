"""The part `deletions`: topics that are made, used, deleted and made again under load.

Place in the data path: DELETE_TOPIC_IN_BROKER, DELETE_TOPIC_IN_NAMESRV and UPDATE_AND_CREATE_TOPIC
as mqadmin sends them; beside them one process per topic that sends to it whether it is there or
not, and one that reads it from where its queues begin.

Invariants: every topic is there at the end, made by an acknowledged creation after the last
deletion, so that its queues can be drained from their beginnings on; a reader that finds its
position gone begins anew under an `assign`.

Source: the run format (create_topic, delete_topic; M1, M2); decision 15.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Final

from chaos.scenario.part_sections import DeletionsSection
from chaos.workload.actor import Actor
from chaos.workload.context import Slot, queue_row
from chaos.workload.offset_reader import make_tool
from chaos.workload.pace import Pace, sleep_until_set
from chaos.workload.parts.part import PartKit, PartSpec
from chaos.workload.parts.part_sender import PartSender
from chaos.workload.parts.topic_admin import TopicAdmin
from chaos.workload.pull_reader import complete_poll
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.consume.queue_requests import PullStatus
from client.errors import ClientError
from client.message import MessageQueue
from client.produce.producer import Producer, ProducerSettings

__all__ = ["DELETIONS"]

GROUP: Final = "deletions"
BATCH_MAX: Final = 32
TIMEOUT_MS: Final = 2_000
_SLOTS: Final = ("deletions-admin", "deletions-send", "deletions-read")


class _Deletions:
    def __init__(self, kit: PartKit) -> None:
        section: DeletionsSection = kit.section
        self._kit = kit
        self._section = section
        self._queues: dict[str, list[MessageQueue]] = {}
        for queue in kit.context.part_queues["deletions"]:
            self._queues.setdefault(queue.topic, []).append(queue)
        self._sending = len(self._queues)
        self._idle = asyncio.Event()
        self._changing = set(self._queues)
        self._drain_wanted = asyncio.Event()
        self._left_to_read = set(self._queues)

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        """Return the group of the readers, which is owed nothing: what it reads goes away."""
        return {
            GROUP: {
                "kind": "cluster",
                "at_least_once": False,
                "ordered": False,
                "topics": sorted(self._queues),
            }
        }

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        kit, context = self._kit, self._kit.context
        admin_slot, read_slot = kit.slots["deletions-admin"], kit.slots["deletions-read"]
        send_slot = kit.slots["deletions-send"]
        admin_client, send_client = admin_slot.next_client(), send_slot.next_client()
        async with (
            make_tool(context, admin_slot) as tool,
            self._producer(send_slot) as producer,
            asyncio.TaskGroup() as tasks,
        ):
            for number, (topic, queues) in enumerate(sorted(self._queues.items())):
                admin = TopicAdmin(
                    context,
                    tool.instance,
                    topic=topic,
                    root=f"{admin_client}.p{number}",
                    client=admin_client,
                )
                sender = PartSender(
                    context,
                    producer,
                    root=f"{send_client}.p{number}",
                    ref=topic,
                    rng=self._child(),
                )
                tasks.create_task(self._change(admin, stop, drained))
                tasks.create_task(self._send(sender, queues, stop))
                tasks.create_task(self._read(read_slot, topic, queues, drained))

    async def idle(self) -> None:
        await self._idle.wait()

    def is_settled(self) -> bool:
        return not self._changing

    def has_read(self) -> bool:
        """Return whether every queue was asked once more for what stood before its beginning."""
        self._drain_wanted.set()
        return not self._left_to_read

    def _child(self) -> random.Random:
        return random.Random(self._kit.rng.getrandbits(64))

    def _producer(self, slot: Slot) -> Producer:
        context = self._kit.context
        return Producer(
            "deletions-producers",
            context.name_servers,
            slot.dial,
            settings=ProducerSettings(timeout_ms=TIMEOUT_MS, instance=slot.instance_settings()),
        )

    async def _change(self, admin: TopicAdmin, stop: asyncio.Event, drained: asyncio.Event) -> None:
        """Delete the topic and make it again until `stop`; it is there when this returns."""
        rng = self._child()
        while not await sleep_until_set(stop, rng.expovariate(1 / self._section.life_s)):
            # Not even `stop` leaves a deletion half done.
            if await admin.delete(drained):
                await sleep_until_set(stop, rng.expovariate(1) * self._section.gone_s)
            await admin.create(drained)
        self._changing.discard(admin.topic)

    async def _send(
        self, sender: PartSender, queues: Sequence[MessageQueue], stop: asyncio.Event
    ) -> None:
        rng = self._child()
        pace = Pace(self._section.send_rate / len(self._queues), rng)
        while await pace.wait(stop):
            queue = rng.choice(queues)
            await sender.send(sender.make(queue.topic), queue)
        self._sending -= 1
        if not self._sending:
            self._idle.set()

    async def _read(
        self, slot: Slot, topic: str, queues: Sequence[MessageQueue], drained: asyncio.Event
    ) -> None:
        context = self._kit.context
        client = slot.next_client()
        settings = PullConsumerSettings(timeout_ms=TIMEOUT_MS, instance=slot.instance_settings())
        consumer = PullConsumer(GROUP, context.name_servers, slot.dial, settings=settings)
        async with consumer:
            reader = _Reader(self._kit, consumer, client, queues)
            pace = Pace(self._section.poll_rate / len(self._queues), self._child())
            while not self._drain_wanted.is_set() and not drained.is_set():
                if await pace.wait(drained):
                    await reader.poll_next()
            for queue in queues:
                await reader.poll_beginning(queue)
            self._left_to_read.discard(topic)


class _Reader:
    """The process that reads one topic's queues in turn."""

    def __init__(
        self, kit: PartKit, consumer: PullConsumer, client: str, queues: Sequence[MessageQueue]
    ) -> None:
        self._context = kit.context
        self._consumer = consumer
        self._queues = queues
        self._positions = dict.fromkeys(queues, 0)
        self._assigned_as: dict[MessageQueue, str] = {}
        self._turn = 0
        self._actor = Actor(
            kit.context.history, root=client, client=client, client_group=consumer.group
        )

    async def poll_next(self) -> None:
        queue = self._queues[self._turn % len(self._queues)]
        self._turn += 1
        await self._poll(queue, self._positions[queue])

    async def poll_beginning(self, queue: MessageQueue) -> None:
        """Ask for what stood first of all: of a deleted topic it must not come back."""
        self._assigned_as.pop(queue, None)
        await self._poll(queue, 0)

    async def _poll(self, queue: MessageQueue, offset: int) -> None:
        if self._assigned_as.get(queue) != self._actor.name:
            with self._actor.operation("assign") as operation:
                self._assigned_as[queue] = self._actor.name
                operation.complete("ok", assigned=[queue_row(queue)])
        with self._actor.operation(
            "poll",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            offset=offset,
        ) as operation:
            try:
                result = await self._consumer.pull(queue, offset, BATCH_MAX)
            except ClientError as error:
                operation.failed(error)
                return
            complete_poll(operation, result, self._context)
        if result.status is PullStatus.OFFSET_ILLEGAL:
            # What stood there is gone with its topic: begin where the queue begins now.
            self._positions[queue] = result.min_offset
            self._assigned_as.pop(queue, None)
        else:
            self._positions[queue] = result.next_begin_offset


def _topics(section: DeletionsSection) -> list[str]:
    return [f"deletions-{number}" for number in range(section.topics)]


DELETIONS: Final = PartSpec(
    name="deletions",
    summary="topics made, used, deleted and made again",
    topics=_topics,
    slots=lambda section: _SLOTS,
    make=_Deletions,
    judged_by=("M1", "M2", "A2", "A4", "A11", "A19"),
)
