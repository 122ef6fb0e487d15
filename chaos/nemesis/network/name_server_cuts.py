"""Cuts of name servers: all of them, one of them, or one broker from all of them.

Place in the data path: as `chaos.nemesis.network.partitions`. Routes go stale and no broker can
register; traffic must go on with the routes that clients hold.

Source: RocketMQ's guarantee that name servers are not on the data path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from chaos.links.base import Link, both_ways
from chaos.nemesis.base import FaultContext, FaultNotPossibleError, FaultSpec
from chaos.nemesis.network.link_fault import WITNESSES_MAX, cut_spec

__all__ = ["SPECS"]


def _servers(context: FaultContext) -> list[str]:
    servers = [place.name for place in context.world.layout.name_servers]
    if not servers:
        raise FaultNotPossibleError("there is no name server")
    return servers


def _dialers(context: FaultContext) -> list[str]:
    brokers = [place.name for place in context.world.layout.brokers]
    return [*brokers, *context.world.client_slots]


def _all_servers(context: FaultContext) -> list[Link]:
    return both_ways(_dialers(context), _servers(context))


def _one_server(context: FaultContext) -> list[Link]:
    return both_ways(_dialers(context), [context.rng.choice(_servers(context))])


def _one_broker(context: FaultContext) -> list[Link]:
    return both_ways([context.pick(str(context.params["target"]))], _servers(context))


def _to_servers(context: FaultContext, links: Sequence[Link]) -> list[Link]:
    servers = set(_servers(context))
    return [link for link in links if link.whom in servers][:WITNESSES_MAX]


SPECS: Final[tuple[FaultSpec, ...]] = (
    cut_spec(
        "cut-name-servers",
        "every name server is cut off from brokers and clients",
        _all_servers,
        witnesses=_to_servers,
        seen_elsewhere="OpenChaos",
    ),
    cut_spec(
        "cut-one-name-server",
        "one name server is cut off from brokers and clients; the others keep the routes",
        _one_server,
        witnesses=_to_servers,
        seen_elsewhere="OpenChaos",
    ),
    cut_spec(
        "cut-registration",
        "a broker is cut off from every name server; clients and peers reach it",
        _one_broker,
        witnesses=_to_servers,
        seen_elsewhere="this project",
        parameters={"target": "leader"},
        choices={"target": ("leader", "follower", "any")},
    ),
)
