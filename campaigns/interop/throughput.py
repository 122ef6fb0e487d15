"""Throughput beside Apache RocketMQ: its own Java client loads ours and its modes, in turns.

    python -m campaigns.interop.throughput [--systems ours,dledger,...] [--kinds send,batch,...]
        [--rounds N] [--seconds S] [--output FILE]

Place: a campaign; its clusters are real processes on loopback. Each round starts each system once
and runs one Java machine against it, kind after kind: sends in flight, batches of 32, one send at a
time, transactions, consuming what was sent. Rates of different hours are not comparable, so
everything stands beside something of the same round; figures are medians over the rounds.

What an answer means differs: ours, and DLedger's, come when a majority has the message, ours from
its disk; SYNC_MASTER's when a slave has it too, ASYNC_MASTER's when the master has it. None of
RocketMQ's is fsynced first, unless the mode's name ends in -flush.

RocketMQ runs as in earnest: both compilers, the collector and queue times of its own scripts. Its
brokers take long to get warm: six seconds are not enough for the first load of DLedger.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from campaigns.interop.run import JAVA_CLIENTS
from campaigns.interop.toolchain import Toolchain
from chaos.cluster import cluster
from chaos.cluster.rocketmq_layout import MODES, lay_out_rocketmq, mode_of
from chaos.cluster.rocketmq_ports import free_rocketmq_ports
from chaos.systems.rocketmq.launch import JavaTuning
from chaos.systems.rocketmq.system import RocketmqSystem


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """One way to run a group of ours: its engine, and the settings of its brokers."""

    engine: str = "raft"
    replicas: int = 3
    settings: Mapping[str, str] = field(default_factory=dict)


OURS: Final[Mapping[str, Ours]] = {
    "ours": Ours(),
    "ours-thread": Ours(settings={"fsync_by": "thread"}),
    **{
        f"ours-{engine}-{flush}": Ours(engine=engine, replicas=2, settings={"flush": flush})
        for engine in ("async", "sync")
        for flush in ("async", "sync")
    },
}
KINDS: Final = ("send", "batch", "one", "transaction", "consume")
MARK: Final = "@@"
_CLIENT: Final = "java-5.5.0"
_BROKERS: Final = {True: 3, False: 2}  # of a majority; of a master and its slave
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_EARNEST: Final = JavaTuning(
    broker_heap="1g",
    name_server_heap="256m",
    flags=("-XX:+UseG1GC", "-XX:+AlwaysPreTouch"),
    broker={
        "mappedFileSizeCommitLog": 256 * 1024 * 1024,
        "mappedFileSizeConsumeQueue": 6_000_000,
        "maxHashSlotNum": 5_000_000,
        "maxIndexNum": 20_000_000,
        "waitTimeMillsInSendQueue": 1_000,
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A cluster that takes load: its name servers, and the processes of its brokers."""

    name_servers: str
    pids: list[int]


@contextlib.asynccontextmanager
async def running(system: str, directory: Path, version: str) -> AsyncIterator[Running]:
    """Start the system in `directory`, and stop it afterwards."""
    if system in OURS:
        ours = OURS[system]
        await asyncio.to_thread(
            cluster.up,
            directory,
            engine=ours.engine,
            replicas=ours.replicas,
            base_port=0,
            namesrv_port=0,
            detach=True,
            settings=ours.settings,
            report=lambda _: None,
        )
        try:
            status = await asyncio.to_thread(cluster.status, directory)
            pids = [node.pid for node in status.nodes if node.pid is not None]
            yield Running(name_servers=";".join(status.name_servers), pids=pids)
        finally:
            await asyncio.to_thread(cluster.down, directory)
        return
    mode = mode_of(system)
    assert mode is not None
    replicas = _BROKERS[mode.is_dledger]
    layout = lay_out_rocketmq(
        groups=1,
        replicas=replicas,
        name_servers=1,
        engine=system,
        ports=free_rocketmq_ports(1 + 2 * replicas, random.Random()),
        broker_settings={},
    )
    rocketmq = RocketmqSystem(directory, layout, version=version, tuning=_EARNEST)
    await rocketmq.start({})
    try:
        found = [rocketmq.processes.pid(place.name) for place in layout.brokers]
        yield Running(
            name_servers=";".join(layout.name_server_addresses),
            pids=[pid for pid in found if pid is not None],
        )
    finally:
        await rocketmq.stop()


def cpu_s(pids: Sequence[int]) -> float:
    """Return the user and system time that these processes have used."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICKS


def loaded(words: Sequence[str], pids: Sequence[int], log: Path) -> Iterator[dict[str, Any]]:
    """Run the Java program; yields each kind's figures, with the brokers' processor time."""
    with (
        log.open("w", encoding="utf-8") as output,
        subprocess.Popen(
            list(words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        assert process.stdout is not None
        before = 0.0
        for line in process.stdout:
            output.write(line)
            if not line.startswith(MARK):
                continue
            row = json.loads(line.removeprefix(MARK))
            if "begin" in row:
                before = cpu_s(pids)
                continue
            row["broker_cpu_s"] = cpu_s(pids) - before
            yield row
        code = process.wait()
    if code != 0:
        raise SystemExit(f"the Java program ended with {code}: see {log}")


def figures_of(row: dict[str, Any]) -> dict[str, float]:
    """Return a stretch's figures: rates and processor times, of a message each."""
    messages = max(1, row["messages"])
    return {
        "messages_per_s": row["messages"] / row["seconds"],
        "p50_ms": row["p50_ms"],
        "p99_ms": row["p99_ms"],
        "refused": row["refused"],
        "broker_us": row["broker_cpu_s"] / messages * 1e6,
        "client_us": row["client_cpu_s"] / messages * 1e6,
    }


async def one_round(
    system: str, options: argparse.Namespace, tools: Toolchain, directory: Path
) -> dict[str, dict[str, float]]:
    """Start the system, load it, stop it; figures by kind."""
    built = tools.java_client(JAVA_CLIENTS[_CLIENT])
    async with running(system, directory / "cluster", options.version) as target:
        words = [
            *(tools.require_java(), "-Xmx1g", f"-Duser.home={directory}"),
            *("-cp", f"{built / 'classes'}:{built / 'lib'}/*", "interop.Main", "load"),
            *(target.name_servers, ",".join(options.kinds)),
            *(str(options.seconds), str(options.warm)),
            *(str(options.in_flight), str(options.batches), str(options.body)),
        ]
        log = directory / "client.log"
        return await asyncio.to_thread(
            lambda: {row["end"]: figures_of(row) for row in loaded(words, target.pids, log)}
        )


def medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median([one[name] for one in rounds]), 2) for name in rounds[0]}


def table(found: dict[str, dict[str, dict[str, float]]], kinds: Sequence[str]) -> str:
    """Return a Markdown table: messages a second, p50 of a request, and processor time of brokers
    and of the client for a message, by system and kind."""
    lines = [f"| | {' | '.join(kinds)} |", f"|{'---|' * (len(kinds) + 1)}"]
    for system, by_kind in found.items():
        cells = [_cell(kind, by_kind[kind]) for kind in kinds]
        lines.append(f"| {system} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(kind: str, one: dict[str, float]) -> str:
    latency = "" if kind == "consume" else f"p50 {one['p50_ms']:.2f} ms, "  # nobody asks there
    used = f"{one['broker_us']:.0f} + {one['client_us']:.0f} us"
    return f"{one['messages_per_s']:,.0f}/s, {latency}{used}"


def _names(known: Sequence[str]) -> Any:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: known are {', '.join(known)}")
        return names

    return parse


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    systems = [*OURS, *MODES]
    usual = ["ours", "dledger", "async-master", "sync-master"]
    parser.add_argument("--systems", type=_names(systems), default=usual)
    parser.add_argument("--kinds", type=_names(KINDS), default=list(KINDS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each kind")
    parser.add_argument(
        "--warm", type=float, default=20.0, help="seconds before each kind that do not count"
    )
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--batches", type=int, default=16, help="batches of 32 in flight")
    parser.add_argument("--body", type=int, default=1024, help="bytes")
    parser.add_argument("--version", default="5.5.0", help="of Apache RocketMQ")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    tools = Toolchain.look_up()
    parent = Path("runs")
    parent.mkdir(exist_ok=True)
    rounds: dict[str, list[dict[str, dict[str, float]]]] = {name: [] for name in options.systems}
    for number in range(1, options.rounds + 1):
        for system in options.systems:
            with tempfile.TemporaryDirectory(prefix="beside-", dir=parent) as name:
                found = asyncio.run(one_round(system, options, tools, Path(name).resolve()))
            rounds[system].append(found)
            print(f"round {number}\n{table({system: found}, options.kinds)}", flush=True)
    middle = {
        system: {kind: medians([one[kind] for one in ones]) for kind in options.kinds}
        for system, ones in rounds.items()
    }
    print(table(middle, options.kinds))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        document = {
            "rocketmq": options.version,
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "medians": middle,
            "rounds": rounds,
        }
        options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
