"""Orderly consumers of one group: each locks queues, consumes them, and unlocks them or not.

Place in the data path: `programs` runs them on client machines; their grants end in `lock_model`,
their reads and commits in `client_checker`. They use the product's own locks, which are valid for
less long than brokers keep them. Some repeat an unlock after they have locked again, like a late
request from a paused node: it must take nothing from them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from chaos.sim.groups.programs.clients import TOPIC, Desk, until_known
from chaos.sim.groups.programs.readers import commit_offset, fetch_offset, show_pull
from chaos.sim.machine.virtual_host import current
from chaos.sim.machine.virtual_loop import acting_as
from client.connection.instance import ClientInstance
from client.connection.retry import RetryPolicy
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.consume.queue_locks import QueueLocks
from client.errors import ClientError
from client.message import MessageQueue
from remoting.protocol.codes import RequestCode

__all__ = ["LOCK_GROUP", "OrderlyConsumer"]

LOCK_GROUP = "L"
_TIMEOUT_MS = 3_000
_COUNT_MAX = 4
_ROUNDS_MAX = 4
_UNLOCK_RATE = 0.5
_AGAIN_RATE = 0.1
_PACE = 2  # so many times rarer than sends


class _RepeatedUnlocks(QueueLocks):
    def __init__(
        self, instance: ClientInstance, wire_group: str, *, timeout_ms: int, policy: RetryPolicy
    ) -> None:
        super().__init__(instance, wire_group, timeout_ms=timeout_ms, policy=policy)
        self.dice = random.Random(instance.client_id)  # its own: older seeds stay as they were
        self._last: tuple[list[MessageQueue], int] | None = None  # with its claim

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        given_back = sorted(queues)
        self._last = given_back, self._table.claim
        await super().unlock(given_back)

    async def unlock_again(self) -> None:
        if self._last is not None:
            await self._request_quietly(RequestCode.UNLOCK_BATCH_MQ, *self._last)


class OrderlyConsumer:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def run(self) -> None:
        desk, process = self._desk, current()
        consumer = PullConsumer(
            LOCK_GROUP,
            desk.name_servers,
            settings=PullConsumerSettings(timeout_ms=_TIMEOUT_MS, instance=self._desk.instance()),
        )
        await consumer.start()
        queues = await until_known(lambda: consumer.queues(TOPIC))
        locks = _RepeatedUnlocks(
            consumer.instance,
            LOCK_GROUP,
            timeout_ms=_TIMEOUT_MS,
            policy=consumer.settings.retry,
        )
        named = {(queue.topic, queue.queue_id): queue for queue in queues}

        def holds(topic: str, queue_id: int) -> bool:
            if not process.alive:
                return False
            with acting_as(process):  # by its own clock
                return locks.holds(named[topic, queue_id])

        desk.checker.locks.join(
            LOCK_GROUP,
            consumer.client_id,
            host=process.host,
            lives=lambda: process.alive,
            holds=holds,
        )
        while True:
            pace = _PACE * desk.options.send_interval_ms / 1000
            await asyncio.sleep(process.rng.expovariate(1) * pace)
            if desk.reading:
                await self._round(consumer, locks, queues, process.rng)

    async def _round(
        self,
        consumer: PullConsumer,
        locks: _RepeatedUnlocks,
        queues: tuple[MessageQueue, ...],
        rng: random.Random,
    ) -> None:
        model = self._desk.checker.locks
        wanted = rng.sample(queues, rng.randint(1, len(queues)))
        answer = await locks.lock(wanted)
        granted = sorted(answer.granted)
        for queue in granted:
            model.on_granted(LOCK_GROUP, consumer.client_id, queue.topic, queue.queue_id)
        if granted and locks.dice.random() < _AGAIN_RATE:
            self._desk.counts["unlocks_said_again"] += 1
            await locks.unlock_again()
        for queue in granted:
            try:
                await self._consume(consumer, locks, queue, rng)
            except ClientError:
                self._desk.counts["reads_failed"] += 1
        if granted and rng.random() < _UNLOCK_RATE:
            await locks.unlock(granted)

    async def _consume(
        self, consumer: PullConsumer, locks: QueueLocks, queue: MessageQueue, rng: random.Random
    ) -> None:
        desk = self._desk
        offset = await fetch_offset(desk, LOCK_GROUP, consumer, queue)
        for _ in range(rng.randint(1, _ROUNDS_MAX)):
            result = await consumer.pull(queue, offset, _COUNT_MAX)
            show_pull(desk, queue, offset, result)
            for _ in result.messages:
                if not locks.holds(queue):
                    return
                desk.checker.locks.on_consumed(
                    LOCK_GROUP, consumer.client_id, queue.topic, queue.queue_id
                )
                desk.counts["messages_consumed_in_order"] += 1
            offset = result.next_begin_offset
        if locks.holds(queue):
            await commit_offset(desk, LOCK_GROUP, consumer, queue, offset)
