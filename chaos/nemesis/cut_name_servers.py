"""Fault `cut-name-servers`: nobody reaches a name server: routes go stale, no broker can register.

Traffic must go on with the routes that clients hold.

Effect probe: requests to the name servers through cut proxies of brokers and some clients stay
unanswered. Source: RocketMQ's guarantee that name servers are not on the data path.
"""

from __future__ import annotations

from chaos.links.base import Link, LinkEffect, both_ways
from chaos.nemesis.base import FaultSpec
from chaos.nemesis.link_cut import LinkCut

__all__ = ["SPEC", "CutNameServers"]

WITNESSES_MAX = 6


class CutNameServers(LinkCut):
    def choose(self) -> list[Link]:
        world = self._context.world
        servers = [place.name for place in world.layout.name_servers]
        brokers = [place.name for place in world.layout.brokers]
        return both_ways([*brokers, *world.client_slots], servers)

    def witnesses(self, links: list[Link]) -> list[Link]:
        servers = {place.name for place in self._context.world.layout.name_servers}
        return [link for link in links if link.whom in servers][:WITNESSES_MAX]


SPEC = FaultSpec(
    name="cut-name-servers",
    summary="every name server is cut off from brokers and clients",
    probe="requests through the cut proxies stay unanswered",
    effects=frozenset({LinkEffect.CUT}),
    make=CutNameServers,
)
