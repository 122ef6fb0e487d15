"""Broadcast consumption: a push group each of whose members gets every message.

Place in the data path: a feed sends to the part's topic; members start at its first message, or go
on with the offsets that they stored in a file of their own; they refuse some messages, which come
again from the member's own memory, until they were refused too often.

Invariants: a member that goes on with its file keeps its client's name, one that begins anew gets a
new name, so that what a client was shown is what that member was shown since it joined.

Source: RocketMQ's MessageModel.BROADCASTING; rules C5, C14, A5, A12, M12.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from chaos.recording.history import MessageRow
from chaos.scenario.part_sections import BroadcastSection
from chaos.workload.actor import Actor
from chaos.workload.context import Slot
from chaos.workload.expectations import Expectations
from chaos.workload.parts.common.failing_listener import CONSUME_TIMEOUT_MS, refuse
from chaos.workload.parts.common.fed_part import FedPart
from chaos.workload.parts.common.feed import Feed
from chaos.workload.parts.common.owed import Owed
from chaos.workload.parts.common.part import PartKit, PartSpec
from chaos.workload.parts.common.push_members import (
    Deliveries,
    Member,
    PushMembers,
    make_member,
    rows_of,
)
from chaos.workload.parts.consumers.redeliveries import Redeliveries, hold_counts, hold_overdue
from chaos.workload.push_reader import REBALANCE_MS_MAX
from client.connection.heartbeat import MessageModel
from client.connection.instance import InstanceSettings
from client.consume.listener import ConsumeStatus
from client.consume.local_offsets import OffsetFileError
from client.consume.push_consumer import PushConsumer
from client.message import DeliveredMessage

__all__ = ["SPEC"]

NAME: Final = "broadcast"
GROUP: Final = f"{NAME}-consumers"
PROGRESS_MS: Final = 6_000  # the file is written every second, on a disk that may be busy
CRASH_SHARE: Final = 0.5
ANEW_SHARE: Final = 0.3  # of the restarts
ATTEMPTS_MAX: Final = 2  # beyond the first, of a message that a member always refuses
POISON_SHARE: Final = 0.03
REDELIVERY_MS: Final = 300
BATCH_MAX: Final = 4


class _SlotMember:
    """The member of one slot: its client's name, file and processes, which outlive a restart."""

    def __init__(self, kit: PartKit, slot: Slot) -> None:
        self._kit = kit
        self._slot = slot
        self.renew()

    def renew(self) -> None:
        self.client = self._slot.next_client()
        self.deliveries = Deliveries(self._kit, client=self.client, group=GROUP)
        self.actor = Actor(
            self._kit.context.history, root=self.client, client=self.client, client_group=GROUP
        )
        self.owed = Owed()
        self.expectations = Expectations(
            self._kit.context.history, client=self.client, client_group=GROUP
        )


class BroadcastPart(FedPart):
    def __init__(self, kit: PartKit) -> None:
        self._kit = kit
        self._section: BroadcastSection = kit.section
        self._acked: list[str] = []
        self._folder = Path()
        self._feed = Feed(
            kit, NAME, f"{NAME}-sender", rate=self._section.rate, on_acked=self._stored
        )
        names = [f"{NAME}-{i}" for i in range(int(self._section.clients))]
        self._slot_members = [_SlotMember(kit, kit.slots[name]) for name in names]
        self._members = [
            self._members_of(
                member, kit.slots[name], number, random.Random(kit.rng.getrandbits(64))
            )
            for number, (member, name) in enumerate(zip(self._slot_members, names, strict=True))
        ]

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        return {
            GROUP: {
                "kind": "broadcast",
                "at_least_once": True,
                "ordered": False,
                "rebalance_ms": REBALANCE_MS_MAX,
                "progress_ms": PROGRESS_MS,
                "topics": [NAME],
            }
        }

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        with tempfile.TemporaryDirectory(prefix="ledgermq-broadcast-") as folder:
            self._folder = Path(folder)
            await super().run(stop, drained)

    def has_read(self) -> bool:
        return all(member.owed.is_empty for member in self._slot_members)

    def _stored(self, row: MessageRow) -> None:
        self._acked.append(row.value)
        for member in self._slot_members:
            member.owed.acknowledged(row.value)

    def _members_of(
        self, member: _SlotMember, slot: Slot, number: int, rng: random.Random
    ) -> PushMembers:
        has_begun = False

        def next_client() -> str:
            nonlocal has_begun
            if has_begun and rng.random() < ANEW_SHARE:
                member.renew()
                for value in self._acked:
                    member.owed.acknowledged(value)
            has_begun = True
            return member.client

        def make(client: str) -> Member:
            model = Redeliveries(limit=ATTEMPTS_MAX, wait_s=REDELIVERY_MS / 1000, ordered=False)

            async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
                if self._consume(messages, member, model, number, rng):
                    return ConsumeStatus.CONSUME_SUCCESS
                return await refuse(rng)

            return make_member(
                self._kit,
                slot,
                listen,
                client=client,
                group=GROUP,
                topics=[NAME],
                settings={
                    "message_model": MessageModel.BROADCASTING,
                    "consume_batch_max": BATCH_MAX,
                    "offset_file": self._folder / f"{client}.json",
                    "reconsume_times_max": ATTEMPTS_MAX,
                    "redelivery_ms_min": REDELIVERY_MS,
                    "consume_timeout_ms": CONSUME_TIMEOUT_MS,
                },
                actor=member.actor,
                on_end=lambda: hold_overdue(member.expectations, model),
            )

        async def disturb(consumer: PushConsumer, over: asyncio.Event) -> None:
            await self._use_file_twice(consumer, member)

        return PushMembers(
            slot,
            make,
            disturb=disturb,
            restart_s=self._section.restart_s,
            crash=lambda: rng.random() < CRASH_SHARE,
            rng=rng,
            next_client=next_client,
        )

    async def _use_file_twice(self, consumer: PushConsumer, member: _SlotMember) -> None:
        """Start another member with the offset file of one that is at work."""

        async def listen(_: Sequence[DeliveredMessage]) -> ConsumeStatus:
            return ConsumeStatus.RECONSUME_LATER

        another = PushConsumer(
            GROUP,
            self._kit.context.name_servers,
            listen,
            settings=dataclasses.replace(consumer.settings, instance=InstanceSettings()),
        )
        answered = "started"
        try:
            await another.start()
            await another.stop()
        except OffsetFileError:
            answered = "OffsetFileError"
        member.expectations.hold(
            "start with an offset file that is in use",
            expected="OffsetFileError",
            answered=answered,
            topic=NAME,
        )

    def _consume(
        self,
        messages: Sequence[DeliveredMessage],
        member: _SlotMember,
        model: Redeliveries,
        number: int,
        rng: random.Random,
    ) -> bool:
        """Record a call of the listener of the slot with this number; return whether it consumes.

        A slot has messages of its own that it always refuses, so that another one consumes them;
        not with others in one call.
        """
        rows, queue = rows_of(messages), messages[0].queue
        offsets = [message.queue_offset for message in messages]
        hold_counts(member.expectations, model, messages)
        poisoned = all(_luck(row.value) // POISON_SHARE == number for row in rows)
        refused = poisoned or rng.random() < self._section.refuse_share
        with member.deliveries.delivery(queue, rows) as operation:
            operation.complete("fail" if refused else "ok")
        if refused:
            model.refused(queue, offsets, asyncio.get_running_loop().time())
        else:
            model.consumed(queue, offsets)
        member.owed.consumed(
            row.value
            for row, offset in zip(rows, offsets, strict=True)
            if not refused or model.is_dropped(queue, offset)
        )
        return not refused


def _luck(value: str) -> float:
    return zlib.crc32(value.encode()) / 2**32


def _slots(section: BroadcastSection) -> Sequence[str]:
    return [f"{NAME}-sender", *(f"{NAME}-{i}" for i in range(int(section.clients)))]


SPEC: Final = PartSpec(
    name=NAME,
    summary="a push group each of whose members gets every message",
    topics=lambda _: [NAME],
    slots=_slots,
    make=BroadcastPart,
    judged_by=("C5", "C14", "A5", "A12", "M12"),
)
