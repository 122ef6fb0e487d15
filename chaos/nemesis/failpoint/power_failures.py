"""Power failures: nodes are killed, and what no fsync had covered is taken from their stores.

Place in the data path: act on processes and `chaos.systems.base.Stores.lose_unsynced`. A kill alone
leaves the page cache, so that everything written comes back; only this shows what a node had
promised before its disk had it.

Effect probe: the processes are gone, and the undo of un-fsynced writes says what was lost. Healed
when they run again and know a leader.

Source: LazyFS; Jepsen's use of it.
"""

from __future__ import annotations

from typing import Final

from chaos.nemesis.base import FaultContext, FaultSpec, Observation
from chaos.nemesis.process.node_fault import NodeFault, target_nodes
from chaos.systems.base import Part

__all__ = ["SPECS", "PowerFailure"]


class PowerFailure(NodeFault):
    """Kills some nodes and takes their un-fsynced writes."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context, target_nodes)
        self._lost: dict[str, str] = {}

    async def inject(self) -> None:
        for node in self._nodes:
            await self._context.processes.kill(node)
        for node in self._nodes:
            lost = await self._context.stores.lose_unsynced(node)
            if lost is not None:
                self._lost[node] = lost

    async def probe(self) -> Observation:
        known = len(self._lost) == len(self._nodes)
        gone = all(self._context.processes.state(node) == "gone" for node in self._nodes)
        text = "; ".join([self._states(), *self._lost.values()])
        return Observation(seen=gone if known else None, evidence=text)


SPECS: Final = (
    FaultSpec(
        name="power-failure",
        summary="nodes lose power: killed, and without what no fsync had covered",
        probe="the processes are gone, and the undo of un-fsynced writes says what was lost",
        make=PowerFailure,
        parts=frozenset({Part.PROCESSES, Part.POWER}),
        seen_elsewhere="Jepsen with LazyFS",
        parameters={"target": "leader"},
        choices={"target": ("leader", "follower", "any", "minority", "majority", "all")},
    ),
    FaultSpec(
        name="power-failure-all",
        summary="the whole group loses power at once",
        probe="the processes are gone, and the undo of un-fsynced writes says what was lost",
        make=PowerFailure,
        parts=frozenset({Part.PROCESSES, Part.POWER}),
        seen_elsewhere="Jepsen with LazyFS",
        parameters={"target": "all"},
        choices={"target": ("all",)},
        beyond_majority=True,
    ),
)
