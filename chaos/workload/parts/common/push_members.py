"""The members of a part's push group that one slot runs, one after another.

Place in the data path: the push parts (`orderly`, `broadcast`, `retries`, `resets`) say how a
member is made; this starts it, has it leave or crash, and starts the next one.

Invariants: an assign without queues is recorded once a member has left in good order, and none
after a crash; the last member of a slot leaves in good order once everything is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from chaos.recording.history import Column, MessageRow
from chaos.workload.actor import Actor, Operation
from chaos.workload.context import Slot
from chaos.workload.member_observer import MemberObserver, QueueActors
from chaos.workload.messages import row_of_delivered
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.part import PartKit
from client.connection.heartbeat import ALL_TAGS, ConsumeFrom, ExpressionType
from client.consume.listener import ConsumeListener, PushConsumerSettings
from client.consume.push_consumer import PushConsumer
from client.errors import ClientError
from client.message import DeliveredMessage, MessageQueue

__all__ = ["COMMON_SETTINGS", "Deliveries", "Member", "PushMembers", "make_member", "rows_of"]

RESTART_PAUSE_S: Final = 0.5
LIFE_S_MIN: Final = 1.0

COMMON_SETTINGS: Final[Mapping[str, Any]] = {
    "consume_from": ConsumeFrom.FIRST,
    "suspend_ms": 2_000,
    "answer_slack_ms": 1_500,
    "commit_interval_ms": 1_000,
    "rebalance_interval_ms": 1_000,
    "redelivery_ms_min": 500,
}
"""Settings of push consumers in runs that last a minute, where RocketMQ's own are for hours."""

Disturb = Callable[[PushConsumer, asyncio.Event], Awaitable[None]]


class Deliveries:
    """Records what one client's listener gets, a process per queue."""

    def __init__(self, kit: PartKit, *, client: str, group: str) -> None:
        self._actors = QueueActors(kit.context.history, client=client, client_group=group)

    @contextlib.contextmanager
    def delivery(self, queue: MessageQueue, rows: Sequence[MessageRow]) -> Iterator[Operation]:
        """Invoke a delivery, which the listener completes."""
        with self._of(queue, "deliver", messages=rows) as operation:
            yield operation

    @contextlib.contextmanager
    def seek(self, queue: MessageQueue, offset: int) -> Iterator[Operation]:
        """Invoke a reset by the member itself, between two deliveries of the queue."""
        with self._of(queue, "reset", offset=offset) as operation:
            yield operation

    def _of(
        self, queue: MessageQueue, f: str, **columns: Column
    ) -> contextlib.AbstractContextManager[Operation]:
        return self._actors.of(queue).operation(
            f,
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            **columns,
        )


def rows_of(messages: Sequence[DeliveredMessage]) -> list[MessageRow]:
    return [row_of_delivered(message) for message in messages]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A consumer and the process that records its assignments. `on_end` is called when its time is
    up, before it leaves or crashes."""

    consumer: PushConsumer
    actor: Actor
    on_end: Callable[[], None] | None = None


class PushMembers:
    """One slot's members. `make(client)` makes one; `crash` draws how the next one will end.

    `restart_s`: mean time that a member lives; 0: the first one stays. `disturb` runs beside each
    member until its event is set.
    """

    def __init__(
        self,
        slot: Slot,
        make: Callable[[str], Member],
        *,
        restart_s: float,
        crash: Callable[[], bool],
        rng: random.Random,
        disturb: Disturb | None = None,
        next_client: Callable[[], str] | None = None,
    ) -> None:
        self._make = make
        self._restart_s = restart_s
        self._crash = crash
        self._rng = rng
        self._disturb = disturb
        self._next_client = next_client or slot.next_client

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        """Run members that come and go until `stop`, then one until `drained`."""
        while not drained.is_set():
            member = self._make(self._next_client())
            try:
                await member.consumer.start()
            except ClientError:  # brokers check an expression first, and one was not there
                await sleep_until_set(drained, RESTART_PAUSE_S)
                continue
            crashes = False
            try:
                if await self._live(member, stop):
                    await drained.wait()
                else:
                    crashes = self._crash()
            finally:
                if member.on_end is not None:
                    member.on_end()
                if crashes:
                    await member.consumer.crash()
                else:
                    await member.consumer.stop()
                    with member.actor.operation("assign") as operation:
                        operation.complete("ok", assigned=[])
            await sleep_until_set(drained, RESTART_PAUSE_S)

    async def _live(self, member: Member, stop: asyncio.Event) -> bool:
        """Wait until the member's time is up; return whether `stop` was set instead."""
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            if self._disturb is not None:
                tasks.create_task(_run(self._disturb, member.consumer, over))
            if self._restart_s <= 0:
                await stop.wait()
                stopped = True
            else:
                life_s = max(LIFE_S_MIN, self._rng.expovariate(1 / self._restart_s))
                stopped = await sleep_until_set(stop, life_s)
            over.set()
        return stopped


async def _run(disturb: Disturb, consumer: PushConsumer, over: asyncio.Event) -> None:
    await disturb(consumer, over)


def make_member(
    kit: PartKit,
    slot: Slot,
    listener: ConsumeListener,
    *,
    client: str,
    group: str,
    topics: Sequence[str],
    settings: Mapping[str, Any],
    actor: Actor | None = None,
    expression: str = ALL_TAGS,
    kind: ExpressionType = ExpressionType.TAG,
    on_end: Callable[[], None] | None = None,
    on_assigned: Callable[[Sequence[MessageQueue]], None] | None = None,
    observe: Callable[..., MemberObserver] = MemberObserver,
) -> Member:
    """Make a member that records all that it does but its deliveries, which its listener records.

    `settings` are fields of PushConsumerSettings beyond the common ones. `on_assigned` is called
    with all queues that the member owns, whenever these change; `observe` makes its observer.
    """
    history = kit.context.history
    actor = actor or Actor(history, root=client, client=client, client_group=group)
    consumer = PushConsumer(
        group,
        kit.context.name_servers,
        listener,
        slot.dial,
        settings=PushConsumerSettings(
            **{**COMMON_SETTINGS, "instance": slot.instance_settings(), **settings}
        ),
        observer=observe(history, actor, group=group, client=client, on_assigned=on_assigned),
    )
    for topic in topics:
        consumer.subscribe(topic, expression, kind)
    return Member(consumer=consumer, actor=actor, on_end=on_end)
