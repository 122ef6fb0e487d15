"""Groups that retention has overtaken: they go on at the first message that is left.

Place in the data path: `broker.pull`, `broker.pop` and the consumers of `client`. Groups consume
the beginning of a topic and are away until the load is over; where the log has lost what they would
read next, by its size or age, they come back by a pull, a push, an orderly push, a poll and a pop.
Each message that is left is looked for by its key and its id, too, in an index of several files.

Invariants: without a loss, which is asked for first, nothing is expected; the first message that is
left is the brokers' word before and behind each question, since it may move in between.

Source: RocketMQ PullMessageProcessor (OFFSET_TOO_SMALL), PopMessageProcessor.getPopOffset,
IndexService.deleteExpiredFile (files all of whose records are gone).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.applications.bench import IN_FAULTS, Bench
from chaos.workload.parts.common.whole_polls import poll_whole
from client.consume.listener import ConsumeStatus
from client.errors import ClientError, NoMessageError
from client.message import DeliveredMessage, MessageQueue

__all__ = ["OvertakenGroups"]

QUEUES: Final = 2
BEGUN: Final = 1  # the offset from which each group would go on
EVERY_S: Final = 0.25
GIVEN_S: Final = 6.0
INVISIBLE_MS: Final = 30_000
RETRY_S: Final = 0.1

Given = dict[int, list[int]]  # by queue, the offsets in the order in which they came


class OvertakenGroups:
    """The topic, which is filled as long as the load lasts, and its groups."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._sent: dict[int, set[int]] = defaultdict(set)
        self._found_by: dict[tuple[int, int], tuple[str, str]] = {}  # key, UNIQ_KEY; by its place
        self._queues: list[MessageQueue] = []
        self._begun: set[str] = set()
        self._ways: dict[str, Callable[[str, Given], Awaitable[None]]] = {
            "push": self._push,
            "orderly": self._push_in_order,
            "lite": self._poll,
            "pop": self._pop,
        }

    async def fill(self, stop: asyncio.Event) -> None:
        """Send until `stop`; have the groups begin as soon as there is something."""
        bench = self._bench
        async with bench.producer(**IN_FAULTS) as producer:
            while not await sleep_until_set(stop, EVERY_S):
                try:
                    if not self._queues:
                        self._queues = await bench.make_topic(QUEUES)
                    for queue in self._queues:
                        message = bench.message(keys=[f"left-{len(self._found_by)}"])
                        sent = await producer.send(message, queue=queue)
                        self._sent[queue.queue_id].add(sent.queue_offset)
                        place = queue.queue_id, sent.queue_offset
                        self._found_by[place] = message.keys[0], sent.msg_id
                    await self._begin_groups()
                except ClientError:
                    await sleep_until_set(stop, RETRY_S)  # a leader is being replaced

    async def _begin_groups(self) -> None:
        """Have each group consume the first message of each queue. Raises ClientError."""
        bench = self._bench
        for way in self._ways.keys() - self._begun:
            group = self._group(way)
            if way == "pop":
                async with self._bench.popper(group) as popper:
                    for each in await popper.pop(bench.topic, invisible_ms=INVISIBLE_MS):
                        await popper.ack(each)
            else:
                async with self._bench.tool(group) as tool:
                    for queue in self._queues:
                        await tool.commit_offset(queue, BEGUN)
            self._begun.add(way)

    async def come_back(self) -> None:
        """Have each group go on. Raises ClientError."""
        bench = self._bench
        if not self._queues:
            return
        floors = await self._floors()
        if min(floors.values()) <= BEGUN:
            return
        await self._pull_below(floors)
        await self._look_up()
        for way in sorted(self._begun):
            given: Given = defaultdict(list)
            floors = await self._floors()
            await self._ways[way](way, given)
            later = await self._floors()
            for number, floor in floors.items():
                offsets = given[number]
                first = offsets[0] if offsets else None
                is_right = first is not None and floor <= first <= later[number]
                bench.hold(
                    f"where a group that retention has overtaken goes on, by {way}, in queue"
                    f" {number} whose first message is {floor}",
                    expected=floor,
                    answered=floor if is_right else first,
                )
                left = {at for at in self._sent[number] if at >= later[number]}
                bench.hold(
                    f"messages that are left of queue {number}, and not given by {way}",
                    expected="none",
                    answered=str(sorted(left - set(offsets))) if left - set(offsets) else "none",
                )

    async def _pull_below(self, floors: dict[int, int]) -> None:
        """Pull from offsets that are gone. Raises ClientError."""
        bench = self._bench
        for queue in self._queues:
            floor = floors[queue.queue_id]
            for offset in {0, bench.rng.randrange(floor), floor - 1}:
                suspend_ms = bench.rng.choice((0, 500))
                result = await bench.reader.pull(queue, offset, suspend_ms=suspend_ms)
                later = (await self._floors())[queue.queue_id]
                goes_on = result.next_begin_offset
                goes_on = floor if floor <= goes_on <= later else goes_on
                bench.hold(
                    f"where a pull from {offset} is to go on, of a queue that begins at {floor}",
                    expected=f"OFFSET_ILLEGAL {floor}",
                    answered=f"{result.status.value} {goes_on}",
                )

    async def _look_up(self) -> None:
        """Look for each message by its key and its id; what is left must be found. Raises
        ClientError."""
        bench, missing, count = self._bench, [], 0
        found: dict[tuple[int, int], bool] = {}
        for place, names in self._found_by.items():
            by_name = [
                await bench.admin.query_messages(bench.topic, name, unique=bool(is_id))
                for is_id, name in enumerate(names)
            ]
            found[place] = all(
                place in {(each.queue.queue_id, each.queue_offset) for each in messages}
                for messages in by_name
            )
        floors = await self._floors()
        for (number, offset), is_found in found.items():
            if offset >= floors[number]:
                count += 1
                missing += [] if is_found else [f"{number}:{offset}"]
        bench.hold(
            f"messages among the {count} left that are not found by key and id",
            expected="none",
            answered=" ".join(missing) or "none",
        )

    async def _floors(self) -> dict[int, int]:
        return {
            queue.queue_id: await self._bench.reader.min_offset(queue) for queue in self._queues
        }

    def _group(self, way: str) -> str:
        return f"{self._bench.name}-{way}"

    # Ways to come back ---------------------------------------------------------------------------

    def _is_left(self, given: Given) -> int:
        """Return how many queues have not been read to their end."""
        return sum(
            max(self._sent[queue.queue_id]) not in given[queue.queue_id] for queue in self._queues
        )

    async def _push(self, way: str, given: Given, *, ordered: bool = False) -> None:
        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            for message in messages:
                given[message.queue.queue_id].append(message.queue_offset)
            return ConsumeStatus.CONSUME_SUCCESS

        consumer = self._bench.consumer(
            listen, group=self._group(way), ordered=ordered, suspend_ms=1_000
        )
        consumer.subscribe(self._bench.topic)
        async with consumer:
            await self._await_all(given)

    async def _push_in_order(self, way: str, given: Given) -> None:
        await self._push(way, given, ordered=True)

    async def _await_all(self, given: Given) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + GIVEN_S * self._bench.patience
        while self._is_left(given) and loop.time() < end_s:
            await self._bench.pause()

    async def _poll(self, way: str, given: Given) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + GIVEN_S * self._bench.patience
        consumer = self._bench.poller(self._group(way), suspend_ms=1_000)
        consumer.subscribe(self._bench.topic)
        async with consumer:
            while self._is_left(given) and loop.time() < end_s:
                for message in await poll_whole(consumer, 200):
                    given[message.queue.queue_id].append(message.queue_offset)

    async def _pop(self, way: str, given: Given) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + GIVEN_S * self._bench.patience
        async with self._bench.popper(self._group(way)) as popper:
            while self._is_left(given) and loop.time() < end_s:
                popped = await popper.pop(
                    self._bench.topic, count_max=32, invisible_ms=INVISIBLE_MS, poll_ms=200
                )
                for each in popped:
                    given[each.message.queue.queue_id].append(each.message.queue_offset)
                    with contextlib.suppress(NoMessageError):  # retention has passed it meanwhile
                        await popper.ack(each)
