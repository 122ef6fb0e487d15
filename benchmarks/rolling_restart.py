"""A rolling restart of every node under load: the longest gap between acknowledged sends.

    python -m benchmarks.rolling_restart [--rounds N] [--rate N] [--output FILE]

Starts a cluster of its own, sends 1 KiB messages at a steady rate from one producer with default
settings, and restarts the nodes one after the other as an operator would: SIGTERM, wait for the
end, start, wait until it has caught up. The leader comes last, so that leadership moves as rarely
as possible. Reports the longest gap while each node was restarted, the longest gap without
restarts, and every error that the producer raised.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import uvloop

from chaos.cluster import cluster
from chaos.cluster.broker_status import query_all
from chaos.cluster.layout import BrokerPlace, ClusterLayout
from chaos.cluster.processes import ProcessTable
from client.errors import ClientError
from client.message import Message
from client.produce.producer import Producer

_CAUGHT_UP_TIMEOUT_S = 60.0
_CALM_S = 5.0
_LAG_MAX = 20


class SteadyLoad:
    """Sends at `rate` per second, each in a task of its own; records the time of each answer."""

    def __init__(self, producer: Producer, rate: int) -> None:
        self._producer = producer
        self._rate = rate
        self.acknowledged: list[float] = []
        self.slowest_s = 0.0
        self.errors: list[str] = []

    async def run(self) -> None:
        begin = time.monotonic()
        number = 0
        async with asyncio.TaskGroup() as group:
            while True:
                due = begin + number / self._rate
                while due <= time.monotonic():
                    group.create_task(self._send())
                    number += 1
                    due = begin + number / self._rate
                await asyncio.sleep(due - time.monotonic())

    async def _send(self) -> None:
        began = time.monotonic()
        try:
            await self._producer.send(Message(topic="Rolling", body=bytes(1024)))
        except ClientError as error:
            self.errors.append(f"{type(error).__name__}: {error}"[:200])
            return
        now = time.monotonic()
        self.acknowledged.append(now)
        self.slowest_s = max(self.slowest_s, now - began)

    def longest_gap_ms(self, begin: float, end: float) -> float:
        times = [begin, *(t for t in self.acknowledged if begin <= t <= end), end]
        return round(max(b - a for a, b in pairwise(times)) * 1000, 1)


async def leader_when_whole(layout: ClusterLayout) -> BrokerPlace:
    """Wait until every node answers and has applied nearly all commits; return the leader."""
    by_address = {place.address: place for place in layout.brokers}
    async with asyncio.timeout(_CAUGHT_UP_TIMEOUT_S):
        while True:
            statuses = await query_all(list(by_address))
            leaders = [address for address, status in statuses.items() if status.ready]
            if len(statuses) == len(by_address) and len(leaders) == 1:
                last = statuses[leaders[0]].commit_index
                if all(last - status.applied_index <= _LAG_MAX for status in statuses.values()):
                    return by_address[leaders[0]]
            await asyncio.sleep(0.05)


async def measure(directory: Path, rounds: int, rate: int) -> dict[str, object]:
    layout = cluster.load_layout(directory)
    table = ProcessTable(directory)
    rows: list[dict[str, object]] = []
    async with Producer("rolling", list(layout.name_server_addresses)) as producer:
        load = SteadyLoad(producer, rate)
        task = asyncio.create_task(load.run())
        await asyncio.sleep(2)
        begin = time.monotonic()
        await asyncio.sleep(_CALM_S)
        calm_ms = load.longest_gap_ms(begin, time.monotonic())
        for _ in range(rounds):
            first_leader = await leader_when_whole(layout)
            order = sorted(layout.brokers, key=lambda place: place == first_leader)
            for place in order:
                leads = (await leader_when_whole(layout)) == place
                begin = time.monotonic()
                await asyncio.to_thread(table.stop, [place.name])
                stopped = time.monotonic()
                argv = cluster.broker_process(directory, place.name)
                await asyncio.to_thread(table.start, place.name, argv)
                await leader_when_whole(layout)
                end = time.monotonic()
                row = {
                    "node": place.node,
                    "was_leader": leads,
                    "longest_gap_ms": load.longest_gap_ms(begin, end),
                    "stop_s": round(stopped - begin, 2),
                    "until_whole_s": round(end - begin, 2),
                }
                rows.append(row)
                print(json.dumps(row), flush=True)
        task.cancel()
        await asyncio.wait([task])
    gaps = [float(str(row["longest_gap_ms"])) for row in rows]
    return {
        "cores": os.cpu_count(),
        "rate_per_s": rate,
        "restarts": len(rows),
        "acknowledged": len(load.acknowledged),
        "longest_gap_ms": max(gaps),
        "longest_gap_of_calm_ms": calm_ms,
        "slowest_send_ms": round(load.slowest_s * 1000, 1),
        "producer_errors": len(load.errors),
        "first_errors": load.errors[:5],
        "rows": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--profile", default="lan")
    parser.add_argument("--keep", type=Path, help="directory of the cluster, kept")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".", prefix="bench-") as name:
        directory = (arguments.keep or Path(name)).resolve()
        cluster.up(
            directory,
            base_port=0,
            namesrv_port=0,
            detach=True,
            trace=arguments.keep is not None,
            profile=arguments.profile,
            report=lambda _: None,
        )
        try:
            figures = uvloop.run(measure(directory, arguments.rounds, arguments.rate))
        finally:
            cluster.down(directory)
    print(json.dumps({key: value for key, value in figures.items() if key != "rows"}, indent=2))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
