"""A member that polls nothing for a while, and loses a queue to another one meanwhile, or gives up
its subscription: of what it had not polled, nothing is returned any more.

Place in the data path: `client.consume.lite_pull_consumer`, whose members have messages of each
queue laid out for the next poll when they lose it.

Invariants: the time for which a queue waits for a poll is over before the member polls again; what
it had polled last was not consumed, and is the new owner's, too.

Source: RocketMQ DefaultLitePullConsumerImpl (AssignedMessageQueue, ProcessQueue.isDropped); the
invariants of docs/CLIENT.md (lite pull).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.common.whole_polls import poll_whole
from client.consume.lite_pull_consumer import LitePullConsumer
from client.message import MessageQueue

__all__ = ["TakenQueues"]

QUEUES: Final = 4
SENT: Final = 6  # messages of a queue, each time
RELEASE_MS: Final = 300
RELEASED_S: Final = 1.0
LAID_OUT_S: Final = 0.4
SHARED_S: Final = 5.0
GIVEN_S: Final = 5.0
POLL_MS: Final = 100
COMMIT_MS: Final = 200

Polled = dict[MessageQueue, list[int]]


class TakenQueues:
    """One group: a member that is lazy, and one that comes."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._queues: list[MessageQueue] = []
        self._producer = bench.producer()
        self._sent = 0  # messages of each queue

    async def run(self) -> None:
        """Lose a queue to another member, and all by the end of a subscription. Raises
        ClientError."""
        bench = self._bench
        self._queues = await bench.make_topic(QUEUES)
        group = f"{bench.name}-members"
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._producer)
            await self._send()
            lazy = await stack.enter_async_context(self._member(group))
            marked, polled = await self._poll_some(lazy)
            other = await stack.enter_async_context(self._member(group))
            taken: Polled = defaultdict(list)
            polling = asyncio.create_task(self._poll_on(other, taken))
            stack.push_async_callback(_end, polling)
            await self._owns(lazy, QUEUES // 2, "another came")
            await self._owns(other, QUEUES // 2, "it came")
            await asyncio.sleep(RELEASED_S)
            lost = [queue for queue in self._queues if queue not in lazy.queues]
            await self._hold_left(lazy, polled, lost)
            await self._hold_taken(taken, {queue: len(marked[queue]) for queue in lost})
            begin = self._sent
            await self._send()
            polled.clear()
            await self._hold_left(lazy, polled, lost, begin)
            await self._hold_taken(taken, dict.fromkeys(lost, begin))
            await self._unsubscribe(lazy)

    def _member(self, group: str) -> LitePullConsumer:
        member = self._bench.poller(
            group,
            lite={"poll_batch_max": 2, "release_timeout_ms": RELEASE_MS},
            suspend_ms=500,
            commit_interval_ms=COMMIT_MS,
        )
        member.subscribe(self._bench.topic)
        return member

    async def _send(self) -> None:
        for queue in self._queues:
            for _ in range(SENT):
                await self._producer.send(self._bench.message(), queue=queue)
        self._sent += SENT

    async def _poll_some(self, member: LitePullConsumer) -> tuple[Polled, Polled]:
        """Poll a few times; return what counts as consumed then, and all that was returned."""
        await self._owns(member, QUEUES, "it was alone")
        marked: Polled = defaultdict(list)
        polled: Polled = defaultdict(list)
        for _ in range(self._bench.rng.randint(1, SENT // 2)):
            for queue, offsets in polled.items():
                marked[queue] = list(offsets)
            await self._poll(member, polled)
        await asyncio.sleep(LAID_OUT_S)
        return marked, polled

    async def _poll(self, member: LitePullConsumer, polled: Polled) -> None:
        for message in await poll_whole(member, POLL_MS):
            polled[message.queue].append(message.queue_offset)

    async def _poll_on(self, member: LitePullConsumer, polled: Polled) -> None:
        while True:
            await self._poll(member, polled)

    async def _owns(self, member: LitePullConsumer, count: int, when: str) -> None:
        await self._bench.becomes(
            f"queues of a member that polls, when {when}",
            lambda: sum(queue.topic == self._bench.topic for queue in member.queues),
            expected=count,
            within_s=SHARED_S,
        )

    async def _hold_left(
        self, member: LitePullConsumer, polled: Polled, lost: list[MessageQueue], begin: int = 0
    ) -> None:
        """Have the lazy member poll what is left to it; hold that nothing else is returned."""
        own = [queue for queue in self._queues if queue not in lost]
        more: Polled = defaultdict(list)
        loop = asyncio.get_running_loop()
        end_s = loop.time() + GIVEN_S * self._bench.patience
        expected = {queue: list(range(begin + len(polled[queue]), self._sent)) for queue in own}
        await self._poll(member, more)
        while any(more[queue] != expected[queue] for queue in own) and loop.time() < end_s:
            await self._poll(member, more)
        await self._poll(member, more)
        self._bench.hold(
            "offsets of its own queues that a member polls which has lost others",
            expected=[expected[queue] for queue in own],
            answered=[more[queue] for queue in own],
        )
        self._bench.hold(
            "offsets that a member polls of a queue which it has lost",
            expected=[[] for _ in lost],
            answered=[more[queue] for queue in lost],
        )

    async def _hold_taken(self, taken: Polled, begins: dict[MessageQueue, int]) -> None:
        """Hold that the other member polls all of its queues, from these offsets on."""
        await self._bench.becomes(
            "offsets that a member does not poll of a queue which it has taken",
            lambda: [
                sorted(set(range(begin, self._sent)) - set(taken[queue]))
                for queue, begin in begins.items()
            ],
            expected=[[] for _ in begins],
            within_s=GIVEN_S,
        )

    async def _unsubscribe(self, member: LitePullConsumer) -> None:
        """Unsubscribe while messages are laid out; hold that none of them is returned."""
        await self._send()
        await asyncio.sleep(LAID_OUT_S)
        member.unsubscribe(self._bench.topic)
        await self._owns(member, 0, "it had unsubscribed")
        await asyncio.sleep(RELEASED_S)
        polled: Polled = defaultdict(list)
        await self._poll(member, polled)
        self._bench.hold(
            "what a member polls that has unsubscribed", expected={}, answered=dict(polled)
        )


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
