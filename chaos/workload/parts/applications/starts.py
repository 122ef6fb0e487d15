"""Where new groups begin in queues that have all of their messages still: at the first one,
whatever they ask for, since who wants the last one would miss those that are sent while it starts.

Place in the data path: the start of a queue in `client.consume`, and the broker's answer to a query
for an offset that nobody has committed; a group for each way to consume and each place to begin,
in a topic that was filled before.

Invariant: a broker may have removed the first messages meanwhile; then nothing is held.

Source: RocketMQ ConsumerManageProcessor.queryConsumerOffset, RebalancePushImpl
(computePullFromWhere); docs/CLIENT.md (consume_from).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.common.whole_polls import poll_whole
from client.connection.heartbeat import ConsumeFrom
from client.consume.listener import ConsumeStatus
from client.consume.lite_pull_consumer import LitePullConsumer
from client.message import DeliveredMessage, MessageQueue

__all__ = ["StartedGroups"]

QUEUES: Final = 2
MESSAGES: Final = 3  # of a queue
GIVEN_S: Final = 15.0
POLL_MS: Final = 200
LONG_AGO_MS: Final = 86_400_000  # of 1970
_BEGINS: Final = (ConsumeFrom.FIRST, ConsumeFrom.LAST, ConsumeFrom.TIMESTAMP)


class StartedGroups:
    """One group after another, each with one member that starts."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._given: dict[str, set[tuple[int, int]]] = defaultdict(set)  # queues and offsets

    async def run(self) -> None:
        """Fill the topic, and have all groups start. Raises ClientError."""
        bench = self._bench
        queues = await bench.make_topic(QUEUES)
        async with contextlib.AsyncExitStack() as stack:
            producer = await stack.enter_async_context(bench.producer())
            for queue in queues:
                for _ in range(MESSAGES):
                    await producer.send(bench.message(), queue=queue)
            groups: list[str] = []
            for begin in _BEGINS:
                settings: dict[str, Any] = {
                    "consume_from": begin,
                    "consume_from_timestamp_ms": LONG_AGO_MS,
                    "suspend_ms": 500,
                }
                for way in ("push", "push-in-order", "poll"):
                    group = f"{bench.name}-{way}-{begin.name.lower()}"
                    groups.append(group)
                    if way == "poll":
                        poller = bench.poller(group, **settings)
                        poller.subscribe(bench.topic)
                        await stack.enter_async_context(poller)
                        polling = asyncio.create_task(self._poll(group, poller))
                        stack.push_async_callback(_end, polling)
                        continue
                    pushed = bench.consumer(
                        _Listener(self._given[group]),
                        group=group,
                        ordered=way == "push-in-order",
                        **settings,
                    )
                    pushed.subscribe(bench.topic)
                    await stack.enter_async_context(pushed)
            everything = {(q.queue_id, offset) for q in queues for offset in range(MESSAGES)}
            await self._hold(groups, everything, queues)

    async def _hold(
        self, groups: Sequence[str], everything: set[tuple[int, int]], queues: list[MessageQueue]
    ) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + GIVEN_S * self._bench.patience
        while loop.time() < end_s and any(self._given[group] != everything for group in groups):
            await self._bench.pause()
        if any([await self._bench.reader.min_offset(queue) for queue in queues]):
            return  # retention has been there
        for group in groups:
            self._bench.hold(
                f"what a new group is given, {group}",
                expected=sorted(everything),
                answered=sorted(self._given[group]),
            )

    async def _poll(self, group: str, member: LitePullConsumer) -> None:
        while True:
            self._given[group] |= _places(await poll_whole(member, POLL_MS))


class _Listener:
    """Notes what it is given."""

    def __init__(self, given: set[tuple[int, int]]) -> None:
        self._given = given

    async def __call__(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        self._given |= _places(messages)
        return ConsumeStatus.CONSUME_SUCCESS


def _places(messages: Sequence[DeliveredMessage]) -> set[tuple[int, int]]:
    return {(message.queue.queue_id, message.queue_offset) for message in messages}


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
