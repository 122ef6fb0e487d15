"""Programs of client machines: they send and decide with the product's own client.

Place in the data path: `cluster` runs one per client machine; their requests and answers end in
`client_checker`. What a program must remember over a crash (which values it sent, how its local
transactions ended) is kept there too, as a real one keeps it in its database.

Each loop awaits one operation at a time, so that an operation of unknown outcome is known to be
over only when its successor has begun.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from broker.delay.recall_handle import recall_handle
from broker.entry.levels import delay_ms, schedule_queue_id
from chaos.sim.groups.models.client_checker import ClientChecker, Value
from chaos.sim.groups.models.stored import value_of
from chaos.sim.groups.programs.settings import GROUP
from chaos.sim.machine.scheduler import Scheduler
from chaos.sim.machine.virtual_clock import WALL_START_MS
from chaos.sim.machine.virtual_host import current
from chaos.sim.seed.group_options import GroupOptions
from client.connection.broker_call import call_group
from client.connection.instance import InstanceSettings
from client.connection.retry import RetryPolicy
from client.errors import ClientError
from client.message import DeliveredMessage, Message, MessageQueue, SendResult
from client.produce.producer import Producer, ProducerSettings
from client.produce.transaction_producer import (
    Decision,
    EndOutcome,
    EndResult,
    HalfMessage,
    TransactionObserver,
    TransactionProducer,
    TransactionSettings,
)
from remoting.protocol.acl_signature import Signer
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.records.property_names import PropertyName

__all__ = [
    "DELETED_TOPIC",
    "PAUSE_AFTER_ERROR_S",
    "TOPIC",
    "Desk",
    "Sender",
    "TransactionSender",
    "insist",
    "until_known",
]

TOPIC = "T"
DELETED_TOPIC = "D"  # deleted over and over
_JAVA = 0  # as RemotingCommand.language
_WORKERS = 2
_ATTEMPTS_MAX = 4
_BATCH_COUNT_MAX = 4
PAUSE_AFTER_ERROR_S = 0.1
_LATE_RETRY_RATE = 0.15
_LATE_RETRY_S = 15.0  # beyond the shortest dedupe window
_SEND_ATTEMPTS_MAX = (1, 64, 64)  # one: the application gets each outcome as the broker reported it
_SEND_TIMEOUTS_MS = (500, 3_000, 3_000)  # the product's, and one that hardly outlasts an election
_SLOW_TRANSACTION_S = 6.0  # beyond the checks that a half may get
_TIMER_DELAY_MS_MAX = 8_000
_RECALL_AFTER_S_MAX = 2.0
_RECALL_TIMEOUT_MS = 3_000
_RECALLED_TWICE_RATE = 0.3
_HALF_DELETED_RATE = 0.4  # of halves: for a topic that somebody deletes
_OTHER_TOPICS_PACE = 3  # what goes to them comes more rarely


class _JavaClient(Signer):
    """Signs nothing, and marks requests as a Java client's, which brokers forward."""

    def sign(self, command: RemotingCommand) -> None:
        command.language = _JAVA


@dataclass(slots=True, kw_only=True)
class Desk:
    """The state that all clients of a seed share."""

    options: GroupOptions
    checker: ClientChecker
    counts: dict[str, int]
    scheduler: Scheduler
    name_servers: tuple[str, ...]
    leaders: Callable[[], frozenset[str]]
    """Returns the addresses of ready leaders: two, where an old one does not know its successor."""
    brokers: Callable[[], list[str]]
    """Returns the addresses of all brokers."""
    sending: bool = True
    reading: bool = True
    names: dict[str, str] = field(default_factory=dict)  # of halves, by UNIQ_KEY

    def instance(self) -> InstanceSettings:
        """Return the settings of the client of the current process."""
        if current().rng.random() < self.options.forwarded_rate:
            return InstanceSettings(signer=_JavaClient("", ""))
        return InstanceSettings()


class Sender:
    """A producer: single messages, batches, delayed messages, some of which it recalls.

    Retries keep their UNIQ_KEY. To other topics than TOPIC it sends plain messages only.
    """

    def __init__(self, desk: Desk, group: str, topic: str = TOPIC) -> None:
        self._desk = desk
        self._group = group
        self._topic = topic

    async def run(self) -> None:
        rng = current().rng
        settings = ProducerSettings(
            timeout_ms=rng.choice(_SEND_TIMEOUTS_MS),
            retry=RetryPolicy(attempts_max=rng.choice(_SEND_ATTEMPTS_MAX)),
            instance=self._desk.instance(),
        )
        producer = Producer(self._group, self._desk.name_servers, settings=settings)
        await producer.start()
        async with asyncio.TaskGroup() as workers:
            for _ in range(_WORKERS):
                workers.create_task(self._work(producer, rng))

    async def _work(self, producer: Producer, rng: random.Random) -> None:
        desk, options = self._desk, self._desk.options
        while True:
            pace = _WORKERS * (1 if self._topic == TOPIC else _OTHER_TOPICS_PACE)
            await asyncio.sleep(rng.expovariate(1) * pace * options.send_interval_ms / 1000)
            if not desk.sending:
                continue
            if self._topic != TOPIC:
                await self._send_plain(producer, rng)
            elif rng.random() < options.timer_rate:
                await self._send_timer(producer, rng)
            elif rng.random() < options.batch_rate:
                await self._send_batch(producer, rng)
            else:
                await self._send(producer, rng)

    async def _send(self, producer: Producer, rng: random.Random) -> None:
        options, checker = self._desk.options, self._desk.checker
        level = rng.choice((1, 1, 2)) if rng.random() < options.delay_rate else 0
        value = checker.new_value(is_delayed=level > 0)
        value.delay_ms = delay_ms(schedule_queue_id(level)) if level else None
        message = Message(
            topic=TOPIC,
            body=_body(value.name, rng, options),
            properties={PropertyName.DELAY: str(level)} if level else {},
        )
        self._desk.counts["sends"] += 1

        async def attempt() -> SendResult:
            return await producer.send(message)

        await insist(self._desk, [value], attempt, rng)

    async def _send_plain(self, producer: Producer, rng: random.Random) -> None:
        value = self._desk.checker.new_value()
        message = Message(topic=self._topic, body=_body(value.name, rng, self._desk.options))
        await insist(self._desk, [value], lambda: producer.send(message), rng)

    async def _send_timer(self, producer: Producer, rng: random.Random) -> None:
        checker = self._desk.checker
        value = checker.new_value(is_delayed=True)
        wanted_ms = int(rng.random() * _TIMER_DELAY_MS_MAX)
        # The application knows the true time of delivery, whatever this machine's clock says.
        deliver_ms = WALL_START_MS + self._desk.scheduler.now_us // 1_000 + wanted_ms
        if rng.random() < 0.3:
            properties = {PropertyName.TIMER_DELAY_MS: str(wanted_ms)}
            value.delay_ms = wanted_ms
        else:
            properties = {PropertyName.TIMER_DELIVER_MS: str(deliver_ms)}
            value.not_before_ms = deliver_ms
        body = _body(value.name, rng, self._desk.options)
        message = Message(topic=TOPIC, body=body, properties=properties)
        result = await insist(self._desk, [value], lambda: producer.send(message), rng)
        wants_recall = rng.random() < self._desk.options.recall_rate
        if result is not None and wants_recall and value.not_before_ms:
            await asyncio.sleep(rng.random() * _RECALL_AFTER_S_MAX)
            await self._recall(producer, value, result.msg_id, rng)

    async def _recall(
        self, producer: Producer, value: Value, uniq_key: str, rng: random.Random
    ) -> None:
        """Recall a message; now and then a second client recalls it at the same time."""
        handle = recall_handle(
            topic=TOPIC, broker_name=GROUP, deliver_ms=value.not_before_ms, uniq_key=uniq_key
        )
        checker = self._desk.checker
        checker.on_recalling(value)
        times = 2 if rng.random() < _RECALLED_TWICE_RATE else 1
        ends = await asyncio.gather(
            *(self._request_recall(producer, value, handle) for _ in range(times))
        )
        errors = [error for error in ends if error is not None]
        if len(errors) == times:
            is_definite = all(error.definite for error in errors)
            checker.on_recall_failed(value, definite=is_definite)

    async def _request_recall(
        self, producer: Producer, value: Value, handle: str
    ) -> ClientError | None:
        fields = {"producerGroup": self._group, "topic": TOPIC, "recallHandle": handle}
        try:
            await call_group(
                producer.instance,
                GROUP,
                lambda: RemotingCommand(code=RequestCode.RECALL_MESSAGE, ext_fields=dict(fields)),
                topic=TOPIC,
                timeout_ms=_RECALL_TIMEOUT_MS,
                policy=RetryPolicy(),
            )
        except ClientError as error:
            return error
        self._desk.checker.on_recalled(value)
        return None

    async def _send_batch(self, producer: Producer, rng: random.Random) -> None:
        options, checker = self._desk.options, self._desk.checker
        values = [checker.new_value() for _ in range(rng.randint(2, _BATCH_COUNT_MAX))]
        messages = [Message(topic=TOPIC, body=_body(v.name, rng, options)) for v in values]
        self._desk.counts["batches"] += 1

        async def attempt() -> SendResult:
            return await producer.send_batch(messages)

        await insist(self._desk, values, attempt, rng)


async def insist(
    desk: Desk,
    values: list[Value],
    attempt: Callable[[], Awaitable[SendResult]],
    rng: random.Random,
) -> SendResult | None:
    """Repeat `attempt` until one is acknowledged, or the sender gives up."""
    checker = desk.checker
    for _ in range(_ATTEMPTS_MAX):
        before = [value.unknown for value in values]
        was_stored = checker.is_stored(values[0])
        for value in values:
            value.attempts += 1
            value.unknown = True  # until its outcome is known: the sender may die before
        try:
            result = await attempt()
        except ClientError as error:
            checker.check_refusal(values, error)
            for value, was_unknown in zip(values, before, strict=True):
                value.unknown = was_unknown
                checker.on_failed(value, definite=error.definite)
            if rng.random() >= desk.options.retry_rate:
                return None
            is_late = rng.random() < _LATE_RETRY_RATE
            await asyncio.sleep(_LATE_RETRY_S * rng.random() if is_late else PAUSE_AFTER_ERROR_S)
            if is_late and not desk.sending:
                return None
            continue
        if was_stored:
            checker.on_deduplicated()
        for at, (value, was_unknown) in enumerate(zip(values, before, strict=True)):
            value.unknown = was_unknown
            queue = result.queue
            checker.on_acknowledged(value, queue.topic, queue.queue_id, result.queue_offset + at)
        return result
    return None


class TransactionSender(TransactionObserver):
    """A transactional producer; `die` makes its machine crash in the middle of a transaction."""

    def __init__(self, desk: Desk, group: str, die: Callable[[], None]) -> None:
        self._desk = desk
        self._group = group
        self._die = die
        self._open: set[str] = set()  # slow local transactions

    async def run(self) -> None:
        desk, rng = self._desk, current().rng
        self._open.clear()
        settings = TransactionSettings(producer=ProducerSettings(instance=desk.instance()))
        producer = TransactionProducer(
            self._group, desk.name_servers, self, settings=settings, observer=self
        )
        await producer.start()
        await until_known(lambda: producer.queues(TOPIC))  # a transaction needs a known topic
        while True:
            interval_ms = desk.options.transaction_interval_ms
            await asyncio.sleep(rng.expovariate(1) * interval_ms / 1000)
            if not desk.sending:
                continue
            value = desk.checker.new_value(is_half=True)
            properties = {}
            if rng.random() < desk.options.timer_rate:
                properties[PropertyName.TIMER_DELAY_MS] = str(
                    int(rng.random() * _TIMER_DELAY_MS_MAX)
                )
            body = _body(value.name, rng, desk.options)
            message = Message(topic=self._draw_topic(rng), body=body, properties=properties)
            desk.counts["halves"] += 1
            await self._one(producer, value, message, rng)

    def _draw_topic(self, rng: random.Random) -> str:
        is_deleted = bool(self._desk.options.deleter_count) and rng.random() < _HALF_DELETED_RATE
        return DELETED_TOPIC if is_deleted else TOPIC

    async def _one(
        self, producer: TransactionProducer, value: Value, message: Message, rng: random.Random
    ) -> None:
        async def attempt() -> SendResult:
            return (await producer.send_in_transaction(message)).send

        await insist(self._desk, [value], attempt, rng)

    # --- the application -----------------------------------------------------------------------

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        desk, rng = self._desk, current().rng
        name = value_of(message.body)
        desk.names[half.msg_id] = name
        known = desk.checker.local.get(name)
        if known is not None:  # a check-back has decided already
            return Decision(known)
        luck = rng.random()
        if luck >= 0.85:
            self._open.add(name)
            await asyncio.sleep(_SLOW_TRANSACTION_S * rng.random())
            self._open.discard(name)
        if luck < 0.08:
            self._die()
            await asyncio.sleep(0)
        if luck < 0.20:
            return Decision.UNKNOWN  # not decided yet: a check-back will ask
        decision = Decision.COMMIT if rng.random() < 0.7 else Decision.ROLLBACK
        desk.checker.local[name] = decision.value
        if luck < 0.28:
            self._die()
            await asyncio.sleep(0)
        return Decision.UNKNOWN if luck < 0.40 else decision

    async def check_local(self, message: DeliveredMessage) -> Decision:
        desk, rng = self._desk, current().rng
        desk.counts["check_backs"] += 1
        name = value_of(message.body)
        known = desk.checker.local.get(name)
        if known is None:
            if name in self._open or rng.random() < 0.3:
                return Decision.UNKNOWN
            known = Decision.ROLLBACK.value  # its local transaction never ended
            desk.checker.local[name] = known
        return Decision(known)

    # --- answers -------------------------------------------------------------------------------

    def end_sent(
        self,
        half: HalfMessage,
        decision: Decision,
        result: EndResult,
        *,
        from_check: bool,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        name = self._desk.names.get(half.msg_id)
        if result.outcome is EndOutcome.OK and name is not None:
            self._desk.checker.decisions[name] = decision.value
            self._desk.counts["decisions_acknowledged"] += 1


async def until_known(
    fetch: Callable[[], Awaitable[tuple[MessageQueue, ...]]],
    *,
    unless: Callable[[], bool] = lambda: False,
) -> tuple[MessageQueue, ...]:
    """Return the topic's queues, as soon as some name server knows them; none once `unless`."""
    while True:
        try:
            queues = await fetch()
        except ClientError:
            queues = ()
        if queues or unless():
            return queues
        await asyncio.sleep(PAUSE_AFTER_ERROR_S)


def _body(name: str, rng: random.Random, options: GroupOptions) -> bytes:
    return f"{name} ".encode() + b"x" * int(rng.random() * options.body_size_max)
