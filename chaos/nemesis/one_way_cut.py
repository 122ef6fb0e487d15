"""Fault `one-way-cut`: bytes of one direction between the leader and its peers are swallowed.

`direction = "from-leader"`: the peers receive nothing from the leader, but it receives from them;
"to-leader": it receives nothing, but its heartbeats arrive, so only check-quorum can depose it;
"pair": one random node can't reach one other.

Effect probe: as for every cut; since an answer needs both directions of a connection, the evidence
names the stream that carries the black hole. Source: the asymmetric cuts of TigerBeetle's vortex.
"""

from __future__ import annotations

from chaos.links.base import Link, LinkEffect
from chaos.nemesis.base import FaultSpec
from chaos.nemesis.link_cut import LinkCut

__all__ = ["SPEC", "OneWayCut"]


class OneWayCut(LinkCut):
    def choose(self) -> list[Link]:
        context = self._context
        members = context.members()
        match context.params["direction"]:
            case "from-leader":
                leader = context.require_leader()
                return [Link(who=leader, whom=name) for name in members if name != leader]
            case "to-leader":
                leader = context.require_leader()
                return [Link(who=name, whom=leader) for name in members if name != leader]
            case _:
                who, whom = context.rng.sample(members, 2)
                return [Link(who=who, whom=whom)]


SPEC = FaultSpec(
    name="one-way-cut",
    summary="one direction between the leader and its peers, or of a pair, is swallowed",
    probe="connections that need the cut stream stay silent that were answered before",
    effects=frozenset({LinkEffect.CUT}),
    make=OneWayCut,
    parameters={"direction": "from-leader"},
    choices={"direction": ("from-leader", "to-leader", "pair")},
)
