"""Calls that wait for messages, with every time for which they may: nothing comes, a message comes
in the midst of the wait, and one comes just as the wait ends.

Place in the data path: `client.consume`: pops, in order and without, pulls that are held, and polls
of a member. The times stand about the client's own limit of an attempt, a second, which has nothing
to do with them. Each time has a topic of its own, and each way to consume a group of its own.

Invariants: a call that has nothing to return says so when its time is over, neither sooner nor with
an error; a message is returned as it comes, and once: whatever became of the call before, it is not
hidden from the next one.

Source: docs/CLIENT.md (POP, poll_ms); RocketMQ PopLongPollingService, PullRequestHoldService,
DefaultLitePullConsumerImpl.poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from chaos.workload.parts.applications.bench import GROUP, Bench
from client.consume.lite_pull_consumer import LitePullConsumer
from client.consume.pop_consumer import PopConsumer
from client.consume.pull_consumer import PullConsumer
from client.errors import ClientError
from client.message import Message, MessageQueue

__all__ = ["WaitingCalls"]

WAITS_MS: Final = (0, 1, 300, 900, 1_000, 1_500, 2_500)
ROUNDS: Final = 2
EARLY: Final = 0.2  # of its time; a broker rounds, and a request is on its way
LATE_S: Final = 1.0
NEAR_S: Final = 0.04  # about the end of a wait
BEYOND_MS: Final = 1_500
AGAIN_S: Final = 0.01
INVISIBLE_MS: Final = 60_000  # longer than the drill: what is hidden does not come again
OWNED_S: Final = 4.0

Call = Callable[[], Awaitable[list[bytes]]]


class WaitingCalls:
    """All ways to wait, for all times."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._producer = bench.producer()

    async def run(self) -> None:
        """Wait for each time. Raises ClientError."""
        async with self._producer, asyncio.TaskGroup() as tasks:
            for wait_ms in WAITS_MS:
                tasks.create_task(self._wait(wait_ms))

    async def _wait(self, wait_ms: int) -> None:
        """Go through what can come, by all ways at once, with one time. Raises ClientError."""
        bench = self._bench
        queue = MessageQueue(f"{bench.topic}-{wait_ms}", bench.broker_group, 0)
        await bench.admin.create_topic(queue.topic, queues=1, broker_names=[queue.broker_name])
        async with contextlib.AsyncExitStack() as stack:
            # A client's own time for a request is what it has beyond the wait.
            settings = dataclasses.replace(bench.tool_settings(), timeout_ms=BEYOND_MS)
            servers, dial = bench.kit.context.name_servers, bench.slot.dial
            reader = PullConsumer(GROUP, servers, dial, settings=settings)
            await stack.enter_async_context(reader)
            calls: dict[str, Call] = {"pull": _Pulls(reader, queue, wait_ms).call}
            for name, in_order in (("pop", False), ("pop in order", True)):
                group = f"{bench.name}-{name.replace(' ', '-')}-{wait_ms}"
                popper = bench.popper(group, timeout_ms=BEYOND_MS)
                await stack.enter_async_context(popper)
                calls[name] = _Pops(popper, queue, wait_ms, in_order=in_order).call
            member = bench.poller(f"{bench.name}-poll-{wait_ms}", suspend_ms=1_000)
            member.subscribe(queue.topic)
            await stack.enter_async_context(member)
            await bench.becomes(
                f"queues of a member that is to poll for {wait_ms} ms",
                lambda: sum(each.topic == queue.topic for each in member.queues),
                expected=1,
                within_s=OWNED_S,
            )
            calls["poll"] = _Polls(member, wait_ms).call
            for _ in range(ROUNDS):
                await self._find_nothing(calls, wait_ms)
                if wait_ms * EARLY > NEAR_S * 1_000:
                    delay_s = bench.rng.uniform(0, wait_ms / 1_000 - NEAR_S)
                    await self._find_one(calls, queue, wait_ms, delay_s, "in the midst")
                delay_s = max(0.0, wait_ms / 1_000 + bench.rng.uniform(-NEAR_S, NEAR_S))
                await self._find_one(calls, queue, wait_ms, delay_s, "at the end")

    async def _find_nothing(self, calls: Mapping[str, Call], wait_ms: int) -> None:
        await asyncio.gather(
            *(self._hold_nothing(name, call, wait_ms) for name, call in calls.items())
        )

    async def _hold_nothing(self, name: str, call: Call, wait_ms: int) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            found = await call()
            answered = f"{len(found)} messages"
        except ClientError as error:
            answered = f"{type(error).__name__}: {error}"
        over_s = loop.time() - began_s - wait_ms / 1_000
        if over_s > LATE_S:
            answered += f", {over_s:.1f} s too late"
        elif over_s < -EARLY * wait_ms / 1_000:
            answered += f", {-over_s:.1f} s too early"
        self._bench.hold(
            f"{name} that waits {wait_ms} ms for nothing", expected="0 messages", answered=answered
        )

    async def _find_one(
        self,
        calls: Mapping[str, Call],
        queue: MessageQueue,
        wait_ms: int,
        delay_s: float,
        when: str,
    ) -> None:
        """Send a message while all wait. Raises ClientError."""
        body = self._bench.message().body
        sent = asyncio.Event()
        tasks = [
            asyncio.create_task(self._hold_one(name, call, body, sent, f"{wait_ms} ms, {when}"))
            for name, call in calls.items()
        ]
        try:
            await asyncio.sleep(delay_s)
            await self._producer.send(Message(topic=queue.topic, body=body), queue=queue)
            sent.set()
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _hold_one(
        self, name: str, call: Call, body: bytes, sent: asyncio.Event, what: str
    ) -> None:
        """Call until the message comes, or is late."""
        loop = asyncio.get_running_loop()
        found: list[bytes] = []
        errors: list[str] = []
        waiting = asyncio.create_task(sent.wait())
        sent_s: float | None = None
        while not found and not errors and (sent_s is None or loop.time() < sent_s + LATE_S):
            task = asyncio.ensure_future(call())
            try:
                await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
                if sent_s is None and waiting.done():
                    sent_s = loop.time()
                found += await task
                if not found:
                    await asyncio.sleep(AGAIN_S)  # a call may wait for no time at all
            except ClientError as error:
                errors.append(f"{type(error).__name__}: {error}")
            finally:
                task.cancel()
        waiting.cancel()
        took_s = 0.0 if sent_s is None else loop.time() - sent_s
        answered = f"{found}" if not errors else f"{errors}"
        if took_s > LATE_S:
            answered += f", {took_s:.1f} s behind its send"
        self._bench.hold(
            f"{name} that waits {what}: what comes", expected=f"{[body]}", answered=answered
        )


class _Pulls:
    """Held pulls, each from where the last one ended."""

    def __init__(self, reader: PullConsumer, queue: MessageQueue, wait_ms: int) -> None:
        self._reader = reader
        self._queue = queue
        self._wait_ms = wait_ms
        self._offset = 0

    async def call(self) -> list[bytes]:
        result = await self._reader.pull(self._queue, self._offset, suspend_ms=self._wait_ms)
        self._offset = result.next_begin_offset
        return [message.body for message in result.messages]


class _Pops:
    """Pops, each of which acknowledges what it has."""

    def __init__(
        self, popper: PopConsumer, queue: MessageQueue, wait_ms: int, *, in_order: bool
    ) -> None:
        self._popper = popper
        self._queue = queue
        self._wait_ms = wait_ms
        self._in_order = in_order

    async def call(self) -> list[bytes]:
        popped = await self._popper.pop(
            self._queue.topic,
            invisible_ms=INVISIBLE_MS,
            poll_ms=self._wait_ms,
            in_order=self._in_order,
            broker_name=self._queue.broker_name,
        )
        if popped:
            await self._popper.ack_all(popped)
        return [each.message.body for each in popped]


class _Polls:
    """Polls of a member."""

    def __init__(self, member: LitePullConsumer, wait_ms: int) -> None:
        self._member = member
        self._wait_ms = wait_ms

    async def call(self) -> list[bytes]:
        return [message.body for message in await self._member.poll(self._wait_ms)]
