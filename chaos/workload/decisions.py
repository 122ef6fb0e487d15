"""Sends the decisions of transactions: at once, or late, while the broker asks about them.

Place in the data path: the processes of `chaos.workload.transactional_sender` send most decisions
themselves; those of slow applications are left to `LateDecisions`, which sends each at about the
time of a check: the decision is on its way, or just stored, when the broker looks at its half.
`RepeatedDecisions` sends what was acknowledged once more, seconds later or once the load is over,
as an application does that came back from a crash and does not know how far it was: by then other
nodes lead, or the same one after a restart.

Invariants: a decision is sent once more only where its outcome is unknown, or where it is known to
be carried out, so that it has to be acknowledged again (T15); a contrary one follows only what was
certainly carried out, so that it has to be refused; a late one whose client dies is left to the
checks, which are answered from the database again.

Source: RocketMQ's TransactionListener; the run format (decide).
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from chaos.recording.history import Outcome
from chaos.workload.actor import Actor, error_text
from chaos.workload.context import WorkContext
from chaos.workload.local_database import LocalDatabase
from chaos.workload.pace import impatience, sleep_until_set
from client.errors import BrokerRefusedError, ClientError, OutcomeUnknownError
from client.message import MessageQueue
from client.produce.transaction_producer import (
    Decision,
    EndOutcome,
    HalfMessage,
    TransactionProducer,
)

__all__ = [
    "ACKED_MAX",
    "OUTCOMES",
    "AckedDecision",
    "DecisionSender",
    "LateDecisions",
    "RepeatedDecisions",
]

END_RETRIES_MAX: Final = 1
RACE_S: Final = 0.008  # how long before the next check is due a decision may be sent
CHECKS_WAITED: Final = 3  # intervals, behind the timeout, after which no check is awaited any more
_POLL_S: Final = 0.1
ACKED_MAX: Final = 64  # decisions that are remembered, to be repeated
REPEAT_S: Final = 0.7  # mean time between repeated decisions
MISTAKEN_SHARE: Final = 0.05  # of decisions come behind one that is about another message
MISTAKEN_TIMEOUT_MS: Final = 100
_DELETIONS: Final = "deletions"  # the part that deletes its topics
_REFUSED: Final = "refused"
_REFUSALS: Final = frozenset({1, 604})  # codes that say so
TWIN_SHARE: Final = 0.15  # of decisions are sent twice at one time
_BEST_FIRST: Final = (EndOutcome.OK, EndOutcome.INFO, EndOutcome.FAIL)
REPEATED_AT_END: Final = 8
_CONTRARY: Final = {
    Decision.COMMIT: Decision.ROLLBACK,
    Decision.ROLLBACK: Decision.COMMIT,
}
OUTCOMES: Final[Mapping[EndOutcome, Outcome]] = {
    EndOutcome.OK: "ok",
    EndOutcome.FAIL: "fail",
    EndOutcome.INFO: "info",
}


AckedDecision: TypeAlias = tuple[HalfMessage, str, Decision, MessageQueue]
"""A decision that was acknowledged: half, transaction, decision, queue."""


class DecisionSender:
    """Sends decisions as operations of one process, `actor`; `acked` gets what was acknowledged."""

    def __init__(
        self,
        context: WorkContext,
        producer: TransactionProducer,
        actor: Actor,
        *,
        rng: random.Random,
        acked: deque[AckedDecision] | None = None,
    ) -> None:
        self._context = context
        self._producer = producer
        self._actor = actor
        self._rng = rng
        self._acked = acked
        self._twins = itertools.count()

    async def decide(
        self, half: HalfMessage, tx: str, decision: Decision, queue: MessageQueue
    ) -> None:
        """Send the decision, once more where its outcome is unknown, now and then the contrary.

        The same decision again must be answered as done, a contrary one be refused (G4). What is
        unknown after that is left to the broker's check.
        """
        settings = self._context.scenario.workload
        timeout_ms = impatience(settings, self._rng)
        contrary = _CONTRARY[decision]
        # A half for a topic that was deleted is rolled back by brokers themselves, and then a
        # rollback is done already, by whatever id.
        deleted = {each.topic for each in self._context.part_queues.get(_DELETIONS, ())}
        may_be_done = contrary is Decision.ROLLBACK and queue.topic in deleted
        if self._rng.random() < MISTAKEN_SHARE and not may_be_done:
            await self._send_mistaken(half, contrary, queue)
        for _ in range(1 + END_RETRIES_MAX):
            if self._rng.random() < TWIN_SHARE:
                outcome = await self._send_twice(half, tx, decision, queue, timeout_ms)
            else:
                outcome = await self.send(half, tx, decision, queue, timeout_ms)
            if outcome is EndOutcome.OK and self._rng.random() < settings.contrary_share:
                await self.send(half, tx, contrary, queue, settings.send_timeout_ms)
            if outcome is not EndOutcome.INFO:
                return
            timeout_ms = settings.send_timeout_ms

    async def _send_twice(
        self,
        half: HalfMessage,
        tx: str,
        decision: Decision,
        queue: MessageQueue,
        timeout_ms: int,
    ) -> EndOutcome:
        """Send the decision by two processes at one time; return the better of their outcomes."""
        twin = self._actor.other(f"twin-{next(self._twins)}")
        outcomes = await asyncio.gather(
            self.send(half, tx, decision, queue, timeout_ms),
            self.send(half, tx, decision, queue, timeout_ms, actor=twin),
        )
        return min(outcomes, key=_BEST_FIRST.index)

    async def _send_mistaken(
        self, half: HalfMessage, decision: Decision, queue: MessageQueue
    ) -> None:
        """Send a decision that is about another message than the half that stands there: it has to
        be refused, and decides nothing."""
        what, mistaken = self._rng.choice(
            (
                ("by the id of another", replace(half, msg_id=f"{half.msg_id[:-1]}x")),
                ("by another place", replace(half, commit_log_offset=half.commit_log_offset + 1)),
            )
        )
        with self._actor.operation(
            "ask",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            key=f"{decision.value} {half.msg_id} {what}",
            ref=_REFUSED,
        ) as operation:
            result = await self._producer.end(mistaken, decision, timeout_ms=MISTAKEN_TIMEOUT_MS)
            error = result.error
            if isinstance(error, OutcomeUnknownError):
                error = error.last
            if result.outcome is EndOutcome.OK:
                operation.complete("ok", status="done")
            elif isinstance(error, BrokerRefusedError) and error.code in _REFUSALS:
                operation.complete("ok", status=_REFUSED)
            else:
                operation.complete("info", error=None if error is None else error_text(error))

    async def send(
        self,
        half: HalfMessage,
        tx: str,
        decision: Decision,
        queue: MessageQueue,
        timeout_ms: int,
        *,
        actor: Actor | None = None,
    ) -> EndOutcome:
        """Send the decision once; as another process than the sender's own, where it is given."""
        with (actor or self._actor).operation(
            "decide",
            broker_group=queue.broker_name,
            topic=queue.topic,
            queue=queue.queue_id,
            tx=tx,
            decision=decision.value,
        ) as operation:
            result = await self._producer.end(half, decision, timeout_ms=timeout_ms)
            error = None if result.error is None else error_text(result.error)
            node = None if result.address is None else self._context.node(result.address)
            refusal: ClientError | None = result.error
            if isinstance(refusal, OutcomeUnknownError):
                refusal = refusal.last
            operation.complete(
                OUTCOMES[result.outcome],
                error=error,
                node=node,
                status=str(refusal.code) if isinstance(refusal, BrokerRefusedError) else None,
            )
        if result.outcome is EndOutcome.OK and self._acked is not None:
            self._acked.append((half, tx, decision, queue))
        return result.outcome


class LateDecisions:
    """The decisions of one client that are sent while the broker asks about their transactions.

    Each is sent by a process of its own, since several may be due at one time.
    """

    def __init__(
        self,
        context: WorkContext,
        producer: TransactionProducer,
        database: LocalDatabase,
        *,
        client: str,
        rng: random.Random,
        stop: asyncio.Event,
        acked: deque[AckedDecision],
    ) -> None:
        self._context = context
        self._producer = producer
        self._database = database
        self._client = client
        self._rng = rng
        self._stop = stop
        self._acked = acked
        self._numbers = itertools.count()
        self._added: asyncio.Queue[tuple[HalfMessage, str, Decision, MessageQueue]] = (
            asyncio.Queue()
        )

    def add(self, half: HalfMessage, tx: str, decision: Decision, queue: MessageQueue) -> None:
        """Take over a transaction that was executed and is not decided yet."""
        self._added.put_nowait((half, tx, decision, queue))

    async def run(self) -> None:
        """Send what was added, each in its time; after `stop` all at once, and end."""
        async with asyncio.TaskGroup() as tasks:
            while not self._stop.is_set() or not self._added.empty():
                try:
                    async with asyncio.timeout(_POLL_S):
                        half, tx, decision, queue = await self._added.get()
                except TimeoutError:
                    continue
                tasks.create_task(self._decide(half, tx, decision, queue))

    async def _decide(
        self, half: HalfMessage, tx: str, decision: Decision, queue: MessageQueue
    ) -> None:
        actor = Actor(
            self._context.history,
            root=f"{self._client}.late-{next(self._numbers)}",
            client=self._client,
            client_group=self._producer.group,
        )
        settings = self._context.scenario.transactions
        interval_s = settings.check_interval_ms / 1000
        checked = asyncio.Event()
        self._database.decide_late(tx, checked.set)
        try:
            end = settings.timeout_ms / 1000 + CHECKS_WAITED * interval_s
            end += asyncio.get_running_loop().time()
            while not checked.is_set() and not self._stop.is_set():
                left_s = end - asyncio.get_running_loop().time()
                if left_s <= 0 or await sleep_until_set(checked, min(_POLL_S, left_s)):
                    break
            if checked.is_set():
                wait_s = interval_s - self._rng.uniform(0, RACE_S)
                await sleep_until_set(self._stop, max(0.0, wait_s))
        finally:
            self._database.decided(tx)
        await DecisionSender(
            self._context, self._producer, actor, rng=self._rng, acked=self._acked
        ).decide(half, tx, decision, queue)


class RepeatedDecisions:
    """A process of one client that sends decisions again which `acked` says were acknowledged."""

    def __init__(
        self,
        context: WorkContext,
        producer: TransactionProducer,
        *,
        client: str,
        rng: random.Random,
        acked: deque[AckedDecision],
    ) -> None:
        actor = Actor(
            context.history,
            root=f"{client}.again",
            client=client,
            client_group=producer.group,
        )
        self._timeout_ms = context.scenario.workload.send_timeout_ms
        self._sender = DecisionSender(context, producer, actor, rng=rng)
        self._rng = rng
        self._acked = acked

    async def run(self, stop: asyncio.Event) -> None:
        """Repeat one now and then, until `stop`."""
        while not await sleep_until_set(stop, self._rng.expovariate(1 / REPEAT_S)):
            await self._repeat(1)

    async def finish(self) -> None:
        """Repeat some, once the load is over."""
        await self._repeat(REPEATED_AT_END)

    async def _repeat(self, number: int) -> None:
        for again in self._rng.sample(list(self._acked), min(number, len(self._acked))):
            await self._sender.send(*again, self._timeout_ms)
