"""Which consumer groups and topics have to do with each other, as far as this broker knows.

Place in the data path: questions of tools, resets. A group is known when somebody configured it,
is connected, or has left offsets. Each question walks the consumer offsets: it is an
administrator's, never a client's of every second.
Source: RocketMQ ConsumerOffsetManager, SubscriptionGroupManager.
"""

from __future__ import annotations

from broker.request.context import BrokerContext

__all__ = [
    "groups_of_topic",
    "is_known_group",
    "known_groups",
    "offsets_by_group",
    "offsets_of",
    "topics_of_group",
]


def is_known_group(context: BrokerContext, group: str) -> bool:
    return (
        group in context.state.groups
        or bool(context.clients.consumers(group))
        or any(key[0] == group for key in context.state.consumer_offsets)
    )


def known_groups(context: BrokerContext) -> list[str]:
    groups = {key[0] for key in context.state.consumer_offsets}
    return sorted(groups.union(context.state.groups, context.clients.consumer_groups()))


def offsets_of(context: BrokerContext, group: str) -> dict[tuple[str, int], int]:
    """(topic, queue id) -> what the group has committed."""
    return {
        (topic, queue_id): offset
        for (owner, topic, queue_id), offset in context.state.consumer_offsets.items()
        if owner == group
    }


def offsets_by_group(context: BrokerContext) -> dict[str, dict[tuple[str, int], int]]:
    """The same of all groups that have committed any, in one walk."""
    table: dict[str, dict[tuple[str, int], int]] = {}
    for (group, topic, queue_id), offset in context.state.consumer_offsets.items():
        table.setdefault(group, {})[topic, queue_id] = offset
    return table


def topics_of_group(context: BrokerContext, group: str) -> list[str]:
    """Topics of which the group has committed offsets."""
    return sorted({topic for topic, _ in offsets_of(context, group)})


def groups_of_topic(context: BrokerContext, topic: str) -> list[str]:
    """Groups that subscribe the topic now, or have committed offsets of it."""
    groups = {key[0] for key in context.state.consumer_offsets if key[1] == topic}
    return sorted(groups.union(context.clients.consumer_groups_of(topic)))
