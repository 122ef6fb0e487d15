"""The part `deletions`: topics that are made, used, deleted and made again under load.

Place in the data path: DELETE_TOPIC_IN_BROKER, DELETE_TOPIC_IN_NAMESRV and UPDATE_AND_CREATE_TOPIC
as mqadmin sends them, and new groups that ask where they begin; beside them one process per topic
that sends to it whether it is there or not, some messages to be delivered later; a transactional
producer that leaves most of its halves to the broker's checks; and a process per topic that reads
it from where its queues begin. So when a topic goes, some of its messages wait elsewhere.

Invariants: every topic is there at the end, made by an acknowledged creation after the last
deletion, so that its queues can be drained from their beginnings on; a reader that finds its
position gone begins anew under an `assign`; nothing that waits is left when the drain begins.

Source: the run format (create_topic, delete_topic; M1, M2); decision 15.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from chaos.scenario.part_sections import DeletionsSection
from chaos.workload.context import Slot
from chaos.workload.local_database import LocalDatabase
from chaos.workload.offset_reader import make_tool
from chaos.workload.pace import Pace, sleep_until_set
from chaos.workload.parts.administration.queue_reader import QueueReader
from chaos.workload.parts.administration.start_positions import StartPositions
from chaos.workload.parts.common.part import PartKit, PartSpec
from chaos.workload.parts.common.part_sender import PartSender
from chaos.workload.parts.common.topic_admin import TopicAdmin
from chaos.workload.transactional_sender import TransactionalClient
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.message import MessageQueue
from client.produce.producer import Producer, ProducerSettings

__all__ = ["SPEC"]

GROUP: Final = "deletions"
TIMEOUT_MS: Final = 2_000
DELAYED_SHARE: Final = 0.4
DELAY_MS: Final = (300, 3_000)
DELIVERY_S: Final = 2.5  # so long behind its time a delayed message is there, or does not come
CHECK_MARGIN_S: Final = 2.0
_SLOTS: Final = ("deletions-admin", "deletions-send", "deletions-tx", "deletions-read")


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
        self._due_s = 0.0
        self._transactions = self._transactional_client()
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
                starts = StartPositions(
                    context,
                    tool,
                    queues,
                    root=f"{admin_client}.p{number}",
                    client=admin_client,
                    rng=self._child(),
                )
                tasks.create_task(self._change(admin, starts, stop, drained))
                tasks.create_task(self._send(sender, queues, stop))
                tasks.create_task(self._read(read_slot, topic, queues, drained))
            if self._transactions is not None:
                tasks.create_task(self._transactions.run(stop, drained))

    async def idle(self) -> None:
        await self._idle.wait()
        if self._transactions is not None:
            await self._transactions.idle()

    def is_settled(self) -> bool:
        """Return whether all topics are there for good, and nothing waits to come to them."""
        now_s = asyncio.get_running_loop().time()
        return not self._changing and now_s >= self._due_s + DELIVERY_S and self._is_decided()

    def _is_decided(self) -> bool:
        """Return whether no half waits for a check any more: the broker asks once per interval.

        That the first checks are past the run itself waits for.
        """
        checks = self._kit.context.scenario.transactions
        logs = [] if self._transactions is None else self._transactions.checks
        last_ns = max((log.last_ns for log in logs), default=0)
        quiet_s = 2 * checks.check_interval_ms / 1000 + CHECK_MARGIN_S
        return self._kit.context.history.now_ns() - last_ns >= quiet_s * 1e9

    def has_read(self) -> bool:
        """Return whether every queue was asked once more for what stood before its beginning."""
        self._drain_wanted.set()
        return not self._left_to_read

    def _child(self) -> random.Random:
        return random.Random(self._kit.rng.getrandbits(64))

    def _transactional_client(self) -> TransactionalClient | None:
        """Return the client of the transactions; None where there are to be none."""
        context = self._kit.context
        if self._section.transaction_rate <= 0:
            return None
        work = replace(
            context.scenario.workload,
            topics=tuple(self._queues),
            transaction_clients=1,
            transaction_processes=2,
            transaction_rate=self._section.transaction_rate,
            commit_share=0.2,
            rollback_share=0.1,
            undecided_share=0.0,
            transaction_crash_s=0.0,
        )
        own = replace(
            context,
            queues=context.part_queues["deletions"],
            scenario=replace(context.scenario, workload=work),
        )
        return TransactionalClient(
            own,
            self._kit.slots["deletions-tx"],
            group="deletions-transactions",
            database=LocalDatabase(),
            rng=self._child(),
        )

    def _producer(self, slot: Slot) -> Producer:
        context = self._kit.context
        return Producer(
            "deletions-producers",
            context.name_servers,
            slot.dial,
            settings=ProducerSettings(timeout_ms=TIMEOUT_MS, instance=slot.instance_settings()),
        )

    async def _change(
        self,
        admin: TopicAdmin,
        starts: StartPositions,
        stop: asyncio.Event,
        drained: asyncio.Event,
    ) -> None:
        """Delete the topic and make it again until `stop`; it is there when this returns."""
        rng = self._child()
        while not await sleep_until_set(stop, rng.expovariate(1 / self._section.life_s)):
            await starts.query()
            starts.forget()
            # Not even `stop` leaves a deletion half done.
            if await admin.delete(drained):
                await sleep_until_set(stop, rng.expovariate(1) * self._section.gone_s)
            if await admin.create(drained) and admin.is_sure:
                await starts.topic_made()
        await starts.query()
        self._changing.discard(admin.topic)

    async def _send(
        self, sender: PartSender, queues: Sequence[MessageQueue], stop: asyncio.Event
    ) -> None:
        rng = self._child()
        pace = Pace(self._section.send_rate / len(self._queues), rng)
        while await pace.wait(stop):
            queue = rng.choice(queues)
            message = sender.make(queue.topic)
            if rng.random() < DELAYED_SHARE:
                delay_ms = rng.randint(*DELAY_MS)
                await sender.send_later(message, queue, delay_ms)
                due_s = asyncio.get_running_loop().time() + delay_ms / 1000
                self._due_s = max(self._due_s, due_s)
            else:
                await sender.send(message, queue)
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
            reader = QueueReader(context, consumer, client, queues)
            pace = Pace(self._section.poll_rate / len(self._queues), self._child())
            while not self._drain_wanted.is_set() and not drained.is_set():
                if await pace.wait(drained):
                    await reader.poll_next()
            for queue in queues:
                await reader.poll_beginning(queue)
            self._left_to_read.discard(topic)


def _topics(section: DeletionsSection) -> list[str]:
    return [f"deletions-{number}" for number in range(section.topics)]


SPEC: Final = PartSpec(
    name="deletions",
    summary="topics made, used, deleted and made again, with delayed messages and halves",
    topics=_topics,
    slots=lambda section: _SLOTS,
    make=_Deletions,
    judged_by=("M1", "M2", "M14", "A2", "A4", "A11", "A19", "T1", "T2"),
)
