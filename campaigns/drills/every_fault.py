"""Every fault of the catalogue once, on a live cluster of this host under light load.

    python -m campaigns.drills.every_fault [--faults NAME ...] [--seed S] [--page FILE] [--again]
        [--release FOLDER, COMMIT OR TAG]

Each fault is injected, observed, healed and observed to be healed, as an experiment does it
(`chaos.experiment.nemesis_runner`), while a few clients send, pull and commit. Faults that need the
same kind of cluster (`Needs`) share one; one that leaves it unhealed gets its followers a new one.
A figure that is in FILE is not measured again without `--again`, so that an interrupted drill goes
on; FILE is `docs/FAULT_DRILL.md`, which a test compares with the catalogue.

Prints a table of name, taken, healed, seconds. Not part of `make test`; `make drills` runs it.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from campaigns.drills.fault_figures import Figure, read_page, write_page
from chaos.experiment.load import TOOL_SLOT, Workload, slot_names
from chaos.experiment.nemesis_runner import Nemesis
from chaos.experiment.quiesce import await_caught_up
from chaos.experiment.world_catalogue import WORLDS, worlds_of
from chaos.nemesis.catalogue import CATALOGUE
from chaos.recording.history import HistoryWriter
from chaos.scenario.scenario import FaultStep, Scenario, parse_scenario
from chaos.systems.base import Part
from chaos.systems.watch import ClusterWatch
from chaos.workload.context import WorkContext
from chaos.workload.offset_reader import make_tool
from chaos.workload.topics import make_topics
from chaos.worlds.host import Host, WorldOptions
from chaos.worlds.world import World

FAULT_S = 4.0
CAUGHT_UP_S = 40.0
PER_CLUSTER_MAX = 25
OLDER_RELEASE = "f2559e2"  # 0.2.0
TRIES_MAX = 3  # a fault may find no target for a moment, or be too slow to see its effect
SCENARIO = """
name = "every-fault"
[cluster]
replicas = {replicas}
spares = 1
failpoints = {failpoints}
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


# Tried in this order: where a fault can be injected in several, the first one is drilled.
_WORLDS = ("local", "netns")
_WITH_FAILPOINTS = frozenset({Part.FAILPOINTS, Part.DISKS, Part.CLOCKS, Part.POWER})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What the cluster has to be like for a fault; those with equal needs share one."""

    world: str
    replicas: int
    short_log: bool
    failpoints: bool
    release: bool


class Drill:
    """One cluster with its clients, on which faults are tried one after the other."""

    def __init__(self, root: Path, needs: Needs, *, seed: int, release: str) -> None:
        self.world = needs.world
        spec = WORLDS[self.world]
        self.settings = spec.settings_with({"release": release} if needs.release else {})
        self.scenario = _scenario(needs)
        self.root = root
        self.rng = random.Random(seed)
        self.broken = False

    def run(self, names: list[str], report: dict[str, Figure]) -> None:
        """Try the faults; stop early where one leaves the cluster unhealed."""
        host = WORLDS[self.world].make_host(1, self.settings)
        host.run(lambda: self._run(host, names, report))

    async def _run(self, host: Host, names: list[str], report: dict[str, Figure]) -> None:
        layout = WORLDS[self.world].lay_out(self.scenario, self.root, self.settings)
        world = host.make_world(
            WorldOptions(
                run=self.root,
                layout=layout,
                client_slots=slot_names(self.scenario),
                toxiproxy_url=None,
                rng=self.rng,
                failpoints=self.scenario.cluster.failpoints,
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
            world=self.world,
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


def needs_of(name: str) -> Needs:
    """Return what the fault's cluster has to be like."""
    spec = CATALOGUE[name]
    possible = worlds_of(spec.parts, spec.effects)
    return Needs(
        world=next(world for world in _WORLDS if world in possible),
        replicas=5 if name in NEEDS_FIVE else 3,
        short_log=name in NEEDS_SHORT_LOG,
        failpoints=bool(spec.parts & _WITH_FAILPOINTS),
        release=Part.RELEASES in spec.parts,
    )


def _scenario(needs: Needs) -> Scenario:
    text = SCENARIO.format(
        replicas=needs.replicas,
        failpoints=str(needs.failpoints).lower(),
        cluster=SHORT_LOG if needs.short_log else "",
        body_bytes=16_384 if needs.short_log else 256,
    )
    return parse_scenario(text, name="every-fault")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", nargs="+", default=list(CATALOGUE))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", type=Path, help="what is known already, and written anew")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--release", default=OLDER_RELEASE, help="a folder, a commit or a tag")
    parser.add_argument("--keep", action="store_true", help="keep the cluster's directory")
    arguments = parser.parse_args()
    page: Path | None = arguments.page
    for name in arguments.faults:
        if name not in CATALOGUE:
            parser.error(f"there is no fault {name}")
    report: dict[str, Figure] = {}
    if page is not None and page.exists():
        report = {figure.name: figure for figure in read_page(page.read_text(encoding="utf-8"))}
    todo = [name for name in arguments.faults if arguments.again or name not in report]
    while todo:
        needs = needs_of(todo[0])
        part = [name for name in todo if needs_of(name) == needs][:PER_CLUSTER_MAX]
        measured: dict[str, Figure] = {}
        root = Path(tempfile.mkdtemp(prefix="drill-", dir=".")).resolve()
        try:
            drill = Drill(root, needs, seed=arguments.seed, release=arguments.release)
            drill.run(part, measured)
        finally:
            report |= measured
            if page is not None:
                page.write_text(write_page(report.values()), encoding="utf-8")
            if not arguments.keep:
                shutil.rmtree(root)
        # A cluster on which nothing could be tried says that of the first one.
        done = set(measured) or {part[0]}
        todo = [name for name in todo if name not in done]
    taken = [f for f in report.values() if f.effect == "taken" and f.healed]
    print(f"{len(taken)} of {len(CATALOGUE)} faults were seen to take effect and to heal")
    return 0 if len(taken) == len(CATALOGUE) else 1


if __name__ == "__main__":
    sys.exit(main())
