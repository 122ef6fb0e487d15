"""What undecided transactions cost their leader: 10,000, 100,000 and a million of them.

A group of one, filled through the wire by producers that go away. At each size: the leader's
memory; its processor time while nobody can be asked; the time in which each half is asked about
once, by a producer that answers UNKNOWN; sends beside both; pages of `ledgermq tx list`; the time
from the start of a killed node to its first answer, with the log behind its snapshot replayed.

    python -m benchmarks.halves --output figures/halves.json
    python -m benchmarks.halves --sizes 10000 100000
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from chaos.cluster import cluster, nodes
from client.administer.admin import Admin
from client.errors import NoRouteError
from client.message import DeliveredMessage, Message
from client.produce.producer import Producer, ProducerSettings
from client.produce.transaction_producer import (
    Decision,
    HalfMessage,
    TransactionProducer,
    TransactionSettings,
)

SIZES = (10_000, 100_000, 1_000_000)
TOPIC, GROUP = "Orders", "shop"
IN_FLIGHT = 64
BODY = bytes(200)
SEND_RATE_PER_S = 200
CALM_S = 10.0
ROUND_S_MAX = 600.0
CHECKED_S = 20.0
ROUTED_S_MAX = 60.0
SETTINGS: dict[str, int | bool | str] = {
    "transaction_timeout_ms": 1_000,
    "transaction_check_interval_ms": 3_600_000,  # one round, and no second one beside it
    "transaction_check_max": 1_000,
}


class Unknowing:
    """Counts the checks, and decides nothing."""

    def __init__(self, count: int = 0) -> None:
        self._count = count
        self.all_checked = asyncio.Event()
        self.checked = 0
        self.last_s = 0.0

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        return Decision.UNKNOWN

    async def check_local(self, message: DeliveredMessage) -> Decision:
        self.checked += 1
        self.last_s = time.monotonic()
        if self.checked >= self._count:
            self.all_checked.set()
        return Decision.UNKNOWN


async def fill(name_servers: list[str], count: int) -> float:
    """Send so many halves; return how many it were a second."""
    began, left = time.monotonic(), iter(range(count))
    async with TransactionProducer(GROUP, name_servers, Unknowing()) as producer:

        async def send_some() -> None:
            for number in left:
                await producer.send_half(
                    Message(topic=TOPIC, body=BODY, keys=(f"order-{number}",)), 60_000
                )

        async with asyncio.TaskGroup() as tasks:
            for _ in range(IN_FLIGHT):
                tasks.create_task(send_some())
    return count / (time.monotonic() - began)


@asynccontextmanager
async def sending(name_servers: list[str], latencies_ms: list[float]) -> AsyncIterator[None]:
    """Send plain messages at a steady rate meanwhile, and note how long each took."""
    settings = ProducerSettings(timeout_ms=60_000)
    async with Producer("plain", name_servers, settings=settings) as producer:

        async def one() -> None:
            began = time.monotonic()
            await producer.send(Message(topic="Plain", body=BODY))
            latencies_ms.append((time.monotonic() - began) * 1_000)

        async def run() -> None:
            async with asyncio.TaskGroup() as tasks:
                due = time.monotonic()
                while not ended.is_set():
                    tasks.create_task(one())
                    due += 1 / SEND_RATE_PER_S
                    await asyncio.sleep(max(0.0, due - time.monotonic()))

        ended = asyncio.Event()
        running = asyncio.create_task(run())
        try:
            yield
        finally:
            ended.set()
            await running


async def beside(name_servers: list[str], pid: int) -> dict[str, float]:
    """Measure sends and the leader's processor time while no half can be asked about.

    Behind a fill or a restart the leader still reads each half once, 2,000 a second.
    """
    before = processor_s(pid)
    await asyncio.sleep(CALM_S)
    idle = (processor_s(pid) - before) / CALM_S
    latencies_ms: list[float] = []
    async with sending(name_servers, latencies_ms):
        await asyncio.sleep(CALM_S)
    return {"idle_cpu_percent": round(idle * 100, 1), **quantiles("send", latencies_ms)}


async def check_round(name_servers: list[str], count: int, pid: int) -> dict[str, float]:
    """Have each half asked about once, with sends beside the first of it."""
    listener, latencies_ms = Unknowing(count), list[float]()
    settings = TransactionSettings(check_workers=8, checks_waiting_max=100_000)
    producer = TransactionProducer(GROUP, name_servers, listener, settings=settings)
    async with producer:
        await routed(producer)  # its heartbeat makes it known to the leader
        began, before = time.monotonic(), processor_s(pid)
        async with sending(name_servers, latencies_ms):
            await asyncio.sleep(CHECKED_S)
        with contextlib.suppress(TimeoutError):  # then the figures say how many it were
            await asyncio.wait_for(listener.all_checked.wait(), ROUND_S_MAX)
        spent = time.monotonic() - began
    return {
        "checked": listener.checked,
        "round_s": round(max(0.0, listener.last_s - began), 1),
        "checks_per_s": round(listener.checked / max(0.001, listener.last_s - began)),
        "round_cpu_percent": round((processor_s(pid) - before) / spent * 100, 1),
        **quantiles("send_beside_checks", latencies_ms),
    }


async def list_pages(name_servers: list[str]) -> dict[str, float]:
    """Time the first page, and one of the newest, with a filter that nothing matches."""
    async with Admin(name_servers) as admin:
        began = time.monotonic()
        page = await admin.list_halves("broker-a", count_max=100)
        first_ms = (time.monotonic() - began) * 1_000
        began = time.monotonic()
        last = max(0, page.undecided - 100)
        await admin.list_halves("broker-a", offset=last, count_max=100, topic="Nothing")
        return {
            "first_page_ms": round(first_ms, 1),
            "last_page_ms": round((time.monotonic() - began) * 1_000, 1),
        }


async def routed(producer: Producer) -> None:
    """Wait until a name server knows the leader, which may have just begun."""
    async with asyncio.timeout(ROUTED_S_MAX):
        while True:
            try:
                await producer.queues(TOPIC)
            except NoRouteError:
                await asyncio.sleep(0.05)
            else:
                return


def quantiles(name: str, latencies_ms: list[float]) -> dict[str, float]:
    ordered = sorted(latencies_ms)
    at = {"p50": len(ordered) // 2, "p99": len(ordered) * 99 // 100, "max": len(ordered) - 1}
    return {f"{name}_{key}_ms": round(ordered[place], 2) for key, place in at.items()}


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1024, 1)
    raise LookupError(f"the process {pid} has no memory")


def leader_pid(root: Path) -> int:
    (node,) = cluster.status(root).nodes
    assert node.pid is not None
    return node.pid


async def await_ready(address: str) -> None:
    """Wait until the node at `address` leads and has applied all that it holds."""
    async with Admin([address]) as admin, asyncio.timeout(ROUTED_S_MAX * 10):
        while True:
            if (await admin.replica_status(address, 60_000)).ready:
                return
            await asyncio.sleep(0.02)


def restart(root: Path) -> float:
    """Kill the node and start it again; return the seconds until it leads and serves."""
    (node,) = cluster.status(root).nodes
    nodes.kill(root, node.name, report=lambda _: None)
    began = time.monotonic()
    nodes.start(root, node.name, report=lambda _: None)
    asyncio.run(await_ready(node.address))
    return round(time.monotonic() - began, 1)


def measured(
    root: Path, name_servers: list[str], sizes: list[int], *, rounds: bool
) -> list[dict[str, Any]]:
    rows, there = [], 0
    for size in [0, *sizes]:
        row: dict[str, Any] = {"halves": size}
        if size:
            row["filled_per_s"] = round(asyncio.run(fill(name_servers, size - there)))
        there = size
        pid = leader_pid(root)
        row["memory_mib"] = memory_mib(pid)
        row |= asyncio.run(beside(name_servers, pid))
        if size:
            row |= asyncio.run(list_pages(name_servers))
        row["restart_s"] = restart(root)
        pid = leader_pid(root)
        row["memory_after_restart_mib"] = memory_mib(pid)
        if size and rounds:
            row |= asyncio.run(check_round(name_servers, size, pid))
            calm = asyncio.run(beside(name_servers, pid))
            row["idle_after_round_cpu_percent"] = calm["idle_cpu_percent"]
        rows.append(row)
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--no-rounds", action="store_true", help="leave the checks out")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        up = cluster.up(
            root,
            replicas=1,
            name_servers=1,
            namesrv_port=0,
            base_port=0,
            detach=True,
            settings=SETTINGS,
            report=lambda _: None,
        )
        try:
            rows = measured(
                root, list(up.name_servers), arguments.sizes, rounds=not arguments.no_rounds
            )
        finally:
            cluster.down(root)
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
