"""Transactional producers: half, local transaction, decision; and answers to the broker's checks.

Place in the data path: `client.produce.transaction_producer` through the slot's own proxies. A
transaction ends in one of six ways: its commit is sent, its rollback is sent, either is sent late,
when the broker is about to check once more (`chaos.workload.decisions`), no decision is sent
and the broker checks (some checks are answered UNKNOWN first), its producer crashes in the middle
and another client of the group is checked, or nobody ever decides and the broker gives it up, or
an operator does (`chaos.workload.discards`).

Invariants: steps of one transaction belong to one process, in order; the local transaction runs
only after the half was acknowledged; every check is recorded as a process of its own, from the
broker's request to the answer sent.

Source: RocketMQ's TransactionListener; the run format (half, local, decide, check).
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import itertools
import random
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from chaos.recording.history import Outcome
from chaos.workload.actor import Actor, error_text
from chaos.workload.context import Slot, WorkContext
from chaos.workload.decisions import (
    ACKED_MAX,
    AckedDecision,
    DecisionSender,
    LateDecisions,
    RepeatedDecisions,
)
from chaos.workload.discards import discard_by_hand
from chaos.workload.local_database import LocalDatabase
from chaos.workload.messages import (
    PROPERTY_TX,
    MessageMaker,
    row_of_message,
    wall_ms,
)
from chaos.workload.pace import Pace, impatience, sleep_until_set
from chaos.workload.whole_transactions import DatabaseListener, WholeTransactions
from client.errors import ClientError
from client.message import DeliveredMessage, Message, MessageQueue
from client.produce.producer import ProducerSettings
from client.produce.transaction_producer import (
    Decision,
    EndOutcome,
    EndResult,
    HalfMessage,
    TransactionObserver,
    TransactionProducer,
    TransactionSettings,
    half_message,
)
from remoting.records.property_names import PropertyName

__all__ = ["IMMUNITY_BEYOND_S_MAX", "CheckLog", "TransactionalClient", "introduce"]

UNKNOWN_ANSWERS_MAX: Final = 2
SEND_UNKNOWN_SHARE: Final = 0.5
PAUSE_AFTER_CRASH_S: Final = 1.0
CHECK_WORKERS: Final = 2
ONEWAY_SHARE: Final = 0.2  # of the clients
CRASH_WAIT_S: Final = 3.0
TWIN_SHARE: Final = 0.15  # of halves are sent twice at one time
LATE_SHARE: Final = 0.3  # of the decisions that are sent
IMMUNITY_BEYOND_S_MAX: Final = 3
"""How many seconds beyond the broker's timeout a producer may ask it to wait with its check."""


class CheckLog(TransactionObserver):
    """Records the checks that one client gets. `last_ns`: time of the group's last check."""

    def __init__(self, context: WorkContext, *, client: str, group: str) -> None:
        self._history = context.history
        self._node = context.node
        self._client = client
        self._group = group
        self._open: dict[int, int] = {}
        self._count = 0
        self.last_ns = 0

    def check_received(
        self, message: DeliveredMessage, half: HalfMessage, address: str | None, *, t_invoke: int
    ) -> None:
        self._count += 1
        self._open[id(half)] = self._history.invoke(
            "check",
            process=f"{self._client}.check-{self._count}",
            client=self._client,
            client_group=self._group,
            broker_group=half.broker_name,
            topic=half.topic,
            queue=message.queue.queue_id,
            offset=half.offset,
            tx=message.properties.get(PROPERTY_TX),
            status=message.properties.get(PropertyName.TRANSACTION_CHECK_TIMES),
            node=None if address is None else self._node(address),
        )
        self.last_ns = self._history.now_ns()

    def check_answered(
        self,
        message: DeliveredMessage,
        half: HalfMessage,
        decision: Decision,
        result: EndResult,
        *,
        t_complete: int,
    ) -> None:
        handle = self._open.pop(id(half))
        error = None if result.error is None else error_text(result.error)
        self._history.complete(
            handle, _check_outcome(decision, result), decision=decision.value, error=error
        )
        self.last_ns = self._history.now_ns()


class CrashPoint(enum.Enum):
    """The point in a transaction at which its producer dies."""

    BEFORE_LOCAL = "before_local"
    AFTER_LOCAL = "after_local"


class _Crash:
    """Waits for a process to be in the middle of a transaction before its client is crashed."""

    def __init__(self, point: CrashPoint) -> None:
        self._point = point
        self._due = False
        self._reached = asyncio.Event()

    async def provoke(self) -> None:
        """Return when a process stands at the point, or after a bounded wait."""
        self._due = True
        await sleep_until_set(self._reached, CRASH_WAIT_S)

    async def reach(self, point: CrashPoint) -> None:
        """Wait for ever, to be cancelled, if the crash is due at this point."""
        if self._due and point is self._point:
            self._reached.set()
            await asyncio.Event().wait()


class Router(Protocol):
    """The part of a producer that `introduce` needs."""

    async def queues(self, topic: str, timeout_ms: int | None = None) -> Sequence[MessageQueue]: ...


async def introduce(producer: Router, topics: Sequence[str], end: asyncio.Event) -> None:
    """Look up the topics' routes until they are known, so that brokers send the client checks.

    Brokers check clients that they know, and know those with a route to them. A client that comes
    back after the load sends nothing, so that nobody would be asked about what the others left; and
    it may come back before any name server or leader has.
    """
    for topic in topics:
        while not end.is_set():
            try:
                await producer.queues(topic)
            except ClientError:
                await sleep_until_set(end, PAUSE_AFTER_CRASH_S)
            else:
                break


class TransactionalClient:
    """One slot's clients, one after another: each works until it crashes or the load ends."""

    def __init__(
        self,
        context: WorkContext,
        slot: Slot,
        *,
        group: str,
        database: LocalDatabase,
        rng: random.Random,
    ) -> None:
        self._context = context
        self._slot = slot
        self._group = group
        self._database = database
        self._rng = rng
        self._acked: deque[AckedDecision] = deque(maxlen=ACKED_MAX)  # by any of its clients
        self.checks: list[CheckLog] = []
        self._idle = asyncio.Event()

    async def idle(self) -> None:
        """Wait, after the load, until none of its processes is in the middle of a transaction."""
        await self._idle.wait()

    async def run(self, stop: asyncio.Event, end: asyncio.Event) -> None:
        """Send until `stop`, answer checks until `end`."""
        while not end.is_set():
            client = self._slot.next_client()
            log = CheckLog(self._context, client=client, group=self._group)
            self.checks.append(log)
            listener = DatabaseListener(
                self._database,
                fails=self._context.scenario.workload.whole_share > 0,
                rng=random.Random(self._rng.getrandbits(64)),
            )
            producer = self._make_producer(log, listener)
            await producer.start()
            crashed = False
            try:
                again = RepeatedDecisions(
                    self._context,
                    producer,
                    client=client,
                    rng=random.Random(self._rng.getrandbits(64)),
                    acked=self._acked,
                )
                async with asyncio.TaskGroup() as tasks:
                    topics = self._context.scenario.workload.topics
                    introducing = tasks.create_task(introduce(producer, topics, end))
                    crashed = await self._work(producer, listener, client, again, stop)
                    if not crashed:
                        await again.finish()
                        self._idle.set()
                        await end.wait()
                    introducing.cancel()
            finally:
                if crashed:
                    await producer.crash()
                else:
                    await producer.stop()
            if crashed:
                await sleep_until_set(end, PAUSE_AFTER_CRASH_S)

    async def _work(
        self,
        producer: TransactionProducer,
        listener: DatabaseListener,
        client: str,
        again: RepeatedDecisions,
        stop: asyncio.Event,
    ) -> bool:
        """Run the processes of one client; return True if it is to crash: they were cancelled."""
        settings = self._context.scenario.workload
        clients = settings.transaction_clients * settings.transaction_processes
        crash = _Crash(self._rng.choice(list(CrashPoint)))
        tasks = []
        async with asyncio.TaskGroup() as group:
            late = LateDecisions(
                self._context,
                producer,
                self._database,
                client=client,
                rng=random.Random(self._rng.getrandbits(64)),
                stop=stop,
                acked=self._acked,
            )
            tasks.append(group.create_task(late.run()))
            tasks.append(group.create_task(again.run(stop)))
            for number in range(settings.transaction_processes):
                process = _Process(
                    self._context,
                    producer,
                    listener,
                    self._database,
                    root=f"{client}.p{number}",
                    client=client,
                    rate=settings.transaction_rate / clients,
                    rng=random.Random(self._rng.getrandbits(64)),
                    crash=crash,
                    late=late,
                    acked=self._acked,
                )
                tasks.append(group.create_task(process.run(stop)))
            if settings.transaction_crash_s <= 0:
                return False
            lifetime = self._rng.expovariate(1 / settings.transaction_crash_s)
            if await sleep_until_set(stop, max(1.0, lifetime)):
                return False
            await crash.provoke()
            for task in tasks:
                task.cancel()
        return True

    def _draw_oneway(self) -> bool:
        """Return whether a client awaits no answer to its decisions, as RocketMQ's do."""
        is_whole = self._context.scenario.workload.whole_share > 0
        return is_whole and self._rng.random() < ONEWAY_SHARE

    def _make_producer(self, log: CheckLog, listener: DatabaseListener) -> TransactionProducer:
        timeout_ms = self._context.scenario.workload.send_timeout_ms
        return TransactionProducer(
            self._group,
            self._context.name_servers,
            listener,
            self._slot.dial,
            settings=TransactionSettings(
                end_timeout_ms=timeout_ms,
                end_oneway=self._draw_oneway(),
                check_workers=CHECK_WORKERS,
                producer=ProducerSettings(
                    timeout_ms=timeout_ms,
                    compression=self._slot.compression(),
                    instance=self._slot.instance_settings(),
                ),
            ),
            observer=log,
        )


class _Process:
    """Runs one transaction after another."""

    def __init__(
        self,
        context: WorkContext,
        producer: TransactionProducer,
        listener: DatabaseListener,
        database: LocalDatabase,
        *,
        root: str,
        client: str,
        rate: float,
        rng: random.Random,
        crash: _Crash,
        late: LateDecisions,
        acked: deque[AckedDecision],
    ) -> None:
        self._context = context
        self._producer = producer
        self._late = late
        self._crash = crash
        self._database = database
        self._settings = context.scenario.workload
        self._rng = rng
        self._pace = Pace(rate, rng)
        self._actor = Actor(context.history, root=root, client=client, client_group=producer.group)
        self._decisions = DecisionSender(context, producer, self._actor, rng=rng, acked=acked)
        self._whole = WholeTransactions(context, producer, listener, database, self._actor, rng=rng)
        self._twins = itertools.count()
        self._maker = MessageMaker(
            prefix=root,
            body_bytes=self._settings.body_bytes,
            sizes_share=self._settings.sizes_share,
            rng=rng,
        )

    async def run(self, stop: asyncio.Event) -> None:
        while await self._pace.wait(stop):
            queue = self._rng.choice(self._context.queues)
            uniq_key = self._producer.instance.next_uniq_key(wall_ms())
            message = self._maker.make(queue.topic, uniq_key=uniq_key, transactional=True)
            if self._settings.whole_share and self._rng.random() < self._settings.whole_share:
                timeout_ms = impatience(self._settings, self._rng)
                await self._whole.run(message, queue, timeout_ms=timeout_ms)
                continue
            immunity_s = self._draw_immunity()
            if immunity_s:
                message.properties = {
                    **message.properties,
                    PropertyName.CHECK_IMMUNITY_TIME: str(immunity_s),
                }
            half = await self._send_half(message, queue, immunity_s)
            if half is None:
                continue
            tx = message.properties[PROPERTY_TX]
            if self._rng.random() < self._settings.undecided_share:
                self._database.never_decide(tx)
                if self._rng.random() < self._settings.by_hand_share:
                    instance = self._producer.instance
                    await discard_by_hand(
                        self._context, instance, self._actor, half=half, tx=tx, queue=queue
                    )
                continue
            luck = self._rng.random()
            commit_share = self._settings.commit_share
            is_decided = luck < commit_share + self._settings.rollback_share
            wanted = Decision.COMMIT if luck < commit_share else Decision.ROLLBACK
            if not is_decided:
                wanted = self._rng.choice((Decision.COMMIT, Decision.ROLLBACK))
                self._database.answer_unknown_first(tx, self._rng.randint(0, UNKNOWN_ANSWERS_MAX))
            await self._crash.reach(CrashPoint.BEFORE_LOCAL)  # no row: the check rolls back
            decision = self._run_local(tx, wanted)
            await self._crash.reach(CrashPoint.AFTER_LOCAL)  # a row, but no decision sent
            if is_decided and self._rng.random() < LATE_SHARE:
                self._late.add(half, tx, decision, queue)
            elif is_decided:
                await self._decisions.decide(half, tx, decision, queue)
            elif self._rng.random() < SEND_UNKNOWN_SHARE:
                timeout_ms = self._settings.send_timeout_ms
                await self._decisions.send(half, tx, Decision.UNKNOWN, queue, timeout_ms)

    def _draw_immunity(self) -> int:
        """Return for how many seconds the broker shall ask nothing; 0: as long as it likes."""
        if self._rng.random() >= self._settings.immune_share:
            return 0
        timeout_ms = self._context.scenario.transactions.timeout_ms
        return timeout_ms // 1000 + self._rng.randint(1, IMMUNITY_BEYOND_S_MAX)

    async def _send_half(
        self, message: Message, queue: MessageQueue, immunity_s: int
    ) -> HalfMessage | None:
        """Return the half if it was acknowledged; only then does the transaction go on.

        Some are sent by two processes at one time: they are one half all the same (T16).
        """
        due = self._context.history.now_ns() + immunity_s * 1_000_000_000 if immunity_s else None
        timeout_ms = impatience(self._settings, self._rng)
        actors = [self._actor]
        if self._rng.random() < TWIN_SHARE:
            actors.append(self._actor.other(f"twin-{next(self._twins)}"))
        halves = await asyncio.gather(
            *(
                self._send_half_as(actor, dataclasses.replace(message), queue, due, timeout_ms)
                for actor in actors
            )
        )
        return next((half for half in halves if half is not None), None)

    async def _send_half_as(
        self,
        actor: Actor,
        message: Message,
        queue: MessageQueue,
        due: int | None,
        timeout_ms: int,
    ) -> HalfMessage | None:
        row = row_of_message(message, broker_group=queue.broker_name, queue=queue.queue_id)
        with actor.operation(
            "half",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            tx=message.properties[PROPERTY_TX],
            messages=[row],
            due=due,
        ) as operation:
            try:
                result = await self._producer.send_half(message, timeout_ms=timeout_ms, queue=queue)
                half = half_message(result)
            except ClientError as error:
                operation.failed(error)
                return None
            acked = result.status.value == "SEND_OK"
            operation.complete(
                "ok" if acked else "info",
                offset=half.offset,
                status=result.status.value,
                node=self._context.node(result.address),
            )
            return half if acked else None

    def _run_local(self, tx: str, wanted: Decision) -> Decision:
        with self._actor.operation("local", tx=tx) as operation:
            decision = self._database.execute(tx, wanted)
            operation.complete("ok", decision=decision.value)
            return decision


def _check_outcome(decision: Decision, result: EndResult) -> Outcome:
    """Return the outcome of a check: `ok` where its answer left, whatever the broker made of it."""
    if result.outcome is EndOutcome.OK:
        return "ok"
    if result.outcome is EndOutcome.FAIL:
        return "fail"
    return "ok" if decision is Decision.UNKNOWN and result.error is None else "info"
