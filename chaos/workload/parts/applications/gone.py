"""Halves whose producers are all gone for longer than brokers would ask for them, and come back:
more halves than a broker asks for in one go, of two groups, of which the second is back first.

Place in the data path: `broker.transaction.check_back`. A check that could be sent to nobody is not
one: a half is given up only after `check_max` checks that were sent, and each one, however many
wait, is asked about once a producer of its group is there.

Invariants: the first producers are gone before their halves may be asked for, or soon after; what
an application decides about a half is drawn before it is sent, so that what has to stand in the
topic in the end is known: what was committed, and nothing else. A half whose send was not answered
may be stored or not, and is rolled back when it is asked for.

Source: RocketMQ TransactionalMessageServiceImpl.check (every half of the queue in each round);
docs/DIVERGENCE.md (RocketMQ counts checks that nobody gets, too); broker.transaction.check_back.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from functools import partial
from typing import Final

from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.applications.bench import IN_FAULTS, Bench
from client.errors import ClientError
from client.message import DeliveredMessage, Message, SendStatus
from client.produce.transaction_producer import Decision, HalfMessage, TransactionProducer

__all__ = ["GoneProducers"]

HALVES: Final = {"away": 12, "gone": 80}  # by producer group, of which the last is back first
TOGETHER: Final = 8  # halves that are sent at one time
DOUBT_SHARE: Final = 0.2  # of the halves are decided when a broker asks for the second time
ROLLBACK_SHARE: Final = 0.3
SLACK_S: Final = 1.0
CHECK_SLACK_S: Final = 4.0
GIVEN_S: Final = 4.0
WAIT_S_MAX: Final = 16.0  # behind the load, for which no run waits longer
RETRY_S: Final = 0.1


class _Application:
    """The listener of one producer group. Halves are told apart by their bodies."""

    def __init__(self, group: str, rng: random.Random) -> None:
        self.group = group
        self.owed: set[bytes] = set()  # halves that were acknowledged
        self.committed: set[bytes] = set()
        self.strange = 0  # checks of halves that are not the group's
        self._rng = rng
        self._decisions: dict[bytes, list[Decision]] = {}  # on each check; the last one stays
        self._checks: Counter[bytes] = Counter()

    def draw(self, body: bytes) -> None:
        """Draw what becomes of a half that is about to be sent."""
        is_rollback = self._rng.random() < ROLLBACK_SHARE
        decisions = [Decision.ROLLBACK if is_rollback else Decision.COMMIT]
        if self._rng.random() < DOUBT_SHARE:
            decisions.insert(0, Decision.UNKNOWN)
        self._decisions[body] = decisions

    def left(self, times: int) -> int:
        """Return how many halves have not been checked so many times, which take so many."""
        return sum(self._checks[body] < times <= len(self._decisions[body]) for body in self.owed)

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        """Leave it to a check."""
        return Decision.UNKNOWN

    async def check_local(self, message: DeliveredMessage) -> Decision:
        """Answer a check as was drawn, and note it."""
        body = message.body
        decisions = self._decisions.get(body)
        if decisions is None:
            self.strange += 1
            return Decision.UNKNOWN
        if body not in self.owed:  # nobody has told the application that it is stored
            decisions[:] = [Decision.ROLLBACK]
        decision = decisions[min(self._checks[body], len(decisions) - 1)]
        self._checks[body] += 1
        if decision is Decision.COMMIT:
            self.committed.add(body)
        return decision


class GoneProducers:
    """The halves, sent at the beginning of the load. `bench` begins anew for what follows."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._applications = [_Application(f"{bench.name}-{name}", bench.rng) for name in HALVES]
        self._sent_s = 0.0

    async def send(self, stop: asyncio.Event) -> None:
        """Send the halves, repeating what is refused, and be gone."""
        for application, count in zip(self._applications, HALVES.values(), strict=True):
            producer = self._producer(application)
            await producer.start()
            try:
                while len(application.owed) < count and not stop.is_set():
                    if not await self._send_some(producer, application, count):
                        await sleep_until_set(stop, RETRY_S)
            finally:
                await producer.crash()

    def _producer(self, application: _Application) -> TransactionProducer:
        return self._bench.transactions(application, group=application.group, **IN_FAULTS)

    async def _send_some(
        self, producer: TransactionProducer, application: _Application, count: int
    ) -> bool:
        """Send some of the halves that are missing; return whether all were acknowledged."""
        try:
            if not self._sent_s:
                await self._bench.make_topic(1)
                self._sent_s = asyncio.get_running_loop().time()
        except ClientError:
            return False
        some = min(TOGETHER, count - len(application.owed))
        sends = [self._send_one(producer, application) for _ in range(some)]
        return all(await asyncio.gather(*sends))

    async def _send_one(self, producer: TransactionProducer, application: _Application) -> bool:
        message = self._bench.message()
        application.draw(message.body)
        try:
            half = await producer.send_half(message)
        except ClientError:
            return False
        if half.status is not SendStatus.SEND_OK:
            return False
        application.owed.add(message.body)
        self._sent_s = asyncio.get_running_loop().time()
        return True

    async def come_back(self) -> None:
        """Start a producer of each group once checks would have ended; hold that it is asked for
        its own halves, and that what it commits is there, and nothing else. Raises ClientError."""
        settings = self._bench.kit.context.scenario.transactions
        interval_s = settings.check_interval_ms / 1000
        gone_s = settings.timeout_ms / 1000 + (settings.check_max + 1) * interval_s + SLACK_S
        wait_s = self._sent_s + gone_s - asyncio.get_running_loop().time()
        if not any(each.owed for each in self._applications) or wait_s > WAIT_S_MAX:
            return
        await asyncio.sleep(max(0.0, wait_s))
        for application in reversed(self._applications):
            await self._answer_checks(application, 2 * interval_s + CHECK_SLACK_S)
        self._bench.hold(
            "checks of halves that producers of another group have sent",
            expected=0,
            answered=sum(each.strange for each in self._applications),
            is_calm=False,
        )

    async def _answer_checks(self, application: _Application, within_s: float) -> None:
        """Have one group's producer answer. Raises ClientError."""
        bench, count = self._bench, len(application.owed)
        async with self._producer(application) as producer:
            await producer.queues(bench.topic)
            for times, how in ((1, "for"), (2, "for again, which were left open")):
                await bench.becomes(
                    f"of {count} halves of {application.group}, whose producers are back, those"
                    f" that nobody is asked {how}",
                    partial(application.left, times),
                    expected=0,
                    within_s=within_s,
                )
            await bench.comes(
                "halves that are committed and not there, and what is there that is not committed",
                self._differences,
                expected=(0, 0),
                within_s=GIVEN_S,
            )

    async def _differences(self) -> tuple[int, int]:
        """Return how much of what was committed is not in the topic, and how much is there that was
        not. Raises ClientError."""
        committed = {body for each in self._applications for body in each.committed}
        (queue,) = await self._bench.reader.queues(self._bench.topic)
        bodies: list[bytes] = []
        offset = 0
        while (pulled := await self._bench.reader.pull(queue, offset)).messages:
            bodies += [message.body for message in pulled.messages]
            offset = pulled.next_begin_offset
        # A half whose send was repeated may stand there twice: it is no topic of an application's.
        return len(committed - set(bodies)), len(set(bodies) - committed)
