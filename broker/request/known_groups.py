"""Relations of consumer groups and topics that this broker knows.

Place in the data path: requests of tools, resets. A group is known if it is configured, has a
connected member, or has committed offsets. Each call iterates over the consumer offsets: only
administrators' requests use it, never a client's of every second.
Source: RocketMQ ConsumerOffsetManager, SubscriptionGroupManager.
"""

from __future__ import annotations

from broker.request.desk import Desk
from broker.request.replica import Replica

__all__ = [
    "groups_of_topic",
    "is_known_group",
    "known_groups",
    "offsets_by_group",
    "offsets_of",
    "topics_of_group",
]


def is_known_group(replica: Replica, desk: Desk, group: str) -> bool:
    return (
        group in replica.state.groups
        or bool(desk.clients.consumers(group))
        or any(key[0] == group for key in replica.state.consumer_offsets)
    )


def known_groups(replica: Replica, desk: Desk) -> list[str]:
    groups = {key[0] for key in replica.state.consumer_offsets}
    return sorted(groups.union(replica.state.groups, desk.clients.consumer_groups()))


def offsets_of(replica: Replica, group: str) -> dict[tuple[str, int], int]:
    """Return (topic, queue id) -> committed offset of a group."""
    return {
        (topic, queue_id): offset
        for (owner, topic, queue_id), offset in replica.state.consumer_offsets.items()
        if owner == group
    }


def offsets_by_group(replica: Replica) -> dict[str, dict[tuple[str, int], int]]:
    """Return the committed offsets of all groups, in one iteration."""
    table: dict[str, dict[tuple[str, int], int]] = {}
    for (group, topic, queue_id), offset in replica.state.consumer_offsets.items():
        table.setdefault(group, {})[topic, queue_id] = offset
    return table


def topics_of_group(replica: Replica, group: str) -> list[str]:
    """Return the topics in which the group has committed offsets."""
    return sorted({topic for topic, _ in offsets_of(replica, group)})


def groups_of_topic(replica: Replica, desk: Desk, topic: str) -> list[str]:
    """Return the groups that subscribe to the topic now, or have committed offsets in it."""
    groups = {key[0] for key in replica.state.consumer_offsets if key[1] == topic}
    return sorted(groups.union(desk.clients.consumer_groups_of(topic)))
