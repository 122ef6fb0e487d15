"""Clients of a master and its slaves: producers that report their answers to the book, consumers,
and one that queries every node where queues end.

Place in the data path: `cluster` runs one per client machine, with the product's own client.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from chaos.sim.groups.models.stored import value_of
from chaos.sim.ha.log_book import LogBook
from chaos.sim.machine.virtual_host import current
from chaos.sim.seed.ha_options import HaOptions
from client.administer.admin import Admin, AdminSettings
from client.connection.retry import RetryPolicy
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings, PullStatus
from client.errors import ClientError
from client.message import Message, MessageQueue, SendResult, SendStatus
from client.produce.producer import Producer, ProducerSettings
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["TOPIC", "Consumer", "EndReader", "HaDesk", "Sender"]

TOPIC: Final = "T"
_WORKERS: Final = 3
_ATTEMPTS_MAX: Final = 3
_BATCH_RATE: Final = 0.1
_BATCH_COUNT_MAX: Final = 4
_SEND_TIMEOUTS_MS: Final = (500, 3_000, 15_000)
_PAUSE_S: Final = 0.1
_SUSPEND_MS: Final = 2_000
_PULL_TIMEOUT_MS: Final = 3_000
_COMMIT_RATE: Final = 0.2
_END_TIMEOUT_MS: Final = 1_000
_END_PACE: Final = 2  # so many times rarer than sends


@dataclass(slots=True, kw_only=True)
class HaDesk:
    """The state that all clients of a seed share. `now_us`: true time; `judge` runs a check, whose
    violation ends the seed."""

    options: HaOptions
    book: LogBook
    counts: dict[str, int]
    name_servers: tuple[str, ...]
    addresses: tuple[str, ...]
    """Of all nodes."""
    judge: Callable[[Callable[[], None]], None]
    now_us: Callable[[], int]
    is_judged_calm: bool = False  # whether a first send must end in SEND_OK now
    sending: bool = True
    is_resting: bool = False  # whether no client does anything for a while
    sent: int = 0
    acknowledged: int = 0
    answered_us: int = 0  # when a send was answered last where its message stands
    begun_us: list[int] = field(default_factory=list)  # of the sends that got SEND_OK
    queues: dict[int, MessageQueue] = field(default_factory=dict)

    def new_value(self) -> str:
        self.sent += 1
        return f"v{self.sent}"


class Sender:
    """A producer of single messages and batches, some of which it sends again under their keys."""

    def __init__(self, desk: HaDesk, group: str) -> None:
        self._desk = desk
        self._group = group

    async def run(self) -> None:
        rng = current().rng
        settings = ProducerSettings(
            timeout_ms=rng.choice(_SEND_TIMEOUTS_MS),
            retry=RetryPolicy(attempts_max=rng.choice((1, 64))),
        )
        producer = Producer(self._group, self._desk.name_servers, settings=settings)
        await producer.start()
        async with asyncio.TaskGroup() as workers:
            for _ in range(_WORKERS):
                workers.create_task(self._work(producer, rng))

    async def _work(self, producer: Producer, rng: random.Random) -> None:
        desk = self._desk
        while True:
            interval_s = _WORKERS * desk.options.send_interval_ms / 1000
            await asyncio.sleep(rng.expovariate(1) * interval_s)
            if desk.sending and not desk.is_resting:
                count = rng.randint(2, _BATCH_COUNT_MAX) if rng.random() < _BATCH_RATE else 1
                await self._send(producer, [desk.new_value() for _ in range(count)], rng)

    async def _send(self, producer: Producer, values: list[str], rng: random.Random) -> None:
        desk = self._desk
        messages = [Message(topic=TOPIC, body=self._body(value, rng)) for value in values]
        for attempt in range(_ATTEMPTS_MAX):
            desk.counts["sends_again" if attempt else "sends"] += 1
            begun_us, was_calm = desk.now_us(), desk.is_judged_calm
            try:
                if len(messages) > 1:
                    result = await producer.send_batch(messages)
                else:
                    result = await producer.send(messages[0])
            except ClientError:
                desk.counts["sends_unknown"] += 1
            else:
                self._on_result(values, result)
                if result.status is SendStatus.SEND_OK:
                    desk.acknowledged += 1
                    desk.begun_us.append(begun_us)
                    return
                if was_calm and not attempt:
                    desk.judge(partial(desk.book.on_bad_status_when_calm, result.status.value))
            if rng.random() >= desk.options.again_rate:
                return
            await asyncio.sleep(_PAUSE_S * rng.random())

    def _on_result(self, values: list[str], result: SendResult) -> None:
        desk, queue = self._desk, result.queue
        desk.counts[f"told_{result.status.value}"] += 1
        desk.answered_us = desk.now_us()
        desk.queues[queue.queue_id] = queue
        is_ok = result.status is SendStatus.SEND_OK
        place = queue.topic, queue.queue_id
        for at, value in enumerate(values):
            offset = result.queue_offset + at
            desk.judge(partial(desk.book.on_send_result, value, place, offset, is_ok=is_ok))

    def _body(self, value: str, rng: random.Random) -> bytes:
        options = self._desk.options
        if options.is_of_one_size:
            return f"{value} ".encode().ljust(options.body_size_max, b"x")
        return f"{value} ".encode() + b"x" * int(rng.random() * options.body_size_max)


class Consumer:
    """Reads every queue of the topic in order, from whichever node it is sent to, and commits."""

    def __init__(self, desk: HaDesk, group: str) -> None:
        self._desk = desk
        self._group = group

    async def run(self) -> None:
        rng = current().rng
        consumer = PullConsumer(
            self._group,
            self._desk.name_servers,
            settings=PullConsumerSettings(timeout_ms=_PULL_TIMEOUT_MS),
        )
        await consumer.start()
        queues: tuple[MessageQueue, ...] = ()
        while not queues:
            try:
                queues = await consumer.queues(TOPIC)
            except ClientError:
                await asyncio.sleep(_PAUSE_S)
        async with asyncio.TaskGroup() as readers:
            for queue in queues:
                readers.create_task(self._read(consumer, queue, rng))

    async def _read(self, consumer: PullConsumer, queue: MessageQueue, rng: random.Random) -> None:
        desk = self._desk
        offset: int | None = None
        while True:
            if desk.is_resting:
                await asyncio.sleep(_PAUSE_S)
                continue
            try:
                if offset is None:
                    offset = await consumer.fetch_offset(queue) or 0
                offset = await self._pull(consumer, queue, offset)
                if rng.random() < _COMMIT_RATE:
                    await consumer.commit_offset(queue, offset)
            except ClientError:
                desk.counts["reads_failed"] += 1
                await asyncio.sleep(_PAUSE_S)

    async def _pull(self, consumer: PullConsumer, queue: MessageQueue, offset: int) -> int:
        desk = self._desk
        result = await consumer.pull(queue, offset, suspend_ms=_SUSPEND_MS)
        if result.status is PullStatus.OFFSET_ILLEGAL:
            desk.counts["offsets_moved"] += 1
            return result.next_begin_offset
        place = queue.topic, queue.queue_id
        for message in result.messages:
            desk.counts["messages_read"] += 1
            value = value_of(message.body)
            desk.judge(partial(desk.book.on_read, place, message.queue_offset, value))
        found, to = [message.queue_offset for message in result.messages], result.next_begin_offset
        desk.judge(partial(desk.book.on_pulled, place, offset, found, to))
        return to


class EndReader:
    """Queries whichever node where queues end, as clients do that take it for the master."""

    def __init__(self, desk: HaDesk) -> None:
        self._desk = desk

    async def run(self) -> None:
        desk, rng = self._desk, current().rng
        admin = Admin(desk.name_servers, settings=AdminSettings(timeout_ms=_END_TIMEOUT_MS))
        await admin.start()
        while True:
            interval_s = _END_PACE * desk.options.send_interval_ms / 1000
            await asyncio.sleep(rng.expovariate(1) * interval_s)
            if desk.queues and not desk.is_resting:
                queue = desk.queues[rng.choice(sorted(desk.queues))]
                await self._query(admin, rng.choice(desk.addresses), queue)

    async def _query(self, admin: Admin, address: str, queue: MessageQueue) -> None:
        desk = self._desk
        desk.counts["ends_asked"] += 1
        fields = {"topic": queue.topic, "queueId": str(queue.queue_id)}
        command = RemotingCommand(code=RequestCode.GET_MAX_OFFSET, ext_fields=fields)
        try:
            answer = await admin.instance.rpc.request(address, command, _END_TIMEOUT_MS)
        except RemotingError:
            return
        if answer.code == 0:
            desk.counts["ends_told"] += 1
            end = int(answer.ext_fields["offset"])
            desk.judge(partial(desk.book.on_end_answered, (queue.topic, queue.queue_id), end))
