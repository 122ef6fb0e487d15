"""The campaigns of `campaigns.py` with our own clients: the same lines as `Campaigns.java`.

`python -m campaigns.interop.python_campaigns campaign kills|members NAME_SERVERS SECONDS SETTLE_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import uvloop

from campaigns.interop.python_program import Seen, message, report
from client.administer.admin import Admin
from client.connection.heartbeat import ConsumeFrom
from client.consume.listener import ConsumerObserver, PushConsumerSettings
from client.consume.pull_consumer import PullConsumer
from client.consume.push_consumer import PushConsumer
from client.errors import ClientError
from client.message import DeliveredMessage, Message, MessageQueue
from client.produce.producer import Producer
from client.produce.transaction_producer import Decision, HalfMessage, TransactionProducer

MEMBERS = 10
QUEUES = 16
CHANGE_S = 2.0
OWNED_MS_MAX = 2_000
PAUSE_S = 0.005
SETTLED_S = 10.0  # watched so long after the last change


@dataclass
class Tally:
    """What one kind of producer was answered."""

    acknowledged: set[str] = field(default_factory=set)
    failed: int = 0
    unknown: int = 0
    last: float = field(default_factory=time.monotonic)
    gap_ms_max: float = 0

    def acknowledge(self, key: str) -> None:
        self.acknowledged.add(key)
        now = time.monotonic()
        self.gap_ms_max = max(self.gap_ms_max, (now - self.last) * 1000)
        self.last = now


async def keep_sending(
    tally: Tally, prefix: str, topic: str, send: Callable[[Message], Awaitable[object]]
) -> None:
    """Each message once, as far as the application goes, until cancelled."""
    for number in itertools.count():
        # Every fifth half waits for a check, half of those to be rolled back.
        key = f"{_kind_of(number) if prefix == 'c' else prefix}{number}"
        try:
            await send(message(topic, "A", key))
        except ClientError as error:
            tally.failed += error.definite
            tally.unknown += not error.definite
        else:
            tally.acknowledge(key)
        await asyncio.sleep(PAUSE_S)


def _kind_of(number: int) -> str:
    return {3: "r", 5: "uc", 7: "ur"}.get(number % 10, "c")


def _is_committed(key: str) -> bool:
    return key.startswith(("c", "uc"))


class Decisions:
    """The local transactions of `kills`."""

    def __init__(self) -> None:
        self.checked: set[str] = set()

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        return {"c": Decision.COMMIT, "r": Decision.ROLLBACK}.get(
            message.keys[0][0], Decision.UNKNOWN
        )

    async def check_local(self, message: DeliveredMessage) -> Decision:
        key = message.keys[0]
        self.checked.add(key)
        return Decision.COMMIT if _is_committed(key) else Decision.ROLLBACK


class Owned(ConsumerObserver):
    """Which queues one member owns."""

    def __init__(self) -> None:
        self.queues: Sequence[MessageQueue] = ()

    def assigned(self, queues: Sequence[MessageQueue], *, t: int) -> None:
        self.queues = [queue for queue in queues if not queue.topic.startswith("%")]


class Member:
    """A consumer of a group, which may leave."""

    def __init__(self, group: str, topic: str, servers: list[str]) -> None:
        self.seen = Seen()
        self.owned = Owned()
        self.consumer = PushConsumer(
            group,
            servers,
            self.seen.take,
            settings=PushConsumerSettings(consume_from=ConsumeFrom.FIRST),
            observer=self.owned,
        )
        self.consumer.subscribe(topic)


async def stored_twice(topic: str, servers: list[str]) -> int:
    """Messages that stand at more than one place of the topic's queues."""
    counts: Counter[str] = Counter()
    async with PullConsumer("reader", servers) as reader:
        for queue in await reader.queues(topic):
            offset, end = await reader.min_offset(queue), await reader.max_offset(queue)
            while offset < end:
                result = await reader.pull(queue, offset)
                counts.update(each.keys[0] for each in result.messages)
                offset = result.next_begin_offset
    return sum(times > 1 for times in counts.values())


async def until(holds: Callable[[], bool], seconds: float) -> None:
    """Until it holds, or time is up."""
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        await asyncio.sleep(0.05)


async def request(event: str) -> None:
    """Whoever started this program has done its part."""
    report({"event": event})
    await asyncio.to_thread(sys.stdin.readline)


async def end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


class Campaigns:
    def __init__(self, servers: list[str], load_s: float, settle_s: float) -> None:
        self._servers = servers
        self._load_s = load_s
        self._settle_s = settle_s
        self._run = f"{int(time.time() * 1000) % 10**8:x}"
        self._stack = contextlib.AsyncExitStack()

    async def run(self, name: str) -> None:
        async with self._stack:
            await {"kills": self.kills, "members": self.members}[name]()

    async def _topic(self, name: str, queues: int = 4) -> str:
        topic = f"{name}_{self._run}"
        async with Admin(self._servers) as admin:
            await admin.create_topic(topic, queues=queues)
        return topic

    async def kills(self) -> None:
        """A producer, a transactional producer, a consumer of each; settings are the defaults."""
        enter = self._stack.enter_async_context
        topic, decided_topic = await self._topic("kp"), await self._topic("kd")
        decisions = Decisions()
        producer = await enter(Producer(f"kp{self._run}", self._servers))
        transactions = await enter(TransactionProducer(f"kt{self._run}", self._servers, decisions))
        plain = Member(f"kgp{self._run}", topic, self._servers)
        decided = Member(f"kgd{self._run}", decided_topic, self._servers)
        await enter(plain.consumer)
        await enter(decided.consumer)
        sent, halves = Tally(), Tally()
        tasks = [
            asyncio.create_task(keep_sending(sent, f"m{number}-", topic, producer.send))
            for number in range(2)
        ]
        tasks.append(
            asyncio.create_task(
                keep_sending(halves, "c", decided_topic, transactions.send_in_transaction)
            )
        )
        await request("loaded")
        await asyncio.sleep(self._load_s)
        await end(tasks)
        await request("settling")
        committed = {key for key in halves.acknowledged if _is_committed(key)}
        await until(
            lambda: (
                not plain.seen.missing(sent.acknowledged) and not decided.seen.missing(committed)
            ),
            self._settle_s,
        )
        lost = len(plain.seen.missing(sent.acknowledged))
        committed_lost = len(decided.seen.missing(committed))
        wrong = sum(not _is_committed(key) for key in decided.seen.counts)
        twice = await stored_twice(topic, self._servers)
        committed_twice = await stored_twice(decided_topic, self._servers)
        report(
            {
                "acknowledged": len(sent.acknowledged),
                "failed_sends": sent.failed,
                "unknown_sends": sent.unknown,
                "longest_gap_ms": round(sent.gap_ms_max),
                "lost": lost,
                "stored_twice": twice,
                "read_again": len(plain.seen.repeated),
                "halves_acknowledged": len(halves.acknowledged),
                "failed_halves": halves.failed,
                "unknown_halves": halves.unknown,
                "halves_longest_gap_ms": round(halves.gap_ms_max),
                "committed": len(committed),
                "committed_lost": committed_lost,
                "rolled_back_but_read": wrong,
                "committed_stored_twice": committed_twice,
                "checked": len(decisions.checked),
                "good": not (lost or committed_lost or wrong or twice or committed_twice),
            }
        )

    async def members(self) -> None:
        """Ten producers; ten consumers of one group of which one leaves or joins, in turn."""
        topic = await self._topic("mm", QUEUES)
        group = f"mg{self._run}"
        sent = Tally()
        tasks = []
        for number in range(MEMBERS):
            producer = await self._stack.enter_async_context(
                Producer(f"mp{number}{self._run}", self._servers)
            )
            tasks.append(
                asyncio.create_task(keep_sending(sent, f"p{number}-", topic, producer.send))
            )
        there = [Member(group, topic, self._servers) for _ in range(MEMBERS)]
        everybody = list(there)
        await asyncio.gather(*(member.consumer.start() for member in there))
        deadline = time.monotonic() + self._load_s
        changes = 0
        while time.monotonic() < deadline:
            await asyncio.sleep(CHANGE_S)
            if changes % 2 == 0:
                await there.pop(changes % len(there)).consumer.stop()
            else:
                there.append(Member(group, topic, self._servers))
                everybody.append(there[-1])
                await there[-1].consumer.start()
            changes += 1
        owned_after_ms = await self._await_owners(there)
        await end(tasks)
        counts: Counter[str] = Counter()

        def missing() -> list[str]:
            counts.clear()
            for member in everybody:
                counts.update(member.seen.counts)
            return [key for key in sent.acknowledged if key not in counts]

        await until(lambda: not missing(), self._settle_s)
        lost = len(missing())
        await asyncio.gather(*(member.consumer.stop() for member in there))
        twice = await stored_twice(topic, self._servers)
        report(
            {
                "acknowledged": len(sent.acknowledged),
                "failed_sends": sent.failed,
                "unknown_sends": sent.unknown,
                "longest_gap_ms": round(sent.gap_ms_max),
                "lost": lost,
                "stored_twice": twice,
                "redelivered": sum(times - 1 for times in counts.values()),
                "changes": changes,
                "owned_after_last_change_ms": owned_after_ms,
                "good": not lost and not twice and 0 <= owned_after_ms <= OWNED_MS_MAX,
            }
        )

    async def _await_owners(self, there: Sequence[Member]) -> int:
        """How long after now a queue had none or two owners, in ms; -1: it still has."""
        began = time.monotonic()
        settled_after = 0.0
        while (took := time.monotonic() - began) < SETTLED_S:
            owned = [queue for member in there for queue in member.owned.queues]
            if not len(owned) == len(set(owned)) == QUEUES:
                settled_after = took
            await asyncio.sleep(0.01)
        return -1 if settled_after > SETTLED_S - 1 else round(settled_after * 1000)


def main() -> None:
    _, name, servers, load_s, settle_s = sys.argv[1:]
    campaigns = Campaigns(servers.split(";"), float(load_s), float(settle_s))
    uvloop.run(campaigns.run(name))


if __name__ == "__main__":
    main()
