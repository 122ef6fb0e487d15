"""Delayed messages: levels, timers by delay and by time, and recalls of some before or at their
time.

Place in the data path: `client.produce.producer` through the slot's own proxies, into a topic of
the part's own; one pull group reads it from the first message on. Rules D1 to D5 judge the rows
`delay` and `recall`, and A2, A11, A18, A19 and A20 the messages like any other.

Invariants: `due` is the earliest time at which the message may be delivered: the time given, or the
delay counted from the invoke, since a broker counts from its own receipt; of a half, from when its
client decided to commit it, which it sends the broker then, or at a check. A retry sends the
same message again with the same delay, so that the broker, which stores it once, counts from the
first.
A message is recalled only where its send was acknowledged with a handle. A recall without an answer
is repeated once, so that a successor meets what it did. Some messages are due only when the senders
have stopped: the run waits for them.

Source: docs/RUN_FORMAT.md (delay, recall); RocketMQ DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC,
TIMER_DELIVER_MS, RECALL_MESSAGE.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from chaos.scenario.part_sections import TimersSection
from chaos.workload.actor import Actor
from chaos.workload.context import Slot
from chaos.workload.expectations import Expectations
from chaos.workload.messages import (
    PROPERTY_VALUE,
    MessageMaker,
    row_of_message,
    wall_ms,
)
from chaos.workload.pace import Pace, sleep_until_set
from chaos.workload.parts.common.part import PartKit, PartSpec
from chaos.workload.parts.common.timer_delays import LEVELS_S, Delay, OddDelays
from chaos.workload.parts.producers.awaited_values import AwaitedValues
from chaos.workload.parts.producers.timer_queries import DELIVERED_MAX, find_some
from chaos.workload.pull_reader import PullReader
from client.connection.instance import ClientInstance
from client.errors import ClientError, UnansweredError
from client.message import DeliveredMessage, Message, MessageQueue, SendResult, SendStatus
from client.produce.producer import ProducerSettings
from client.produce.transaction_producer import (
    Decision,
    HalfMessage,
    TransactionProducer,
    TransactionSettings,
    half_message,
)
from remoting.records.property_names import PropertyName

__all__ = ["SPEC", "TimersPart"]

TOPIC: Final = "timers"
PRODUCERS: Final = "timers-producers"
READERS: Final = "timers-readers"
EARLY_MS: Final = 20  # group time runs up to 0.5 % fast while it is corrected
PATIENCE_S: Final = 8.0  # an election and a round of deliveries, on a slow machine
LOST_MS: Final = 6_000  # below the patience, after which the run goes on without it
RECALLS_MAX: Final = 256
RECALL_REPEAT_SHARE: Final = 0.1
NEAR_MS: Final = 80  # a late recall is begun so much before its time, or as much behind it
LOCAL_S_MAX: Final = 1.2  # for which a local transaction works, between half and decision
LEFT_SHARE: Final = 0.25  # of the halves wait for the broker to ask about them
NOON_SHARE: Final = 0.6  # of the timers that name a time are sent with others for that very time
ROW_SHARE: Final = 0.2  # of those of a level are sent in a row
NOON_MAX: Final = 4
TOGETHER_S: Final = 0.8  # within which they are sent
LARGE_SHARE: Final = 0.05  # of the messages, of which brokers deliver few at a time
LARGE_BYTES: Final = 600_000
ODD_SHARE: Final = 0.25  # of the delays are none, or several at once


class TimersPart:
    """Senders, their recalls, and the group that reads."""

    def __init__(self, kit: PartKit) -> None:
        self._context = kit.context
        self._section: TimersSection = kit.section
        self._slots = [kit.slots[name] for name in _sender_slots(kit.section)]
        self._rng = kit.rng
        self._queues = kit.context.part_queues["timers"]
        self._awaited = AwaitedValues(PATIENCE_S)
        self.sent: dict[str, tuple[Message, MessageQueue]] = {}  # by value, until it is read
        self._delivered: deque[DeliveredMessage] = deque(maxlen=DELIVERED_MAX)
        self._expectations = Expectations(
            kit.context.history, client=f"{READERS}-expect", client_group=READERS
        )
        self.odd = OddDelays(random.Random(kit.rng.getrandbits(64)))
        self._senders_done = asyncio.Event()
        own = dataclasses.replace(kit.context, queues=self._queues)
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
                    for slot in self._slots:
                        rng = random.Random(self._rng.getrandbits(64))
                        senders.create_task(self._send_all(slot, rng, stop))
            finally:
                self._senders_done.set()

    async def idle(self) -> None:
        await self._senders_done.wait()

    def is_settled(self) -> bool:
        return not self._awaited.outstanding(asyncio.get_running_loop().time())

    def has_read(self) -> bool:
        return self.is_settled()

    def _on_read(self, messages: Sequence[DeliveredMessage]) -> None:
        values = [message.properties.get(PROPERTY_VALUE, "") for message in messages]
        for value, message in zip(values, messages, strict=True):
            sent = self.sent.pop(value, None)
            if sent is not None:
                self._hold_delivery(*sent, message)
                self._delivered.append(message)
        self._awaited.seen(values, asyncio.get_running_loop().time())

    async def find_one(self, instance: ClientInstance, rng: random.Random) -> None:
        """Now and then, query a message that was delivered."""
        await find_some(instance, self._expectations, self._delivered, rng)

    def _hold_delivery(self, sent: Message, queue: MessageQueue, message: DeliveredMessage) -> None:
        """Hold what a delivery says of itself against what was sent; it waits for nothing more."""
        had_level = sent.properties.get(PropertyName.DELAY, "0") != "0"
        left = had_level and PropertyName.DELAY in message.properties
        self._expectations.hold(
            "what a delayed delivery says of itself",
            expected=f"in {queue}, {len(sent.body)} bytes, key {sent.uniq_key}, tried 0, no level",
            answered=f"in {message.queue}, {len(message.body)} bytes, key {message.uniq_key},"
            f" tried {message.reconsume_times}, {'its' if left else 'no'} level",
            queue=queue,
        )

    async def _send_all(self, slot: Slot, rng: random.Random, stop: asyncio.Event) -> None:
        client = slot.next_client()
        timeout_ms = self._context.scenario.workload.send_timeout_ms
        decided = _Decided()
        producer = TransactionProducer(
            PRODUCERS,
            self._context.name_servers,
            decided,
            slot.dial,
            settings=TransactionSettings(
                end_timeout_ms=timeout_ms,
                producer=ProducerSettings(
                    timeout_ms=timeout_ms,
                    compression=slot.compression(),
                    instance=slot.instance_settings(),
                ),
            ),
        )
        async with producer:
            sender = _Sender(self, producer, decided, client=client, rng=rng)
            await sender.run(stop)


class _Decided:
    """The halves that are to be committed, by UNIQ_KEY: nobody is told so before."""

    def __init__(self) -> None:
        self.keys: set[str] = set()

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        return Decision.UNKNOWN

    async def check_local(self, message: DeliveredMessage) -> Decision:
        return Decision.COMMIT if message.uniq_key in self.keys else Decision.UNKNOWN


class _Sender:
    """One client: a process that sends, and the recalls that it has begun."""

    def __init__(
        self,
        part: TimersPart,
        producer: TransactionProducer,
        decided: _Decided,
        *,
        client: str,
        rng: random.Random,
    ) -> None:
        self._part = part
        self._decided = decided
        self._context = part._context
        self._section = part._section
        self._awaited = part._awaited
        self._queues = part._queues
        self._producer = producer
        self._client = client
        self._rng = rng
        self._actor = self._new_actor(client)
        self._recallers: list[Actor] = []
        self._recaller_count = 0
        self._odd = part.odd
        self._large_kinds: set[bool] = set()  # of which large ones were sent together
        self._maker = MessageMaker(
            prefix=client, body_bytes=self._context.scenario.workload.body_bytes, rng=rng
        )
        self._load_end_s = asyncio.get_running_loop().time() + self._context.scenario.load.seconds

    async def run(self, stop: asyncio.Event) -> None:
        """Send until `stop`; the pending send and the recalls that were begun are completed."""
        pace = Pace(self._section.rate / self._section.clients, self._rng)
        recalls = asyncio.Semaphore(RECALLS_MAX)
        async with asyncio.TaskGroup() as tasks:
            while await pace.wait(stop):
                await self._part.find_one(self._producer.instance, self._rng)
                delay = self._next_delay()
                count = self._draw_count(delay)
                is_large = self._are_large(delay, count)
                victim = self._rng.randrange(count)  # one of several for one time is recalled
                for place in range(count):
                    message = self._next_message(delay, is_large=is_large)
                    queue = self._rng.choice(self._queues)
                    sent, due_s = await self._send_with_retries(message, queue, delay, stop)
                    if sent is not None and sent.recall_handle is not None and not recalls.locked():
                        is_victim = count > 1 and place == victim
                        begin_s = self._time_of_recall(due_s, is_sure=is_victim)
                        if begin_s is not None:
                            value = message.properties[PROPERTY_VALUE]
                            recall = self._recall_later(recalls, sent, value, begin_s, stop)
                            tasks.create_task(recall)

    def _draw_count(self, delay: Delay) -> int:
        """Draw how many messages are sent with this delay: to one time, at noon, there are more,
        and now and then a level has some in a row."""
        share = NOON_SHARE if delay.time is not None else ROW_SHARE * delay.has_level
        return self._rng.randint(2, NOON_MAX) if self._rng.random() < share else 1

    def _are_large(self, delay: Delay, count: int) -> bool:
        """Return whether all of `count` messages for one time, or in a row, are large: so are the
        first ones of either kind that wait until all of them are there, and now and then others."""
        if count == 1 or delay.seconds < TOGETHER_S:
            return False
        is_first = delay.has_level not in self._large_kinds
        self._large_kinds.add(delay.has_level)
        return is_first or self._rng.random() < LARGE_SHARE

    def _new_actor(self, root: str) -> Actor:
        return Actor(self._context.history, root=root, client=self._client, client_group=PRODUCERS)

    def _next_delay(self) -> Delay:
        section, rng = self._section, self._rng
        left_s = self._load_end_s - asyncio.get_running_loop().time()
        if rng.random() < ODD_SHARE:
            return self._odd.next()
        if rng.random() < section.after_stop_share:
            seconds = max(0.1, left_s) + rng.uniform(0.2, section.after_stop_ms_max / 1000)
        elif rng.random() < section.level_share:
            level = rng.randrange(section.levels)
            return Delay(properties={PropertyName.DELAY: str(level + 1)}, seconds=LEVELS_S[level])
        else:
            seconds = rng.uniform(0.02, section.delay_ms_max / 1000)
        kind = rng.choice(
            (
                PropertyName.TIMER_DELAY_MS,
                PropertyName.TIMER_DELAY_SEC,
                PropertyName.TIMER_DELIVER_MS,
            )
        )
        if kind == PropertyName.TIMER_DELAY_SEC:
            seconds = float(max(1, round(seconds)))
            return Delay(properties={kind: str(round(seconds))}, seconds=seconds)
        millis = max(1, round(seconds * 1000))
        given_ms = millis if kind == PropertyName.TIMER_DELAY_MS else wall_ms() + millis
        return Delay(properties={kind: str(given_ms)}, seconds=millis / 1000)

    def _next_message(self, delay: Delay, *, is_large: bool) -> Message:
        uniq_key = self._producer.instance.next_uniq_key(wall_ms())
        message = self._maker.make(TOPIC, uniq_key=uniq_key)
        if is_large or self._rng.random() < LARGE_SHARE:
            message.body = self._rng.randbytes(LARGE_BYTES)
        message.properties = {**message.properties, **delay.properties}
        return message

    async def _send_with_retries(
        self, message: Message, queue: MessageQueue, delay: Delay, stop: asyncio.Event
    ) -> tuple[SendResult | None, float]:
        """Return the acknowledgement, None without one, and the loop time at which it is due."""
        loop = asyncio.get_running_loop()
        absolute = delay.time
        settings = self._context.scenario.workload
        impatient = self._rng.random() < settings.impatient_share
        timeout_ms = settings.impatient_timeout_ms if impatient else settings.send_timeout_ms
        due_s = 0.0
        for _ in range(1 + settings.send_retries_max):
            # The run's clock first: if the process is held up between the two, the message is taken
            # to be due too early, which accuses nobody.
            now_ns, now_s = self._context.history.now_ns(), loop.time()
            left_s = delay.seconds if absolute is None else (absolute - wall_ms()) / 1000
            left_s = max(0.0, left_s)  # what has passed is due at once
            due_s = now_s + left_s
            due_ns = now_ns + round(left_s * 1e9)
            sent, again = await self._send(message, queue, due_ns, timeout_ms, delay)
            if sent is not None or not again or stop.is_set():
                return sent, due_s
            timeout_ms = settings.send_timeout_ms
        return None, due_s

    async def _send(
        self, message: Message, queue: MessageQueue, due_ns: int, timeout_ms: int, delay: Delay
    ) -> tuple[SendResult | None, bool]:
        """Send as one operation; return the acknowledgement, and whether to send once more."""
        value = message.properties[PROPERTY_VALUE]
        self._part.sent[value] = message, queue
        # Every attempt of a message is of one kind, as the brokers want it.
        is_transaction = zlib.crc32(value.encode()) % 100 < 100 * self._section.transaction_share
        row = row_of_message(message, broker_group=queue.broker_name, queue=queue.queue_id)
        with self._actor.operation(
            "delay",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            messages=[row],
            due=due_ns,
        ) as operation:
            try:
                if is_transaction:
                    sent, due_ns = await self._commit(message, queue, timeout_ms, delay, due_ns)
                else:
                    sent = await self._producer.send(message, timeout_ms, queue=queue)
            except ClientError as error:
                if is_transaction:
                    due_ns = self._decide(message, delay, due_ns)
                operation.failed(error, due=due_ns)
                if not error.definite:
                    self._await(row.value, delay)  # it may be stored, and come
                return None, error.retriable or not error.definite
            acked = sent.status is SendStatus.SEND_OK
            operation.complete(
                "ok" if acked else "info",
                due=due_ns,
                status=sent.status.value,
                node=self._context.node(sent.address),
            )
        self._await(row.value, delay)
        return (sent if acked else None), not acked

    async def _commit(
        self, message: Message, queue: MessageQueue, timeout_ms: int, delay: Delay, due_ns: int
    ) -> tuple[SendResult, int]:
        """Send the message as a half, work for a while, and commit it, or leave it to a check.

        Return the half's answer and when it is due. Raises ClientError, UnansweredError among them
        for a half that is left.
        """
        sent = await self._producer.send_half(message, timeout_ms, queue=queue)
        await asyncio.sleep(self._rng.uniform(0, LOCAL_S_MAX))
        due_ns = self._decide(message, delay, due_ns)
        if self._rng.random() < LEFT_SHARE:
            raise UnansweredError("it is left to the broker to ask")
        ended = await self._producer.end(
            half_message(sent), Decision.COMMIT, timeout_ms=timeout_ms, oneway=False
        )
        if ended.error is not None:
            if ended.error.definite:  # the half is stored all the same, and is checked
                raise UnansweredError(f"commit: {ended.error}") from ended.error
            raise ended.error
        return sent, due_ns

    def _decide(self, message: Message, delay: Delay, due_ns: int) -> int:
        """Have checks answered with a commit from now on; return when the message is due.

        A delay is counted from the first commit, a time is what it was.
        """
        key = str(message.uniq_key)
        if key in self._decided.keys:
            return due_ns
        self._decided.keys.add(key)
        if delay.time is not None:
            return due_ns
        return self._context.history.now_ns() + round(delay.seconds * 1e9)

    def _await(self, value: str, delay: Delay) -> None:
        """Await the value; it is stored by now, if ever, and its delay counts from then."""
        self._awaited.expect(value, asyncio.get_running_loop().time() + delay.seconds)

    def _time_of_recall(self, due_s: float, *, is_sure: bool) -> float | None:
        """Draw the loop time at which a recall begins; None: it is not recalled."""
        draw = self._section.recall_share * self._rng.random() if is_sure else self._rng.random()
        if draw >= self._section.recall_share:
            return None
        now_s = asyncio.get_running_loop().time()
        if draw < self._section.recall_share * self._section.late_recall_share:
            return due_s + self._rng.uniform(-NEAR_MS, NEAR_MS / 4) / 1000
        return now_s + self._rng.random() * max(0.0, due_s - now_s) * 0.9

    async def _recall_later(
        self,
        recalls: asyncio.Semaphore,
        sent: SendResult,
        value: str,
        begin_s: float,
        stop: asyncio.Event,
    ) -> None:
        """Recall the message at `begin_s`; where no answer came, once more."""
        loop = asyncio.get_running_loop()
        async with recalls:
            if await sleep_until_set(stop, begin_s - loop.time()):
                return
            actor = self._recallers.pop() if self._recallers else self._next_recaller()
            for _ in range(2):
                outcome = await self._recall(actor, sent, value)
                if outcome == "fail" or (
                    outcome == "ok" and self._rng.random() >= RECALL_REPEAT_SHARE
                ):
                    break
            self._recallers.append(actor)

    def _next_recaller(self) -> Actor:
        self._recaller_count += 1
        return self._new_actor(f"{self._client}.recall{self._recaller_count}")

    async def _recall(self, actor: Actor, sent: SendResult, value: str) -> str:
        with actor.operation(
            "recall",
            broker_group=sent.queue.broker_name,
            topic=sent.queue.topic,
            queue=sent.queue.queue_id,
            ref=value,
        ) as operation:
            try:
                await self._producer.recall(sent)
            except ClientError as error:
                operation.failed(error)
                if not error.definite:
                    self._awaited.forget(value)
                return "fail" if error.definite else "info"
            self._awaited.forget(value)
            operation.complete("ok")
        return "ok"


def _sender_slots(section: TimersSection) -> list[str]:
    return [f"timers-{number}" for number in range(section.clients)]


def _manifest(section: TimersSection) -> Mapping[str, object]:
    return {"delays": {"early_ms": EARLY_MS, "recall_ms": 0, "lost_ms": LOST_MS}}


SPEC: Final = PartSpec(
    name="timers",
    summary="delay levels, timers and recalls, some of them at the last moment",
    topics=lambda section: (TOPIC,),
    slots=lambda section: (*_sender_slots(section), READERS),
    make=TimersPart,
    judged_by=("D1", "D2", "D3", "D4", "D5", "M12", "A2", "A18", "A19", "A20"),
    manifest=_manifest,
)
