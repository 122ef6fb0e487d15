"""What a wire does to packets: some are lost, or none that opens a connection arrives.

Place in the data path: `chaos.links` applies a packet effect (`chaos.links.base.Shaping`) to the
links that are chosen here; only links that are made of packets have it (the world `netns`).

Invariants: as `chaos.nemesis.network.link_fault`. Loss is measured by packets of one's own that
nobody sends again: TCP hides it.

Source: netem's loss; RFC 9293 section 3.5 (a SYN that is never answered).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from chaos.links.base import Link, LinkEffect, Shaping, both_ways
from chaos.nemesis.base import FaultContext, FaultSpec, Observation
from chaos.nemesis.network.link_fault import LinkFault
from chaos.nemesis.network.streams import HalfOpen

__all__ = ["SPECS"]

_TARGET: Final = {"target": ("leader", "follower", "any")}


class PacketLoss(LinkFault):
    """Loses each packet between a node and its peers with a chance of its own."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context, _between_peers)
        self._percent = int(context.params["percent"])
        self._measured: list[Link] = []

    async def setup(self) -> None:
        await super().setup()
        counts = [(link, await self._context.links.packets(link)) for link in self._control]
        self._measured = [link for link, count in counts if count and count.sent == count.answered]

    async def inject(self) -> None:
        shaping = Shaping(
            effect=LinkEffect.PACKETS, name="loss", attributes={"percent": self._percent}
        )
        await self._context.links.shape(self._links, shaping, self._context.tag)

    async def probe(self) -> Observation:
        """Observe whether at least half of what was to be lost is lost."""
        return await self._compare(lambda lost: lost > 0 and lost >= self._percent / 200)

    async def probe_healed(self) -> Observation:
        passing = await super().probe_healed()
        if not passing.seen:
            return passing
        return await self._compare(lambda lost: lost == 0)

    async def _compare(self, expected: Callable[[float], bool]) -> Observation:
        counts = {link: await self._context.links.packets(link) for link in self._measured}
        counted = {link: count for link, count in counts.items() if count is not None}
        if not counted:
            return Observation(seen=None, evidence="no link lost nothing before and was measured")
        text = "; ".join(
            f"{link}: {c.answered} of {c.sent} answered" for link, c in counted.items()
        )
        lost = 1 - sum(c.answered for c in counted.values()) / sum(c.sent for c in counted.values())
        return Observation(seen=expected(lost), evidence=text)


def _between_peers(context: FaultContext) -> list[Link]:
    node = context.pick(str(context.params["target"]))
    return both_ways([node], [name for name in context.members() if name != node])


def _half_open_syn(context: FaultContext) -> HalfOpen:
    shaping = Shaping(effect=LinkEffect.PACKETS, name="drop_syn", attributes={})
    return HalfOpen(context, new=True, shaping=shaping)


SPECS: Final[tuple[FaultSpec, ...]] = (
    FaultSpec(
        name="packet-loss",
        summary="packets between a node and its peers are lost at random, and TCP sends again",
        probe="of 200 own packets on each link at least half of what was to be lost is lost",
        effects=frozenset({LinkEffect.PACKETS}),
        make=PacketLoss,
        seen_elsewhere="netem, Chaos Mesh, FoundationDB",
        parameters={"target": "leader", "percent": 15},
        choices=_TARGET,
    ),
    FaultSpec(
        name="half-open-syn",
        summary="no SYN of a client reaches a node: new connections are never answered",
        probe="a connection made before is answered, and one that is begun now never is",
        effects=frozenset({LinkEffect.PACKETS}),
        make=_half_open_syn,
        seen_elsewhere="this project",
        parameters={"target": "leader"},
        choices=_TARGET,
    ),
)
