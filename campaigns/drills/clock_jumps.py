"""Wall clocks that jump an hour, forth and back, on each node of a group under load.

    python -m campaigns.drills.clock_jumps [--hold S] [--seed S] [--output FILE]

The wall clock of each broker of a group of three can be put wrong by request
(`chaos.cluster.failpoints`); monotonic clocks are left alone. One node after the other is put an
hour ahead, set right, put an hour behind, set right; each time it is made to lead, too, half-way. A
jump counts once the node itself has reported the other time (LEDGERMQ_CLOCK).

Meanwhile clients with right clocks send plain messages, delay levels, timers with a delay and with
a time, and transactions that only a check-back decides; they pop messages, leave them to come
again, and hold pulls. Early and late are told by the arrival at a client that reads all the time,
counted from before the request: nothing that is early can pass for punctual, and what is late
includes the way to the client. A message that is popped and left comes again; a pull is held for as
long as it asked, or until leadership moves. No consumer that is connected may be forgotten.

Not part of `make test`; `make drills` runs it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import uvloop

from campaigns.rig.processes import Processes, request
from chaos.cluster import cluster, failpoints
from chaos.cluster.failpoints import ClockSetting, Order
from client.consume.pop_consumer import PopConsumer
from client.consume.pull_consumer import PullConsumer, PullStatus
from client.errors import ClientError
from client.message import DeliveredMessage, Message
from client.produce.producer import Producer
from client.produce.transaction_producer import Decision, HalfMessage, TransactionProducer
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

TOPIC: Final = "Clocks"
POPPED: Final = "Popped"
SILENT: Final = "Silent"
POP_GROUP: Final = "poppers"
HOUR_S: Final = 3_600
LEVELS_MS: Final = {1: 1_000, 2: 5_000}
DELAY_MS_MAX: Final = 6_000
INVISIBLE_MS: Final = 2_000
SUSPEND_MS: Final = 3_000
CHECK_AFTER_MS: Final = 2_000  # the transaction timeout
CHECK_INTERVAL_MS: Final = 1_000
SEND_INTERVAL_S: Final = 0.2
SEEN_WITHIN_S: Final = 10.0
READY_WITHIN_S: Final = 120.0  # a busy machine takes its time
# Clocks are tried here, not elections: longer times than the default's, for a machine that is busy.
RAFT: Final = {
    "heartbeat_ms": 500,
    "election_timeout_ms_min": 2_500,
    "election_timeout_ms_max": 5_000,
}
LATE_MS_MAX: Final = 10_000  # two elections, since a vote may split
KINDS: Final = ("plain", "level", "delay_ms", "deliver_ms", "checked")


class DrillError(Exception):
    """Nothing came of a fault."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class WrongClocks:
    """The brokers of a group, each with a wall clock that can be put wrong."""

    def __init__(self, group: Processes) -> None:
        self._group = group

    def start(self) -> None:
        """Name servers and brokers, ready."""
        group = self._group
        failpoints.enable(group.directory)
        for server in group.layout.name_servers:
            group.table.start(
                server.name, cluster.name_server_process(group.directory, server.name)
            )
        for name in group.brokers:
            group.table.start(name, cluster.broker_process(group.directory, name))
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                group.await_ready()
            except cluster.ClusterError:
                if time.monotonic() > deadline:
                    raise
            else:
                return

    async def put(self, name: str, offset_s: int) -> int:
        """The node's clock is off by so much; returns by how many milliseconds the node itself
        says so. Raises DrillError where it does not."""
        order = Order(clock=ClockSetting(offset_ms=offset_s * 1_000))
        await failpoints.order_node(self._group.directory, name, order)
        deadline = time.monotonic() + SEEN_WITHIN_S
        reported_ms: int | None = None
        while time.monotonic() < deadline:
            reported_ms = await self.reported_ms(name)
            if reported_ms is not None and abs(reported_ms - offset_s * 1_000) < 1_000:
                return reported_ms
            await asyncio.sleep(0.1)
        raise DrillError(f"{name} should be {offset_s} s off, and says {reported_ms} ms")

    async def reported_ms(self, name: str) -> int | None:
        """How far the node's wall clock is off, by its own answer."""
        command = RemotingCommand(code=RequestCode.LEDGERMQ_CLOCK)
        address = self._group.place(name).address
        answer = await asyncio.to_thread(request, address, command)
        if not isinstance(answer, RemotingCommand) or answer.code != ResponseCode.SUCCESS:
            return None
        return int(answer.ext_fields["wallMillis"]) - now_ms()


@dataclass(slots=True)
class Expected:
    """From `due_ms` on it may arrive, no moment earlier."""

    kind: str
    due_ms: int


@dataclass(slots=True)
class Found:
    """What was measured, in milliseconds; what should not be, by name."""

    arrived_ms: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    stamps_off_ms: list[int] = field(default_factory=list)
    checks_late_ms: list[int] = field(default_factory=list)
    pops_late_ms: list[int] = field(default_factory=list)
    pulls_late_ms: list[int] = field(default_factory=list)
    reads_failed: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)


class Drill:
    def __init__(self, group: Processes, rng: random.Random, hold_s: float) -> None:
        self._group = group
        self._clocks = WrongClocks(group)
        self._rng = rng
        self._hold_s = hold_s
        self._expected: dict[str, Expected] = {}
        self._halves_ms: dict[str, int] = {}  # acknowledged, and not checked yet
        self._popped_ms: dict[str, int] = {}  # requested for the first time, to come again
        self._sends: set[asyncio.Task[None]] = set()
        self._jumps: list[dict[str, object]] = []
        self._found = Found()
        self._running = True

    async def run(self) -> dict[str, object]:
        await asyncio.to_thread(self._clocks.start)
        servers = self._group.name_servers
        async with (
            Producer("plain", servers) as producer,
            TransactionProducer("checked", servers, self) as transactions,
            PullConsumer("readers", servers) as reader,
            PopConsumer(POP_GROUP, servers) as popper,
        ):
            for topic in (TOPIC, POPPED, SILENT):
                await producer.send(Message(topic=topic, body=b"first"), timeout_ms=20_000)
            async with asyncio.TaskGroup() as tasks:
                readers = [
                    tasks.create_task(self._read(reader)),
                    tasks.create_task(self._pop(popper)),
                    tasks.create_task(self._hold_pulls(reader)),
                ]
                sending = tasks.create_task(self._send_all(producer, transactions))
                await self._jump_all()
                self._running = False
                await sending
                await self._await_arrivals()
                for task in readers:
                    task.cancel()
        return self._figures()

    # Clocks ------------------------------------------------------------------------------------

    async def _jump_all(self) -> None:
        await asyncio.sleep(self._hold_s)  # heartbeats, and some load
        for name in self._group.brokers:
            for offset_s in (HOUR_S, 0, -HOUR_S, 0):
                members = await self._members(name)
                reported_ms = await self._clocks.put(name, offset_s)
                print(f"{name} says that its clock is {reported_ms} ms off", flush=True)
                await asyncio.sleep(self._hold_s / 2)
                lost = members - await self._members(name)
                self._found.forgotten += [f"{client} at {name}" for client in sorted(lost)]
                moved = await self._lead(name)
                await asyncio.sleep(self._hold_s / 2)
                self._jumps.append({"node": name, "told_ms": reported_ms, "then_led": moved})

    async def _members(self, name: str) -> set[str]:
        """Members of the groups that the node knows."""
        members: set[str] = set()
        for group in (POP_GROUP, "readers"):
            command = RemotingCommand(
                code=RequestCode.GET_CONSUMER_LIST_BY_GROUP, ext_fields={"consumerGroup": group}
            )
            address = self._group.place(name).address
            answer = await asyncio.to_thread(request, address, command)
            if isinstance(answer, RemotingCommand) and answer.code == ResponseCode.SUCCESS:
                members |= {f"{group}/{one}" for one in json.loads(answer.body)["consumerIdList"]}
        return members

    async def _lead(self, name: str) -> bool:
        """Move leadership to the node; whether it leads. AssertionError where nobody does."""
        leader = await asyncio.to_thread(self._group.leader)
        if leader != name:
            command = RemotingCommand(
                code=RequestCode.LEDGERMQ_TRANSFER,
                ext_fields={"node": self._group.place(name).node},
            )
            await asyncio.to_thread(request, self._group.place(leader).address, command)
            leader = await asyncio.to_thread(self._group.leader)
        return leader == name

    # Sending -----------------------------------------------------------------------------------

    async def _send_all(self, producer: Producer, transactions: TransactionProducer) -> None:
        number = 0
        while self._running:
            self._begin(self._send(producer, transactions, number))
            if number % 5 == 0:
                self._begin(self._send_to_pop(producer, number))
            number += 1
            await asyncio.sleep(SEND_INTERVAL_S)
        await asyncio.gather(*self._sends)

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._sends.add(task)
        task.add_done_callback(self._sends.discard)

    async def _send(
        self, producer: Producer, transactions: TransactionProducer, number: int
    ) -> None:
        value, kind = f"v{number}", KINDS[number % len(KINDS)]
        properties, delay_ms = self._delay(kind)
        expected = Expected(kind, now_ms() + delay_ms)
        expected.due_ms = int(properties.get("TIMER_DELIVER_MS", expected.due_ms))
        message = Message(topic=TOPIC, body=value.encode(), properties=properties)
        try:
            if kind == "checked":
                expected.due_ms = now_ms() + CHECK_AFTER_MS
                await transactions.send_in_transaction(message, timeout_ms=20_000)
            else:
                await producer.send(message, timeout_ms=20_000)
        except ClientError as error:
            self._found.refused.append(f"{value} ({kind}): {error}"[:200])
            return
        self._expected[value] = expected

    def _delay(self, kind: str) -> tuple[dict[str, str], int]:
        """Properties, and the delay that they request."""
        delay_ms = self._rng.randrange(200, DELAY_MS_MAX)
        if kind == "level":
            level = self._rng.choice(list(LEVELS_MS))
            return {"DELAY": str(level)}, LEVELS_MS[level]
        if kind == "delay_ms":
            return {"TIMER_DELAY_MS": str(delay_ms)}, delay_ms
        if kind == "deliver_ms":
            return {"TIMER_DELIVER_MS": str(now_ms() + delay_ms)}, delay_ms
        return {}, 0

    async def _send_to_pop(self, producer: Producer, number: int) -> None:
        message = Message(topic=POPPED, body=f"p{number}".encode())
        try:
            await producer.send(message, timeout_ms=20_000)
        except ClientError as error:
            self._found.refused.append(f"p{number}: {error}"[:200])

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        self._halves_ms[half.msg_id] = now_ms()
        return Decision.UNKNOWN

    async def check_local(self, message: DeliveredMessage) -> Decision:
        """Decided by the first check."""
        stored_ms = self._halves_ms.pop(message.uniq_key, None)
        if stored_ms is not None:
            self._found.checks_late_ms.append(now_ms() - stored_ms - CHECK_AFTER_MS)
        return Decision.COMMIT

    # Reading -----------------------------------------------------------------------------------

    async def _read(self, consumer: PullConsumer) -> None:
        """All queues at once, all the time."""
        queues = await consumer.queues(TOPIC)
        async with asyncio.TaskGroup() as tasks:
            for queue in queues:
                tasks.create_task(self._read_queue(consumer, queue))

    async def _read_queue(self, consumer: PullConsumer, queue: object) -> None:
        offset, found = 0, self._found
        while True:
            try:
                pulled = await consumer.pull(queue, offset, suspend_ms=1_000)  # type: ignore[arg-type]
            except ClientError as error:
                found.reads_failed.append(str(error)[:200])
                await asyncio.sleep(0.05)
                continue
            offset = pulled.next_begin_offset
            if pulled.status is not PullStatus.FOUND:
                continue
            for message in pulled.messages:
                value, arrived_ms = message.body.decode(), now_ms()
                if value in found.arrived_ms:
                    found.twice.append(value)
                found.arrived_ms.setdefault(value, arrived_ms)
                found.stamps_off_ms.append(message.store_timestamp_ms - arrived_ms)

    async def _pop(self, consumer: PopConsumer) -> None:
        """What comes for the first time is left to come again."""
        while True:
            requested_ms = now_ms()
            try:
                popped = await consumer.pop(POPPED, invisible_ms=INVISIBLE_MS, poll_ms=500)
                for one in popped:
                    value = one.message.body.decode()
                    first_ms = self._popped_ms.pop(value, None)
                    if first_ms is None:
                        self._popped_ms[value] = requested_ms
                        continue
                    # From before it was requested: where it was held, it comes later than that.
                    self._found.pops_late_ms.append(now_ms() - first_ms - INVISIBLE_MS)
                    await consumer.ack(one)
            except ClientError as error:
                self._found.reads_failed.append(str(error)[:200])
                await asyncio.sleep(0.05)

    async def _hold_pulls(self, consumer: PullConsumer) -> None:
        """At the end of a queue to which nobody sends."""
        queue = (await consumer.queues(SILENT))[0]
        end: int | None = None
        while True:
            try:
                end = await consumer.max_offset(queue) if end is None else end
                begun_ms = now_ms()
                await consumer.pull(queue, end, suspend_ms=SUSPEND_MS)
                self._found.pulls_late_ms.append(now_ms() - begun_ms - SUSPEND_MS)
            except ClientError as error:
                self._found.reads_failed.append(str(error)[:200])
                await asyncio.sleep(0.05)

    async def _await_arrivals(self) -> None:
        deadline = time.monotonic() + 30
        while self._expected.keys() - self._found.arrived_ms.keys():
            if time.monotonic() > deadline:
                return  # the figures say what is lost
            await asyncio.sleep(0.1)

    # Figures -----------------------------------------------------------------------------------

    def _figures(self) -> dict[str, object]:
        found = self._found
        late_ms = {
            value: found.arrived_ms[value] - expected.due_ms
            for value, expected in self._expected.items()
            if value in found.arrived_ms
        }
        by_kind = {
            kind: _span(
                [late for value, late in late_ms.items() if self._expected[value].kind == kind]
            )
            for kind in KINDS
        }
        by_kind |= {
            "checks": _span(found.checks_late_ms),
            "popped_again": _span(found.pops_late_ms),
            "held_pulls": _span(found.pulls_late_ms),
        }
        return {
            "jumps": self._jumps,
            "asked": len(self._expected),
            "early": sorted(value for value, late in late_ms.items() if late < 0)
            + [f"pop {late}" for late in found.pops_late_ms if late < 0]
            + [f"check {late}" for late in found.checks_late_ms if late < -CHECK_INTERVAL_MS],
            "lost": sorted(self._expected.keys() - found.arrived_ms.keys()),
            "twice": sorted(found.twice),
            "refused": found.refused,
            "reads_failed": found.reads_failed,
            "clients_forgotten": found.forgotten,
            "late": sorted(
                [f"{value} {late}" for value, late in late_ms.items() if late > LATE_MS_MAX]
                + [f"pop {late}" for late in found.pops_late_ms if late > LATE_MS_MAX]
                + [f"pull {late}" for late in found.pulls_late_ms if late > LATE_MS_MAX]
            ),
            "after_what_was_asked_for": by_kind,
            "stamps_less_arrival": _span(found.stamps_off_ms),
        }


def _span(values: list[int]) -> dict[str, int | None]:
    ordered = sorted(values)
    return {
        "count": len(ordered),
        "least_ms": ordered[0] if ordered else None,
        "median_ms": ordered[len(ordered) // 2] if ordered else None,
        "most_ms": ordered[-1] if ordered else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hold", type=float, default=12.0, help="seconds that a jump lasts")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    settings = {
        "transaction_timeout_ms": CHECK_AFTER_MS,
        "transaction_check_interval_ms": CHECK_INTERVAL_MS,
    }
    with (
        tempfile.TemporaryDirectory(prefix="drill-", dir=".") as name,
        Processes(Path(name).resolve(), broker_settings=settings, raft_settings=RAFT) as group,
    ):
        drill = Drill(group, random.Random(arguments.seed), arguments.hold)
        figures = uvloop.run(drill.run())
    print(json.dumps(figures, indent=1))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n")
    broken = ("early", "lost", "twice", "refused", "clients_forgotten", "late")
    if any(figures[name] for name in broken):
        sys.exit(1)


if __name__ == "__main__":
    main()
