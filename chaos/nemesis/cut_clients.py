"""Fault `cut-clients`: a node and the clients can't reach each other; its peers can.

With `target = "leader"` the cluster stays healthy but has no leader for its users: no election may
help them, and every pending answer stays unknown until the heal.

Effect probe: requests through the cut proxies of some clients stay unanswered. Source: Redpanda's
client-to-broker isolation.
"""

from __future__ import annotations

from chaos.links.base import Link, LinkEffect, both_ways
from chaos.nemesis.base import FaultSpec
from chaos.nemesis.link_cut import LinkCut

__all__ = ["SPEC", "CutClients"]

WITNESSES_MAX = 4


class CutClients(LinkCut):
    def choose(self) -> list[Link]:
        node = self._context.pick(str(self._context.params["target"]))
        return both_ways(self._context.world.client_slots, [node])

    def witnesses(self, links: list[Link]) -> list[Link]:
        slots = set(self._context.world.client_slots)
        return [link for link in links if link.who in slots][:WITNESSES_MAX]


SPEC = FaultSpec(
    name="cut-clients",
    summary="a node is cut off from every client, while its peers reach it",
    probe="requests through the cut proxies of some clients stay unanswered",
    effects=frozenset({LinkEffect.CUT}),
    make=CutClients,
    parameters={"target": "leader"},
    choices={"target": ("leader", "follower", "any")},
)
