"""A member that polls: how many messages come, in which order, for how long it waits, and what is
committed when.

Place in the data path: `client.consume.lite_pull_consumer`, alone in its group, in a topic of two
queues that is filled before.

Invariants: what a poll returned counts as consumed with the next poll or commit, not before; the
group's offset is read by a client of its own.

Source: docs/CLIENT.md (lite pull); RocketMQ DefaultLitePullConsumer.poll, commitSync, pause, seek.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, Final

from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.common.whole_polls import poll_whole
from client.consume.lite_pull_consumer import LitePullConsumer
from client.consume.pull_consumer import PullConsumer
from client.message import DeliveredMessage, MessageQueue

__all__ = ["PollingMember"]

QUEUES: Final = 2
MESSAGES: Final = 9  # of a queue
BATCHES: Final = (1, 2, 4, 32)
GIVEN_S: Final = 5.0
EMPTY_MS: Final = 250
LATE_S: Final = 1.0
EARLY_S: Final = 0.05
QUIET_S: Final = 1.0
COMMIT_MS: Final = 150
STAGED_MAX: Final = 4  # that a poll may return of batches that wait


class PollingMember:
    """One member after another, of one group."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._group = f"{bench.name}-members"
        self._queues: list[MessageQueue] = []
        self._sent = 0  # messages of each queue
        self._polled: dict[MessageQueue, list[int]] = defaultdict(list)

    async def run(self) -> None:
        """Poll, commit, crash, seek and pause. Raises ClientError."""
        bench = self._bench
        self._queues = await bench.make_topic(QUEUES)
        tool = bench.tool(self._group)
        async with bench.producer() as self._producer, tool:
            await self._send(MESSAGES)
            await self._crash_behind_a_poll(tool)
            async with self._member() as member:
                await self._poll_all(member)
                await self._hold_empty(member)
                await member.commit()
                await self._hold_offsets(tool, [self._sent] * QUEUES, "behind a commit")
                await self._seek(member)
                await self._pause(member)
            await self._hold_offsets(tool, [self._sent] * QUEUES, "when its member has left")
            await self._poll_staged()

    def _member(self, batch_max: int | None = None, **settings: Any) -> LitePullConsumer:
        bench = self._bench
        self._batch_max = batch_max or bench.rng.choice(BATCHES)
        member = bench.poller(
            self._group,
            lite={"poll_batch_max": self._batch_max},
            suspend_ms=500,
            commit_interval_ms=COMMIT_MS,
            **settings,
        )
        member.subscribe(bench.topic)
        return member

    async def _send(self, count: int) -> None:
        for queue in self._queues:
            for _ in range(count):
                await self._producer.send(self._bench.message(), queue=queue)
        self._sent += count

    # Polls -------------------------------------------------------------------------------------

    async def _poll(self, member: LitePullConsumer) -> list[DeliveredMessage]:
        """Poll once; hold how many came, and that those of a queue are the next ones."""
        messages = await poll_whole(member, 1_000)
        within = len(messages) <= self._batch_max
        self._bench.hold(
            f"messages of a poll of {self._batch_max} at most",
            expected="no more",
            answered="no more" if within else len(messages),
            is_calm=False,
        )
        for message in messages:
            self._polled[message.queue].append(message.queue_offset)
        return messages

    async def _poll_all(self, member: LitePullConsumer) -> None:
        """Poll until all that was sent has come, once and in order."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + GIVEN_S * self._bench.patience
        self._polled.clear()
        expected = {queue: list(range(self._sent)) for queue in self._queues}
        while dict(self._polled) != expected and loop.time() < end_s:
            await self._poll(member)
        self._bench.hold(
            "offsets of both queues that a member polls",
            expected=[expected[queue] for queue in self._queues],
            answered=[self._polled[queue] for queue in self._queues],
        )

    async def _poll_staged(self) -> None:
        """Have a batch of each queue wait that is less than a poll may return, and both together
        more, then poll them. Raises ClientError."""
        bench, batch = self._bench, STAGED_MAX - 1
        async with self._member(STAGED_MAX) as member:
            if not await bench.becomes(
                "queues of the only member, before it polls",
                lambda: sum(queue.topic == bench.topic for queue in member.queues),
                expected=QUEUES,
                within_s=GIVEN_S,
            ):
                return
            for queue in self._queues:
                await self._producer.send_batch(
                    [bench.message() for _ in range(batch)], queue=queue
                )
            await asyncio.sleep(QUIET_S)
            sent = list(range(self._sent, self._sent + batch))
            expected = dict.fromkeys(self._queues, sent)
            await self._hold_polled(member, expected, "when they have waited", poll=self._poll)

    async def _crash_behind_a_poll(self, tool: PullConsumer) -> None:
        """Poll once, let the time for a commit pass, and crash: nothing is committed."""
        member = self._member()
        await member.start()
        try:
            loop = asyncio.get_running_loop()
            end_s = loop.time() + GIVEN_S * self._bench.patience
            while not await self._poll(member) and loop.time() < end_s:
                await self._bench.pause()
            await asyncio.sleep(4 * COMMIT_MS / 1000)
            await self._hold_offsets(tool, [0] * QUEUES, "behind a first poll")
        finally:
            await member.crash()

    async def _hold_empty(self, member: LitePullConsumer) -> None:
        """Hold that a poll without messages lasts for its time."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        messages = await member.poll(EMPTY_MS)
        took_s = loop.time() - began_s
        late_s = EMPTY_MS / 1000 + LATE_S * self._bench.patience
        is_right = EMPTY_MS / 1000 - EARLY_S <= took_s <= late_s
        self._bench.hold(
            f"a poll of {EMPTY_MS} ms when there is nothing",
            expected="nothing, and its time",
            answered="nothing, and its time"
            if is_right and not messages
            else f"{len(messages)} messages in {took_s:.3f} s",
        )

    # Positions ---------------------------------------------------------------------------------

    async def _seek(self, member: LitePullConsumer) -> None:
        """Go back in one queue: the next polls have what follows, and only that."""
        queue = self._bench.rng.choice(self._queues)
        offset = self._bench.rng.randrange(self._sent)
        await member.seek(queue, offset)
        await self._hold_polled(
            member, {queue: list(range(offset, self._sent))}, f"behind a seek to {offset}"
        )

    async def _pause(self, member: LitePullConsumer) -> None:
        """Pause one queue: what is sent then comes of the other one only, until it is resumed."""
        paused = self._bench.rng.choice(self._queues)
        member.pause([paused])
        begin = self._sent
        await self._send(2)
        new = list(range(begin, self._sent))
        others = {queue: new for queue in self._queues if queue != paused}
        await self._hold_polled(member, others, "of a member that paused a queue")
        await asyncio.sleep(QUIET_S)
        await self._hold_polled(member, {}, "of a member that paused a queue, later", within_s=0.3)
        member.resume([paused])
        await self._hold_polled(member, {paused: new}, "of a queue that was resumed")

    async def _hold_polled(
        self,
        member: LitePullConsumer,
        expected: dict[MessageQueue, list[int]],
        what: str,
        within_s: float = GIVEN_S,
        poll: Callable[[LitePullConsumer], Awaitable[object]] | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s * self._bench.patience
        poll = poll or self._poll_some
        self._polled.clear()
        await poll(member)
        while dict(self._polled) != expected and loop.time() < end_s:
            await poll(member)
        self._bench.hold(
            f"offsets that are polled {what}",
            expected=sorted(expected.items()),
            answered=sorted(self._polled.items()),
        )

    async def _poll_some(self, member: LitePullConsumer) -> None:
        for message in await poll_whole(member, 100):
            self._polled[message.queue].append(message.queue_offset)

    async def _hold_offsets(self, tool: PullConsumer, expected: list[int], when: str) -> None:
        offsets = [await tool.fetch_offset(queue) or 0 for queue in self._queues]
        self._bench.hold(
            f"offsets of a group that polls, {when}", expected=expected, answered=offsets
        )
