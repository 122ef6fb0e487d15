"""Two source trees beside one another: groups of three of each, loaded in turns, in one run.

    python -m benchmarks.two_trees BEFORE AFTER [--in-flight N] [--batch N] [--rounds N]

BEFORE and AFTER are clones, each with its `.venv`. Times of a shared machine differ by a factor of
2.5 from minute to minute, so only what was taken in alternation is compared: processor
microseconds and voluntary context switches for a message, by process, less what an idle broker
takes, messages a second and latencies. Medians are printed with their quartiles, and the median of
the ratios within the rounds. `--preferred` gives brokers and load a higher priority, `--directory
/dev/shm/x` takes the disk out of the comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.cluster_throughput import load

_IDLE_S = 2.0
_WARM_S = 2.0
_AGAIN_S = 0.3
_PREFERRED = -10
_FIGURES = ("messages/s", "p50 ms", "p99 ms", "us", "us leader", "us follower", "switches leader")


@dataclass
class Group:
    """A cluster of one tree; `pids` are those of its brokers, the leader's first."""

    name: str
    tree: Path
    directory: Path
    address: str = ""
    pids: list[int] = field(default_factory=list)
    idle_us: list[float] = field(default_factory=list)  # a second, by process
    rows: list[dict[str, float]] = field(default_factory=list)

    def run(self, *arguments: str) -> str:
        """Run the tree's own command line. Raises CalledProcessError."""
        python = self.tree / ".venv" / "bin" / "python"
        return subprocess.run(
            [str(python), "-m", "ledgermq", *arguments],
            cwd=self.tree,
            env={**os.environ, "PYTHONPATH": str(self.tree)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def start(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        ports = ("--base-port", "0", "--namesrv-port", "0")
        self.run("cluster", "up", str(self.directory), *ports, "--detach")
        nodes = json.loads(self.run("cluster", "status", str(self.directory), "--json"))["nodes"]
        nodes.sort(key=lambda node: node["role"] != "leader")
        self.address = nodes[0]["address"]
        self.pids = [node["pid"] for node in nodes]

    def stop(self) -> None:
        self.run("cluster", "down", str(self.directory))
        shutil.rmtree(self.directory, ignore_errors=True)


def used(pid: int) -> tuple[float, int]:
    """Return processor microseconds and voluntary context switches of all threads so far."""
    cpu_ns = switches = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            cpu_ns += int((task / "schedstat").read_text().split()[0])
            status = (task / "status").read_text()
        except FileNotFoundError:  # it has ended since
            continue
        switches += int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return cpu_ns / 1000, switches


def note_idle(group: Group) -> None:
    before, began = [used(pid) for pid in group.pids], time.monotonic()
    time.sleep(_IDLE_S)
    took = time.monotonic() - began
    after = [used(pid) for pid in group.pids]
    group.idle_us = [(b[0] - a[0]) / took for a, b in zip(before, after, strict=True)]


def measure(group: Group, seconds: float, options: dict[str, Any]) -> None:
    uvloop.run(load(group.address, **options, seconds=_AGAIN_S))
    before, began = [used(pid) for pid in group.pids], time.monotonic()
    result = uvloop.run(load(group.address, **options, seconds=seconds))
    took, after = time.monotonic() - began, [used(pid) for pid in group.pids]
    if not result.messages:
        print(f"{group.name}: nothing was stored; is {group.address} still the leader?")
        return
    rows = zip(before, after, group.idle_us, strict=True)
    cpu_us = [(b[0] - a[0] - idle * took) / result.messages for a, b, idle in rows]
    group.rows.append(
        {
            "messages/s": result.messages / result.elapsed_s,
            "p50 ms": result.quantile_ms(0.5),
            "p99 ms": result.quantile_ms(0.99),
            "us": sum(cpu_us),
            "us leader": cpu_us[0],
            "us follower": statistics.mean(cpu_us[1:]),
            "switches leader": (after[0][1] - before[0][1]) / result.messages,
        }
    )


def report(before: Group, after: Group) -> None:
    for figure in _FIGURES:
        texts = []
        for group in (before, after):
            low, middle, high = statistics.quantiles([row[figure] for row in group.rows], n=4)
            texts.append(f"{group.name} {middle:,.4g} ({low:,.4g}-{high:,.4g})")
        pairs = zip(before.rows, after.rows, strict=False)
        ratio = statistics.median([b[figure] / a[figure] for a, b in pairs])
        print(f"{figure:16} {'; '.join(texts)}; ratio {ratio:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--directory", type=Path, default=Path("two-trees"))
    parser.add_argument("--preferred", action="store_true")
    arguments = parser.parse_args()
    base = arguments.directory.resolve()
    groups = [
        Group("before", arguments.before.resolve(), base / "before"),
        Group("after", arguments.after.resolve(), base / "after"),
    ]
    options = {
        "topic": "Bench",
        "queues": 4,
        "body_size": 1024,
        "in_flight": arguments.in_flight,
        "batch": arguments.batch,
    }
    started: list[Group] = []
    try:
        for group in groups:
            started.append(group)
            group.start()
            if arguments.preferred:
                for pid in (os.getpid(), *group.pids):
                    os.setpriority(os.PRIO_PROCESS, pid, _PREFERRED)
            uvloop.run(load(group.address, **options, seconds=_WARM_S))
            note_idle(group)
        for turn in range(arguments.rounds):
            for group in groups if turn % 2 == 0 else groups[::-1]:
                measure(group, arguments.seconds, options)
        report(*groups)
    finally:
        for group in started:
            group.stop()


if __name__ == "__main__":
    main()
