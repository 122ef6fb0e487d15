"""The allocation of queues to the members of a group: RocketMQ's average allocation, pure.

Place in the data path: `client.consume.push_consumer` calls `allocate` with the group's members
(from a broker) and the topic's queues (from the route), and consumes the queues returned.

Invariant: members that see the same sorted lists get disjoint shares that cover every queue. The
broker is responsible for the lists being the same; while they differ, a queue may have two owners
or none, which costs repeated deliveries and never messages.

Source: RocketMQ AllocateMessageQueueAveragely.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from client.message import MessageQueue

__all__ = ["OwnershipChange", "allocate", "ownership_change"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipChange:
    """The queues that a rebalance takes away and adds, both in queue order."""

    lost: tuple[MessageQueue, ...]
    gained: tuple[MessageQueue, ...]


def allocate(
    client_id: str, client_ids: Iterable[str], queues: Iterable[MessageQueue]
) -> Sequence[MessageQueue]:
    """Return the queues of `client_id`; none where it is not among the members."""
    members = sorted(set(client_ids))
    ordered = sorted(set(queues))
    if client_id not in members or not ordered:
        return ()
    index = members.index(client_id)
    share, rest = divmod(len(ordered), len(members))
    first = index * share + min(index, rest)
    return ordered[first : first + share + (1 if index < rest else 0)]


def ownership_change(
    owned: Iterable[MessageQueue], allocated: Iterable[MessageQueue]
) -> OwnershipChange:
    """Return the difference between the queues `owned` now and those `allocated`."""
    before = set(owned)
    after = set(allocated)
    return OwnershipChange(lost=tuple(sorted(before - after)), gained=tuple(sorted(after - before)))
