"""Replace a wiped node while messages go in: time to catch up, and what the producers feel.

    python -m campaigns.drills.replace_node [--log-mib N] [--rate N] [--output FILE]

The group's log is filled to `--log-mib`, then sends of 1 KiB go in at a steady rate. Their p99 is
taken before; then a follower is killed, its store deleted, its member removed and added again
(`ledgermq cluster member`), and the p99 is taken until the new node is a voter that has all.

Not part of `make test`; `make drills` runs it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import uvloop

from benchmarks.cluster_throughput import load
from campaigns.rig.processes import Processes, ledgermq
from client.errors import ClientError
from client.message import Message
from client.produce.producer import Producer

QUIET_S = 20.0
CATCH_UP_TIMEOUT_S = 900.0
BATCH = 32


class SteadyLoad:
    """Sends at `rate` per second, each with its latency; what can't be sent in time is late."""

    def __init__(self, producer: Producer, rate: int) -> None:
        self._producer = producer
        self._rate = rate
        self.sends: list[tuple[float, float]] = []  # when it was due, how long until its answer
        self.errors: list[str] = []

    async def run(self) -> None:
        begin = time.monotonic()
        number = 0
        async with asyncio.TaskGroup() as group:
            while True:
                due = begin + number / self._rate
                while due <= time.monotonic():
                    group.create_task(self._send(due))
                    number += 1
                    due = begin + number / self._rate
                await asyncio.sleep(due - time.monotonic())

    async def _send(self, due: float) -> None:
        try:
            await self._producer.send(Message(topic="Steady", body=bytes(1024)), timeout_ms=10_000)
        except ClientError as error:
            self.errors.append(str(error)[:160])
        else:
            self.sends.append((due, time.monotonic() - due))

    def figures(self, begin: float, end: float) -> dict[str, object]:
        latencies_ms = sorted(took * 1000 for due, took in self.sends if begin <= due < end)
        at = int(0.99 * (len(latencies_ms) - 1))
        return {
            "seconds": round(end - begin, 1),
            "acknowledged_per_s": round(len(latencies_ms) / (end - begin)),
            "p50_ms": round(statistics.median(latencies_ms), 2),
            "p99_ms": round(latencies_ms[at], 2),
            "worst_ms": round(latencies_ms[-1], 1),
        }


async def fill(group: Processes, size_bytes: int) -> None:
    """Batches to the leader until its log has `size_bytes`."""
    name = await asyncio.to_thread(group.leader)
    store = group.store(name) / "commitlog"
    while sum(file.stat().st_size for file in store.iterdir()) < size_bytes:
        await load(
            group.place(name).address,
            topic="Fill",
            queues=8,
            body_size=1024,
            in_flight=64,
            batch=BATCH,
            seconds=5.0,
        )


async def replace(group: Processes, name: str) -> dict[str, object]:
    """Kill, wipe, remove and add `name`; until it is a voter that has all."""
    node = group.place(name).node
    await asyncio.to_thread(group.kill, name)
    await asyncio.to_thread(shutil.rmtree, group.store(name))
    directory = str(group.directory)
    began = time.monotonic()
    for words in (("remove", directory, node), ("add", directory, node, "--voter")):
        done = await asyncio.to_thread(
            ledgermq, "cluster", "member", *words, timeout_s=CATCH_UP_TIMEOUT_S
        )
        assert done.returncode == 0, f"member {words[0]}: {done.stdout}{done.stderr}"
    promoted = time.monotonic()
    async with asyncio.timeout(CATCH_UP_TIMEOUT_S):
        while True:
            statuses = await asyncio.to_thread(group.statuses)
            last = max(status.commit_index for status in statuses.values())
            mine = statuses.get(name)
            if mine is not None and mine.applied_index >= last - 200:
                break
            await asyncio.sleep(0.2)
    return {
        "until_voter_s": round(promoted - began, 1),
        "until_all_applied_s": round(time.monotonic() - began, 1),
        "began": began,
    }


async def drill(group: Processes, size_bytes: int, rate: int) -> dict[str, object]:
    await fill(group, size_bytes)
    await asyncio.to_thread(group.await_caught_up)
    async with Producer("steady", group.name_servers) as producer:
        steady = SteadyLoad(producer, rate)
        task = asyncio.create_task(steady.run())
        await asyncio.sleep(2)
        begin = time.monotonic()
        await asyncio.sleep(QUIET_S)
        before = steady.figures(begin, time.monotonic())
        print("before", json.dumps(before), flush=True)
        leader = await asyncio.to_thread(group.leader)
        victim = next(name for name in group.brokers if name != leader)
        took = await replace(group, victim)
        began = took.pop("began")
        assert isinstance(began, float)
        meanwhile = steady.figures(began, time.monotonic())
        task.cancel()
        await asyncio.wait([task])
    store = group.store(leader) / "commitlog"
    return {
        "log_mib": sum(file.stat().st_size for file in store.iterdir()) >> 20,
        "rate_per_s": rate,
        "before": before,
        "meanwhile": meanwhile,
        "errors_seen_by_the_producer": steady.errors[:5],
        **took,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log-mib", type=int, default=5_000)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="drill-", dir=".") as name,
        Processes(Path(name).resolve()) as group,
    ):
        group.start()
        figures = uvloop.run(drill(group, arguments.log_mib << 20, arguments.rate))
    print(json.dumps(figures, indent=1))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
