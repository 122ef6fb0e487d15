"""Sends that are not plain: oneway, asynchronous bursts against a limit, large batches, messages at
the size limit and beyond, compressed ones, ones full of properties, hasty ones (also of batches),
whose attempts all end before they are answered, ones whose client makes a single attempt, batches
of new messages with some that are stored already, as of an application that sends again what it is
not sure of, and twins: the same messages, alone or in batches that overlap, sent by two processes
through connections of their own while neither is answered.

Place in the data path: `client.produce.producer` through the slot's own proxies, into a topic of
the part's own; one pull group reads it. All are rows of f = send, which the rules of all sends
judge.

Invariants: what is in flight at one time belongs to different processes; an oneway send is never
more than `info`; a hasty send is one operation, however many attempts its client made, and is not
repeated, so that only what that client said of it counts; a message beyond the limit is sent all
the same, so that a rule sees that what was refused is not stored. Operations that wait are bounded:
when all processes are busy, the next one comes later.

Source: docs/RUN_FORMAT.md (send); RocketMQ's sendOneway, send with a callback, batches, compression
of bodies from 4 KiB on, limits of 4 MiB and 32 KiB.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from chaos.scenario.part_sections import SendsSection
from chaos.workload.actor import Actor
from chaos.workload.contents_digest import USER_PREFIX
from chaos.workload.context import Slot, WorkContext
from chaos.workload.messages import (
    PROPERTY_VALUE,
    MessageMaker,
    row_of_message,
    row_of_stored,
    wall_ms,
)
from chaos.workload.pace import Pace, impatience
from chaos.workload.parts.common.part import PartKit, PartSpec
from chaos.workload.parts.producers.awaited_values import AwaitedValues
from chaos.workload.parts.producers.follower_sends import FollowerSends
from chaos.workload.pull_reader import PullReader
from client.connection.retry import RetryPolicy
from client.connection.send_codec import Compression, CompressionType
from client.errors import ClientError
from client.message import DeliveredMessage, Message, MessageQueue, SendResult, SendStatus
from client.produce.producer import Producer, ProducerSettings

__all__ = ["ONEWAY", "SPEC", "SendsPart"]

TOPIC: Final = "sends"
PRODUCERS: Final = "sends-producers"
READERS: Final = "sends-readers"
ONEWAY: Final = "ONEWAY"
"""Status of a send that nobody answers."""
PATIENCE_S: Final = 15.0
OPERATIONS_MAX: Final = 32
BODY_SIZE_MAX: Final = 4 << 20
BIG_SIZES: Final = (1 << 20, BODY_SIZE_MAX - 1, BODY_SIZE_MAX, BODY_SIZE_MAX + 1)
COMPRESSED_SIZE_MIN: Final = 4_096
COMPRESSED_SIZE_MAX: Final = 64 << 10
PROPERTIES_SIZE_MAX: Final = 30_000  # the broker's limit is 32,767, the message's own come on top
BATCH_BODY_BYTES: Final = 64
BATCHED_BODY_MAX: Final = 1_024
STORED_MAX: Final = 16
MIXED_MAX: Final = 3
MIXED: Final = "stored-messages"
"""Why a broker may refuse a batch by right: it holds messages that are stored."""
TWIN: Final = "twin"
"""Why a broker may refuse one of two sends by right: another one holds some of its messages."""
TWINS_MAX: Final = 6
TWIN_PAUSE_S_MAX: Final = 0.006
KINDS: Final = tuple(CompressionType)

FREE_SHARE: Final = 0.5  # of single and hasty sends name no queue
HASTY_BATCHES: Final = 0.4
OVERLAPPING_SHARE: Final = 0.3  # of two batches at one time
HASTY_ATTEMPTS: Final = (2, 4)  # at least and at most, if each takes all of its time

_Attempt = Callable[[int], Awaitable[SendResult]]


class SendsPart:
    """The clients that send, and the group that reads."""

    def __init__(self, kit: PartKit) -> None:
        self._context = kit.context
        self._section: SendsSection = kit.section
        self._rng = kit.rng
        self._slots = [kit.slots[name] for name in _sender_slots(kit.section)]
        self._awaited = AwaitedValues(PATIENCE_S)
        self._senders_done = asyncio.Event()
        own = dataclasses.replace(kit.context, queues=kit.context.part_queues["sends"])
        self._reader = PullReader(
            own,
            kit.slots[READERS],
            group=READERS,
            rng=random.Random(kit.rng.getrandbits(64)),
            on_read=self._on_read,
        )

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        group = {"kind": "cluster", "at_least_once": True, "ordered": True, "topics": [TOPIC]}
        return {READERS: group}

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reader.run(stop, drained))
            try:
                async with asyncio.TaskGroup() as senders:
                    for number, slot in enumerate(self._slots):
                        senders.create_task(self._send_all(number, slot, stop))
            finally:
                self._senders_done.set()

    async def idle(self) -> None:
        await self._senders_done.wait()

    def is_settled(self) -> bool:
        return self._senders_done.is_set()

    def has_read(self) -> bool:
        return not self._awaited.outstanding(asyncio.get_running_loop().time())

    def _on_read(self, messages: Sequence[DeliveredMessage]) -> None:
        values = [message.properties.get(PROPERTY_VALUE, "") for message in messages]
        self._awaited.seen(values, asyncio.get_running_loop().time())

    async def _send_all(self, number: int, slot: Slot, stop: asyncio.Event) -> None:
        client = slot.next_client()
        kind = KINDS[number % len(KINDS)]
        producer = Producer(
            PRODUCERS,
            self._context.name_servers,
            slot.dial,
            settings=ProducerSettings(
                timeout_ms=self._context.scenario.workload.send_timeout_ms,
                in_flight_max=self._section.in_flight_max,
                compression=Compression(size_bytes_min=COMPRESSED_SIZE_MIN, kind=kind),
                instance=slot.instance_settings(),
            ),
        )
        hasty_ms = self._section.hasty_ms
        hasty = self._producer_with(
            slot,
            RetryPolicy(attempt_timeout_ms=hasty_ms, backoff_ms_min=1, backoff_ms_max=hasty_ms),
        )
        one_attempt = self._producer_with(slot, RetryPolicy(attempts_max=1))
        sender = _Sender(
            self._context,
            self._section,
            self._awaited,
            producer=producer,
            hasty=hasty,
            one_attempt=one_attempt,
            client=client,
            rng=random.Random(self._rng.getrandbits(64)),
        )
        followers = FollowerSends(
            self._context,
            producer.instance,
            self._awaited,
            client=client,
            group=PRODUCERS,
            queues=self._context.part_queues["sends"],
            rng=random.Random(self._rng.getrandbits(64)),
        )
        async with producer, hasty, one_attempt, asyncio.TaskGroup() as tasks:
            tasks.create_task(followers.run(stop))
            await sender.run(stop)

    def _producer_with(self, slot: Slot, retry: RetryPolicy) -> Producer:
        """Make a further producer of the same client."""
        return Producer(
            PRODUCERS,
            self._context.name_servers,
            slot.dial,
            settings=ProducerSettings(
                timeout_ms=self._context.scenario.workload.send_timeout_ms,
                retry=retry,
                instance=slot.instance_settings(),
            ),
        )


class _Sender:
    """One client. Each operation is done by a process that does nothing else meanwhile."""

    def __init__(
        self,
        context: WorkContext,
        section: SendsSection,
        awaited: AwaitedValues,
        *,
        producer: Producer,
        hasty: Producer,
        one_attempt: Producer,
        client: str,
        rng: random.Random,
    ) -> None:
        self._context = context
        self._section = section
        self._awaited = awaited
        self._producer = producer
        self._hasty = hasty
        self._one_attempt = one_attempt
        self._client = client
        self._rng = rng
        self._queues = context.part_queues["sends"]
        self._stored: Mapping[MessageQueue, deque[Message]] = {
            queue: deque(maxlen=STORED_MAX) for queue in self._queues
        }
        self._idle: list[Actor] = []
        self._actor_count = 0
        body_bytes = context.scenario.workload.body_bytes
        self._maker = MessageMaker(
            prefix=client,
            body_bytes=body_bytes,
            sizes_share=context.scenario.workload.sizes_share,
            rng=rng,
        )
        self._small = MessageMaker(prefix=f"{client}.b", body_bytes=BATCH_BODY_BYTES, rng=rng)

    async def run(self, stop: asyncio.Event) -> None:
        """Send until `stop`; what was begun is completed."""
        section, rng = self._section, self._rng
        pace = Pace(section.rate / section.clients, rng)
        room = asyncio.Semaphore(OPERATIONS_MAX)
        async with asyncio.TaskGroup() as tasks:
            while await pace.wait(stop):
                draw = rng.random() - section.hasty_share
                if draw < 0:
                    work = [self._send_hastily]
                elif rng.random() < section.twin_share:
                    work = [self._send_twins]
                elif rng.random() < section.mixed_batch_share:
                    work = [self._send_mixed_batch]
                elif draw < section.oneway_share:
                    work = [self._send_oneway]
                elif draw < section.oneway_share + section.async_share:
                    work = [self._send_async] * section.burst
                elif draw < section.oneway_share + section.async_share + section.batch_share:
                    work = [self._send_batch]
                else:
                    work = [self._send_single]
                for each in work:
                    await room.acquire()
                    actor = self._idle.pop() if self._idle else self._next_actor()
                    tasks.create_task(self._as_process(actor, each(actor, stop), room))

    async def _as_process(
        self, actor: Actor, work: Awaitable[None], room: asyncio.Semaphore
    ) -> None:
        await work
        self._idle.append(actor)
        room.release()

    def _next_actor(self) -> Actor:
        self._actor_count += 1
        return Actor(
            self._context.history,
            root=f"{self._client}.p{self._actor_count}",
            client=self._client,
            client_group=PRODUCERS,
        )

    async def _send_oneway(self, actor: Actor, stop: asyncio.Event) -> None:
        message, queue = self._next_message(), self._rng.choice(self._queues)
        row = row_of_message(message, broker_group=queue.broker_name, queue=queue.queue_id)
        with actor.operation(
            "send",
            broker_group=queue.broker_name,
            topic=TOPIC,
            queue=queue.queue_id,
            messages=[row],
            status=ONEWAY,
        ) as operation:
            try:
                await self._producer.send_oneway(message, queue=queue)
            except ClientError as error:
                operation.failed(error)
                return
            operation.complete("info")

    async def _send_single(self, actor: Actor, stop: asyncio.Event) -> None:
        message, queue = self._next_message(), self._queue_or_none()
        is_one_attempt = self._rng.random() < self._section.one_attempt_share
        producer = self._one_attempt if is_one_attempt else self._producer

        async def attempt(timeout_ms: int) -> SendResult:
            return await producer.send(message, timeout_ms, queue=queue)

        if queue is None:
            # Repeated, it might rightly be stored in another broker group, too.
            timeout_ms = self._context.scenario.workload.send_timeout_ms
            await self._send(actor, [message], None, attempt, timeout_ms)
        else:
            await self._with_retries(actor, [message], queue, attempt, stop)

    def _queue_or_none(self) -> MessageQueue | None:
        """Draw a queue; None: the producer is to choose, of all broker groups."""
        return None if self._rng.random() < FREE_SHARE else self._rng.choice(self._queues)

    async def _send_hastily(self, actor: Actor, stop: asyncio.Event) -> None:
        is_batch = self._rng.random() < HASTY_BATCHES
        messages = self._small_messages(self._rng.randint(2, TWINS_MAX) if is_batch else 1)
        queue = self._rng.choice(self._queues) if is_batch else self._queue_or_none()

        async def attempt(timeout_ms: int) -> SendResult:
            if is_batch:
                return await self._hasty.send_batch(messages, timeout_ms, queue=queue)
            return await self._hasty.send(messages[0], timeout_ms, queue=queue)

        timeout_ms = self._section.hasty_ms * self._rng.randint(*HASTY_ATTEMPTS)
        await self._send(actor, messages, queue, attempt, timeout_ms)

    async def _send_twins(self, actor: Actor, stop: asyncio.Event) -> None:
        """Send the same messages twice at about the same time, by two processes and connections;
        or two batches that have messages in common."""
        queue, count = self._rng.choice(self._queues), self._rng.choice((1, 2, TWINS_MAX))
        messages = self._small_messages(count)
        others = messages
        if count > 1 and self._rng.random() < OVERLAPPING_SHARE:
            others = [*self._rng.sample(messages, count // 2), *self._small_messages(1)]
        other_actor = self._idle.pop() if self._idle else self._next_actor()
        pause_s = self._rng.choice((0.0, self._rng.uniform(0, TWIN_PAUSE_S_MAX)))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send_twin(actor, self._producer, messages, queue))
            await asyncio.sleep(pause_s)
            tasks.create_task(self._send_twin(other_actor, self._one_attempt, others, queue))
        self._idle.append(other_actor)

    async def _send_twin(
        self, actor: Actor, producer: Producer, messages: Sequence[Message], queue: MessageQueue
    ) -> None:
        own = [dataclasses.replace(each) for each in messages]  # its client stamps what it sends

        async def attempt(timeout_ms: int) -> SendResult:
            if len(own) == 1:
                return await producer.send(own[0], timeout_ms, queue=queue)
            return await producer.send_batch(own, timeout_ms, queue=queue)

        timeout_ms = self._context.scenario.workload.send_timeout_ms
        await self._send(actor, own, queue, attempt, timeout_ms, ref=TWIN)

    def _small_messages(self, count: int) -> list[Message]:
        return [
            self._small.make(TOPIC, uniq_key=self._producer.instance.next_uniq_key(wall_ms()))
            for _ in range(count)
        ]

    async def _send_async(self, actor: Actor, stop: asyncio.Event) -> None:
        message, queue = self._next_message(), self._rng.choice(self._queues)

        async def attempt(timeout_ms: int) -> SendResult:
            future = await self._producer.send_async(message, timeout_ms, queue=queue)
            return await future

        await self._with_retries(actor, [message], queue, attempt, stop)

    async def _send_batch(self, actor: Actor, stop: asyncio.Event) -> None:
        queue = self._rng.choice(self._queues)
        messages = self._small_messages(self._rng.randint(2, self._section.batch_count_max))

        async def attempt(timeout_ms: int) -> SendResult:
            return await self._producer.send_batch(messages, timeout_ms, queue=queue)

        await self._with_retries(actor, messages, queue, attempt, stop)

    async def _send_mixed_batch(self, actor: Actor, stop: asyncio.Event) -> None:
        """Send new messages with stored ones in one batch, which the broker may refuse as a whole,
        but not store as a whole."""
        queue = self._rng.choice(self._queues)
        stored = self._stored[queue]
        known = self._rng.sample(list(stored), min(len(stored), self._rng.randint(1, MIXED_MAX)))
        if not known:
            return
        messages = [*known, *self._small_messages(self._rng.randint(1, MIXED_MAX))]
        self._rng.shuffle(messages)

        async def attempt(timeout_ms: int) -> SendResult:
            return await self._producer.send_batch(messages, timeout_ms, queue=queue)

        timeout_ms = self._context.scenario.workload.send_timeout_ms
        await self._send(actor, messages, queue, attempt, timeout_ms, ref=MIXED)

    async def _with_retries(
        self,
        actor: Actor,
        messages: Sequence[Message],
        queue: MessageQueue,
        attempt: _Attempt,
        stop: asyncio.Event,
    ) -> None:
        settings = self._context.scenario.workload
        timeout_ms = impatience(settings, self._rng)
        for _ in range(1 + settings.send_retries_max):
            if not await self._send(actor, messages, queue, attempt, timeout_ms) or stop.is_set():
                return
            timeout_ms = settings.send_timeout_ms

    async def _send(
        self,
        actor: Actor,
        messages: Sequence[Message],
        queue: MessageQueue | None,
        attempt: _Attempt,
        timeout_ms: int,
        *,
        ref: str | None = None,
    ) -> bool:
        """Send as one operation; return whether the messages are to be sent once more."""
        group = None if queue is None else queue.broker_name
        number = None if queue is None else queue.queue_id
        rows = [row_of_message(each, broker_group=group, queue=number) for each in messages]
        with actor.operation(
            "send",
            broker_group=group,
            topic=TOPIC,
            queue=number,
            messages=rows,
            ref=ref,
        ) as operation:
            try:
                result = await attempt(timeout_ms)
            except ClientError as error:
                operation.failed(error)
                return error.retriable or not error.definite
            acked = result.status is SendStatus.SEND_OK
            stored = [row_of_stored(each, result, at) for at, each in enumerate(messages)]
            operation.complete(
                "ok" if acked else "info",
                messages=stored,
                broker_group=result.queue.broker_name,
                queue=result.queue.queue_id,
                status=result.status.value,
                node=self._context.node(result.address),
            )
        if acked:
            now_s = asyncio.get_running_loop().time()
            for row in rows:
                self._awaited.expect(row.value, now_s)
            if ref != TWIN:  # the other one has stored them, too
                self._stored[result.queue].extend(
                    each for each in messages if len(each.body) <= BATCHED_BODY_MAX
                )
        return False

    def _next_message(self) -> Message:
        uniq_key = self._producer.instance.next_uniq_key(wall_ms())
        message = self._maker.make(TOPIC, uniq_key=uniq_key)
        section, draw = self._section, self._rng.random()
        if draw < section.big_share:
            message.body = self._rng.randbytes(self._rng.choice(BIG_SIZES))
        elif draw < section.big_share + section.compressed_share:
            size = self._rng.randint(COMPRESSED_SIZE_MIN, COMPRESSED_SIZE_MAX)
            message.body = (message.body * (size // max(1, len(message.body)) + 1))[:size]
        elif draw < section.big_share + section.compressed_share + section.properties_share:
            message.properties = {**message.properties, **self._many_properties()}
            message.tags = f" {message.tags} and blanks "
        return message

    def _many_properties(self) -> Mapping[str, str]:
        """Return properties that fill what the limit leaves: one long, or many short ones."""
        if self._rng.random() < 0.5:
            return {f"{USER_PREFIX}long": "x" * PROPERTIES_SIZE_MAX}
        return {
            f"{USER_PREFIX}p{number:04d}": "größer" for number in range(PROPERTIES_SIZE_MAX // 20)
        }


def _sender_slots(section: SendsSection) -> list[str]:
    return [f"sends-{number}" for number in range(section.clients)]


SPEC: Final = PartSpec(
    name="sends",
    summary="oneway sends, asynchronous bursts, large batches, large and compressed messages",
    topics=lambda section: (TOPIC,),
    slots=lambda section: (*_sender_slots(section), READERS),
    make=SendsPart,
    judged_by=("A1", "A2", "A3", "A5", "A11", "A18", "A19", "A20", "A23"),
)
