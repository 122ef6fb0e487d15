"""Fault `partition-leader`: the leader and its peers can't reach each other.

In the harder form its clients stay connected (`clients = false`): a deposed leader that still
receives their requests must acknowledge nothing (G6). With `clients = true` it is cut off from
clients and name servers too, as a broken switch port would do.

Effect probe: own connections through each cut proxy stay silent that were answered before. Source:
Raft 5.2, dissertation 6.2 (check-quorum).
"""

from __future__ import annotations

from chaos.links.base import Link, LinkEffect, both_ways
from chaos.nemesis.base import FaultSpec
from chaos.nemesis.link_cut import LinkCut

__all__ = ["SPEC", "PartitionLeader"]


class PartitionLeader(LinkCut):
    """Cuts every link between the current leader and the others."""

    def choose(self) -> list[Link]:
        context = self._context
        leader = context.require_leader()
        others = [name for name in context.members() if name != leader]
        links = both_ways([leader], others)
        if context.params["clients"]:
            servers = [place.name for place in context.world.layout.name_servers]
            links += both_ways([leader], [*context.world.client_slots, *servers])
        return links

    def witnesses(self, links: list[Link]) -> list[Link]:
        """Return the links to the peers: they are what makes it a partition."""
        members = set(self._context.members())
        return [link for link in links if {link.who, link.whom} <= members]


SPEC = FaultSpec(
    name="partition-leader",
    summary="the leader is cut off from its peers in both directions",
    probe="connections through each cut proxy stay silent that were answered before",
    effects=frozenset({LinkEffect.CUT}),
    make=PartitionLeader,
    parameters={"clients": False},
)
