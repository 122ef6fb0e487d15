"""Orderly members that come and go while brokers' answers are late, so that queues are given back
while renewals of their locks are on their way.

Place in the data path: `client.consume.queue_locks` and `push_consumer`. Each member takes a share
from the one before, which leaves then. A producer sends, into each queue one message after another,
and falls silent before every other change: what needs no commit is given back at once. The links of
this drill's slot are slow, which is no fault of the run.

Invariants: locks are renewed far more often than an answer takes; who leaves has committed, so that
each message is consumed once, in its order, by whoever holds the lock; a member gives back what it
has, and what all have given back anybody may lock at once. The locks of the last member are over
before their answers come, so that it never holds one.

Source: RocketMQ RebalanceImpl (unlock, unlockAll, lockAll), ConsumeMessageOrderlyService.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final

from chaos.links.base import Link, LinkEffect, LinkShape
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.applications.cut_off import lease_ms_of
from chaos.workload.parts.common.first_error import first_of
from chaos.workload.parts.common.lock_model import MemberLocks
from client.consume.listener import ConsumerObserver, ConsumeStatus
from client.consume.push_consumer import PushConsumer
from client.errors import ClientError
from client.message import DeliveredMessage, MessageQueue
from remoting.protocol.codes import RequestCode

__all__ = ["LateLocks"]

QUEUES: Final = 4
MEMBERS: Final = 4
LATE: Final = LinkShape(latency_ms=60, jitter_ms=30, rate_kb_s=0)
TOO_LATE: Final = LinkShape(latency_ms=300, jitter_ms=0, rate_kb_s=0)
TOO_SHORT_MS: Final = 250  # for which a lock is held there: less than its answer takes
TOO_LATE_S: Final = 5.0
RENEWED_MS: Final = 20
COMMIT_MS: Final = 150
HELD_MS_MAX: Final = 4_000
SEND_EVERY_S: Final = 0.02
QUIET_S: Final = 0.6  # within which all that was sent is consumed and committed
TOGETHER_S: Final = (0.1, 0.6)
SHARED_S: Final = 6.0  # within which queues are shared anew
GIVEN_S: Final = 5.0
_STRANGER: Final = "stranger"


class _Member(ConsumerObserver):
    """One member, what it may do by its locks, and what it does."""

    def __init__(self, group: _Group, *, held_ms: int) -> None:
        self._group = group
        self._locks = MemberLocks(held_ms=held_ms)
        self.queues: Sequence[MessageQueue] = ()
        self.gave_back: list[MessageQueue] = []  # without having got it since it was given back

    def assigned(self, queues: Sequence[MessageQueue], *, t: int) -> None:
        self.queues = queues

    def locks_requested(
        self,
        queues: Sequence[MessageQueue],
        held: Collection[MessageQueue],
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        if error is None:
            self._locks.answered(queues, held, t_invoke=t_invoke)
        else:
            self._locks.unanswered(queues, t_invoke=t_invoke)

    def locks_released(
        self,
        queues: Sequence[MessageQueue],
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        self.gave_back += self._locks.released(queues, t_invoke=t_invoke)

    async def listen(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        """Consume some messages, which takes a moment."""
        queue = messages[0].queue
        self._group.begin(messages, is_held=self._locks.is_held(queue, time.monotonic_ns()))
        try:
            await self._group.pause()
        finally:
            self._group.end(queue)
        return ConsumeStatus.CONSUME_SUCCESS


class _Group:
    """What all members are given, in the order in which they are."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.offsets: dict[MessageQueue, list[int]] = defaultdict(list)
        self.at_work: dict[MessageQueue, int] = defaultdict(int)
        self.at_once = 0  # deliveries of a queue that was consumed already
        self.not_held = 0  # deliveries of a queue whose lock the member has not

    def begin(self, messages: Sequence[DeliveredMessage], *, is_held: bool) -> None:
        queue = messages[0].queue
        self.at_once += self.at_work[queue] > 0
        self.at_work[queue] += 1
        self.not_held += not is_held
        self.offsets[queue] += [message.queue_offset for message in messages]

    def end(self, queue: MessageQueue) -> None:
        self.at_work[queue] -= 1

    async def pause(self) -> None:
        await asyncio.sleep(self._bench.rng.uniform(0, 0.02))


class LateLocks:
    """The topic, its producer, and one member behind another."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._held_ms = min(HELD_MS_MAX, lease_ms_of(bench) // 2)
        self._group = _Group(bench)
        self._queues: list[MessageQueue] = []
        self._sent: dict[MessageQueue, int] = defaultdict(int)
        self._is_quiet = False  # nothing is sent: what is given back is committed already

    async def run(self) -> None:
        """Have members come and go. Raises ClientError, LinksError."""
        if LinkEffect.SLOW not in self._bench.kit.context.world.links.effects:
            return
        self._queues = await self._bench.make_topic(QUEUES)
        async with self._late():
            last = await self._have_all()
            await self._hold_given()
            await self._leave(*last)
        async with self._late(TOO_LATE):
            await self._hold_none_given()
        await self._hold_free()

    async def _have_all(self) -> tuple[PushConsumer, _Member]:
        """Have members come and go while messages are sent; return the last one. Raises
        ClientError."""
        over = asyncio.Event()
        failed: ClientError | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                for queue in self._queues:
                    tasks.create_task(self._send(queue, over))
                try:
                    last = await self._come_and_go()
                finally:
                    over.set()
        except* ClientError as errors:
            failed = first_of(errors)
        if failed is not None:
            raise failed
        return last

    @contextlib.asynccontextmanager
    async def _late(self, shape: LinkShape = LATE) -> AsyncIterator[None]:
        """Have what brokers send to the drill's clients be late."""
        bench = self._bench
        world, slot = bench.kit.context.world, bench.slot.name
        links = [Link(who=place.name, whom=slot) for place in world.layout.brokers]
        await world.links.slow(links, shape, bench.name)
        try:
            yield
        finally:
            await world.links.heal(bench.name)

    async def _send(self, queue: MessageQueue, over: asyncio.Event) -> None:
        async with self._bench.producer() as producer:
            while not await sleep_until_set(over, SEND_EVERY_S):
                if not self._is_quiet:
                    await producer.send(self._bench.message(), queue=queue)
                    self._sent[queue] += 1

    # Members -----------------------------------------------------------------------------------

    async def _come_and_go(self) -> tuple[PushConsumer, _Member]:
        """Have each member share the queues with the next one, and leave; return the last one."""
        before: tuple[PushConsumer, _Member] | None = None
        for number in range(MEMBERS):
            self._is_quiet = number % 2 == 1
            await asyncio.sleep(QUIET_S)
            consumer, member = self._make()
            await consumer.start()
            if before is not None:
                await self._has(member, QUEUES // 2, "another one is there")
                await self._has(before[1], QUEUES // 2, "another one is there")
                await asyncio.sleep(self._bench.rng.uniform(*TOGETHER_S))
                await self._leave(*before)
            await self._has(member, QUEUES, "it is alone")
            await asyncio.sleep(self._bench.rng.uniform(*TOGETHER_S))
            before = consumer, member
        assert before is not None
        return before

    def _make(self, held_ms: int | None = None) -> tuple[PushConsumer, _Member]:
        held_ms = held_ms or self._held_ms
        member = _Member(self._group, held_ms=held_ms)
        consumer = self._bench.consumer(
            member.listen,
            member,
            ordered=True,
            suspend_ms=1_000,
            answer_slack_ms=1_000,
            commit_interval_ms=COMMIT_MS,
            lock_interval_ms=RENEWED_MS,
            lock_held_ms=held_ms,
        )
        consumer.subscribe(self._bench.topic)
        return consumer, member

    async def _has(self, member: _Member, count: int, when: str) -> None:
        await self._bench.becomes(
            f"queues of an orderly member whose answers are late, when {when}",
            lambda: sum(queue.topic == self._bench.topic for queue in member.queues),
            expected=count,
            within_s=SHARED_S,
        )

    async def _leave(self, consumer: PushConsumer, member: _Member) -> None:
        await consumer.stop()
        self._bench.hold(
            "queues that an orderly member gave back, and had not got since it did so before",
            expected="none",
            answered=" ".join(map(str, member.gave_back)) or "none",
        )

    # What is expected ----------------------------------------------------------------------------

    async def _hold_given(self) -> None:
        """Hold that all was given, in its order, once, and under the lock."""
        group, bench = self._group, self._bench
        await bench.becomes(
            "offsets that orderly members, whose answers are late, were given of each queue",
            lambda: [_shown(group.offsets[queue]) for queue in self._queues],
            expected=[_shown(range(self._sent[queue])) for queue in self._queues],
            within_s=GIVEN_S,
        )
        bench.hold(
            "deliveries of a queue that was being consumed", expected=0, answered=group.at_once
        )
        bench.hold(
            "deliveries to a member without the queue's lock", expected=0, answered=group.not_held
        )

    async def _hold_none_given(self) -> None:
        """Have a member whose every lock has expired when its answer comes, and a message for it:
        it is given nothing. Raises ClientError."""
        async with self._bench.producer() as producer:
            await producer.send(self._bench.message(), queue=self._queues[0])
        before = dict(self._group.offsets)
        self._group.offsets.clear()
        consumer, _ = self._make(TOO_SHORT_MS)
        await consumer.start()
        try:
            await self._bench.stays(
                "what an orderly member is given whose locks have expired when they are answered",
                lambda: sum(map(len, self._group.offsets.values())),
                expected=0,
                for_s=TOO_LATE_S,
            )
        finally:
            await consumer.stop()
            self._group.offsets.update(before)

    async def _hold_free(self) -> None:
        """Hold that a stranger gets the locks that all members have given back."""
        wanted = [
            {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}
            for queue in self._queues
        ]
        lock_request = {
            "consumerGroup": f"{self._bench.name}-consumers",
            "clientId": f"{self._bench.name}-{_STRANGER}",
            "mqSet": wanted,
        }
        answer = await self._bench.request(
            RequestCode.LOCK_BATCH_MQ, {}, body=json.dumps(lock_request).encode()
        )
        locked = json.loads(answer.body).get("lockOKMQSet", []) if answer.code == 0 else []
        self._bench.hold(
            "queues that a stranger may lock once all members have left",
            expected=list(range(QUEUES)),
            answered=sorted(each["queueId"] for each in locked),
        )


def _shown(offsets: Sequence[int]) -> str:
    """Return offsets as text: how many, where the first gap or repetition is."""
    wrong = next((at for at, offset in enumerate(offsets) if at != offset), None)
    return f"{len(offsets)}" + ("" if wrong is None else f", {offsets[wrong]} in place of {wrong}")
