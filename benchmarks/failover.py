"""From the leader's kill -9 to the next acknowledged send, under load, with default settings.

    python benchmarks/failover.py [--kills N] [--output FILE]

A client with default settings sends 1 KiB messages from 16 tasks. Each round kills the leader and
measures until the first SEND_OK of a send that was begun after the kill; then the node is started
again and the group is given time to be whole. Detection and election are read from the replicas'
Raft traces: detect = kill to the first vote, elect = first vote to the new leader.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path

import msgpack
import uvloop

from chaos import cluster
from chaos.processes import ProcessTable
from client.errors import ClientError
from client.message import Message
from client.producer import Producer

_SENDERS = 16
_WHOLE_TIMEOUT_S = 30.0


class Load:
    """Sends all the time and remembers, for each acknowledged send, when it began and ended."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.acknowledged: list[tuple[int, int]] = []
        self.errors = 0

    async def run(self) -> None:
        body = b"x" * 1024
        while True:
            began = time.monotonic_ns()
            try:
                await self._producer.send(Message(topic="Failover", body=body), timeout_ms=10_000)
            except ClientError:
                self.errors += 1
                continue
            self.acknowledged.append((began, time.monotonic_ns()))


async def leader_of(directory: Path) -> cluster.NodeStatus:
    async with asyncio.timeout(_WHOLE_TIMEOUT_S):
        while True:
            status = await asyncio.to_thread(cluster.status, directory)
            leaders = [node for node in status.nodes if node.role == "leader"]
            up = [node for node in status.nodes if node.last_index is not None]
            if len(leaders) == 1 and len(up) == len(status.nodes):
                last = [node.commit_index or 0 for node in up]
                if max(last) - min(last) < 200:
                    return leaders[0]
            await asyncio.sleep(0.1)


def trace_times(directory: Path, killed_ns: int) -> tuple[int | None, int | None]:
    """(first vote, first leader) after the kill, over all nodes."""
    votes: list[int] = []
    leaders: list[int] = []
    for file in directory.glob("nodes/*/*/trace/*"):
        with file.open("rb") as stream:
            for event in msgpack.Unpacker(stream):
                if event["t"] > killed_ns:
                    if event["event"] == "vote":
                        votes.append(event["t"])
                    elif event["event"] == "role" and event["role"] == "leader":
                        leaders.append(event["t"])
    return min(votes, default=None), min(leaders, default=None)


async def measure(directory: Path, kills: int) -> dict[str, object]:
    table = ProcessTable(directory)
    layout = cluster.load_layout(directory)
    rounds: list[dict[str, float]] = []
    async with Producer("failover", list(layout.name_server_addresses)) as producer:
        load = Load(producer)
        async with asyncio.TaskGroup() as group:
            senders = [group.create_task(load.run()) for _ in range(_SENDERS)]
            for number in range(kills):
                leader = await leader_of(directory)
                await asyncio.sleep(1.0)
                assert leader.pid is not None
                killed = time.monotonic_ns()
                os.kill(leader.pid, signal.SIGKILL)
                first = await _first_acknowledged(load, killed)
                await asyncio.sleep(0.5)  # let the traces be written
                vote, elected = trace_times(directory, killed)
                row = {"total_ms": (first - killed) / 1e6}
                if vote is not None and elected is not None:
                    row |= {
                        "detect_ms": (vote - killed) / 1e6,
                        "elect_ms": (elected - vote) / 1e6,
                        "recover_ms": (first - elected) / 1e6,
                    }
                rounds.append(row)
                print(number + 1, {name: round(value, 1) for name, value in row.items()})
                name = f"{leader.group}-{leader.name}"
                await asyncio.to_thread(table.start, name, cluster.broker_process(directory, name))
                load.acknowledged.clear()
            for task in senders:
                task.cancel()
    total = sorted(row["total_ms"] for row in rounds)
    figures: dict[str, object] = {
        "kills": kills,
        "median_ms": round(statistics.median(total), 1),
        "p95_ms": round(total[int(0.95 * (len(total) - 1))], 1),
        "worst_ms": round(total[-1], 1),
        "send_errors": load.errors,
    }
    for part in ("detect_ms", "elect_ms", "recover_ms"):
        values = [row[part] for row in rounds if part in row]
        figures[f"median_{part}"] = round(statistics.median(values), 1) if values else None
    return figures


async def _first_acknowledged(load: Load, killed_ns: int) -> int:
    seen = len(load.acknowledged)
    async with asyncio.timeout(60):
        while True:
            for began, ended in load.acknowledged[seen:]:
                if began > killed_ns:
                    return ended
            seen = len(load.acknowledged)
            await asyncio.sleep(0.001)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".", prefix="bench-") as name:
        directory = Path(name).resolve()
        cluster.up(
            directory, base_port=0, namesrv_port=0, detach=True, trace=True, say=lambda _: None
        )
        try:
            figures = uvloop.run(measure(directory, arguments.kills))
        finally:
            cluster.down(directory)
    print(json.dumps(figures))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
