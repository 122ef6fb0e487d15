"""Fault `slow-links`: the links between a node and its peers gain latency, and lose bandwidth.

Effect probe: the round trip through each slowed proxy grows by at least half of the configured
latency, above what it was before. Healed when the links pass in less than half of it again. Source:
Toxiproxy's latency and bandwidth toxics.
"""

from __future__ import annotations

from chaos.links.base import Link, LinkEffect, LinkShape, both_ways
from chaos.nemesis.base import FaultContext, FaultSpec, Observation, control_probe

__all__ = ["SPEC", "SlowLinks"]

PROBE_TIMEOUT_S = 3.0  # far above any latency that makes sense here


class SlowLinks:
    def __init__(self, context: FaultContext) -> None:
        self._context = context
        self._links: list[Link] = []
        self._control: dict[Link, float] = {}
        params = context.params
        self._shape = LinkShape(
            latency_ms=int(params["latency_ms"]),
            jitter_ms=int(params["jitter_ms"]),
            rate_kb_s=int(params["rate_kb_s"]),
        )

    @property
    def targets(self) -> list[str]:
        return [str(link) for link in self._links]

    async def setup(self) -> None:
        node = self._context.pick(str(self._context.params["target"]))
        others = [name for name in self._context.members() if name != node]
        self._links = both_ways([node], others)
        self._control = await control_probe(self._context.world, self._links)

    async def inject(self) -> None:
        await self._context.links.slow(self._links, self._shape, self._context.tag)

    async def probe(self) -> Observation:
        slower = await self._growth()
        if not slower:
            return Observation(seen=None, evidence="no link could be measured before and after")
        text = "; ".join(f"{link}: +{grown:.0f} ms" for link, grown in slower.items())
        least = self._shape.latency_ms / 2
        return Observation(seen=all(grown >= least for grown in slower.values()), evidence=text)

    async def heal(self) -> None:
        await self._context.links.heal(self._context.tag)

    async def probe_healed(self) -> Observation:
        slower = await self._growth()
        if len(slower) < len(self._control):
            return Observation(seen=None, evidence="not every link answered")
        text = "; ".join(f"{link}: +{grown:.0f} ms" for link, grown in slower.items())
        least = self._shape.latency_ms / 2
        return Observation(seen=all(grown < least for grown in slower.values()), evidence=text)

    async def _growth(self) -> dict[Link, float]:
        probes = await self._context.links.probe(list(self._control), timeout_s=PROBE_TIMEOUT_S)
        return {
            probe.link: probe.round_trip_ms - self._control[probe.link]
            for probe in probes
            if probe.round_trip_ms is not None
        }


SPEC = FaultSpec(
    name="slow-links",
    summary="latency and a bandwidth limit on the links between a node and its peers",
    probe="the round trip through each slowed proxy grows by half of the latency or more",
    effects=frozenset({LinkEffect.SLOW}),
    make=SlowLinks,
    parameters={"target": "leader", "latency_ms": 120, "jitter_ms": 30, "rate_kb_s": 0},
    choices={"target": ("leader", "follower", "any")},
)
