"""Processes that are gone: SIGKILL or SIGTERM to one, a minority, a majority or all of them.

Place in the data path: as `chaos.nemesis.process.node_fault`; restarted when the fault is healed.
After SIGKILL nothing is flushed and no peer is notified: of a whole group only what was fsynced
comes back. After SIGTERM a node hands on what it leads and says goodbye.

Effect: the processes are gone from /proc. Source: Jepsen's kill nemesis; OpenChaos.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.nemesis.base import FaultContext, FaultNotPossibleError, FaultSpec, Observation
from chaos.nemesis.process.node_fault import (
    ChooseNodes,
    NodeFault,
    choose_nodes,
    name_servers,
    target_nodes,
)
from chaos.systems.base import Part

__all__ = ["SPECS", "Downed"]

TERMINATE_TIMEOUT_S: Final = 15.0
_PROBE: Final = "the process is gone from /proc; healed when it answers and knows a leader"
_PARTS: Final = frozenset({Part.PROCESSES})


class Downed(NodeFault):
    """Kills the nodes, or terminates them where `gently`."""

    def __init__(self, context: FaultContext, choose: ChooseNodes, *, gently: bool = False) -> None:
        super().__init__(context, choose)
        self._gently = gently
        self._notes: list[str] = []

    async def inject(self) -> None:
        if not self._gently:
            await asyncio.gather(*(self._context.processes.kill(node) for node in self._nodes))
            return
        for node in self._nodes:  # one after the other: the table of processes is no thread's
            by_itself = await self._context.processes.terminate(node, timeout_s=TERMINATE_TIMEOUT_S)
            self._notes.append(f"{node} {'ended by itself' if by_itself else 'took SIGKILL'}")

    async def probe(self) -> Observation:
        states = [self._context.processes.state(node) for node in self._nodes]
        text = "; ".join([self._states(), *self._notes])
        return Observation(seen=all(state == "gone" for state in states), evidence=text)


def _one_name_server(context: FaultContext) -> list[str]:
    return [context.rng.choice(_live_name_servers(context))]


def _live_name_servers(context: FaultContext) -> list[str]:
    alive = [n for n in name_servers(context) if context.processes.state(n) not in {"gone", "T"}]
    if not alive:
        raise FaultNotPossibleError("no name server runs")
    return alive


def _kill_spec(
    name: str, summary: str, choose: ChooseNodes, *, beyond_majority: bool = False
) -> FaultSpec:
    return FaultSpec(
        name=name,
        summary=summary,
        probe=_PROBE,
        parts=_PARTS,
        make=lambda context: Downed(context, choose),
        seen_elsewhere="Jepsen, Chaos Mesh, OpenChaos",
        beyond_majority=beyond_majority,
    )


SPECS: Final[tuple[FaultSpec, ...]] = (
    FaultSpec(
        name="kill",
        summary="kill -9 of a node, restarted when the fault is healed",
        probe=_PROBE,
        parts=_PARTS,
        make=lambda context: Downed(context, target_nodes),
        seen_elsewhere="Jepsen, Chaos Mesh, OpenChaos, etcd",
        parameters={"target": "leader"},
        choices={"target": ("leader", "follower", "any", "all")},
    ),
    _kill_spec(
        "kill-minority",
        "kill -9 of as many nodes as a group can lose",
        lambda context: choose_nodes(context, "minority"),
    ),
    _kill_spec(
        "kill-majority",
        "kill -9 of a majority: nothing can be acknowledged until they are back",
        lambda context: choose_nodes(context, "majority"),
        beyond_majority=True,
    ),
    _kill_spec(
        "kill-all",
        "kill -9 of every node of a group: only what was fsynced comes back",
        lambda context: choose_nodes(context, "all"),
        beyond_majority=True,
    ),
    FaultSpec(
        name="terminate",
        summary="SIGTERM to a node, restarted when the fault is healed",
        probe=_PROBE,
        parts=_PARTS,
        make=lambda context: Downed(context, target_nodes, gently=True),
        seen_elsewhere="etcd, Redpanda",
        parameters={"target": "leader"},
        choices={"target": ("leader", "follower", "any", "minority")},
    ),
    FaultSpec(
        name="kill-name-server",
        summary="kill -9 of one name server; the others keep the routes",
        probe="the process is gone from /proc; healed when a broker's link to it passes",
        parts=_PARTS,
        make=lambda context: Downed(context, _one_name_server),
        seen_elsewhere="OpenChaos",
    ),
    FaultSpec(
        name="kill-name-servers",
        summary="kill -9 of every name server: they come back knowing no route",
        probe="the processes are gone from /proc; healed when a broker's links to them pass",
        parts=_PARTS,
        make=lambda context: Downed(context, _live_name_servers),
        seen_elsewhere="OpenChaos",
    ),
)
