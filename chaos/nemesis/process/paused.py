"""Processes that are stopped and go on: SIGSTOP and SIGCONT, once, in turns, many times a second.

Place in the data path: as `chaos.nemesis.process.node_fault`. A node resumes with stale beliefs: a
leader that was paused must not serve reads or acknowledge writes on the strength of what it
believed before (G6). Stopped for most of every period a process is as slow as under a quota of
processor time (`cpu-starved`): alive, late for everything, and never suspected for long.

Effect: state T in /proc. Source: Jepsen's pause nemesis; cpulimit(1); CFS bandwidth control.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.nemesis.base import FaultContext, FaultNotPossibleError, FaultSpec, Observation
from chaos.nemesis.process.node_fault import (
    Campaign,
    NodeFault,
    choose_nodes,
    name_servers,
    target_nodes,
)
from chaos.systems.base import Part

__all__ = ["SPECS", "AlternatingPauses", "Paused", "Starved"]

TURNS_SEEN_MIN: Final = 2
PERIODS_SEEN_MIN: Final = 3
PERIOD_MIN_S: Final = 0.05
_PROBE: Final = "process state T in /proc; healed when it answers and knows a leader"
_PARTS: Final = frozenset({Part.PROCESSES})


class Paused(NodeFault):
    """Stops the nodes until the heal."""

    async def inject(self) -> None:
        for node in self._nodes:
            await self._context.processes.pause(node)

    async def probe(self) -> Observation:
        states = [self._context.processes.state(node) for node in self._nodes]
        return Observation(seen=all(s == "T" for s in states), evidence=self._states())


class AlternatingPauses(Campaign):
    """Pauses the leader, then a follower, and so on, each for `pause_ms`."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context, lambda context: choose_nodes(context, "all"))
        self._paused: list[str] = []

    async def setup(self) -> None:
        await super().setup()
        self._context.require_leader()
        if len(self._nodes) == 1:
            raise FaultNotPossibleError(f"{self._context.group} has one live node alone")

    async def _act(self) -> None:
        context = self._context
        pause_s = float(context.params["pause_ms"]) / 1000
        for turn in range(1 << 30):
            leader = context.leader(context.group)
            followers = [name for name in context.alive() if name != leader]
            node = leader if turn % 2 == 0 else context.rng.choice(followers or [None])
            if node is None:
                await asyncio.sleep(PERIOD_MIN_S)  # no leader yet
                continue
            await context.processes.pause(node)
            if context.processes.state(node) == "T":
                self._paused.append(node)
            await asyncio.sleep(pause_s)
            await context.processes.resume(node)
            await asyncio.sleep(pause_s / 2)

    def _observed(self) -> Observation:
        text = f"{len(self._paused)} pauses seen: {', '.join(self._paused[-6:])}"
        return Observation(seen=len(set(self._paused)) >= TURNS_SEEN_MIN, evidence=text)


class Starved(Campaign):
    """Stops the node for most of every period."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context, target_nodes)
        self._periods = 0
        self._stopped = 0

    async def _act(self) -> None:
        context, node = self._context, self._nodes[0]
        period_s = max(PERIOD_MIN_S, float(context.params["period_ms"]) / 1000)
        share = min(0.95, max(0.05, float(context.params["percent"]) / 100))
        while context.processes.state(node) != "gone":
            self._periods += 1
            await context.processes.pause(node)
            self._stopped += context.processes.state(node) == "T"
            await asyncio.sleep(period_s * (1 - share))
            await context.processes.resume(node)
            await asyncio.sleep(period_s * share)

    def _observed(self) -> Observation:
        text = f"{self._nodes[0]} was seen stopped in {self._stopped} of {self._periods} periods"
        return Observation(seen=self._stopped >= PERIODS_SEEN_MIN, evidence=text)


def _name_servers(context: FaultContext) -> list[str]:
    alive = [n for n in name_servers(context) if context.processes.state(n) not in {"gone", "T"}]
    if not alive:
        raise FaultNotPossibleError("no name server runs")
    return alive


SPECS: Final[tuple[FaultSpec, ...]] = (
    FaultSpec(
        name="pause",
        summary="SIGSTOP of a node, SIGCONT when the fault is healed",
        probe=_PROBE,
        parts=_PARTS,
        make=lambda context: Paused(context, target_nodes),
        seen_elsewhere="Jepsen, etcd, OpenChaos",
        parameters={"target": "leader"},
        choices={"target": ("leader", "follower", "any")},
    ),
    FaultSpec(
        name="pause-minority",
        summary="SIGSTOP of as many nodes as a group can lose",
        probe=_PROBE,
        parts=_PARTS,
        make=lambda context: Paused(context, lambda context: choose_nodes(context, "minority")),
        seen_elsewhere="Jepsen, OpenChaos",
    ),
    FaultSpec(
        name="pause-majority",
        summary="SIGSTOP of a majority: nothing can be acknowledged until they go on",
        probe=_PROBE,
        parts=_PARTS,
        make=lambda context: Paused(context, lambda context: choose_nodes(context, "majority")),
        seen_elsewhere="Jepsen, OpenChaos",
        beyond_majority=True,
    ),
    FaultSpec(
        name="pause-in-turns",
        summary="the leader and a follower are paused in turns, one at a time",
        probe="two nodes or more were seen in state T, one after the other",
        parts=_PARTS,
        make=AlternatingPauses,
        roves=True,
        seen_elsewhere="Redpanda",
        parameters={"pause_ms": 700},
        effect_timeout_s=15.0,
    ),
    FaultSpec(
        name="pause-name-servers",
        summary="SIGSTOP of every name server: connections stay open, nothing is answered",
        probe="process state T in /proc; healed when a broker's links to them pass",
        parts=_PARTS,
        make=lambda context: Paused(context, _name_servers),
        seen_elsewhere="this project",
    ),
    FaultSpec(
        name="cpu-starved",
        summary="a node gets so many percent of its processor time, in short slices",
        probe="the process was seen in state T in three periods or more",
        parts=_PARTS,
        make=Starved,
        seen_elsewhere="Chaos Mesh, OpenChaos",
        parameters={"target": "leader", "percent": 25, "period_ms": 200},
        choices={"target": ("leader", "follower", "any")},
    ),
)
