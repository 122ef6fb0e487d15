"""Delayed messages across kills of the leader: never early, none lost, none twice.

    python -m campaigns.drills.delays [--messages N] [--seed S] [--output FILE]

A group of three gets messages that request delays of every kind: levels 1 to 4, TIMER_DELAY_MS,
TIMER_DELAY_SEC and TIMER_DELIVER_MS, plain and in transactions (whose delay counts from the
commit). Meanwhile the leader is killed (kill -9) and started again, four times alone and once with
all others. Some more messages are recalled before their time. Then every queue is read.

The time requested is counted from before the request (of a transaction: before the commit), so
that nothing that is early can pass for punctual; a message is delivered at the store timestamp of
its final record. What is late is so by the kills: a leader has to be there to deliver. When one
was there, the nodes' traces tell: of each message the drill also says for how long a ready leader
stood between its time and its delivery, which is what a broker took that could have delivered it.

Not part of `make test`; `make drills` runs it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import msgpack
import uvloop

from broker.delay.recall_handle import recall_handle
from campaigns.rig.processes import Processes, request
from client.consume.pull_consumer import PullConsumer, PullStatus
from client.errors import ClientError
from client.message import DeliveredMessage, Message
from client.produce.producer import Producer
from client.produce.transaction_producer import Decision, HalfMessage, TransactionProducer
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

TOPIC: Final = "Delays"
LEVELS_MS: Final = {1: 1_000, 2: 5_000, 3: 10_000, 4: 30_000}
DELAY_MS_MAX: Final = 40_000
SEND_S: Final = 24.0  # over which the messages are sent
KILLS: Final = 5
KILL_INTERVAL_S: Final = 8.0
DOWN_S: Final = 2.0
RECALLED: Final = 50
KINDS: Final = ("level", "delay_ms", "delay_sec", "deliver_ms", "transaction")
DEADLINE_S: Final = 120.0


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Expected:
    """What was requested: from `due_ms` on, no moment earlier."""

    kind: str
    due_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    names: list[str]
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reign:
    """From when to when a ready leader stood."""

    begin_ms: float
    end_ms: float


@dataclass(slots=True)
class Drill:
    group: Processes
    random: random.Random
    expected: dict[str, Expected] = field(default_factory=dict)  # by value
    unacknowledged: dict[str, str] = field(default_factory=dict)
    recalled: set[str] = field(default_factory=set)
    kills: list[Kill] = field(default_factory=list)

    async def run(self, count: int) -> dict[str, object]:
        servers = self.group.name_servers
        async with (
            Producer("plain", servers) as producer,
            TransactionProducer("transactions", servers, _Commits(self)) as transactions,
            asyncio.TaskGroup() as tasks,
        ):
            await producer.send(Message(topic=TOPIC, body=b"first"), timeout_ms=20_000)
            tasks.create_task(self._kill_leaders())
            for number in range(count):
                tasks.create_task(self._send(producer, transactions, number))
                if number % (count // RECALLED or 1) == 0 and len(self.recalled) < RECALLED:
                    tasks.create_task(self._send_and_recall(producer, number))
                await asyncio.sleep(SEND_S / count)
        due_ms = max(expected.due_ms for expected in self.expected.values())
        await asyncio.sleep(max(0, due_ms - now_ms()) / 1_000)
        delivered = await self._read(set(self.expected) - set(self.unacknowledged))
        return self._figures(delivered)

    # Sending -----------------------------------------------------------------------------------

    async def _send(
        self, producer: Producer, transactions: TransactionProducer, number: int
    ) -> None:
        value, kind = f"v{number}", KINDS[number % len(KINDS)]
        properties, delay_ms = self._delay(kind)
        body = value.encode()
        message = Message(topic=TOPIC, body=body, properties=properties)
        self.expected[value] = Expected(kind, now_ms() + delay_ms)
        if "TIMER_DELIVER_MS" in properties:
            self.expected[value].due_ms = int(properties["TIMER_DELIVER_MS"])
        try:
            if kind == "transaction":
                await transactions.send_in_transaction(message, timeout_ms=30_000)
            else:
                await producer.send(message, timeout_ms=30_000)
        except ClientError as error:
            self.unacknowledged[value] = str(error)[:120]

    def _delay(self, kind: str) -> tuple[dict[str, str], int]:
        """Properties, and the delay that they request."""
        delay_ms = self.random.randrange(200, DELAY_MS_MAX)
        match kind:
            case "level":
                level = self.random.choice(list(LEVELS_MS))
                return {"DELAY": str(level)}, LEVELS_MS[level]
            case "delay_sec":
                return {"TIMER_DELAY_SEC": str(delay_ms // 1_000)}, delay_ms // 1_000 * 1_000
            case "deliver_ms":
                return {"TIMER_DELIVER_MS": str(now_ms() + delay_ms)}, delay_ms
            case _:
                return {"TIMER_DELAY_MS": str(delay_ms)}, delay_ms

    async def _send_and_recall(self, producer: Producer, number: int) -> None:
        """Due after the last kill, recalled at once: it must never come."""
        value = f"recalled{number}"
        deliver_ms = now_ms() + 50_000
        properties = {"TIMER_DELIVER_MS": str(deliver_ms)}
        message = Message(topic=TOPIC, body=value.encode(), properties=properties)
        result = await producer.send(message, timeout_ms=30_000)
        handle = recall_handle(
            topic=TOPIC,
            broker_name=result.queue.broker_name,
            deliver_ms=deliver_ms,
            uniq_key=result.msg_id,
        )
        fields = {"producerGroup": "plain", "topic": TOPIC, "recallHandle": handle}
        command = RemotingCommand(code=RequestCode.RECALL_MESSAGE, ext_fields=fields)
        while now_ms() < deliver_ms:
            for place in self.group.layout.brokers:
                answer = await asyncio.to_thread(request, place.address, command)
                if isinstance(answer, RemotingCommand) and answer.code == 0:
                    self.recalled.add(value)
                    return
            await asyncio.sleep(0.2)
        raise AssertionError(f"{value} could not be recalled in time")

    # Killing -----------------------------------------------------------------------------------

    async def _kill_leaders(self) -> None:
        for number in range(KILLS):
            await asyncio.sleep(KILL_INTERVAL_S - DOWN_S)
            leader = await asyncio.to_thread(self.group.leader)
            victims = self.group.brokers if number == KILLS - 2 else [leader]
            self.kills.append(Kill(names=victims, at_ms=now_ms()))
            await asyncio.to_thread(self.group.kill, *victims)
            print("killed", *victims, flush=True)
            await asyncio.sleep(DOWN_S)
            for name in victims:
                await asyncio.to_thread(self.group.start_broker, name)

    # Reading -----------------------------------------------------------------------------------

    async def _read(self, wanted: set[str]) -> list[DeliveredMessage]:
        """All messages, once those wanted are there and nothing has come for three seconds."""
        delivered: list[DeliveredMessage] = []
        missing = set(wanted)
        async with (
            asyncio.timeout(DEADLINE_S),
            PullConsumer("reader", self.group.name_servers) as consumer,
        ):
            places = dict.fromkeys(await consumer.queues(TOPIC), 0)
            quiet_s = time.monotonic()
            while missing or time.monotonic() - quiet_s < 3:
                for queue, offset in places.items():
                    pulled = await consumer.pull(queue, offset)
                    if pulled.status is PullStatus.FOUND:
                        places[queue] = pulled.next_begin_offset
                        delivered += pulled.messages
                        missing -= {message.body.decode() for message in pulled.messages}
                        quiet_s = time.monotonic()
                if time.monotonic() - quiet_s > DEADLINE_S / 4:
                    break  # lost: the figures say which
                await asyncio.sleep(0.05)
        return delivered

    def _reigns(self) -> list[Reign]:
        """Ordered. A leader is ready with its first commit; it reigns until it is killed, or has
        another role."""
        wall_ns = time.time_ns() - time.monotonic_ns()
        reigns: list[Reign] = []
        for name in self.group.brokers:
            kills_ms = [kill.at_ms for kill in self.kills if name in kill.names]
            for file in sorted((self.group.store(name) / "trace").iterdir()):
                events = _events(file, wall_ns)
                for at, event in enumerate(events):
                    if (event["event"], event.get("role")) == ("role", "leader"):
                        reigns += _reign(events[at:], kills_ms)
        return sorted(reigns, key=lambda reign: reign.begin_ms)

    def _figures(self, delivered: list[DeliveredMessage]) -> dict[str, object]:
        seen = Counter(message.body.decode() for message in delivered)
        acknowledged = set(self.expected) - set(self.unacknowledged)
        offset_ms = {
            message.body.decode(): message.store_timestamp_ms
            - self.expected[message.body.decode()].due_ms
            for message in delivered
            if message.body.decode() in self.expected
        }
        reigns = self._reigns()
        under_a_leader_ms = [
            _reigned_ms(
                reigns,
                self.expected[message.body.decode()].due_ms,
                message.store_timestamp_ms,
            )
            for message in delivered
            if message.body.decode() in self.expected
        ]
        by_kind: dict[str, object] = {}
        for kind in KINDS:
            values = sorted(
                late for value, late in offset_ms.items() if self.expected[value].kind == kind
            )
            by_kind[kind] = {
                "messages": len(values),
                "earliest_ms": values[0] if values else None,
                "median_ms": values[len(values) // 2] if values else None,
                "latest_ms": values[-1] if values else None,
            }
        return {
            "asked": len(self.expected),
            "acknowledged": len(acknowledged),
            "unknown": self.unacknowledged,
            "kills": [
                {"of": " ".join(kill.names), "no_leader_ms": _gap_ms(reigns, kill.at_ms)}
                for kill in self.kills
            ],
            "early": sorted(value for value, late in offset_ms.items() if late < 0),
            "lost": sorted(acknowledged - seen.keys()),
            "twice": sorted(value for value, times in seen.items() if times > 1),
            "recalled": len(self.recalled),
            "recalled_and_delivered": sorted(self.recalled & seen.keys()),
            "delivered_after_what_was_asked_for": by_kind,
            "of_that_while_a_leader_stood_ms_max": round(max(under_a_leader_ms, default=0)),
        }


def _events(file: Path, wall_ns: int) -> list[dict[str, object]]:
    """One incarnation's trace, its times moved by `wall_ns`; without an event that a kill cut."""
    with file.open("rb") as stream:
        return [{**event, "t": event["t"] + wall_ns} for event in msgpack.Unpacker(stream)]


def _reign(events: list[dict[str, object]], kills_ms: Sequence[int]) -> list[Reign]:
    """Of the leader whose role is the first event; none where it was never ready."""
    times_ms = [cast("int", event["t"]) / 1e6 for event in events]
    changes = (at for at, event in enumerate(events) if at and event["event"] == "role")
    last = next(changes, len(events) - 1)
    ready = next((at for at in range(last + 1) if events[at]["event"] == "commit"), None)
    if ready is None:
        return []
    killed_ms = min((at_ms for at_ms in kills_ms if at_ms >= times_ms[ready]), default=math.inf)
    is_deposed = events[last]["event"] == "role"
    return [
        Reign(
            begin_ms=times_ms[ready],
            end_ms=min(killed_ms, times_ms[last] if is_deposed else math.inf),
        )
    ]


def _reigned_ms(reigns: Sequence[Reign], begin_ms: float, end_ms: float) -> float:
    """For how long of the time a ready leader stood."""
    return sum(
        max(0.0, min(end_ms, reign.end_ms) - max(begin_ms, reign.begin_ms)) for reign in reigns
    )


def _gap_ms(reigns: Sequence[Reign], at_ms: int) -> int:
    """How long after `at_ms` the next leader was ready."""
    return round(next(reign.begin_ms for reign in reigns if reign.begin_ms > at_ms) - at_ms)


class _Commits:
    """Commits each transaction; its delay is requested with the commit."""

    def __init__(self, drill: Drill) -> None:
        self._drill = drill

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        expected = self._drill.expected[message.body.decode()]
        expected.due_ms = now_ms() + int(message.properties["TIMER_DELAY_MS"])
        return Decision.COMMIT

    async def check_local(self, message: DeliveredMessage) -> Decision:
        return Decision.COMMIT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="drill-", dir=".") as name,
        Processes(
            Path(name).resolve(), broker_settings={"transaction_check_interval_ms": 2_000}
        ) as group,
    ):
        group.start()
        drill = Drill(group, random.Random(arguments.seed))
        figures = uvloop.run(drill.run(arguments.messages))
    print(json.dumps(figures, indent=1))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n")
    if any(figures[name] for name in ("early", "lost", "twice", "recalled_and_delivered")):
        sys.exit(1)


if __name__ == "__main__":
    main()
