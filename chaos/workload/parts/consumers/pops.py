"""The part of POP consumers: two groups pop one topic, one without order, one in order.

Place in the data path: a plain producer sends to the part's own topic, and another one in bursts
over all its queues; `pop_member` has the members of the groups, which come and go; a reader of its
own polls the dead letters of the group without order, once the senders have stopped.

Invariants: the group's retries are configured before its first pop, so that the manifest's
retries_max is the broker's; the part is settled when no group owes anything (`pop_owed`), so that
a message which never comes again is waited for as long as heal and drain may take.

Source: the run format (pop, ack, change; rules P*); RocketMQ issue 7914.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from chaos.scenario.part_sections import PopsSection
from chaos.workload.actor import Actor
from chaos.workload.context import Slot
from chaos.workload.key_reader import KnownKeys
from chaos.workload.messages import PROPERTY_VALUE
from chaos.workload.pace import Pace, sleep_until_set
from chaos.workload.parts.common.part import PartKit, PartSpec, WorkloadPart
from chaos.workload.parts.common.part_sender import PartSender
from chaos.workload.parts.consumers.pop_member import PopMember
from chaos.workload.parts.consumers.pop_owed import Owed
from chaos.workload.plain_sender import PlainClient
from chaos.workload.pull_reader import complete_poll
from chaos.workload.same_loop import BLOCKING_SHARE, through_blocking
from client.administer.admin import Admin, AdminSettings
from client.blocking.sync_clients import SyncPopConsumer
from client.connection.retry import RetryPolicy
from client.consume.pop_consumer import PopConsumer, PopConsumerSettings
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError
from client.message import Message, MessageQueue
from client.produce.producer import Producer, ProducerSettings
from remoting.protocol.group_topics import DLQ_PREFIX

__all__ = ["SPEC", "Pops"]

TOPIC: Final = "pops"
PLAIN_GROUP: Final = "pops-plain"
ORDER_GROUP: Final = "pops-order"
DEAD_GROUP: Final = "pops-dead"
SENDERS_GROUP: Final = "pops-producers"
SEND_SLOT: Final = "pops-send"
BURST_SLOT: Final = "pops-burst"
DEAD_SLOT: Final = "pops-dead"
FIRST_SHARD: Final = 100_000  # no other sender's
SHARDS: Final = 8
TIMEOUT_MS: Final = 3_000
REDELIVERY_MS: Final = 5_000  # how long after its time a message may take to come again: P3's limit
WAKE_MS: Final = 500  # how long a held pop may go on waiting after a message came: P9's limit
CRASH_SHARE: Final = 0.5
RESTART_PAUSE_S: Final = 0.5
RETRY_PAUSE_S: Final = 0.5
DEAD_BATCH_MAX: Final = 32
_ONCE: Final = RetryPolicy(attempts_max=1)  # each attempt is an operation of its own


class Pops:
    """The part at work."""

    def __init__(self, kit: PartKit) -> None:
        assert isinstance(kit.section, PopsSection)
        self._context = kit.context
        self._section = kit.section
        self._slots = kit.slots
        self._rng = kit.rng
        self._brokers = sorted({queue.broker_name for queue in self._queues})
        self._plain = Owed()
        self._ordered = Owed()
        self._senders_done = asyncio.Event()

    @property
    def _queues(self) -> Sequence[MessageQueue]:
        return self._context.part_queues["pops"]

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        """See WorkloadPart."""
        common = {"kind": "cluster", "at_least_once": False}
        popped = common | {"topics": [TOPIC], "redelivery_ms": REDELIVERY_MS}
        groups: dict[str, Mapping[str, object]] = {
            PLAIN_GROUP: popped
            | {"ordered": False, "retries_max": self._section.retries_max, "wake_ms": WAKE_MS},
            DEAD_GROUP: common | {"topics": [f"{DLQ_PREFIX}{PLAIN_GROUP}"], "ordered": False},
        }
        if self._section.order_members:
            groups[ORDER_GROUP] = popped | {"ordered": True}
        return groups

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        """See WorkloadPart."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send_all(stop))
            await self._configure(drained)
            for slot in _member_slots(self._section):
                tasks.create_task(self._members(self._slots[slot], stop, drained))
            tasks.create_task(self._read_dead_letters(stop, drained))

    async def idle(self) -> None:
        """See WorkloadPart."""
        await self._senders_done.wait()

    def is_settled(self) -> bool:
        """See WorkloadPart."""
        return self.has_read()

    def has_read(self) -> bool:
        """See WorkloadPart."""
        now_s = asyncio.get_running_loop().time()
        return self._plain.is_empty(now_s) and self._ordered.is_empty(now_s)

    async def _send_all(self, stop: asyncio.Event) -> None:
        try:
            async with asyncio.TaskGroup() as senders:
                senders.create_task(self._send(stop))
                if self._section.burst_s > 0:
                    senders.create_task(self._send_bursts(stop))
        finally:
            self._senders_done.set()

    async def _send_bursts(self, stop: asyncio.Event) -> None:
        """Send a message to each queue at once, again and again, each by a process of its own."""
        slot = self._slots[BURST_SLOT]
        client = slot.next_client()
        producer = Producer(
            SENDERS_GROUP,
            self._context.name_servers,
            slot.dial,
            settings=ProducerSettings(
                timeout_ms=TIMEOUT_MS,
                compression=slot.compression(),
                instance=slot.instance_settings(),
            ),
        )
        pace = Pace(1 / self._section.burst_s, self._child())
        async with producer:
            senders = [
                PartSender(
                    self._context,
                    producer,
                    root=f"{client}.p{number}",
                    ref=None,
                    rng=self._child(),
                )
                for number in range(len(self._queues))
            ]
            while await pace.wait(stop):
                async with asyncio.TaskGroup() as burst:
                    for sender, queue in zip(senders, self._queues, strict=True):
                        burst.create_task(self._send_one(sender, queue))

    async def _send_one(self, sender: PartSender, queue: MessageQueue) -> None:
        message = sender.make(TOPIC)
        if await sender.send(message, queue):
            self._owe(message)

    def _owe(self, message: Message) -> None:
        """Record that each group owes an acknowledged message."""
        self._plain.sent(message.properties[PROPERTY_VALUE])
        if self._section.order_members:
            self._ordered.sent(message.properties[PROPERTY_VALUE])

    async def _send(self, stop: asyncio.Event) -> None:
        scenario = self._context.scenario
        workload = dataclasses.replace(
            scenario.workload,
            send_rate=self._section.send_rate,
            batch_share=self._section.send_batch_share,
            plain_clients=1,
            plain_processes=1,
        )
        client = PlainClient(
            dataclasses.replace(
                self._context,
                queues=self._queues,
                scenario=dataclasses.replace(scenario, workload=workload),
            ),
            self._slots[SEND_SLOT],
            group=SENDERS_GROUP,
            shards=[range(FIRST_SHARD, FIRST_SHARD + SHARDS)],
            known=_Sent(self._owe),
            rng=self._child(),
        )
        await client.run(stop)

    async def _configure(self, drained: asyncio.Event) -> None:
        """Set the group's retries at every broker, until that is done."""
        slot = self._slots[DEAD_SLOT]
        settings = AdminSettings(timeout_ms=TIMEOUT_MS, instance=slot.instance_settings())
        async with Admin(self._context.name_servers, slot.dial, settings=settings) as admin:
            while not drained.is_set():
                try:
                    await admin.create_group(PLAIN_GROUP, retry_times_max=self._section.retries_max)
                except ClientError:
                    await sleep_until_set(drained, RETRY_PAUSE_S)
                else:
                    return

    async def _members(self, slot: Slot, stop: asyncio.Event, drained: asyncio.Event) -> None:
        """Run a slot's members of its group, one after another."""
        in_order = slot.name.startswith(ORDER_GROUP)
        while not drained.is_set():
            client = slot.next_client()
            consumer = PopConsumer(
                ORDER_GROUP if in_order else PLAIN_GROUP,
                self._context.name_servers,
                slot.dial,
                settings=PopConsumerSettings(
                    timeout_ms=TIMEOUT_MS, retry=_ONCE, instance=slot.instance_settings()
                ),
            )
            if self._rng.random() < BLOCKING_SHARE:
                consumer = through_blocking(consumer, SyncPopConsumer)
            member = PopMember(
                self._context,
                consumer,
                client,
                section=self._section,
                topic=TOPIC,
                brokers=self._brokers,
                owed=self._ordered if in_order else self._plain,
                in_order=in_order,
                namespace=slot.namespace,
                rng=self._child(),
            )
            crashes = self._rng.random() < CRASH_SHARE
            await consumer.start()
            try:
                await self._live(member, stop, drained, crashes=crashes)
            finally:
                await (consumer.crash() if crashes else consumer.stop())
            await sleep_until_set(drained, RESTART_PAUSE_S)

    async def _live(
        self, member: PopMember, stop: asyncio.Event, drained: asyncio.Event, *, crashes: bool
    ) -> None:
        """Let a member work; one that crashes does so in the middle of whatever it does."""
        restart_s = self._section.restart_s
        lifetime_s = None
        if restart_s > 0 and not stop.is_set():
            lifetime_s = max(1.0, self._rng.expovariate(1 / restart_s))
        if lifetime_s is None or not crashes:
            await member.run(stop, drained, lifetime_s)
            return
        work = asyncio.create_task(member.run(stop, drained, None))
        try:
            if not await sleep_until_set(stop, lifetime_s):
                return
            await work
        finally:
            work.cancel()
            await asyncio.wait({work})
            if not work.cancelled():
                work.result()

    async def _read_dead_letters(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        """Poll the dead letters of the group without order, from their beginning on."""
        await stop.wait()
        slot = self._slots[DEAD_SLOT]
        client = slot.next_client()
        settings = PullConsumerSettings(
            timeout_ms=TIMEOUT_MS, register=False, instance=slot.instance_settings()
        )
        queues = [MessageQueue(f"{DLQ_PREFIX}{PLAIN_GROUP}", name, 0) for name in self._brokers]
        positions = dict.fromkeys(queues, 0)
        async with PullConsumer(
            DEAD_GROUP, self._context.name_servers, slot.dial, settings=settings
        ) as consumer:
            actor = Actor(
                self._context.history, root=client, client=client, client_group=DEAD_GROUP
            )
            while not drained.is_set():
                found = False
                for queue in queues:
                    moved = await self._poll_dead(consumer, actor, queue, positions[queue])
                    found |= moved != positions[queue]
                    positions[queue] = moved
                if not found:
                    await sleep_until_set(drained, RETRY_PAUSE_S)

    async def _poll_dead(
        self, consumer: PullConsumer, actor: Actor, queue: MessageQueue, offset: int
    ) -> int:
        """Poll once; return the next position."""
        with actor.operation(
            "poll",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            offset=offset,
        ) as operation:
            try:
                await consumer.queues(TOPIC)  # for the leaders; dead letters may have no route yet
                result = await consumer.pull(queue, offset, DEAD_BATCH_MAX)
            except ClientError as error:
                operation.failed(error)
                return offset
            complete_poll(operation, result, self._context)
        for message in result.messages:
            self._plain.acknowledged(message.properties.get("lmq_value", message.uniq_key))
        return result.next_begin_offset

    def _child(self) -> random.Random:
        return random.Random(self._rng.getrandbits(64))


class _Sent(KnownKeys):
    """What the part's sender had acknowledged; `owe` gets each message."""

    def __init__(self, owe: Callable[[Message], None]) -> None:
        super().__init__()
        self._owe = owe

    def acknowledged(
        self, message: Message, queue: MessageQueue, *, in_batch: bool = False
    ) -> None:
        super().acknowledged(message, queue, in_batch=in_batch)
        self._owe(message)


def _member_slots(section: PopsSection) -> list[str]:
    return [
        *(f"{PLAIN_GROUP}-{number}" for number in range(section.members)),
        *(f"{ORDER_GROUP}-{number}" for number in range(section.order_members)),
    ]


def _make(kit: PartKit) -> WorkloadPart:
    return Pops(kit)


SPEC: Final = PartSpec(
    name="pops",
    summary="POP consumers with and without order: acks, batches, changes, late and lost ones",
    topics=lambda section: (TOPIC,),
    slots=lambda section: (SEND_SLOT, BURST_SLOT, DEAD_SLOT, *_member_slots(section)),
    make=_make,
    judged_by=("P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10"),
)
