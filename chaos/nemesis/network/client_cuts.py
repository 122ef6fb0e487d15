"""Cuts between clients and brokers: a node and every client, or one client and one node.

Place in the data path: as `chaos.nemesis.network.partitions`, for links of client slots. The peers
reach the node: with the leader as target the group stays healthy but has no leader for its users,
no election may help them, and every pending answer stays unknown until the heal.

Source: Redpanda's client-to-broker isolation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chaos.links.base import Link, both_ways
from chaos.nemesis.base import FaultContext, FaultNotPossibleError, FaultSpec
from chaos.nemesis.network.link_fault import WITNESSES_MAX, cut_spec

__all__ = ["SPECS"]


def _every_client(context: FaultContext) -> list[Link]:
    node = context.pick(str(context.params["target"]))
    return both_ways(context.world.client_slots, [node])


def _one_client(context: FaultContext) -> list[Link]:
    slots = context.world.client_slots
    if not slots:
        raise FaultNotPossibleError("no client dials through links here")
    node = context.pick(str(context.params["target"]))
    return both_ways([context.rng.choice(slots)], [node])


def _from_clients(context: FaultContext, links: Sequence[Link]) -> list[Link]:
    slots = set(context.world.client_slots)
    return [link for link in links if link.who in slots][:WITNESSES_MAX]


_TARGET: Final = {"target": ("leader", "follower", "any")}
SPECS: Final[tuple[FaultSpec, ...]] = (
    cut_spec(
        "cut-clients",
        "a node is cut off from every client, while its peers reach it",
        _every_client,
        witnesses=_from_clients,
        seen_elsewhere="Redpanda",
        parameters={"target": "leader"},
        choices=_TARGET,
    ),
    cut_spec(
        "cut-one-client",
        "one client and one node can't reach each other; all others can",
        _one_client,
        witnesses=_from_clients,
        seen_elsewhere="Redpanda",
        parameters={"target": "leader"},
        choices=_TARGET,
    ),
)
