"""The sender of the part `calls`: every call of a producer, and what its answers say.

Place in the data path: `client.produce.producer`, directly or through the blocking client; what
was acknowledged is reported to the part's readers.

Invariants: a send is one operation, whatever call makes it; what an answer says is held against
what was asked, by rules of this module alone; what is to be refused is sent by nobody else.

Source: docs/CLIENT.md; RocketMQ DefaultMQProducer, MessageQueueSelector, Validators.
"""

from __future__ import annotations

import asyncio
import random
import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from chaos.recording.history import MessageRow
from chaos.workload.actor import Actor
from chaos.workload.contents_digest import contents_digest
from chaos.workload.context import Slot, WorkContext
from chaos.workload.expectations import Expectations
from chaos.workload.messages import MessageMaker, row_of_message, row_of_stored, wall_ms
from chaos.workload.pace import Pace
from chaos.workload.parts.common.trace_records import Traced
from chaos.workload.same_loop import through_blocking
from client.administer.admin import Admin, AdminSettings
from client.blocking.sync_clients import SyncAdmin, SyncProducer
from client.errors import ClientClosedError, ClientError
from client.message import Message, MessageQueue, SendResult, SendStatus
from client.produce.batches import split_batches
from client.produce.producer import Producer, ProducerSettings
from client.trace.tracer import TraceSettings
from remoting.records.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from remoting.records.property_names import PropertyName

__all__ = ["TWIN_TAGS", "CallsSender", "Sent"]

GROUP: Final = "calls-producers"
BATCH_MAX: Final = 5
BATCH_BYTES: Final = (1_500, 20_000)
VIEW_SHARE: Final = 0.3
IN_FLIGHT_MAX: Final = 4
CALM_S: Final = 4.0  # between the load and what is judged only without faults
TIMEOUTS_MS: Final = (500, 1_500)
LATE_MS: Final = 1_000  # of a machine that is busy
TRACED_CLIENTS: Final = 2
TRACED_MAX: Final = 3
LINGER_MS: Final = (1, 100, 5_000)
UNDER_WAY: Final = 3  # of the last sends, at the stop of their producer
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
TOPIC_SIZE_MAX: Final = 127
_RESERVED: Final = (PropertyName.KEYS, PropertyName.TAGS, PropertyName.UNIQ_KEY)

Call = Callable[[Actor], Awaitable[None]]

TWIN_TAGS: Final = ("Aa", "BB")  # brokers store the same hash of both
TWIN_SHARE: Final = 0.2  # of the messages have one of these in place of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A message that was acknowledged. Times are Unix ms: when its send began, and was answered."""

    row: MessageRow
    message: Message
    began_ms: int
    acked_ms: int
    result: SendResult


class CallsSender:
    """One client and one process. `on_acked` gets each message that was acknowledged."""

    def __init__(
        self,
        context: WorkContext,
        slot: Slot,
        queues: Sequence[MessageQueue],
        *,
        rate: float,
        rng: random.Random,
        on_acked: Callable[[Sent], None],
    ) -> None:
        self._context = context
        self._slot = slot
        self._queues = queues
        self._rng = rng
        self._pace = Pace(rate, rng)
        self._on_acked = on_acked
        self._client = slot.next_client()
        history, settings = context.history, context.scenario.workload
        self._actor = Actor(
            history, root=f"{self._client}.p0", client=self._client, client_group=GROUP
        )
        self._expectations = Expectations(history, client=self._client, client_group=GROUP)
        self._maker = MessageMaker(
            prefix=self._client,
            body_bytes=settings.body_bytes,
            sizes_share=settings.sizes_share,
            rng=rng,
        )
        self._producer = Producer(
            GROUP,
            context.name_servers,
            slot.dial,
            settings=ProducerSettings(
                timeout_ms=settings.send_timeout_ms,
                in_flight_max=IN_FLIGHT_MAX,
                compression=slot.compression(),
                instance=slot.instance_settings(),
                trace=TraceSettings(),
                latency_faults=True,
            ),
        )
        admin = Admin(
            context.name_servers,
            slot.dial,
            settings=AdminSettings(instance=slot.instance_settings()),
        )
        self._admin = through_blocking(admin, SyncAdmin)
        self._blocking = through_blocking(self._producer, SyncProducer)
        self._last_free: MessageQueue | None = None
        self.ended_traced: list[Traced] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Make calls until `stop`; the pending one is completed first."""
        calls: list[Callable[[], Awaitable[None]]] = [
            self._send_to_queue,
            self._send_by_selector,
            self._send_freely,
            self._send_freely,
            self._send_async,
            self._send_split,
            self._be_refused,
        ]
        begun = asyncio.Semaphore(0)
        async with asyncio.TaskGroup() as lasts, self._admin, self._producer:
            while await self._pace.wait(stop):
                await self._rng.choice(calls)()
            for number in range(UNDER_WAY):
                lasts.create_task(self._send_last(number, begun))
            for _ in range(UNDER_WAY):
                await begun.acquire()
        await asyncio.sleep(CALM_S)
        for number in range(TRACED_CLIENTS):
            await self._send_traced(number)

    async def _send_traced(self, number: int) -> None:
        """Send some messages by a traced client of their own, which stops behind the last one."""
        root = f"{self._client}.traced-{number}"
        actor = Actor(self._context.history, root=root, client=root, client_group=GROUP)
        settings = ProducerSettings(
            timeout_ms=self._context.scenario.workload.send_timeout_ms,
            instance=self._slot.instance_settings(),
            trace=TraceSettings(
                linger_ms=self._rng.choice(LINGER_MS), batch_max=self._rng.choice((1, 2, 100))
            ),
        )
        producer = Producer(GROUP, self._context.name_servers, self._slot.dial, settings=settings)
        ended = []
        async with producer:
            for _ in range(self._rng.randint(1, TRACED_MAX)):
                queue, began_ns = self._rng.choice(self._queues), time.monotonic_ns()
                messages = [self._message() for _ in range(self._rng.choice((1, 1, BATCH_MAX)))]
                sent = (
                    producer.send(messages[0], queue=queue)
                    if len(messages) == 1
                    else producer.send_batch(messages, queue=queue)
                )
                if await self._record(messages, sent, queue, actor) is not None:
                    keys = [str(message.uniq_key) for message in messages]
                    ended += [Traced(uniq_key=key, began_ns=began_ns) for key in keys]
        self.ended_traced += ended

    def _message(self) -> Message:
        uniq_key = self._producer.instance.next_uniq_key(wall_ms())
        message = self._maker.make(self._queues[0].topic, uniq_key=uniq_key)
        if self._rng.random() < TWIN_SHARE:
            message.tags = self._rng.choice(TWIN_TAGS)
        return message

    @property
    def _either(self) -> Producer:
        """The producer, directly or through the blocking client."""
        return self._rng.choice((self._producer, self._blocking))

    # Calls.

    async def _send_to_queue(self) -> None:
        message, queue = self._message(), self._rng.choice(self._queues)
        timeout_ms = self._draw_timeout_ms()
        sent = self._either.send(message, timeout_ms, queue=queue)
        await self._record([message], sent, queue, timeout_ms=timeout_ms)

    async def _send_by_selector(self) -> None:
        message = self._message()
        chosen: list[MessageQueue] = []

        def select(queues: Sequence[MessageQueue], given: Message) -> MessageQueue:
            self._expectations.hold(
                "message given to a selector", expected=message.uniq_key, answered=given.uniq_key
            )
            number = zlib.crc32(str(given.uniq_key).encode()) % len(queues)
            chosen.append(sorted(queues)[number])
            return chosen[-1]

        sent = self._either.send(message, selector=select)
        result = await self._record([message], sent, None)
        if result is not None:
            self._hold_queue("queue that a selector chose", chosen[-1], result)

    async def _send_freely(self) -> None:
        message = self._message()
        timeout_ms = self._draw_timeout_ms()
        sent = self._producer.send(message, timeout_ms)
        result = await self._record([message], sent, None, timeout_ms=timeout_ms)
        is_one_group = self._context.scenario.cluster.groups == 1
        if result is None or result.attempts > 1 or not is_one_group:
            self._last_free = None
            return
        if self._last_free is not None and len(self._queues) > 1:
            self._expectations.hold(
                "queue of the next send that names none",
                expected="another",
                answered="the same" if result.queue == self._last_free else "another",
                queue=result.queue,
            )
        self._last_free = result.queue

    async def _send_async(self) -> None:
        message, queue = self._message(), self._rng.choice(self._queues)

        async def sent() -> SendResult:
            return await (await self._producer.send_async(message, timeout_ms, queue=queue))

        timeout_ms = self._draw_timeout_ms()
        await self._record([message], sent(), queue, timeout_ms=timeout_ms)

    async def _send_last(self, number: int, begun: asyncio.Semaphore) -> None:
        """Send by a process of its own, while the producer is stopped; `begun` is released then."""
        message = self._message()
        actor = Actor(
            self._context.history,
            root=f"{self._client}.last-{number}",
            client=self._client,
            client_group=GROUP,
        )

        async def sent() -> SendResult:
            try:
                future = await self._producer.send_async(message)
            finally:
                begun.release()
            answered = "ended"
            try:
                return await future
            except ClientClosedError:
                answered = "cut short"
                raise
            finally:
                self._expectations.hold(
                    "send that was under way at its producer's stop",
                    expected="ended",
                    answered=answered,
                )

        await self._record([message], sent(), None, actor)

    async def _send_split(self) -> None:
        """Split messages into batches and send each as an operation."""
        messages = [self._message() for _ in range(self._rng.randint(2, BATCH_MAX * 2))]
        bytes_max = self._rng.choice(BATCH_BYTES)
        pieces = list(split_batches(messages, size_bytes_max=bytes_max, count_max=BATCH_MAX))
        self._expectations.hold(
            "messages of the batches that a list is split into",
            expected=[each.uniq_key for each in messages],
            answered=[each.uniq_key for piece in pieces for each in piece],
        )
        wrong = [
            len(piece)
            for piece in pieces
            if len(piece) > BATCH_MAX
            or (len(piece) > 1 and sum(len(each.body) for each in piece) > bytes_max)
        ]
        self._expectations.hold("batches beyond their limit", expected=[], answered=wrong)
        for piece in pieces:
            queue = self._rng.choice(self._queues)
            timeout_ms = self._draw_timeout_ms()
            sent = self._either.send_batch(piece, timeout_ms, queue=queue)
            await self._record(piece, sent, queue, timeout_ms=timeout_ms)

    async def _be_refused(self) -> None:
        """Send what has to be refused before it is sent."""
        messages = [self._message()]
        match self._rng.randrange(7):
            case 0:
                messages[0].body = b""
            case 1:
                messages[0].topic = "t" * (TOPIC_SIZE_MAX + 1)
            case 2:
                messages[0].body = bytes(BODY_BYTES_MAX + 1)
            case 3:
                name = self._rng.choice(_RESERVED)
                messages[0].properties = {**messages[0].properties, name: "x"}
            case 4 | 5:
                self._separate(messages[0])
            case _:
                messages.append(self._message())
                messages[1].topic += "-another"
        try:
            if len(messages) == 1:
                await self._producer.send(messages[0], queue=self._queues[0])
            else:
                await self._producer.send_batch(messages, queue=self._queues[0])
            answered = "stored"
        except ClientError as error:
            answered = type(error).__name__
        self._expectations.hold(
            "send of what may not be sent", expected="MessageRefusedError", answered=answered
        )

    def _separate(self, message: Message) -> None:
        """Give a message what its block of properties would hold as something else."""
        match self._rng.randrange(4):
            case 0:
                message.tags = f"T0{PROPERTY_SEPARATOR}T1"
            case 1:
                message.keys = (*message.keys, f"k{PROPERTY_SEPARATOR}{PropertyName.TAGS}")
            case 2:
                name = f"u{self._rng.choice((NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR))}"
                message.properties = {**message.properties, name: "x"}
            case _:
                value = f"x{PROPERTY_SEPARATOR}{PropertyName.TAGS}{NAME_VALUE_SEPARATOR}T1"
                message.properties = {**message.properties, "u": value}

    # Answers.

    async def _record(
        self,
        messages: Sequence[Message],
        sent: Awaitable[SendResult],
        queue: MessageQueue | None,
        actor: Actor | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> SendResult | None:
        """Record a send as one operation; return its result where it was acknowledged.

        `timeout_ms`: the send's own timeout; None: its producer's.
        """
        rows = [
            row_of_message(
                message,
                broker_group=None if queue is None else queue.broker_name,
                queue=None if queue is None else queue.queue_id,
            )
            for message in messages
        ]
        began_ms = wall_ms()
        with (actor or self._actor).operation(
            "send",
            topic=messages[0].topic,
            broker_group=None if queue is None else queue.broker_name,
            queue=None if queue is None else queue.queue_id,
            messages=rows,
        ) as operation:
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            try:
                result = await sent
            except ClientError as error:
                operation.failed(error)
                self._hold_time(loop.time() - began_s, timeout_ms)
                return None
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
        self._hold_time(loop.time() - began_s, timeout_ms)
        if not acked:
            return None
        self._hold_result(messages, queue, result)
        for row, message in zip(stored, messages, strict=True):
            self._on_acked(
                Sent(
                    row=row,
                    message=message,
                    began_ms=began_ms,
                    acked_ms=wall_ms(),
                    result=result,
                )
            )
        if actor is None and self._rng.random() < VIEW_SHARE:
            await self._view(messages, result)
        return result

    def _draw_timeout_ms(self) -> int | None:
        return self._rng.choice((None, None, *TIMEOUTS_MS))

    def _hold_time(self, took_s: float, timeout_ms: int | None) -> None:
        """Hold how long a send took against its timeout."""
        limit_ms = timeout_ms or self._producer.settings.timeout_ms
        is_late = took_s * 1000 > limit_ms + LATE_MS
        self._expectations.hold(
            "time that a send took beyond its own",
            expected="none",
            answered=f"{took_s:.3f} s of {limit_ms} ms" if is_late else "none",
        )

    def _hold_result(
        self, messages: Sequence[Message], queue: MessageQueue | None, result: SendResult
    ) -> None:
        self._expectations.hold(
            "message id of a send's answer",
            expected=",".join(str(message.uniq_key) for message in messages),
            answered=result.msg_id,
            queue=result.queue,
        )
        if queue is not None:
            self._hold_queue("queue that a send names", queue, result)

    def _hold_queue(self, question: str, queue: MessageQueue, result: SendResult) -> None:
        self._expectations.hold(question, expected=queue, answered=result.queue, queue=queue)

    async def _view(self, messages: Sequence[Message], result: SendResult) -> None:
        """View what was stored by its id, where the node that stored it is still there."""
        ids = result.offset_msg_id.split(",")
        if len(ids) != len(messages):
            self._expectations.hold(
                "ids of a send's answer", expected=len(messages), answered=len(ids)
            )
            return
        for at, (message, offset_msg_id) in enumerate(zip(messages, ids, strict=True)):
            try:
                shown = await self._admin.view_message(offset_msg_id)
            except ClientError:
                return  # the node may be gone; what it may not do is show something else
            wanted = row_of_message(message).digest
            self._expectations.hold(
                "message that is viewed by its id",
                expected=f"{message.uniq_key} at {result.queue_offset + at}: {wanted}",
                answered=f"{shown.uniq_key} at {shown.queue_offset}: "
                f"{contents_digest(shown.body, shown.flag, shown.properties)}",
                queue=result.queue,
            )
