"""Offset resets: an administrator sends a group back, forth and to its end while its members run.

Place in the data path: a feed sends to the part's topic, a push group reads it, and a tool resets
one queue to an offset, or all queues of the topic at a broker group to a time or to their ends,
forced or not, through INVOKE_BROKER_TO_RESET_OFFSET. A second group is reset where it is stuck.

Invariants: a reset of all queues is an operation per queue, each of a process of its own, begun and
answered with the others; one whose answer did not come is `info`, and one by time then tells no
offset; what the group is to read is counted anew from each reset on.

Source: RocketMQ AdminBrokerProcessor.resetOffset, ResetOffsetByTimeCommand; rules C9 and M8.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping, Sequence
from typing import Final

from chaos.recording.history import Column, MessageRow
from chaos.scenario.part_sections import ResetsSection
from chaos.workload.actor import Operation
from chaos.workload.context import Slot
from chaos.workload.member_observer import QueueActors
from chaos.workload.messages import wall_ms
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.fed_part import FedPart
from chaos.workload.parts.common.feed import Feed
from chaos.workload.parts.common.part import PartKit, PartSpec
from chaos.workload.parts.common.push_members import (
    Deliveries,
    Member,
    PushMembers,
    make_member,
    rows_of,
)
from chaos.workload.parts.consumers.due_offsets import DueOffsets
from chaos.workload.parts.consumers.stuck_queues import StuckQueues
from chaos.workload.push_reader import REBALANCE_MS_MAX
from chaos.workload.same_loop import BLOCKING_SHARE, through_blocking
from client.administer.admin import Admin, AdminSettings
from client.blocking.sync_clients import SyncAdmin
from client.consume.listener import ConsumeStatus
from client.errors import ClientError
from client.message import DeliveredMessage, MessageQueue

__all__ = ["SPEC"]

NAME: Final = "resets"
GROUP: Final = f"{NAME}-consumers"
CRASH_SHARE: Final = 0.5
BATCH_MAX: Final = 8
TIMEOUT_MS: Final = 3_000
BACK_MS_MAX: Final = 5_000
FORCE: Final = "force"
NO_FORCE: Final = "no-force"
_END, _BEGIN, _AHEAD, _BACK, _OFFSET = range(5)
_KINDS: Final = (_OFFSET, _BEGIN, _BACK, _END, _AHEAD, _BACK, _OFFSET)  # dealt in a drawn order
AHEAD_MS: Final = 3_600_000
FORCE_SHARE: Final = 0.5  # of those by time; an operator's tool forces unless it is told otherwise


class ResetsPart(FedPart):
    def __init__(self, kit: PartKit) -> None:
        self._kit = kit
        self._section: ResetsSection = kit.section
        self._rng = random.Random(kit.rng.getrandbits(64))
        self._queues = {
            (queue.broker_name, queue.queue_id): queue for queue in kit.context.part_queues[NAME]
        }
        self._due = DueOffsets()
        self._feed = Feed(
            kit, NAME, f"{NAME}-sender", rate=self._section.rate, on_acked=self._acked
        )
        self._resets_done = asyncio.Event()
        self._stuck = StuckQueues(
            kit,
            topic=NAME,
            slot=kit.slots[f"{NAME}-stuck"],
            tool=kit.slots[f"{NAME}-tool"],
            restart_s=self._section.restart_s,
        )
        self._members = [
            self._slot_members(kit.slots[f"{NAME}-{i}"], random.Random(kit.rng.getrandbits(64)))
            for i in range(int(self._section.clients))
        ]

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        """A reset may leave messages out, so C9 takes the place of A5."""
        return {
            GROUP: {
                "kind": "cluster",
                "at_least_once": False,
                "ordered": False,
                "rebalance_ms": REBALANCE_MS_MAX,
                "topics": [NAME],
            },
            **self._stuck.consumer_groups(),
        }

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._feed.run(stop))
            tasks.create_task(self._reset_now_and_then(stop))
            tasks.create_task(self._stuck.free(stop, drained))
            for members in (*self._members, self._stuck.members):
                tasks.create_task(members.run(stop, drained))

    async def idle(self) -> None:
        await self._feed.idle()
        await self._resets_done.wait()

    def has_read(self) -> bool:
        return self._due.is_empty and self._stuck.has_read()

    def _acked(self, row: MessageRow) -> None:
        assert row.broker_group is not None
        assert row.queue is not None
        assert row.offset is not None
        queue = self._queues[row.broker_group, row.queue]
        self._due.acknowledged(queue, row.offset)
        self._stuck.acknowledged(queue, row.offset)

    async def _reset_now_and_then(self, stop: asyncio.Event) -> None:
        slot = self._kit.slots[f"{NAME}-tool"]
        actors = QueueActors(
            self._kit.context.history, client=slot.next_client(), client_group=GROUP
        )
        admin = Admin(
            self._kit.context.name_servers,
            slot.dial,
            settings=AdminSettings(timeout_ms=TIMEOUT_MS, instance=slot.instance_settings()),
        )
        if self._rng.random() < BLOCKING_SHARE:
            admin = through_blocking(admin, SyncAdmin)
        kinds: list[int] = []
        try:
            async with admin:
                while not await sleep_until_set(
                    stop, self._rng.expovariate(1 / self._section.reset_s)
                ):
                    kinds = kinds or self._rng.sample(_KINDS, len(_KINDS))
                    kind = kinds.pop()
                    if kind == _OFFSET:
                        await self._reset_to_offset(admin, actors)
                    else:
                        await self._reset_to_time(admin, actors, self._time_of(kind))
        finally:
            self._resets_done.set()

    async def _reset_to_offset(self, admin: Admin, actors: QueueActors) -> None:
        queue = self._rng.choice(list(self._queues.values()))
        offset = self._due.draw(queue, self._rng)
        with _operation(actors, queue, offset=offset) as operation:
            try:
                await admin.reset_queue(GROUP, queue, offset=offset)
            except ClientError as error:
                self._failed([(queue, operation)], error)
                return
            operation.complete("ok")
        self._due.reset(queue, offset)

    async def _reset_to_time(self, admin: Admin, actors: QueueActors, timestamp_ms: int) -> None:
        """Reset all queues of the topic at a broker group to a time; -1 stands for their ends."""
        group = self._rng.choice(sorted({name for name, _ in self._queues}))
        is_force = self._rng.random() < FORCE_SHARE
        with contextlib.ExitStack() as stack:
            begun = [
                (
                    queue,
                    stack.enter_context(
                        _operation(
                            actors,
                            queue,
                            from_ms=timestamp_ms,
                            ref=FORCE if is_force else NO_FORCE,
                        )
                    ),
                )
                for queue in self._queues.values()
                if queue.broker_name == group
            ]
            try:
                answered = await admin.reset_offsets(
                    GROUP, NAME, timestamp_ms, is_force=is_force, broker_names=[group]
                )
            except ClientError as error:
                self._failed(begun, error)
                return
            for queue, operation in begun:
                offset = answered.get(queue)
                operation.complete("ok", offset=offset)  # none where the answer leaves it out
                self._due.reset(queue, offset)

    def _time_of(self, kind: int) -> int:
        """Return a time in Unix milliseconds; 0 is before all messages, -1 stands for the end."""
        if kind in (_END, _BEGIN):
            return -1 if kind == _END else 0
        return wall_ms() + (AHEAD_MS if kind == _AHEAD else -self._rng.randint(0, BACK_MS_MAX))

    def _failed(self, begun: Sequence[tuple[MessageQueue, Operation]], error: ClientError) -> None:
        for queue, operation in begun:
            operation.failed(error)
            if not error.definite:
                self._due.reset(queue, None)

    def _slot_members(self, slot: Slot, rng: random.Random) -> PushMembers:
        def make(client: str) -> Member:
            deliveries = Deliveries(self._kit, client=client, group=GROUP)

            async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
                return await self._consume(messages, deliveries, rng)

            return make_member(
                self._kit,
                slot,
                listen,
                client=client,
                group=GROUP,
                topics=[NAME],
                settings={"consume_batch_max": BATCH_MAX},
            )

        return PushMembers(
            slot,
            make,
            restart_s=self._section.restart_s,
            crash=lambda: rng.random() < CRASH_SHARE,
            rng=rng,
        )

    async def _consume(
        self, messages: Sequence[DeliveredMessage], deliveries: Deliveries, rng: random.Random
    ) -> ConsumeStatus:
        rows = rows_of(messages)
        with deliveries.delivery(messages[0].queue, rows) as operation:
            await asyncio.sleep(rng.uniform(0, 2 * self._section.consume_ms / 1000))
            operation.complete("ok")
        self._due.shown(messages[0].queue, [row.offset for row in rows if row.offset is not None])
        return ConsumeStatus.CONSUME_SUCCESS


def _operation(
    actors: QueueActors, queue: MessageQueue, **columns: Column
) -> contextlib.AbstractContextManager[Operation]:
    return actors.of(queue).operation(
        "reset",
        broker_group=queue.broker_name,
        topic=queue.topic,
        queue=queue.queue_id,
        **columns,
    )


def _slots(section: ResetsSection) -> Sequence[str]:
    members = [f"{NAME}-{i}" for i in range(int(section.clients))]
    return [f"{NAME}-sender", f"{NAME}-tool", f"{NAME}-stuck", *members]


SPEC: Final = PartSpec(
    name=NAME,
    summary="a push group that is sent back, forth and to the end, forced or not, at work",
    topics=lambda _: [NAME],
    slots=_slots,
    make=ResetsPart,
    judged_by=("C9", "M8", "A12", "A22"),
)
