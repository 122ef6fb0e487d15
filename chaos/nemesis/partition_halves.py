"""Fault `partition-halves`: the group is partitioned into a random minority and the rest.

The leader may be on either side; clients reach both. Where the minority holds the leader, it must
step down; where it does not, its members must not disturb the rest when they return (pre-vote).

Effect probe: as for every cut. Source: Jepsen's partition-random-halves; dissertation 9.6.
"""

from __future__ import annotations

from chaos.links.base import Link, LinkEffect, both_ways
from chaos.nemesis.base import FaultNotPossibleError, FaultSpec
from chaos.nemesis.link_cut import LinkCut

__all__ = ["SPEC", "PartitionHalves"]


class PartitionHalves(LinkCut):
    """Cuts every link between a random minority, as large as possible, and the others."""

    def choose(self) -> list[Link]:
        members = self._context.members()
        size = (len(members) - 1) // 2
        if size == 0:
            raise FaultNotPossibleError(f"{self._context.group} has too few nodes to be halved")
        minority = self._context.rng.sample(members, size)
        return both_ways(minority, [name for name in members if name not in minority])


SPEC = FaultSpec(
    name="partition-halves",
    summary="the group is split into a random minority and the rest",
    probe="connections through each cut proxy stay silent that were answered before",
    effects=frozenset({LinkEffect.CUT}),
    make=PartitionHalves,
)
