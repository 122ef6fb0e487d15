"""Partitions of a group: into halves, rings, around a bridge, with the leader on either side.

Place in the data path: `chaos.nemesis.network.link_fault` cuts the links that the functions here
choose. Clients reach every side.

Where a minority holds the leader, it must step down; where it does not, its members must not
disturb the rest when they return (pre-vote). In a ring, and around a bridge, majorities overlap
without any two nodes seeing the same one: who leads must still be one.

Source: Jepsen's partition-halves, majorities-ring, bridge and minority-third; dissertation 6.2
(check-quorum) and 9.6 (pre-vote).
"""

from __future__ import annotations

from typing import Final

from chaos.links.base import Link, both_ways
from chaos.nemesis.base import FaultContext, FaultNotPossibleError, FaultSpec
from chaos.nemesis.network.link_fault import cut_spec

__all__ = ["SPECS"]

RING_NODES_MIN: Final = 4
BRIDGE_NODES_MIN: Final = 3


def _split(context: FaultContext, side: list[str]) -> list[Link]:
    """Return every link between `side` and the other members."""
    others = [name for name in context.members() if name not in side]
    if not side or not others:
        raise FaultNotPossibleError(f"{context.group} has too few nodes to be partitioned")
    return both_ways(side, others)


def _minority_size(context: FaultContext) -> int:
    size = (len(context.members()) - 1) // 2
    if size == 0:
        raise FaultNotPossibleError(f"{context.group} has too few nodes to be halved")
    return size


def _halves(context: FaultContext) -> list[Link]:
    size = _minority_size(context)
    return _split(context, context.rng.sample(context.members(), size))


def _third(context: FaultContext) -> list[Link]:
    members = context.members()
    return _split(context, context.rng.sample(members, max(1, len(members) // 3)))


def _leader_in_majority(context: FaultContext) -> list[Link]:
    leader = context.require_leader()
    followers = [name for name in context.members() if name != leader]
    return _split(context, context.rng.sample(followers, _minority_size(context)))


def _leader_in_minority(context: FaultContext) -> list[Link]:
    leader = context.require_leader()
    followers = [name for name in context.members() if name != leader]
    size = _minority_size(context)
    return _split(context, [leader, *context.rng.sample(followers, size - 1)])


def _ring(context: FaultContext) -> list[Link]:
    """Let every node reach a majority, as its neighbours in a random ring; no two the same."""
    members = context.members()
    if len(members) < RING_NODES_MIN:
        raise FaultNotPossibleError(f"a ring needs {RING_NODES_MIN} nodes of {context.group}")
    context.rng.shuffle(members)
    count = len(members)
    reach = -(-(count // 2) // 2)  # neighbours on either side, so that it sees a majority
    return [
        link
        for i, one in enumerate(members)
        for j, other in enumerate(members[:i])
        if min(i - j, count - (i - j)) > reach
        for link in both_ways([one], [other])
    ]


def _bridge(context: FaultContext) -> list[Link]:
    """Partition all but one random node, which reaches both sides."""
    members = context.members()
    if len(members) < BRIDGE_NODES_MIN:
        raise FaultNotPossibleError(f"a bridge needs {BRIDGE_NODES_MIN} nodes of {context.group}")
    context.rng.shuffle(members)
    rest = members[1:]
    half = len(rest) // 2
    return both_ways(rest[:half], rest[half:])


def _leader_alone(context: FaultContext) -> list[Link]:
    leader = context.require_leader()
    links = _split(context, [leader])
    if context.params["clients"]:
        servers = [place.name for place in context.world.layout.name_servers]
        links += both_ways([leader], [*context.world.client_slots, *servers])
    return links


def _node_alone(context: FaultContext) -> list[Link]:
    node = context.pick(str(context.params["target"]))
    servers = [place.name for place in context.world.layout.name_servers]
    return _split(context, [node]) + both_ways([node], [*context.world.client_slots, *servers])


def _every_pair(context: FaultContext) -> list[Link]:
    members = context.members()
    links = [link for i, name in enumerate(members) for link in both_ways([name], members[i + 1 :])]
    if not links:
        raise FaultNotPossibleError(f"{context.group} has too few nodes to be partitioned")
    return links


SPECS: Final[tuple[FaultSpec, ...]] = (
    cut_spec(
        "partition-leader",
        "the leader is cut off from its peers; with clients = true from all others too",
        _leader_alone,
        # The links to the peers are what makes it a partition.
        witnesses=lambda context, links: [
            link for link in links if {link.who, link.whom} <= set(context.members())
        ],
        seen_elsewhere="Jepsen, Chaos Mesh",
        parameters={"clients": False},
    ),
    cut_spec(
        "partition-halves",
        "the group is split into a random minority, as large as possible, and the rest",
        _halves,
        seen_elsewhere="Jepsen, OpenChaos",
    ),
    cut_spec(
        "partition-third",
        "a third of the group at most is split off",
        _third,
        seen_elsewhere="Jepsen",
    ),
    cut_spec(
        "partition-leader-in-majority",
        "a minority without the leader is split off",
        _leader_in_majority,
        seen_elsewhere="Jepsen, OpenChaos",
    ),
    cut_spec(
        "partition-leader-in-minority",
        "a minority with the leader is split off",
        _leader_in_minority,
        seen_elsewhere="Jepsen, OpenChaos",
    ),
    cut_spec(
        "partition-ring",
        "every node reaches a majority, and no two nodes the same one; needs four nodes",
        _ring,
        seen_elsewhere="Jepsen",
        beyond_majority=True,
    ),
    cut_spec(
        "partition-bridge",
        "two sides that reach each other only through one node",
        _bridge,
        seen_elsewhere="Jepsen, OpenChaos",
        beyond_majority=True,
    ),
    cut_spec(
        "partition-all",
        "no node reaches any peer",
        _every_pair,
        seen_elsewhere="Jepsen, FoundationDB",
        beyond_majority=True,
    ),
    cut_spec(
        "isolate-node",
        "a node is cut off from peers, clients and name servers, as by its switch port",
        _node_alone,
        seen_elsewhere="Jepsen, Chaos Mesh, OpenChaos",
        parameters={"target": "any"},
        choices={"target": ("leader", "follower", "any")},
    ),
)
