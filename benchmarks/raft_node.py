"""A group of three RaftNodes in three processes with a trivial state machine.

    python -m benchmarks.raft_node [--seconds 5] [--profile FILE]

Three loads, one after the other: 64 KiB proposals with 4 outstanding (what a broker's batches
look like), small proposals one at a time (latency), small ones with 64 outstanding. Figures:
entries/s, latency p50 and p99, CPU microseconds per entry of the leader's and of each follower's
process. `--profile` writes the leader's cProfile of the first load.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import multiprocessing
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from chaos.cluster.processes import free_ports
from raft.config import RaftConfig
from raft.messages import Index, NodeId
from raft.node.node import RaftNode
from raft.node.node_config import NodeConfig
from raft.replicated_log import CommittedEntry, LogStatus

LOADS = (("64 KiB, 4 outstanding", 65_536, 4), ("100 B, 1", 100, 1), ("100 B, 64", 100, 64))


class Nothing:
    """A state machine that does nothing."""

    def apply(self, entries: Sequence[CommittedEntry]) -> None:
        pass

    def on_role_change(self, status: LogStatus) -> None:
        pass

    needs_indexing = False

    def capture(self) -> Nothing:
        return self

    def encode(self) -> Iterator[bytes]:
        yield from ()

    def prepare_restore(self, index: Index, chunks: Iterable[bytes]) -> Callable[[], None]:
        return lambda: None

    def index_only(self, entries: Sequence[CommittedEntry]) -> None:
        pass

    def trim(self, position: int) -> None:
        pass

    def sync_derived(self) -> None:
        pass


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def load(node: RaftNode, size: int, outstanding: int, seconds: float) -> list[float]:
    """Propose for `seconds`; return the latencies in seconds."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds
    data = os.urandom(size)

    async def propose() -> None:
        while (begin := time.perf_counter()) < end:
            await node.propose(lambda _: data)
            latencies.append(time.perf_counter() - begin)

    async with asyncio.TaskGroup() as group:
        for _ in range(outstanding):
            group.create_task(propose())
    return latencies


async def serve(config: NodeConfig, pipe: Connection, profile: str | None) -> None:
    node = RaftNode(config, Nothing())
    await node.start()
    loop = asyncio.get_running_loop()
    while True:
        request = await loop.run_in_executor(None, pipe.recv)
        match request:
            case "status":
                pipe.send(node.status().ready)
            case "cpu":
                pipe.send(cpu_s())
            case "stop":
                await node.stop()
                return
            case (size, outstanding, seconds):
                profiler = cProfile.Profile() if profile and size > 1000 else None
                if profiler:
                    profiler.enable()
                pipe.send(await load(node, size, outstanding, seconds))
                if profiler and profile:
                    profiler.disable()
                    profiler.dump_stats(profile)


def run_node(config: NodeConfig, pipe: Connection, profile: str | None) -> None:
    interval = os.environ.get("SWITCH_INTERVAL")
    if interval:
        sys.setswitchinterval(float(interval))
    uvloop.run(serve(config, pipe, profile))


def call(pipe: Connection, request: object) -> object:
    pipe.send(request)
    return pipe.recv()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--profile")
    parser.add_argument("--store", type=Path, default=Path.cwd())
    parser.add_argument("--trace", action="store_true")
    arguments = parser.parse_args()
    peers = {
        NodeId(f"n{i}"): f"127.0.0.1:{port}"
        for i, port in enumerate(free_ports(3, random.Random()))
    }
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir=arguments.store, prefix="raft-bench-") as directory:
        pipes: dict[NodeId, Connection] = {}
        for name, address in peers.items():
            config = NodeConfig(
                group="bench",
                raft=RaftConfig(node_id=name, voters=tuple(peers)),
                peers=peers,
                listen=address,
                store=Path(directory) / name,
                secret=b"benchmark secret",
                trace=arguments.trace,
            )
            pipes[name], child = context.Pipe()
            context.Process(target=run_node, args=(config, child, arguments.profile)).start()
        leader = None
        while leader is None:
            leader = next((n for n, pipe in pipes.items() if call(pipe, "status")), None)
        for title, size, outstanding in LOADS:
            before = {name: float(str(call(pipe, "cpu"))) for name, pipe in pipes.items()}
            begin = time.perf_counter()
            latencies = call(pipes[leader], (size, outstanding, arguments.seconds))
            elapsed = time.perf_counter() - begin
            assert isinstance(latencies, list)
            latencies.sort()
            count = len(latencies)
            used = {n: float(str(call(p, "cpu"))) - before[n] for n, p in pipes.items()}
            followers = [used[name] for name in used if name != leader]
            print(
                f"{title:>22}: {count / elapsed:7.0f} entries/s, "
                f"p50 {latencies[count // 2] * 1e3:6.2f} ms, "
                f"p99 {latencies[count * 99 // 100] * 1e3:6.2f} ms, CPU us/entry: "
                f"leader {used[leader] / count * 1e6:.0f}, followers "
                + ", ".join(f"{cpu / count * 1e6:.0f}" for cpu in followers)
            )
        for pipe in pipes.values():
            pipe.send("stop")
        for process in multiprocessing.active_children():
            process.join()


if __name__ == "__main__":
    main()
