"""Kinds of things that a broker group can be filled with, each by its own requests.

Place in the data path: `benchmarks.growth.__main__` has one kind grow in a cluster of its own,
while everything else stays as it is. Each filler adds what is missing to `count` things and returns
once all of it is applied at the leader.

Invariants: at most `_IN_FLIGHT` requests are under way; a refusal ends the fill with its remark, so
that a figure never stands for fewer things than it says.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from remoting.connections.rpc import RemotingClient
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.headers import (
    CreateTopicRequestHeader,
    Header,
    PopMessageRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from remoting.records.message import BatchItem, encode_batch_body

__all__ = ["KINDS", "FillError", "Filler", "Kind", "filler"]

_IN_FLIGHT: Final = 128
_TIMEOUT_MS: Final = 60_000
_BATCH: Final = 32
_QUEUES_A_TOPIC: Final = 1_000
_TOPICS_A_GROUP: Final = 100
_POPPED_QUEUES: Final = 200
_HOUR_S: Final = 3_600
_HELD_MS: Final = 3_600_000
_BODY: Final = bytes(1_024)
_SMALL: Final = bytes(64)
_PULL_HELD: Final = 2 | 4  # wait for a message; the subscription is in the request


FindLeader: TypeAlias = Callable[[], Awaitable[str]]


class FillError(Exception):
    """A request of a fill was refused; the text is the answer's."""


def _is_unknown(answer: RemotingCommand) -> bool:
    """Return whether the outcome is unknown: a send may be repeated under its key."""
    return answer.code == ResponseCode.SYSTEM_ERROR and "outcome unknown" in (answer.remark or "")


def _named(properties: Iterable[tuple[str, str]]) -> str:
    return "".join([f"{name}\x01{value}\x02" for name, value in properties])


class Filler:
    """The group to fill, and how many things of its kind it has."""

    def __init__(self, find_leader: FindLeader, count: int, stack: AsyncExitStack) -> None:
        self._find_leader = find_leader
        self.leader = ""
        self.count = count
        self.stack = stack
        self.client = RemotingClient()
        self._key = 0

    async def request(self, code: RequestCode, header: Header, body: bytes = b"") -> None:
        """Send one request, to the next leader where leadership has moved, and wait for its answer.
        Raises FillError."""
        command = RemotingCommand(code=code, ext_fields=header.to_ext_fields(), body=body)
        answer = await self.client.request(self.leader, command, _TIMEOUT_MS)
        if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE or _is_unknown(answer):
            self.leader = await self._find_leader()
            answer = await self.client.request(self.leader, command, _TIMEOUT_MS)
        if answer.code:
            raise FillError(f"{code.name}: {answer.code} {answer.remark}")

    async def start(self) -> None:
        self.leader = await self._find_leader()

    async def each(self, work: Callable[[int], Awaitable[None]], first: int, end: int) -> None:
        """Call `work` for each number, several at a time."""
        numbers = iter(range(first, end))

        async def worker() -> None:
            for number in numbers:
                await work(number)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(_IN_FLIGHT, end - first)):
                group.create_task(worker())

    async def topic(self, name: str, queues: int) -> None:
        header = CreateTopicRequestHeader(
            topic=name,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        await self.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def send(self, topic: str, queue: int, *properties: tuple[str, str]) -> None:
        """Send one small message under a key of its own."""
        text = _named([("UNIQ_KEY", self.next_key()), *properties])
        header = _send_header(topic, queue, text, is_batch=False)
        await self.request(RequestCode.SEND_MESSAGE_V2, header, _SMALL)

    async def send_batch(self, topic: str, queue: int, body: bytes) -> None:
        items = [
            BatchItem(body, _named([("UNIQ_KEY", self.next_key())]).encode()) for _ in range(_BATCH)
        ]
        header = _send_header(topic, queue, "", is_batch=True)
        await self.request(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch_body(items))

    def next_key(self) -> str:
        self._key += 1
        return f"{time.time_ns():016X}{self._key:016X}"


def _send_header(
    topic: str, queue: int, properties: str, *, is_batch: bool
) -> SendMessageRequestHeader:
    return SendMessageRequestHeader(
        producer_group="growth",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue,
        sys_flag=0,
        born_timestamp_ms=time.time_ns() // 1_000_000,
        flag=0,
        properties=properties,
        reconsume_times=0,
        batch=is_batch,
    )


@asynccontextmanager
async def filler(find_leader: FindLeader, count: int) -> AsyncIterator[Filler]:
    """Yield a filler of a group that has `count` things already. Its connections are closed at the
    end, and what they held goes with them."""
    async with AsyncExitStack() as stack:
        made = Filler(find_leader, count, stack)
        await made.start()
        stack.push_async_callback(made.client.close)
        yield made


# The kinds ---------------------------------------------------------------------------------------


async def _topics(fill: Filler, count: int) -> None:
    await fill.each(lambda number: fill.topic(f"topic-{number}", 4), fill.count, count)


async def _queues(fill: Filler, count: int) -> None:
    """Topics of a thousand queues each, with one message in every queue: only then it is there."""
    for number in range(fill.count // _QUEUES_A_TOPIC, -(-count // _QUEUES_A_TOPIC)):
        await fill.topic(f"wide-{number}", min(count, _QUEUES_A_TOPIC))

    async def work(number: int) -> None:
        await fill.send(f"wide-{number // _QUEUES_A_TOPIC}", number % _QUEUES_A_TOPIC)

    await fill.each(work, fill.count, count)


async def _connections(fill: Filler, count: int) -> None:
    """Clients that said who they are and are silent since."""

    async def work(number: int) -> None:
        client = RemotingClient()
        fill.stack.push_async_callback(client.close)
        body = {
            "clientID": f"growth@{number}",
            "producerDataSet": [{"groupName": f"producers-{number % 100}"}],
            "consumerDataSet": [],
        }
        command = RemotingCommand(code=RequestCode.HEART_BEAT, body=json.dumps(body).encode())
        answer = await client.request(fill.leader, command, _TIMEOUT_MS)
        if answer.code:
            raise FillError(f"HEART_BEAT: {answer.code} {answer.remark}")

    await fill.each(work, fill.count, count)


async def _offsets(fill: Filler, count: int) -> None:
    """Offsets of consumer groups, a hundred queues each."""

    async def work(number: int) -> None:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=f"group-{number // _TOPICS_A_GROUP}",
            topic="Wide",
            queue_id=number % _TOPICS_A_GROUP,
            commit_offset=0,
        )
        await fill.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)

    await fill.topic("Wide", _TOPICS_A_GROUP)
    await fill.each(work, fill.count, count)


async def _held_pulls(fill: Filler, count: int) -> None:
    """Pulls of queues without a message: none is answered while the filler lives."""
    await fill.topic("Empty", 100)
    held: list[asyncio.Task[RemotingCommand]] = []
    for number in range(fill.count, count):
        header = PullMessageRequestHeader(
            consumer_group=f"waiting-{number // 100}",
            topic="Empty",
            queue_id=number % 100,
            queue_offset=0,
            max_msg_nums=32,
            sys_flag=_PULL_HELD,
            suspend_timeout_ms=_HELD_MS,
            subscription="*",
            expression_type="TAG",
        )
        command = RemotingCommand(code=RequestCode.PULL_MESSAGE, ext_fields=header.to_ext_fields())
        held.append(asyncio.create_task(fill.client.request(fill.leader, command, _HELD_MS)))
        if not number % _IN_FLIGHT:
            await asyncio.sleep(0)
    await fill.topic("Empty", 100)  # behind them on the same connection
    for task in held:
        if task.done():
            raise FillError(f"a pull was not held: {task.result()}")
        fill.stack.callback(task.cancel)


async def _stored(fill: Filler, count: int) -> None:
    await fill.topic("Stored", 4)
    first, end = -(-fill.count // _BATCH), -(-count // _BATCH)
    await fill.each(lambda number: fill.send_batch("Stored", number % 4, _BODY), first, end)


async def _halves(fill: Filler, count: int) -> None:
    await fill.topic("Decided", 4)

    async def work(number: int) -> None:
        await fill.send("Decided", number % 4, ("TRAN_MSG", "true"), ("PGROUP", "nobody"))

    await fill.each(work, fill.count, count)


async def _popped(fill: Filler, count: int) -> None:
    """Messages that were popped for an hour and not acknowledged: at most 10,000 of a queue may be,
    and 200,000 in all."""
    await fill.topic("Popped", _POPPED_QUEUES)

    async def work(number: int) -> None:
        await fill.send_batch("Popped", number % _POPPED_QUEUES, _SMALL)
        header = PopMessageRequestHeader(
            consumer_group="poppers",
            topic="Popped",
            queue_id=number % _POPPED_QUEUES,
            max_msg_nums=_BATCH,
            invisible_ms=_HOUR_S * 1_000,
            poll_ms=0,
            init_mode=0,
            born_ms=time.time_ns() // 1_000_000,
        )
        await fill.request(RequestCode.POP_MESSAGE, header)

    await fill.each(work, -(-fill.count // _BATCH), -(-count // _BATCH))


async def _timers(fill: Filler, count: int) -> None:
    """Messages that fall due in two to three hours."""
    await fill.topic("Later", 4)

    async def work(number: int) -> None:
        after_s = 2 * _HOUR_S + number % _HOUR_S
        await fill.send("Later", number % 4, ("TIMER_DELAY_SEC", str(after_s)))

    await fill.each(work, fill.count, count)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of thing, how many of them are compared, and whether they outlive the filler."""

    fill: Callable[[Filler, int], Awaitable[None]]
    counts: tuple[int, ...]
    lasts: bool = True


KINDS: Final = {
    "topics": Kind(_topics, (10, 100, 1_000, 9_000)),
    "queues": Kind(_queues, (100, 1_000, 10_000, 100_000)),
    "connections": Kind(_connections, (5, 50, 500, 4_000), lasts=False),
    "consumer offsets": Kind(_offsets, (1_000, 10_000, 100_000)),
    "held pulls": Kind(_held_pulls, (30, 300, 3_000, 30_000), lasts=False),
    "stored messages": Kind(_stored, (1_000, 10_000, 100_000, 1_000_000)),
    "undecided halves": Kind(_halves, (100, 1_000, 10_000, 100_000)),
    "popped messages": Kind(_popped, (1_000, 10_000, 100_000, 190_000)),
    "timers": Kind(_timers, (400, 4_000, 40_000, 390_000)),
}
