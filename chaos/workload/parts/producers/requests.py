"""Request and reply: clients that wait for answers, and a group of responders that die and come
back.

Place in the data path: `client.produce.producer` asks (`request`) and answers (`reply`), a push
group of `client.consume.push_consumer` stands between, each through its slot's own proxies. Rule
C11 judges the answers; requests are messages like any other for A5, A11, A18 and A19.

Requesting clients crash now and then while they wait, so that some replies come when nobody is
there to take them; what the broker answered to each reply is an operation of its own, for C16.

Invariants: an answer's body is its value, with a filler that follows from it where the answer is a
large one; the value is made anew for each delivery and written into the row of that delivery before
the answer is sent, so that nobody can have an answer that no row tells.
A request is never sent twice by the application. A responder's queue is a process of its own, since
its listener waits for the reply in the middle of a delivery.

Source: docs/RUN_FORMAT.md (request; deliver with ref); RocketMQ RequestResponseFuture.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Final

from chaos.recording.history import HistoryWriter, Outcome
from chaos.scenario.part_sections import RequestsSection
from chaos.workload.actor import Actor, error_text
from chaos.workload.context import Slot, WorkContext
from chaos.workload.expectations import Expectations
from chaos.workload.loop_lag import LoopLag
from chaos.workload.member_observer import MemberObserver
from chaos.workload.messages import (
    PROPERTY_VALUE,
    SIZES,
    MessageMaker,
    row_of_delivered,
    row_of_message,
    wall_ms,
)
from chaos.workload.pace import Pace, sleep_until_set
from chaos.workload.parts.common.part import PartKit, PartSpec
from chaos.workload.parts.producers.awaited_values import AwaitedValues
from chaos.workload.parts.producers.request_answers import (
    WHOLE_REQUEST,
    body_of_answer,
    brought_by_request,
    value_of_answer,
)
from chaos.workload.push_reader import REBALANCE_MS_MAX, PushGroup
from chaos.workload.same_loop import through_blocking
from client.blocking.sync_clients import SyncProducer
from client.connection.heartbeat import ConsumeFrom
from client.consume.listener import ConsumeStatus, PushConsumerSettings
from client.consume.push_consumer import PushConsumer
from client.errors import ClientError
from client.message import DeliveredMessage, Message, MessageQueue
from client.produce.producer import Producer, ProducerSettings
from client.produce.request_reply import NoReplyError

__all__ = ["GONE", "NO_REPLY", "SPEC", "RequestsPart"]

TOPIC: Final = "requests"
REQUESTERS: Final = "requests-producers"
RESPONDERS: Final = "requests-responders"
REPLIERS: Final = "requests-repliers"
NO_REPLY: Final = "NO_REPLY"
"""Status of a request that the broker acknowledged and nobody answered in time."""
GONE: Final = "GONE"
"""Status of a request whose client had crashed, with its connections, by the operation's end."""
PATIENCE_S: Final = 15.0
CRASH_SHARE: Final = 0.6
RESTART_PAUSE_S: Final = 0.5
REFUSALS_MAX: Final = 2
CRASH_WAIT_S: Final = 3.0
POLL_S: Final = 0.1
SLOW_S: Final = (0.3, 2.0)
REPLY_TIMEOUT_MS: Final = 2_000
RETRY_DELAY_LEVEL: Final = 1  # a second
SUSPEND_MS: Final = 2_000
ANSWER_SLACK_MS: Final = 1_500
COMMIT_INTERVAL_MS: Final = 1_000
REBALANCE_INTERVAL_MS: Final = 1_000
REDELIVERY_MS: Final = 500
EARLY_MS: Final = 50  # by which a loop may count otherwise than the client's clock
LATE_MS: Final = 200  # beside what the loop itself is late
SELECTOR_SHARE: Final = 0.3


class _Requester:
    """One requesting client: how many of its requests wait, and whether it is gone."""

    def __init__(
        self,
        history: HistoryWriter,
        producer: Producer,
        client: str,
        *,
        lag: LoopLag,
        rng: random.Random,
    ) -> None:
        self.producer = producer
        self.client = client
        self._rng = rng
        self._lag = lag
        self._blocking = through_blocking(producer, SyncProducer)
        self.waiting = 0
        self.ends = False
        self.gone = asyncio.Event()
        self.timeout_ms = producer.settings.timeout_ms
        self.expectations = Expectations(history, client=client, client_group=REQUESTERS)

    def draw_timeout_ms(self) -> int | None:
        """Draw a request's own timeout; None: the producer's."""
        return self._rng.choice((None, None, self.timeout_ms // 2, self.timeout_ms // 4))

    async def call(
        self, message: Message, queue: MessageQueue, timeout_ms: int | None
    ) -> DeliveredMessage:
        """Request, directly or through the blocking client, with the queue or a selector of it."""
        client = self._rng.choice((self.producer, self._blocking))
        if self._rng.random() < SELECTOR_SHARE:

            def select(queues: Sequence[MessageQueue], _: Message) -> MessageQueue:
                place = queue.broker_name, queue.queue_id
                named = {(each.broker_name, each.queue_id): each for each in queues}
                return named.get(place, queue)

            return await client.request(message, timeout_ms, selector=select)
        return await client.request(message, timeout_ms, queue=queue)

    def hold_time(self, began_s: float, timeout_ms: int | None, *, is_over: bool) -> None:
        """Hold how long a request has taken against its timeout. `is_over`: no reply came in
        time."""
        limit_ms = timeout_ms or self.timeout_ms
        waited_ms = (asyncio.get_running_loop().time() - began_s) * 1000
        late_ms = LATE_MS + 2_000 * self._lag.worst_s(began_s)
        is_right = waited_ms < limit_ms + late_ms and (
            not is_over or waited_ms > limit_ms - EARLY_MS
        )
        right = "all of it, no more" if is_over else "no more"
        self.expectations.hold(
            "part of its time that a request took",
            expected=right,
            answered=right if is_right else f"{waited_ms:.0f} of {limit_ms} ms",
            topic=TOPIC,
        )


class RequestsPart:
    """The clients that request and the members of the group that answers."""

    def __init__(self, kit: PartKit) -> None:
        self._context = kit.context
        self._section: RequestsSection = kit.section
        self._rng = kit.rng
        self._requesters = [kit.slots[name] for name in _requester_slots(kit.section)]
        self._responders = [kit.slots[name] for name in _responder_slots(kit.section)]
        self._awaited = AwaitedValues(PATIENCE_S)
        self._lag = LoopLag()
        self._group = PushGroup(RESPONDERS)
        self._senders_done = asyncio.Event()

    def consumer_groups(self) -> Mapping[str, Mapping[str, object]]:
        group = {"kind": "cluster", "at_least_once": True, "ordered": False, "topics": [TOPIC]}
        return {RESPONDERS: group | {"rebalance_ms": REBALANCE_MS_MAX}}

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._lag.watch(drained))
            for slot in self._responders:
                responder = _Responder(
                    self._context,
                    self._section,
                    slot,
                    group=self._group,
                    awaited=self._awaited,
                    rng=self._child(),
                )
                tasks.create_task(responder.run(stop, drained))
            try:
                async with asyncio.TaskGroup() as senders:
                    for slot in self._requesters:
                        senders.create_task(self._run_clients(slot, stop))
            finally:
                self._senders_done.set()

    async def idle(self) -> None:
        await self._senders_done.wait()

    def is_settled(self) -> bool:
        return self._senders_done.is_set()  # retries and answers stand on topics of the system

    def has_read(self) -> bool:
        return not self._awaited.outstanding(asyncio.get_running_loop().time())

    async def _run_clients(self, slot: Slot, stop: asyncio.Event) -> None:
        """Run clients that request and crash, one after another, and the last one until `stop`."""
        while not stop.is_set():
            client = slot.next_client()
            producer = Producer(
                REQUESTERS,
                self._context.name_servers,
                slot.dial,
                settings=ProducerSettings(
                    timeout_ms=self._section.timeout_ms,
                    compression=slot.compression(),
                    instance=slot.instance_settings(),
                ),
            )
            requester = _Requester(
                self._context.history, producer, client, lag=self._lag, rng=self._child()
            )
            await producer.start()
            async with asyncio.TaskGroup() as processes:
                tasks = [
                    processes.create_task(self._run_process(requester, number, self._child(), stop))
                    for number in range(self._section.processes)
                ]
                if await self._is_to_crash(requester, stop):
                    requester.ends = True
                    await producer.crash()
                    requester.gone.set()
                    for task in tasks:
                        task.cancel()
            if not requester.ends:
                await producer.stop()
            await sleep_until_set(stop, RESTART_PAUSE_S)

    async def _is_to_crash(self, requester: _Requester, stop: asyncio.Event) -> bool:
        """Wait until the client's time is up and a request of it waits; False where `stop` came."""
        restart_s = self._section.asker_restart_s
        if restart_s <= 0:
            await stop.wait()
        if await sleep_until_set(stop, max(1.0, self._rng.expovariate(1 / (restart_s or 1)))):
            return False
        for _ in range(round(CRASH_WAIT_S / POLL_S)):
            had = requester.waiting
            if await sleep_until_set(stop, POLL_S):
                return False
            if had and requester.waiting:
                break
        return True

    async def _run_process(
        self, requester: _Requester, number: int, rng: random.Random, stop: asyncio.Event
    ) -> None:
        """Run one process until `stop`; its pending request is completed first."""
        section, context = self._section, self._context
        pace = Pace(section.rate / (section.clients * section.processes), rng)
        root = f"{requester.client}.p{number}"
        actor = Actor(context.history, root=root, client=requester.client, client_group=REQUESTERS)
        settings = context.scenario.workload
        maker = MessageMaker(
            prefix=root,
            body_bytes=settings.body_bytes,
            sizes_share=settings.sizes_share,
            rng=rng,
        )
        while await pace.wait(stop) and not requester.ends:
            uniq_key = requester.producer.instance.next_uniq_key(wall_ms())
            queue = rng.choice(context.part_queues["requests"])
            await self._request(requester, actor, maker.make(TOPIC, uniq_key=uniq_key), queue)

    async def _request(
        self, requester: _Requester, actor: Actor, message: Message, queue: MessageQueue
    ) -> None:
        row = row_of_message(message, broker_group=queue.broker_name, queue=queue.queue_id)
        with actor.operation(
            "request",
            broker_group=queue.broker_name,
            topic=TOPIC,
            queue=queue.queue_id,
            messages=[row],
        ) as operation:
            requester.waiting += 1
            began_s = asyncio.get_running_loop().time()
            timeout_ms = requester.draw_timeout_ms()
            try:
                reply = await requester.call(message, queue, timeout_ms)
            except NoReplyError as error:
                operation.complete("info", status=NO_REPLY, error=error_text(error))
                requester.hold_time(began_s, timeout_ms, is_over=True)
                self._expect(row.value)
                return
            except ClientError as error:
                if not requester.ends:
                    operation.failed(error)
                    requester.hold_time(began_s, timeout_ms, is_over=False)
                    return
                await requester.gone.wait()
                operation.complete("info", status=GONE, error=error_text(error))
                return
            except asyncio.CancelledError:
                if requester.gone.is_set():
                    operation.complete("info", status=GONE)
                raise
            finally:
                requester.waiting -= 1
            operation.complete("ok", ref=value_of_answer(reply.body))
            requester.hold_time(began_s, timeout_ms, is_over=False)
        self._expect(row.value)

    def _expect(self, value: str) -> None:
        """Await that a responder consumes what is stored."""
        self._awaited.expect(value, asyncio.get_running_loop().time())

    def _child(self) -> random.Random:
        return random.Random(self._rng.getrandbits(64))


class _Responder:
    """One slot's members of the group, one after another."""

    def __init__(
        self,
        context: WorkContext,
        section: RequestsSection,
        slot: Slot,
        *,
        group: PushGroup,
        awaited: AwaitedValues,
        rng: random.Random,
    ) -> None:
        self._context = context
        self._section = section
        self._slot = slot
        self._group = group
        self._awaited = awaited
        self._rng = rng

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        """Run members that come and go until `stop`, then one until `drained`."""
        restart_s = self._section.restart_s
        while not drained.is_set():
            client = self._slot.next_client()
            actor = Actor(
                self._context.history, root=client, client=client, client_group=self._group.name
            )
            replier = Producer(
                REPLIERS,
                self._context.name_servers,
                self._slot.dial,
                settings=ProducerSettings(
                    timeout_ms=REPLY_TIMEOUT_MS, instance=self._slot.instance_settings()
                ),
            )
            consumer = self._make_consumer(client, actor, replier)
            crashes = self._rng.random() < CRASH_SHARE
            await replier.start()
            await consumer.start()
            try:
                if restart_s <= 0 or await sleep_until_set(
                    stop, max(1.0, self._rng.expovariate(1 / restart_s))
                ):
                    crashes = False  # the last member leaves in good order
                    await drained.wait()
            finally:
                if crashes:
                    await consumer.crash()
                    await replier.crash()
                else:
                    await consumer.stop()
                    await replier.stop()
                    with actor.operation("assign") as operation:
                        operation.complete("ok", assigned=[])
            await sleep_until_set(drained, RESTART_PAUSE_S)

    def _make_consumer(self, client: str, actor: Actor, replier: Producer) -> PushConsumer:
        listener = _Listener(self, client, replier)
        consumer = PushConsumer(
            self._group.name,
            self._context.name_servers,
            listener.consume,
            self._slot.dial,
            settings=PushConsumerSettings(
                consume_from=ConsumeFrom.FIRST,
                suspend_ms=SUSPEND_MS,
                answer_slack_ms=ANSWER_SLACK_MS,
                commit_interval_ms=COMMIT_INTERVAL_MS,
                rebalance_interval_ms=REBALANCE_INTERVAL_MS,
                redelivery_ms_min=REDELIVERY_MS,
                retry_delay_level=RETRY_DELAY_LEVEL,
                instance=self._slot.instance_settings(),
            ),
            observer=MemberObserver(
                self._context.history,
                actor,
                group=self._group.name,
                client=client,
                on_committed=self._group.is_committed,
            ),
        )
        consumer.subscribe(TOPIC)
        return consumer


class _Listener:
    """The listener of one member: thinks, answers, and says whether it has consumed."""

    def __init__(self, responder: _Responder, client: str, replier: Producer) -> None:
        self._responder = responder
        self._client = client
        self._replier = replier
        self._expectations = Expectations(
            responder._context.history, client=client, client_group=responder._group.name
        )
        self._actors: dict[tuple[MessageQueue, str], Actor] = {}
        self._numbers = itertools.count()

    async def consume(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        responder = self._responder
        (message,) = messages
        section, rng = responder._section, responder._rng
        answer = f"answer-{self._client}-{next(self._numbers)}"
        if rng.random() < 4 * self._responder._context.scenario.workload.sizes_share:
            answer += f"-of-{rng.choice(SIZES)}"
        row = row_of_delivered(message)
        queue = message.queue
        with self._actor(queue).operation(
            "deliver",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            messages=[row],
            ref=answer,
        ) as operation:
            is_slow = rng.random() < section.slow_share
            think_s = rng.uniform(*(SLOW_S if is_slow else (0, 2 * section.think_ms / 1000)))
            await asyncio.sleep(think_s)
            refuses = message.reconsume_times < REFUSALS_MAX
            outcome: Outcome = "fail" if refuses and rng.random() < section.refuse_share else "ok"
            # The requester may be gone, or have given up: the request is consumed all the same.
            is_mute = rng.random() < section.mute_share
            error = None if is_mute else await self._reply(message, row.value, answer)
            self._expectations.hold(
                f"what a request brings that was tried {message.reconsume_times} times",
                expected=WHOLE_REQUEST,
                answered=brought_by_request(message.properties),
                queue=queue,
            )
            operation.complete(outcome, error=error)
        now_s = asyncio.get_running_loop().time()
        if outcome == "fail":
            responder._awaited.expect(row.value, now_s)
            return ConsumeStatus.RECONSUME_LATER
        responder._awaited.seen([message.properties.get(PROPERTY_VALUE, "")], now_s)
        return ConsumeStatus.CONSUME_SUCCESS

    async def _reply(self, message: DeliveredMessage, requested: str, answer: str) -> str | None:
        """Send the answer to the request `requested`; return the error, None where it was taken."""
        with self._actor(message.queue, "replies").operation(
            "reply", broker_group=message.queue.broker_name, key=requested, ref=answer
        ) as operation:
            try:
                await self._replier.reply(message, body_of_answer(answer))
            except ClientError as error:
                operation.failed(error)
                return error_text(error)
            operation.complete("ok")
        return None

    def _actor(self, queue: MessageQueue, kind: str = "answers") -> Actor:
        actor = self._actors.get((queue, kind))
        if actor is None:
            responder = self._responder
            place = f"{queue.topic}.{queue.broker_name}.{queue.queue_id}"
            actor = self._actors[queue, kind] = Actor(
                responder._context.history,
                root=f"{self._client}.{place}.{kind}",
                client=self._client,
                client_group=responder._group.name,
            )
        return actor


def _requester_slots(section: RequestsSection) -> list[str]:
    return [f"requests-{number}" for number in range(section.clients)]


def _responder_slots(section: RequestsSection) -> list[str]:
    return [f"requests-responder-{number}" for number in range(section.responders)]


SPEC: Final = PartSpec(
    name="requests",
    summary="requests that wait for answers; responders and requesters die and come back",
    topics=lambda section: (TOPIC,),
    slots=lambda section: (*_requester_slots(section), *_responder_slots(section)),
    make=RequestsPart,
    judged_by=("C11", "C16", "M12", "A5", "A11", "A18", "A19"),
)
