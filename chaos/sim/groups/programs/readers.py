"""Programs of client machines that read: consumers, a watcher of offsets, and the last drain.

Place in the data path: `programs` runs them on client machines; what they read and their answers
end in `client_checker` and `answered_requests`. Each loop awaits one operation at a time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial

from chaos.sim.groups.programs.clients import PAUSE_AFTER_ERROR_S, TOPIC, Desk, until_known
from chaos.sim.machine.virtual_host import current
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings, PullResult, PullStatus
from client.errors import ClientError
from client.message import MessageQueue

__all__ = [
    "SUSPEND_MS",
    "Consumer",
    "Watcher",
    "commit_offset",
    "drain",
    "fetch_offset",
    "show_pull",
]

SUSPEND_MS = 3_000
_TIMEOUT_MS = 3_000
_COMMIT_RATE = 0.3
_QUERY_MAX_RATE = 0.2
_FETCH_RATE = 0.05


class Consumer:
    """Reads every queue of the topic in order, and commits its progress."""

    def __init__(self, desk: Desk, group: str) -> None:
        self._desk = desk
        self._group = group

    async def run(self) -> None:
        rng = current().rng
        consumer = PullConsumer(
            self._group,
            self._desk.name_servers,
            settings=PullConsumerSettings(timeout_ms=_TIMEOUT_MS, instance=self._desk.instance()),
        )
        await consumer.start()
        queues = await until_known(lambda: consumer.queues(TOPIC))
        async with asyncio.TaskGroup() as readers:
            for queue in queues:
                readers.create_task(self._read(consumer, queue, rng))

    async def _read(self, consumer: PullConsumer, queue: MessageQueue, rng: random.Random) -> None:
        desk, group = self._desk, self._group
        offset: int | None = None
        while True:
            if not desk.reading:
                await asyncio.sleep(SUSPEND_MS / 1000)
                continue
            try:
                if offset is None:
                    offset = await fetch_offset(desk, group, consumer, queue)
                offset = await self._pull(consumer, queue, offset)
                if rng.random() < _COMMIT_RATE:
                    await commit_offset(desk, group, consumer, queue, offset)
                if rng.random() < _QUERY_MAX_RATE:
                    await _query_max_offset(desk, consumer, queue)
                if rng.random() < _FETCH_RATE:
                    offset = await fetch_offset(desk, group, consumer, queue)
            except ClientError:
                desk.counts["reads_failed"] += 1
                await asyncio.sleep(PAUSE_AFTER_ERROR_S)

    async def _pull(self, consumer: PullConsumer, queue: MessageQueue, offset: int) -> int:
        with self._desk.checker.held(SUSPEND_MS):
            result = await consumer.pull(queue, offset, suspend_ms=SUSPEND_MS)
        if show_pull(self._desk, queue, offset, result):
            self._desk.checker.resets.on_sent_back(
                (self._group, queue.topic, queue.queue_id), offset, result.next_begin_offset
            )
        return result.next_begin_offset


class Watcher:
    """Queries the offsets of a group's consumers and the ends of queues.

    It learns of a new leader only by requests, so it also queries old leaders.
    """

    def __init__(self, desk: Desk, group: str) -> None:
        self._desk = desk
        self._group = group

    async def run(self) -> None:
        desk, rng = self._desk, current().rng
        consumer = PullConsumer(
            self._group,
            desk.name_servers,
            settings=PullConsumerSettings(timeout_ms=_TIMEOUT_MS, instance=self._desk.instance()),
        )
        await consumer.start()
        queues = await until_known(lambda: consumer.queues(TOPIC))
        while True:
            await asyncio.sleep(rng.expovariate(1) * desk.options.send_interval_ms / 1000)
            if not desk.reading:
                continue
            queue = rng.choice(queues)
            try:
                if rng.random() < 0.7:
                    await fetch_offset(desk, self._group, consumer, queue)
                else:
                    await _query_max_offset(desk, consumer, queue)
            except ClientError:
                desk.counts["reads_failed"] += 1


async def fetch_offset(desk: Desk, group: str, consumer: PullConsumer, queue: MessageQueue) -> int:
    """Return the group's offset, or 0. Raises ClientError."""
    key = (group, queue.topic, queue.queue_id)
    since = desk.checker.begin_fetch(key)
    offset = await consumer.fetch_offset(queue)
    desk.checker.on_fetched(key, offset, since)
    return offset or 0


async def commit_offset(
    desk: Desk, group: str, consumer: PullConsumer, queue: MessageQueue, offset: int
) -> None:
    """Commit the group's offset. Raises ClientError."""
    with desk.checker.requests.request(
        "offset", group, queue.topic, queue.queue_id, offset
    ) as request:
        await consumer.commit_offset(queue, offset)
        request.is_done = True
    desk.counts["offsets_committed"] += 1


def show_pull(desk: Desk, queue: MessageQueue, offset: int, result: PullResult) -> bool:
    """Check a pull from `offset`; return whether it points elsewhere, though the queue has it."""
    checker, to = desk.checker, result.next_begin_offset
    checker.on_pulled(
        queue.topic,
        queue.queue_id,
        offset,
        [(message.queue_offset, message.body) for message in result.messages],
        to,
        is_moved=result.status is PullStatus.OFFSET_ILLEGAL,
    )
    if result.status is not PullStatus.OFFSET_ILLEGAL:
        return False
    desk.counts["offsets_moved"] += 1
    return not offset < to == result.min_offset


async def _query_max_offset(desk: Desk, consumer: PullConsumer, queue: MessageQueue) -> None:
    floor = desk.checker.max_offset_floor(queue.topic, queue.queue_id)
    offset = await consumer.max_offset(queue)
    desk.checker.on_max_offset(queue.topic, queue.queue_id, offset, floor)


async def drain(desk: Desk, topics: Sequence[str], is_gone: Callable[[str], bool]) -> None:
    """Read every queue of the topics from its first kept offset to its end, once.

    A deletion that was requested before the drain may end during it: a topic that `is_gone` by then
    has nothing to be read.
    """
    consumer = PullConsumer("DRAIN", desk.name_servers)
    await consumer.start()
    for topic in topics:
        is_deleted = partial(is_gone, topic)
        for queue in await until_known(partial(consumer.queues, topic), unless=is_deleted):
            try:
                await _drain_queue(desk, consumer, queue)
            except ClientError:
                if not is_deleted():
                    raise
                break
    await consumer.stop()


async def _drain_queue(desk: Desk, consumer: PullConsumer, queue: MessageQueue) -> None:
    offset = await consumer.min_offset(queue)
    desk.checker.on_min_offset(queue.topic, queue.queue_id, offset)
    end = await consumer.max_offset(queue)
    while offset < end:
        result = await consumer.pull(queue, offset, max_count=256)
        show_pull(desk, queue, offset, result)
        offset = result.next_begin_offset
    desk.counts["queues_drained"] += 1
