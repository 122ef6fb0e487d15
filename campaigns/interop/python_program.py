"""Our own Python clients as one more client: the same lines as the Java and Go programs.

python -m campaigns.interop.python_cases list
python -m campaigns.interop.python_cases NAME_SERVERS AT_ONCE faults|steady CASE ...
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from campaigns.interop.matrix import MARK
from client.administer.admin import Admin
from client.connection.heartbeat import ConsumeFrom, ExpressionType
from client.consume.listener import ConsumeStatus, PushConsumerSettings
from client.consume.push_consumer import PushConsumer
from client.errors import ClientError
from client.message import DeliveredMessage, Message, SendResult, SendStatus
from client.produce.producer import Producer

__all__ = ["Rig", "Seen", "keys", "message", "run"]

_T = TypeVar("_T")

CASE_TIMEOUT_S = 90
FAULTS_TIMEOUT_S = 150
MIDPOINT_TIMEOUT_S = 100
BROKEN = (LookupError, ValueError, ExceptionGroup)  # a case that found something else than it read


def message(topic: str, tag: str | None, key: str, **properties: str) -> Message:
    body = f"body of {key}".encode()
    return Message(topic=topic, body=body, tags=tag, keys=(key,), properties=properties)


def keys(prefix: str, start: int, stop: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(start, stop)]


@dataclass
class Seen:
    """What a consumer was given, by the messages' keys."""

    counts: Counter[str] = field(default_factory=Counter)
    order: list[str] = field(default_factory=list)
    messages: dict[str, DeliveredMessage] = field(default_factory=dict)
    at_ms: dict[str, float] = field(default_factory=dict)
    every: list[DeliveredMessage] = field(default_factory=list)

    async def take(self, given: Sequence[DeliveredMessage]) -> ConsumeStatus:
        for each in given:
            key = each.keys[0] if each.keys else each.uniq_key or ""
            self.every.append(each)
            self.counts[key] += 1
            self.order.append(key)
            self.messages.setdefault(key, each)
            self.at_ms.setdefault(key, time.time() * 1000)
        return ConsumeStatus.CONSUME_SUCCESS

    @property
    def repeated(self) -> dict[str, int]:
        return {key: times for key, times in self.counts.items() if times > 1}

    def missing(self, wanted: Iterable[str]) -> list[str]:
        return [key for key in wanted if key not in self.counts]


class Meeting:
    """Where the cases of a batch wait for each other, once; whoever ends leaves."""

    def __init__(self, members: int) -> None:
        self._left = members
        self._waiting = 0
        self._open = asyncio.Event()

    async def leave(self) -> None:
        self._left -= 1
        await self._open_if_all_are_there()

    async def wait(self) -> None:
        self._waiting += 1
        await self._open_if_all_are_there()
        async with asyncio.timeout(MIDPOINT_TIMEOUT_S):
            await self._open.wait()

    async def _open_if_all_are_there(self) -> None:
        if self._waiting and self._waiting == self._left and not self._open.is_set():
            report({"event": "midpoint"})
            await asyncio.to_thread(sys.stdin.readline)
            self._open.set()


class Rig:
    """What a case works with: clients that end with it, names that no other case has."""

    _numbers = itertools.count(1)

    def __init__(self, servers: list[str], name: str, *, faults: bool, middle: Meeting) -> None:
        self.servers = servers
        self.faults = faults
        self._name = name
        self._middle = middle
        self._run = f"{int(time.time() * 1000) % 10**8:x}"
        self.stack = contextlib.AsyncExitStack()

    async def midpoint(self) -> None:
        """Here the leader dies where one is to die."""
        if self.faults:
            await self._middle.wait()

    def unique(self, what: str) -> str:
        return f"{what}_py_{self._name}_{self._run}{next(self._numbers)}"

    async def topic(self, queues: int = 4) -> str:
        name = self.unique("t")
        async with Admin(self.servers) as admin:
            await self.request(lambda: admin.create_topic(name, queues=queues))
        return name

    async def producer(self) -> Producer:
        return await self.stack.enter_async_context(Producer(self.unique("p"), self.servers))

    async def send(self, producer: Producer, sent: Message) -> SendResult:
        """Must succeed; while leaders die the same message is sent again, also where it is stored
        and a slave or a disk is slow."""
        until = time.monotonic() + 60
        while True:
            try:
                result = await producer.send(sent)
            except ClientError:
                if not self.faults or time.monotonic() > until:
                    raise
            else:
                if result.status is SendStatus.SEND_OK:
                    return result
                assert self.faults, result
                assert time.monotonic() < until, result
            await asyncio.sleep(0.2)

    async def request(self, call: Callable[[], Awaitable[_T]], *, patient: bool = False) -> _T:
        """A request that must succeed, likewise; if `patient`, not at once."""
        until = time.monotonic() + 60
        while True:
            try:
                return await call()
            except ClientError:
                if not (self.faults or patient) or time.monotonic() > until:
                    raise
                await asyncio.sleep(0.2)

    async def send_all(
        self, producer: Producer, topic: str, prefix: str, start: int, stop: int
    ) -> None:
        for key in keys(prefix, start, stop):
            await self.send(producer, message(topic, "A", key))

    @contextlib.asynccontextmanager
    async def consuming(
        self,
        topic: str,
        expression: str = "*",
        *,
        group: str | None = None,
        kind: ExpressionType = ExpressionType.TAG,
        settings: PushConsumerSettings | None = None,
        take: Callable[[Sequence[DeliveredMessage]], Awaitable[ConsumeStatus]] | None = None,
    ) -> AsyncIterator[Seen]:
        seen = Seen()
        consumer = PushConsumer(
            group or self.unique("g"),
            self.servers,
            take or seen.take,
            settings=settings or PushConsumerSettings(consume_from=ConsumeFrom.FIRST),
        )
        consumer.subscribe(topic, expression, kind)
        await consumer.start()
        try:
            yield seen
        finally:
            await consumer.stop()

    async def until(self, what: Callable[[], object], holds: Callable[[], bool]) -> None:
        """Polled; `what` tells what was missing at the end."""
        deadline = time.monotonic() + (90 if self.faults else 45)
        while not holds():
            assert time.monotonic() < deadline, f"not in time: {what()}"
            await asyncio.sleep(0.02)

    async def seen_all(self, seen: Seen, wanted: list[str]) -> None:
        await self.until(
            lambda: f"missing {seen.missing(wanted)[:10]}", lambda: not seen.missing(wanted)
        )


Case = Callable[[Rig], Awaitable[object]]


def report(value: dict[str, object]) -> None:
    sys.stdout.write(f"{MARK}{json.dumps(value)}\n")
    sys.stdout.flush()


async def _run_one(
    name: str, case: Case, servers: list[str], faults: bool, middle: Meeting
) -> None:
    began = time.monotonic()
    outcome = "fail"
    rig = Rig(servers, name, faults=faults, middle=middle)
    try:
        async with asyncio.timeout(FAULTS_TIMEOUT_S if faults else CASE_TIMEOUT_S), rig.stack:
            detail = str(await case(rig))
            outcome = "pass"
    except (
        AssertionError,
        ClientError,
        TimeoutError,
        LookupError,
        ValueError,
        ExceptionGroup,
    ) as error:
        detail = f"{type(error).__name__}: {error}"
    await middle.leave()
    took_ms = int((time.monotonic() - began) * 1000)
    report({"case": name, "outcome": outcome, "took_ms": took_ms, "detail": detail})


async def _run_all(cases: dict[str, Case], arguments: list[str]) -> None:
    servers, at_once, mode, *wanted = arguments
    chosen = [name for name in cases if not wanted or name in wanted]
    if mode != "faults":
        await _run_steadily({name: cases[name] for name in chosen}, servers, int(at_once))
        return
    for start in range(0, len(chosen), int(at_once)):
        batch = chosen[start : start + int(at_once)]
        middle = Meeting(len(batch))
        async with asyncio.TaskGroup() as group:
            for name in batch:
                group.create_task(_run_one(name, cases[name], servers.split(";"), True, middle))


async def _run_steadily(cases: dict[str, Case], servers: str, at_once: int) -> None:
    """One begins where another has ended."""
    places = asyncio.Semaphore(at_once)

    async def run_in_turn(name: str, case: Case) -> None:
        async with places:
            await _run_one(name, case, servers.split(";"), False, Meeting(1))

    async with asyncio.TaskGroup() as group:
        for name, case in cases.items():
            group.create_task(run_in_turn(name, case))


def run(cases: dict[str, Case], arguments: list[str]) -> None:
    if arguments == ["list"]:
        sys.stdout.write("\n".join(cases) + "\n")
    else:
        asyncio.run(_run_all(cases, arguments))
