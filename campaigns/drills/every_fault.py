"""Every fault of the catalogue once, on a live local cluster under light load.

    python -m campaigns.drills.every_fault [--faults NAME ...] [--seed S] [--output FILE] [--again]

Each fault is injected, observed, healed and observed to be healed, as an experiment does it
(`chaos.experiment.nemesis_runner`), while a few clients send, pull and commit. The faults share a
cluster; one that leaves it unhealed gets its followers a new one. A figure that is in FILE is not
measured again without `--again`, so that an interrupted drill goes on.

Prints a table of name, taken, healed, seconds. Not part of `make test`; `make drills` runs it.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from chaos.experiment.load import TOOL_SLOT, Workload, slot_names
from chaos.experiment.nemesis_runner import Nemesis
from chaos.experiment.quiesce import await_caught_up
from chaos.experiment.world_catalogue import WORLDS
from chaos.nemesis.catalogue import CATALOGUE
from chaos.recording.history import HistoryWriter
from chaos.scenario.scenario import FaultStep, Scenario, parse_scenario
from chaos.systems.watch import ClusterWatch
from chaos.workload.context import WorkContext
from chaos.workload.offset_reader import make_tool
from chaos.workload.topics import make_topics
from chaos.worlds.host import WorldOptions
from chaos.worlds.world import World

FAULT_S = 4.0
CAUGHT_UP_S = 40.0
PER_CLUSTER_MAX = 25
TRIES_MAX = 3  # a fault may find no target for a moment, or be too slow to see its effect
SCENARIO = """
name = "every-fault"
[cluster]
replicas = {replicas}
spares = 1
{cluster}
[workload]
topics = ["orders"]
queues = 2
body_bytes = {body_bytes}
plain_clients = 1
plain_processes = 2
send_rate = 30
transaction_clients = 1
transaction_processes = 1
transaction_rate = 5
push_clients = 1
pull_clients = 1
"""
# Parameters under which a short drill can see the fault; the others have their defaults.
PARAMETERS: dict[str, dict[str, str | int | float | bool]] = {
    "drop-frames": {"percent": 100},
    "delay-frames": {"percent": 100},
    "duplicate-frames": {"percent": 100},
    "reorder-frames": {"percent": 100, "codes": "all"},
    "damage-frames": {"codes": "send", "part": "header"},
    "full-disk": {"headroom": 1},
}
NEEDS_FIVE = {"partition-ring"}
# A log that is cut soon, so that a follower that was down is sent a snapshot.
NEEDS_SHORT_LOG = {"kill-in-install"}
SHORT_LOG = """
[cluster.raft]
segment_size_bytes_max = 131072
[cluster.broker]
log_size_bytes_max = 524288
"""
SHORT_LOG_S = 90.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row of the table."""

    name: str
    effect: str
    healed: bool
    effect_s: float | None
    heal_s: float | None
    evidence: str


class Drill:
    """One cluster with its clients, on which faults are tried one after the other."""

    def __init__(self, root: Path, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.root = root
        self.rng = random.Random(seed)
        self.broken = False

    async def run(self, names: list[str], report: dict[str, Figure]) -> None:
        """Try the faults; stop early where one leaves the cluster unhealed."""
        spec = WORLDS["local"]
        layout = spec.lay_out(self.scenario, self.root, {})
        world = spec.make_host(1, {}).make_world(
            WorldOptions(
                run=self.root,
                layout=layout,
                client_slots=slot_names(self.scenario),
                toxiproxy_url=None,
                rng=self.rng,
            )
        )
        try:
            await world.start()
            started = time.monotonic_ns()
            with HistoryWriter(self.root / "history.msgpack", started_ns=started) as history:
                await self._under_load(world, history, names, report)
        finally:
            await world.abort()

    async def _under_load(
        self, world: World, history: HistoryWriter, names: list[str], report: dict[str, Figure]
    ) -> None:
        context = WorkContext(
            scenario=self.scenario,
            world=world,
            history=history,
            queues=(),
            nodes={place.address: place.node for place in world.layout.brokers},
        )
        async with make_tool(context, context.slot(TOOL_SLOT, random.Random(1))) as tool:
            queues = await make_topics(
                tool,
                list(world.layout.groups),
                self.scenario.workload.topics,
                queues=self.scenario.workload.queues,
                deadline_s=asyncio.get_running_loop().time() + 30,
            )
        context = dataclasses.replace(context, queues=queues)
        watch = ClusterWatch(world.system)
        workload = Workload(context, random.Random(2))
        tasks = [asyncio.create_task(watch.run()), asyncio.create_task(workload.run())]
        try:
            for name in names:
                if name in NEEDS_SHORT_LOG:
                    await _await_cut(watch)
                figure = await self._try(world, history, watch, name)
                for _ in range(TRIES_MAX - 1):
                    if figure.effect == "taken":
                        break
                    figure = await self._try(world, history, watch, name)
                report[name] = figure
                print(_line(figure), flush=True)
                deadline_s = asyncio.get_running_loop().time() + CAUGHT_UP_S
                behind = await await_caught_up(world, watch, deadline_s=deadline_s)
                if behind or not figure.healed:
                    print(f"    behind: {[place.name for place in behind]}", flush=True)
                    return
                assert not tasks[1].done() or tasks[1].result() is None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _try(
        self, world: World, history: HistoryWriter, watch: ClusterWatch, name: str
    ) -> Figure:
        spec = CATALOGUE[name]
        params = {**spec.parameters, **PARAMETERS.get(name, {})}
        step = FaultStep(name=name, at_s=0, duration_s=FAULT_S, group=None, params=params)
        nemesis = Nemesis(world, history, watch, random.Random(self.rng.getrandbits(32)))
        await nemesis.run([step])
        (fault,) = nemesis.faults
        return Figure(
            name=name,
            effect=fault.effect,
            healed=fault.t_healed is not None,
            effect_s=_seconds(fault.t_start, fault.t_effect),
            heal_s=_seconds(fault.t_heal, fault.t_healed),
            evidence=fault.evidence,
        )


def _seconds(begin: int | None, end: int | None) -> float | None:
    return None if begin is None or end is None else round((end - begin) / 1e9, 2)


def _line(figure: Figure) -> str:
    taken = "-" if figure.effect_s is None else f"{figure.effect_s:.2f}"
    healed = "-" if figure.heal_s is None else f"{figure.heal_s:.2f}"
    text = f"{figure.name:30} {figure.effect:10} {'healed' if figure.healed else 'NOT HEALED':10}"
    text += f" effect {taken:>6} s  heal {healed:>6} s"
    if figure.effect != "taken" or not figure.healed:
        text += f"  {figure.evidence[:160]}"
    return text


async def _await_cut(watch: ClusterWatch) -> None:
    """Wait until every node has dropped the beginning of its log, or time is up."""
    deadline = asyncio.get_running_loop().time() + SHORT_LOG_S
    while asyncio.get_running_loop().time() < deadline:
        if watch.statuses and all(s.first_index > 1 for s in watch.statuses.values()):
            return
        await asyncio.sleep(0.5)


def _cluster_of(name: str) -> tuple[int, bool]:
    """Return the nodes that the fault's cluster needs, and whether its log is short."""
    return 5 if name in NEEDS_FIVE else 3, name in NEEDS_SHORT_LOG


def _scenario(replicas: int, short_log: bool) -> Scenario:
    text = SCENARIO.format(
        replicas=replicas,
        cluster=SHORT_LOG if short_log else "",
        body_bytes=16_384 if short_log else 256,
    )
    return parse_scenario(text, name="every-fault")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", nargs="+", default=list(CATALOGUE))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep the cluster's directory")
    arguments = parser.parse_args()
    report: dict[str, Figure] = {}
    if arguments.output is not None and arguments.output.exists() and not arguments.again:
        rows = json.loads(arguments.output.read_text())
        report = {row["name"]: Figure(**row) for row in rows}
    for name in arguments.faults:
        if name not in CATALOGUE:
            parser.error(f"there is no fault {name}")
    failed: set[str] = set()
    while todo := [n for n in arguments.faults if n not in report and n not in failed]:
        cluster = _cluster_of(todo[0])
        part = [name for name in todo if _cluster_of(name) == cluster][:PER_CLUSTER_MAX]
        before = set(report)
        root = Path(tempfile.mkdtemp(prefix="drill-", dir=".")).resolve()
        try:
            uvloop.run(Drill(root, _scenario(*cluster), arguments.seed).run(part, report))
        finally:
            if arguments.output is not None:
                rows = [dataclasses.asdict(figure) for figure in report.values()]
                arguments.output.write_text(json.dumps(rows, indent=1) + "\n")
            if not arguments.keep:
                shutil.rmtree(root)
        if set(report) == before:  # a cluster on which nothing could be tried
            failed.add(part[0])
    taken = [f for f in report.values() if f.effect == "taken" and f.healed]
    print(f"{len(taken)} of {len(CATALOGUE)} faults were seen to take effect and to heal")
    return 0 if len(taken) == len(CATALOGUE) else 1


if __name__ == "__main__":
    sys.exit(main())
