"""Cuts that move while the fault lasts: flapping links, and nodes cut off one after the other.

Place in the data path: as `chaos.nemesis.network.partitions`; what moves is a task of the fault's
own, which `heal` ends before it removes the cuts.

Invariants: each cut has a tag of its own below the fault's, and `heal` removes every tag that may
be there; an error of the task is raised by the next probe.

Source: FoundationDB's swizzled clogging (cut one by one, heal in another order); Jepsen's flapping
links.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.links.base import Link, LinkEffect, both_ways
from chaos.nemesis.base import (
    FaultContext,
    FaultNotPossibleError,
    FaultSpec,
    Observation,
    control_probe,
    links_pass,
    links_silent,
)

__all__ = ["SPECS", "FlappingLinks", "SwizzledCuts"]

PAUSE_MIN_S: Final = 0.02


class FlappingLinks:
    """Cuts the links of one node to its peers and lets them pass again, over and over."""

    def __init__(self, context: FaultContext) -> None:
        self._context = context
        self._links: list[Link] = []
        self._control: dict[Link, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._silent = 0
        self._passing = 0

    @property
    def targets(self) -> list[str]:
        return [str(link) for link in self._links]

    async def setup(self) -> None:
        node = self._context.pick(str(self._context.params["target"]))
        self._links = both_ways([node], [n for n in self._context.members() if n != node])
        self._control = await control_probe(self._context.world, self._links)

    async def inject(self) -> None:
        self._task = asyncio.create_task(self._flap(), name=f"{self._context.tag} flaps")

    async def probe(self) -> Observation:
        if self._task is not None and self._task.done():
            await self._task  # only an error ends it
        if not self._control:
            return Observation(seen=None, evidence="no link of it passed before the fault")
        text = f"seen silent {self._silent} times, and passing in between {self._passing} times"
        return Observation(seen=self._silent > 0 and self._passing > 0, evidence=text)

    async def heal(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._context.links.heal(self._context.tag)

    async def probe_healed(self) -> Observation:
        if self._task is None or not self._task.done():
            return Observation(seen=False, evidence="the links flap")
        self._silent = self._passing = 0
        return await links_pass(self._context.world, list(self._control))

    async def _flap(self) -> None:
        context = self._context
        pause_s = max(PAUSE_MIN_S, float(context.params["period_ms"]) / 2000)
        while True:
            await context.links.cut(self._links, context.tag)
            observed = await links_silent(context.world, self._control)
            self._silent += observed.seen is True
            await asyncio.sleep(pause_s)
            await context.links.heal(context.tag)
            observed = await links_pass(context.world, list(self._control))
            self._passing += observed.seen is True
            await asyncio.sleep(pause_s)


class SwizzledCuts:
    """Cuts nodes off one by one, and heals them one by one in another order."""

    def __init__(self, context: FaultContext) -> None:
        self._context = context
        self._links: dict[str, list[Link]] = {}
        self._control: dict[Link, float] = {}
        self._pause_s = max(PAUSE_MIN_S, float(context.params["step_ms"]) / 1000)

    @property
    def targets(self) -> list[str]:
        links = dict.fromkeys(link for each in self._links.values() for link in each)
        return [str(link) for link in links]

    async def setup(self) -> None:
        members = self._context.members()
        size = (len(members) - 1) // 2
        if self._context.params["nodes"] == "all":
            size = len(members)
        if size == 0:
            raise FaultNotPossibleError(f"{self._context.group} has too few nodes")
        for node in self._context.rng.sample(members, size):
            self._links[node] = both_ways([node], [name for name in members if name != node])
        links = list(dict.fromkeys(link for each in self._links.values() for link in each))
        self._control = await control_probe(self._context.world, links)

    async def inject(self) -> None:
        for number, (node, links) in enumerate(self._links.items()):
            if number:
                await asyncio.sleep(self._pause_s)
            await self._context.links.cut(links, self._tag(node))

    async def probe(self) -> Observation:
        return await links_silent(self._context.world, self._control)

    async def heal(self) -> None:
        nodes = list(self._links)
        self._context.rng.shuffle(nodes)
        for number, node in enumerate(nodes):
            if number:
                await asyncio.sleep(self._pause_s)
            await self._context.links.heal(self._tag(node))

    async def probe_healed(self) -> Observation:
        if not self._control:
            return Observation(seen=None, evidence="no link of it passed before the fault")
        return await links_pass(self._context.world, list(self._control))

    def _tag(self, node: str) -> str:
        return f"{self._context.tag}.{node}"


SPECS: Final[tuple[FaultSpec, ...]] = (
    FaultSpec(
        name="flapping-links",
        summary="the links between a node and its peers are cut and pass again, over and over",
        probe="connections through the links were seen silent, and answered in between",
        effects=frozenset({LinkEffect.CUT}),
        make=FlappingLinks,
        seen_elsewhere="Jepsen, OpenChaos",
        parameters={"target": "leader", "period_ms": 800},
        choices={"target": ("leader", "follower", "any")},
    ),
    FaultSpec(
        name="swizzled-cuts",
        summary="nodes are cut off one by one, and come back one by one in another order",
        probe="connections through each cut link stay silent that were answered before",
        effects=frozenset({LinkEffect.CUT}),
        make=SwizzledCuts,
        seen_elsewhere="FoundationDB",
        parameters={"nodes": "minority", "step_ms": 300},
        choices={"nodes": ("minority", "all")},
    ),
)
