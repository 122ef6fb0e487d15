"""Queues that an ordered group can't get on in, and that an administrator resets past what blocks
them.

Place in the data path: beside the other group of `chaos.workload.parts.consumers.resets`, on the
same topic: some messages are refused until a reset behind them was answered, and for as long as
members may not have heard of it.

Invariants: what blocks a queue follows from a message's value alone; a message that comes again
after that time is consumed, so that a run in which the reset is not followed ends.

Source: RocketMQ ConsumeMessageOrderlyService, AdminBrokerProcessor.resetOffset; rule C9.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from chaos.recording.history import MessageRow
from chaos.workload.context import Slot
from chaos.workload.member_observer import QueueActors
from chaos.workload.parts.common.failing_listener import CONSUME_TIMEOUT_MS, refuse
from chaos.workload.parts.common.part import PartKit
from chaos.workload.parts.common.push_members import (
    Deliveries,
    Member,
    PushMembers,
    make_member,
    rows_of,
)
from chaos.workload.parts.consumers.due_offsets import DueOffsets
from chaos.workload.push_reader import REBALANCE_MS_MAX
from client.administer.admin import Admin, AdminSettings
from client.consume.listener import ConsumeStatus
from client.errors import ClientError
from client.message import DeliveredMessage, MessageQueue

__all__ = ["StuckQueues"]

SHARE: Final = 0.06  # of the messages block their queue
GRACE_S: Final = 10.5  # behind a reset, in which members may not have heard of it (rule C9)
REDELIVERY_MS: Final = 400
POLL_S: Final = 0.5
BATCH_MAX: Final = 2
TIMEOUT_MS: Final = 3_000
CRASH_SHARE: Final = 0.5


class StuckQueues:
    """The group, its members, and the administrator who frees their queues."""

    def __init__(
        self, kit: PartKit, *, topic: str, slot: Slot, tool: Slot, restart_s: float
    ) -> None:
        self._kit = kit
        self._topic = topic
        self._group = f"{topic}-stuck"
        self._tool = tool
        self._rng = random.Random(kit.rng.getrandbits(64))
        self._due = DueOffsets()
        self._stuck: dict[MessageQueue, int] = {}  # the offset that blocks the queue
        self._freed_s: dict[MessageQueue, float] = {}
        self._stopped = asyncio.Event()
        self.members = PushMembers(
            slot,
            lambda client: self._member(slot, client),
            restart_s=restart_s,
            crash=lambda: self._rng.random() < CRASH_SHARE,
            rng=self._rng,
        )

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        """Resets leave messages out, and break the order in which they are consumed."""
        return {
            self._group: {
                "kind": "cluster",
                "at_least_once": False,
                "ordered": False,
                "rebalance_ms": REBALANCE_MS_MAX,
                "topics": [self._topic],
            }
        }

    def has_read(self) -> bool:
        return not self._stuck and self._due.is_empty

    def acknowledged(self, queue: MessageQueue, offset: int) -> None:
        self._due.acknowledged(queue, offset)

    async def free(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        """Reset queues that are stuck; after `stop` until none is, or `drained` is set."""
        actors = QueueActors(
            self._kit.context.history, client=self._tool.next_client(), client_group=self._group
        )
        admin = Admin(
            self._kit.context.name_servers,
            self._tool.dial,
            settings=AdminSettings(timeout_ms=TIMEOUT_MS, instance=self._tool.instance_settings()),
        )
        async with admin:
            while not drained.is_set():
                if stop.is_set():
                    self._stopped.set()  # nothing more gets stuck
                    if not self._stuck:
                        return
                await asyncio.sleep(POLL_S)
                for queue, offset in list(self._stuck.items()):
                    await self._reset(admin, actors, queue, offset)

    async def _reset(
        self, admin: Admin, actors: QueueActors, queue: MessageQueue, stuck: int
    ) -> None:
        offset = max(stuck + 1, self._due.draw(queue, self._rng))
        with actors.of(queue).operation(
            "reset",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            offset=offset,
        ) as operation:
            try:
                await admin.reset_queue(self._group, queue, offset=offset)
            except ClientError as error:
                operation.failed(error)
                return  # it is stuck still, for all that is known: the next look tries again
            operation.complete("ok")
        self._due.reset(queue, offset)
        self._freed_s[queue] = asyncio.get_running_loop().time()
        if self._stuck.get(queue) == stuck:
            del self._stuck[queue]

    def _member(self, slot: Slot, client: str) -> Member:
        deliveries = Deliveries(self._kit, client=client, group=self._group)

        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            if self._consume(messages, deliveries):
                return ConsumeStatus.CONSUME_SUCCESS
            return await refuse(self._rng)

        return make_member(
            self._kit,
            slot,
            listen,
            client=client,
            group=self._group,
            topics=[self._topic],
            settings={
                "ordered": True,
                "consume_batch_max": BATCH_MAX,
                "redelivery_ms_min": REDELIVERY_MS,
                "consume_timeout_ms": CONSUME_TIMEOUT_MS,
            },
        )

    def _consume(self, messages: Sequence[DeliveredMessage], deliveries: Deliveries) -> bool:
        """Record a call of the listener; return whether it consumes."""
        rows, queue = rows_of(messages), messages[0].queue
        refused = any(self._blocks(queue, row) for row in rows)
        with deliveries.delivery(queue, rows) as operation:
            operation.complete("fail" if refused else "ok")
        if not refused:
            self._due.shown(queue, [message.queue_offset for message in messages])
        return not refused

    def _blocks(self, queue: MessageQueue, row: MessageRow) -> bool:
        assert row.offset is not None
        if zlib.crc32(row.value.encode()) / 2**32 >= SHARE:
            return False
        if self._stuck.get(queue) == row.offset:
            return True
        freed_s = self._freed_s.get(queue)
        if freed_s is not None and self._due.is_before_reset(queue, row.offset):
            return asyncio.get_running_loop().time() < freed_s + GRACE_S
        if self._stopped.is_set():
            return False
        self._stuck.setdefault(queue, row.offset)
        return self._stuck[queue] == row.offset
