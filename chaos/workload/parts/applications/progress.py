"""Progress that can't be committed for a while, and nothing new that would bring another commit.

Place in the data path: `client.consume.queue_consumer`. Members have taken messages, which their
listeners, or polls, consume while the drill's clients are cut off, so that the commits fail; behind
the cut nothing is sent any more.

Invariants: a member is stopped, or waits for its next commit, when one has failed; what is expected
of a commit that fails behind the cut, too, is nothing.

Source: RocketMQ DefaultMQPushConsumerImpl.persistConsumerOffset, RemoteBrokerOffsetStore
.persistAll; docs/CLIENT.md (offsets).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.common.whole_polls import poll_whole
from client.connection.retry import RetryPolicy
from client.consume.listener import ConsumerObserver, ConsumeStatus
from client.consume.lite_pull_consumer import LitePullConsumer
from client.consume.push_consumer import PushConsumer
from client.errors import ClientError
from client.message import DeliveredMessage, MessageQueue

__all__ = ["FailedCommits"]

IN_ORDER: Final = "push in order"
POLLS: Final = "poll"
WAYS: Final = ("push", IN_ORDER, POLLS)
WAITS: Final = "at the next commit"
STOPS: Final = "at its stop"
COMMITS: Final = "by a commit of its own"
ENDS: Final = (WAITS, STOPS, COMMITS)
MESSAGES: Final = 5
COMMIT_MS: Final = 400
SELDOM_MS: Final = 60_000  # between commits, where the application commits itself
TIMEOUT_MS: Final = 1_500
ATTEMPT_MS: Final = 500
TAKEN_S: Final = 4.0
FAILED_S: Final = 6.0
COMMITTED_S: Final = 6.0
POLL_MS: Final = 50


class _Member(ConsumerObserver):
    """A member that takes messages, consumes them when it may go on, and commits as `end` says."""

    def __init__(self, bench: Bench, way: str, end: str) -> None:
        self._bench = bench
        self._way = way
        self._end = end
        self._group = f"{bench.name}-{way.replace(' ', '-')}-{ENDS.index(end)}"
        self._may_go_on = asyncio.Event()
        self._has_left = False
        self._fails_later = False
        self.is_cut_off = True
        self.has_taken = False
        self.has_failed = False  # to commit all that was sent
        settings = {
            "commit_interval_ms": SELDOM_MS if end == COMMITS else COMMIT_MS,
            "timeout_ms": TIMEOUT_MS,
            "retry": RetryPolicy(attempt_timeout_ms=ATTEMPT_MS),
            "suspend_ms": 1_000,
        }
        self._polling: asyncio.Task[None] | None = None
        self._consumer: PushConsumer | LitePullConsumer
        if way == POLLS:
            lite = {"poll_batch_max": 2}
            self._consumer = bench.poller(self._group, self, lite=lite, **settings)
        else:
            self._consumer = bench.consumer(
                self._listen, self, group=self._group, ordered=way == IN_ORDER, **settings
            )
        self._consumer.subscribe(bench.topic)

    async def start(self) -> None:
        await self._consumer.start()
        if isinstance(self._consumer, LitePullConsumer):
            self._polling = asyncio.create_task(self._poll(self._consumer))

    async def leave(self) -> None:
        """Stop, where it has not been."""
        self._may_go_on.set()
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait([self._polling])
        if not self._has_left:
            self._has_left = True
            await self._consumer.stop()

    async def _listen(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        self.has_taken = True
        await self._may_go_on.wait()
        return ConsumeStatus.CONSUME_SUCCESS

    async def _poll(self, consumer: LitePullConsumer) -> None:
        while not await poll_whole(consumer, POLL_MS):
            continue
        self.has_taken = True
        await self._may_go_on.wait()
        while True:
            await poll_whole(consumer, POLL_MS)

    def committed(
        self,
        queue: MessageQueue,
        offset: int,
        error: ClientError | None,
        *,
        t_invoke: int,
        t_complete: int,
    ) -> None:
        if error is not None and self.is_cut_off:
            self.has_failed |= offset == MESSAGES
        elif error is not None:
            self._fails_later = True

    async def consume(self) -> None:
        """Consume what it has taken, and have a commit of it fail: over a new connection, since
        what waits in an old one may arrive behind the cut."""
        self._bench.drop_connections(self._consumer.instance)
        self._may_go_on.set()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + FAILED_S * self._bench.patience
        while not self.has_failed and loop.time() < end_s:
            if self._end == COMMITS:
                await self._consumer.commit()
            await self._bench.pause()

    async def end(self) -> None:
        """Commit once more, in this member's way."""
        self.is_cut_off = False
        if self._end == STOPS:
            await self.leave()
        elif self._end == COMMITS:
            await self._consumer.commit()

    async def hold(self, queue: MessageQueue) -> None:
        """Hold that all is committed. Raises ClientError."""
        if not self.has_failed:
            return  # it had not taken all: what it commits now is nothing special
        loop = asyncio.get_running_loop()
        end_s = loop.time() + COMMITTED_S * self._bench.patience
        while (offset := await self._committed(queue)) != MESSAGES and loop.time() < end_s:
            await self._bench.pause()
        is_known = self._end == WAITS or not self._fails_later
        self._bench.hold(
            f"what a member has committed ({self._way}) {self._end}, behind one that failed",
            expected=MESSAGES if is_known else None,
            answered=offset,
        )

    async def _committed(self, queue: MessageQueue) -> int:
        progress = await self._bench.admin.consumer_progress(self._group, queue.topic)
        return progress[queue].consumer_offset if queue in progress else 0


class FailedCommits:
    """A group for each way to consume and each occasion of a later commit, with one member each."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def run(self) -> None:
        """Have commits fail. Raises ClientError, LinksError."""
        bench = self._bench
        (queue,) = await bench.make_topic(1)
        async with bench.producer() as producer:
            for _ in range(MESSAGES):
                await producer.send(bench.message(), queue=queue)
        members = [_Member(bench, way, end) for way in WAYS for end in ENDS]
        async with contextlib.AsyncExitStack() as stack:
            for member in members:
                await member.start()
                stack.push_async_callback(member.leave)
            loop = asyncio.get_running_loop()
            end_s = loop.time() + TAKEN_S * self._bench.patience
            while not all(member.has_taken for member in members) and loop.time() < end_s:
                await bench.pause()
            async with bench.unheard(both=True):
                await asyncio.gather(*(member.consume() for member in members))
            await asyncio.gather(*(member.end() for member in members))
            await asyncio.gather(*(member.hold(queue) for member in members))
