"""Fault `one-way-cut`: bytes of one direction between the leader and its peers are swallowed.

`direction = "from-leader"`: the peers receive nothing from the leader, but it receives from them;
"to-leader": it receives nothing, but its heartbeats arrive, so only check-quorum can depose it;
"pair": one random node can't reach one other.

Place in the data path: as `chaos.nemesis.network.partitions`. Since an answer needs both directions
of a connection, the evidence names the stream that carries the black hole.

Source: the asymmetric cuts of TigerBeetle's vortex.
"""

from __future__ import annotations

from typing import Final

from chaos.links.base import Link
from chaos.nemesis.base import FaultContext, FaultNotPossibleError, FaultSpec
from chaos.nemesis.network.link_fault import cut_spec

__all__ = ["SPECS"]


def _one_way(context: FaultContext) -> list[Link]:
    members = context.members()
    if len(members) == 1:
        raise FaultNotPossibleError(f"{context.group} has one node alone, and no link to cut")
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


SPECS: Final[tuple[FaultSpec, ...]] = (
    cut_spec(
        "one-way-cut",
        "one direction between the leader and its peers, or of a pair, is swallowed",
        _one_way,
        seen_elsewhere="TigerBeetle's vortex, Jepsen",
        parameters={"direction": "from-leader"},
        choices={"direction": ("from-leader", "to-leader", "pair")},
    ),
)
