"""A machine that is lost with all it had, while its peers lacked the newest of that.

Place in the data path: as `chaos.nemesis.store.swapped_disks`; links are cut by `chaos.links`.

A killed process leaves what it had written to its connections to the kernel, which still delivers
it: on one host a replica that follows closely lacks nothing. A machine takes that with it. So the
node is first cut off from its peers, as by a switch that fails, while clients still reach it; after
`ahead_s` it is killed and its store is gone. What it alone had acknowledged meanwhile is lost. A
leader that needs a majority acknowledges nothing then, and a configured master by its mode.

Effect probe: as for a wiped store; the evidence says whether the links were silent. Healed as an
operator replaces a node.

Source: Jepsen's partition then kill; RocketMQ's SYNC_MASTER and ASYNC_MASTER.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.links.base import Link, LinkEffect, both_ways
from chaos.nemesis.base import FaultContext, FaultSpec, Observation, control_probe, links_silent
from chaos.nemesis.store.swapped_disks import WipedStore
from chaos.systems.base import Part

__all__ = ["SPECS", "LostMachine"]


class LostMachine(WipedStore):
    """Cuts a node off from its peers, lets it go on for a while, and wipes it."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context)
        self._control: dict[Link, float] = {}
        self._links: list[Link] = []
        self._alone = ""

    async def setup(self) -> None:
        await super().setup()
        [node] = self._nodes
        others = [name for name in self._context.members() if name != node]
        self._links = both_ways([node], others)
        self._control = await control_probe(self._context.world, self._links)

    async def inject(self) -> None:
        context = self._context
        await context.links.cut(self._links, context.tag)
        await asyncio.sleep(float(context.params["ahead_s"]))
        observed = await links_silent(context.world, self._control)
        words = {True: "was", False: "was not", None: "may have been"}
        self._alone = f"it {words[observed.seen]} cut off from its peers before"
        await super().inject()
        if context.replacements.starts_empty:
            await context.links.heal(context.tag)

    async def probe(self) -> Observation:
        observed = await super().probe()
        return Observation(seen=observed.seen, evidence=f"{observed.evidence}; {self._alone}")

    async def heal(self) -> None:
        """Let the node be replaced. Where that ends its slaves' connections to it, the links pass
        only then: what it had sent into them is lost with it."""
        links, tag = self._context.links, self._context.tag
        if self._context.replacements.starts_empty:
            await links.heal(tag)
            await super().heal()
            return
        try:
            await super().heal()
        finally:
            await links.heal(tag)


SPECS: Final[tuple[FaultSpec, ...]] = (
    FaultSpec(
        name="lost-machine",
        summary="a node is cut off from its peers, goes on, and is lost with its disk",
        probe="as for wiped-store; the evidence says whether it was cut off before",
        parts=frozenset({Part.PROCESSES, Part.STORES, Part.REPLACEMENTS}),
        effects=frozenset({LinkEffect.CUT}),
        make=LostMachine,
        seen_elsewhere="Jepsen, by two nemeses",
        parameters={"target": "leader", "ahead_s": 1.5},
        choices={"target": ("leader", "follower", "any")},
        effect_timeout_s=20.0,
    ),
)
