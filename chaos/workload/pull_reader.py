"""A pull group with one member that owns every queue: it polls, commits, dies and comes back.

Place in the data path: `client.consume.pull_consumer` through the slot's own proxies. Every round
it polls each queue once; positions are committed now and then, and queried behind some of the
commits. A successor begins at the group's committed offsets (fetch_offset), as a restarted
application does.

Invariants: a member that begins to read records an `assign` that names every queue; a position
moves only by what an ok poll returned; nothing is committed beyond it.

Source: the run format (poll, assign, commit_offset, fetch_offset); guarantees G5, G6.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from chaos.workload.actor import Actor, Operation
from chaos.workload.context import Slot, WorkContext, queue_row
from chaos.workload.messages import row_of_delivered
from chaos.workload.pace import sleep_until_set
from chaos.workload.same_loop import BLOCKING_SHARE, through_blocking
from client.blocking.sync_clients import SyncPullConsumer
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.consume.queue_requests import PullResult, PullStatus
from client.errors import ClientError
from client.message import DeliveredMessage, MessageQueue

__all__ = ["PullReader", "complete_poll"]

BATCH_MAX: Final = 32
IDLE_PAUSE_S: Final = 0.2
ERROR_PAUSE_S: Final = 0.1
COMMIT_INTERVAL_S: Final = 0.5
FETCH_BACK_SHARE: Final = 0.3
TIMEOUT_MS: Final = 3_000
RESTART_PAUSE_S: Final = 0.5
CRASH_SHARE: Final = 0.5


class PullReader:
    """One slot's members of the group, one after another.

    `on_read` is called with the messages of each poll. They read `context.queues`.
    """

    def __init__(
        self,
        context: WorkContext,
        slot: Slot,
        *,
        group: str,
        rng: random.Random,
        on_read: Callable[[Sequence[DeliveredMessage]], None] = lambda messages: None,
    ) -> None:
        self._context = context
        self._on_read = on_read
        self._slot = slot
        self.group = group
        self._rng = rng
        self._positions: dict[MessageQueue, int] = {}
        self._restart_s = context.scenario.workload.pull_restart_s

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        """Run members that come and go until `stop`, then one that reads on until `drained`."""
        while not drained.is_set():
            client = self._slot.next_client()
            consumer = PullConsumer(
                self.group,
                self._context.name_servers,
                self._slot.dial,
                settings=PullConsumerSettings(
                    timeout_ms=TIMEOUT_MS, instance=self._slot.instance_settings()
                ),
            )
            if self._rng.random() < BLOCKING_SHARE:
                consumer = through_blocking(consumer, SyncPullConsumer)
            await consumer.start()
            crashes = self._rng.random() < CRASH_SHARE
            try:
                rng = random.Random(self._rng.getrandbits(64))
                member = _Member(
                    self._context,
                    consumer,
                    client,
                    self._positions,
                    rng=rng,
                    on_read=self._on_read,
                )
                await member.run(drained, stop, self._lifetime(stop), leave=not crashes)
            finally:
                if crashes:
                    await consumer.crash()
                else:
                    await consumer.stop()
            await sleep_until_set(drained, RESTART_PAUSE_S)

    def reached(self, max_offsets: dict[MessageQueue, int]) -> bool:
        """Return whether the group has read up to these offsets."""
        return all(self._positions.get(q, 0) >= end for q, end in max_offsets.items())

    def _lifetime(self, stop: asyncio.Event) -> float | None:
        """Draw the seconds until this member leaves; None: it stays."""
        if self._restart_s <= 0 or stop.is_set():
            return None
        return max(1.0, self._rng.expovariate(1 / self._restart_s))


class _Member:
    """The reading of one client instance."""

    def __init__(
        self,
        context: WorkContext,
        consumer: PullConsumer,
        client: str,
        positions: dict[MessageQueue, int],
        *,
        rng: random.Random,
        on_read: Callable[[Sequence[DeliveredMessage]], None],
    ) -> None:
        self._context = context
        self._consumer = consumer
        self._on_read = on_read
        self._actor = Actor(
            context.history, root=client, client=client, client_group=consumer.group
        )
        self._positions = positions
        self._rng = rng
        self._committed: dict[MessageQueue, int] = {}
        self._assigned_as = ""

    async def run(
        self,
        drained: asyncio.Event,
        stop: asyncio.Event,
        lifetime_s: float | None,
        *,
        leave: bool,
    ) -> None:
        """Read until the lifetime is over; with `leave` commit what was read before leaving.

        After `stop` no member leaves before the drain is through.
        """
        loop = asyncio.get_running_loop()
        end = None if lifetime_s is None else loop.time() + lifetime_s
        if not await self._begin(drained):
            return
        next_commit = loop.time() + COMMIT_INTERVAL_S
        while not drained.is_set() and (end is None or stop.is_set() or loop.time() < end):
            found = 0
            for queue in self._context.queues:
                found += await self._poll(queue)
            if loop.time() >= next_commit:
                await self._commit_all()
                next_commit = loop.time() + COMMIT_INTERVAL_S
            if not found:
                await sleep_until_set(drained, IDLE_PAUSE_S)
        if leave:
            await self._commit_all()

    async def _begin(self, drained: asyncio.Event) -> bool:
        """Take every queue at its committed offset, or at its beginning where there is none.

        Return False where the run was over before each of these was known.
        """
        for queue in self._context.queues:
            while (answer := await self._fetch(queue)) is None:
                if await sleep_until_set(drained, ERROR_PAUSE_S):
                    return False
            self._positions[queue] = answer
            self._committed[queue] = answer
        self._assign()
        return True

    async def _fetch(self, queue: MessageQueue) -> int | None:
        """Return where to begin; None where no answer came."""
        with self._operation("fetch_offset", queue) as operation:
            try:
                stored = await self._consumer.fetch_offset(queue)
            except ClientError as error:
                operation.failed(error)
                return None
            operation.complete("ok", offset=stored)
        return stored if stored is not None else 0

    def _assign(self) -> None:
        with self._actor.operation("assign") as operation:
            self._assigned_as = self._actor.name
            operation.complete("ok", assigned=[queue_row(q) for q in self._context.queues])

    async def _poll(self, queue: MessageQueue) -> int:
        """Poll once; return the number of messages received."""
        if self._actor.name != self._assigned_as:
            self._assign()  # an unknown outcome retired the process; its successor reads on
        offset = self._positions[queue]
        with self._operation("poll", queue, offset=offset) as operation:
            try:
                result = await self._consumer.pull(queue, offset, BATCH_MAX)
            except ClientError as error:
                operation.failed(error)
                await asyncio.sleep(ERROR_PAUSE_S)
                return 0
            complete_poll(operation, result, self._context)
        self._on_read(result.messages)
        self._positions[queue] = result.next_begin_offset
        return len(result.messages)

    async def _commit_all(self) -> None:
        for queue in self._context.queues:
            offset = self._positions[queue]
            if self._committed.get(queue) == offset:
                continue
            with self._operation("commit_offset", queue, offset=offset) as operation:
                try:
                    await self._consumer.commit_offset(queue, offset)
                except ClientError as error:
                    operation.failed(error)
                    continue
                operation.complete("ok")
            self._committed[queue] = offset
            if self._rng.random() < FETCH_BACK_SHARE:
                await self._fetch(queue)  # acknowledged commits must be visible, whoever leads

    def _operation(
        self, f: str, queue: MessageQueue, offset: int | None = None
    ) -> AbstractContextManager[Operation]:
        return self._actor.operation(
            f,
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            offset=offset,
        )


def complete_poll(operation: Operation, result: PullResult, context: WorkContext) -> None:
    """Complete a poll with its messages.

    An offset that the queue lacks makes it `fail`: the broker answered, and nothing was read.
    """
    node = context.node(result.address)
    if result.status is PullStatus.OFFSET_ILLEGAL:
        text = f"no such offset; the queue has {result.min_offset}..{result.max_offset}"
        operation.complete("fail", status=result.status.value, node=node, error=text)
        return
    rows = [row_of_delivered(message) for message in result.messages]
    operation.complete("ok", messages=rows, status=result.status.value, node=node)
