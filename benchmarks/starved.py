"""Leader changes without a fault, on a machine with far more work than cores.

A group of three under a steady load of sends, beside processes that only burn the processor. Counts
terms, since each election, won or tried, is one, and reports how many sends were acknowledged and
how long the longest wait was.

    python -m benchmarks.starved --seconds 120 --hogs 16 --output figures/starved.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

from chaos.cluster import cluster
from client.errors import ClientError
from client.message import Message
from client.produce.producer import Producer

RATE_PER_S = 200


def burn() -> None:
    while True:
        pass


async def load(name_servers: list[str], seconds: float) -> dict[str, float]:
    acked = failed = 0
    longest = 0.0
    end = time.monotonic() + seconds
    at_once = asyncio.Semaphore(64)

    async def one(producer: Producer, number: int) -> None:
        nonlocal acked, failed, longest
        async with at_once:
            began = time.monotonic()
            try:
                await producer.send(Message(topic="Starved", body=bytes(1024), keys=(f"{number}",)))
                acked += 1
            except ClientError:
                failed += 1
            longest = max(longest, time.monotonic() - began)

    async with Producer("starved", name_servers) as producer, asyncio.TaskGroup() as tasks:
        number = 0
        while time.monotonic() < end:
            number += 1
            tasks.create_task(one(producer, number))
            await asyncio.sleep(1 / RATE_PER_S)
    return {"acknowledged": acked, "failed": failed, "longest_s": round(longest, 2)}


def terms(directory: Path) -> int:
    """Return the highest term that a node reports; poll until one does."""
    while True:
        current = [node.term for node in cluster.status(directory).nodes if node.term is not None]
        if current:
            return max(current)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--hogs", type=int, default=16)
    parser.add_argument("--profile", default="lan", help="fast: elections after 120 ms")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        up = cluster.up(
            root,
            profile=arguments.profile,
            namesrv_port=0,
            base_port=0,
            detach=True,
            report=lambda _: None,
        )
        context = multiprocessing.get_context("spawn")
        hogs = [context.Process(target=burn, daemon=True) for _ in range(arguments.hogs)]
        try:
            before = terms(root)
            for hog in hogs:
                hog.start()
            result = asyncio.run(load(list(up.name_servers), arguments.seconds))
            after = terms(root)
        finally:
            for hog in hogs:
                if hog.pid is not None:
                    hog.kill()
            cluster.down(root)
        stalls = [
            line
            for path in sorted((root / "output").glob("broker-*.log"))
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
            if "held up" in line
        ]
    figures = {
        "seconds": arguments.seconds,
        "hogs": arguments.hogs,
        "profile": arguments.profile,
        "term_changes": after - before,
        "stall_lines": len(stalls),
        **result,
    }
    sys.stdout.write("\n".join([*stalls[-12:], json.dumps(figures)]) + "\n")
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
