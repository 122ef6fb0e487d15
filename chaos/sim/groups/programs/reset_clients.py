"""A consumer whose offsets an administrator resets while it reads, and that administrator.

Place in the data path: `programs` runs one of each on a client machine; the consumer's moves end in
`reset_model`, the answers of both in `answered_requests` and `client_checker`. The group has no
other consumer, so that its position is known.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from chaos.sim.groups.programs.clients import PAUSE_AFTER_ERROR_S, TOPIC, Desk, until_known
from chaos.sim.groups.programs.readers import SUSPEND_MS, commit_offset, fetch_offset, show_pull
from chaos.sim.groups.programs.settings import GROUP
from chaos.sim.machine.virtual_host import current
from client.administer.admin import Admin, AdminSettings
from client.connection.broker_call import call_group
from client.connection.retry import RetryPolicy
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError
from client.message import MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["RESET_GROUP", "Resetter", "RewoundConsumer"]

RESET_GROUP = "R"
_TIMEOUT_MS = 3_000
_COMMIT_RATE = 0.4
_FETCH_RATE = 0.1
_RESET_PACE = 4  # so many times rarer than sends
_FROM_A_TIME_RATE = 0.2
_COUNT_MAX = 8  # of a pull: small, so that a reset comes in the middle


class RewoundConsumer:
    """Reads every queue in order, commits now and then, and follows resets.

    It reads until the end: a reset may come when all else is over, and must be followed.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def run(self) -> None:
        rng = current().rng
        consumer = PullConsumer(
            RESET_GROUP,
            self._desk.name_servers,
            settings=PullConsumerSettings(
                timeout_ms=_TIMEOUT_MS,
                instance=self._desk.instance(),
                # A retry inside a call leaves copies of the request that this model does not know
                # of.
                retry=RetryPolicy(attempts_max=1),
            ),
        )
        await consumer.start()
        queues = await until_known(lambda: consumer.queues(TOPIC))
        async with asyncio.TaskGroup() as readers:
            for queue in queues:
                readers.create_task(self._read(consumer, queue, rng))

    async def _read(self, consumer: PullConsumer, queue: MessageQueue, rng: random.Random) -> None:
        offset: int | None = None
        while True:
            try:
                if offset is None:
                    offset = await self._begin(consumer, queue)
                offset = await self._pull(consumer, queue, offset)
                if self._desk.reading and rng.random() < _COMMIT_RATE:
                    await commit_offset(self._desk, RESET_GROUP, consumer, queue, offset)
                if rng.random() < _FETCH_RATE:
                    await fetch_offset(self._desk, RESET_GROUP, consumer, queue)
            except ClientError:
                self._desk.counts["reads_failed"] += 1
                await asyncio.sleep(PAUSE_AFTER_ERROR_S)

    async def _begin(self, consumer: PullConsumer, queue: MessageQueue) -> int:
        resets = self._desk.checker.resets
        key = (RESET_GROUP, queue.topic, queue.queue_id)
        made_count = resets.made_count(key)
        offset = await fetch_offset(self._desk, RESET_GROUP, consumer, queue)
        resets.on_begun(key, made_count)
        return offset

    async def _pull(self, consumer: PullConsumer, queue: MessageQueue, offset: int) -> int:
        desk = self._desk
        key = (RESET_GROUP, queue.topic, queue.queue_id)
        desk.checker.resets.on_pull(key, offset)
        leaders = desk.leaders()
        try:
            result = await consumer.pull(queue, offset, _COUNT_MAX, suspend_ms=SUSPEND_MS)
        except ClientError as error:
            if not error.definite:
                desk.checker.resets.on_lost(key, offset)
            raise
        if show_pull(desk, queue, offset, result):
            desk.checker.resets.on_sent_back(key, offset, result.next_begin_offset)
        elif result.address not in leaders & desk.leaders():
            # The answer may date from before this broker led, and may have been delayed since.
            desk.checker.resets.on_behind(key, offset)
        return result.next_begin_offset


class Resetter:
    """Resets the group to any offset of a queue, or all queues to a time."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def run(self) -> None:
        desk, rng = self._desk, current().rng
        admin = Admin(desk.name_servers, settings=AdminSettings(timeout_ms=_TIMEOUT_MS))
        consumer = PullConsumer(
            "RA",
            desk.name_servers,
            settings=PullConsumerSettings(timeout_ms=_TIMEOUT_MS, instance=self._desk.instance()),
        )
        await admin.start()
        await consumer.start()
        queues = await until_known(lambda: consumer.queues(TOPIC))
        while True:
            pace = _RESET_PACE * desk.options.send_interval_ms / 1000
            await asyncio.sleep(rng.expovariate(1) * pace)
            if not desk.sending:
                continue
            try:
                if rng.random() < _FROM_A_TIME_RATE:
                    await self._reset_to_time(admin, queues, rng)
                else:
                    await self._reset(consumer, rng.choice(queues), rng)
            except ClientError:
                desk.counts["reads_failed"] += 1

    async def _reset(self, consumer: PullConsumer, queue: MessageQueue, rng: random.Random) -> None:
        begin, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
        offset = rng.randint(begin, end)
        fields = {
            "group": RESET_GROUP,
            "topic": queue.topic,
            "timestamp": "0",
            "isForce": "true",
            "queueId": str(queue.queue_id),
            "offset": str(offset),
        }
        key = (RESET_GROUP, queue.topic, queue.queue_id)
        self._desk.checker.resets.on_requested(key, offset)
        with self._desk.checker.requests.request(
            "reset", RESET_GROUP, queue.topic, queue.queue_id, offset
        ) as request:
            await call_group(
                consumer.instance,
                GROUP,
                lambda: RemotingCommand(
                    code=RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext_fields=dict(fields)
                ),
                topic=queue.topic,
                timeout_ms=_TIMEOUT_MS,
                policy=RetryPolicy(attempts_max=rng.choice((1, 64))),
            )
            request.is_done = True

    async def _reset_to_time(
        self, admin: Admin, queues: Sequence[MessageQueue], rng: random.Random
    ) -> None:
        """Reset to -1, the end, or some time; the answer has the resulting offsets."""
        now_ms = current().clock.wall_ns() // 1_000_000
        time_ms = -1 if rng.random() < 0.3 else now_ms - int(rng.random() * 20_000)
        resets = self._desk.checker.resets
        for queue in queues:
            resets.on_requested((RESET_GROUP, queue.topic, queue.queue_id), None)
        for queue, offset in (await admin.reset_offsets(RESET_GROUP, TOPIC, time_ms)).items():
            resets.on_answered((RESET_GROUP, queue.topic, queue.queue_id), offset)
