"""Owners of the queues of orderly groups, in the replicated state.

Place in the data path: LOCK_BATCH_MQ and UNLOCK_BATCH_MQ propose changes of owners, and nothing
else: the leader alone decides how long an owner may be silent (`broker.leader.rebalance_lock`). So
a new leader knows who consumes which queue in order, and neither gives a queue to a second client
nor stalls a group until all locks have expired (docs/decisions/0018). Pure.

Invariants: a queue of a group has at most one owner, on every replica the same. A client counts how
often it has given queues back, and sends that count, its claim, with every lock and unlock. A
request with a lower claim than the one that it owns a queue by is late, and changes nothing.
Source: RocketMQ RebalanceLockManager, which forgets all in a failover.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from broker.entry.state_part import Captured, Row, natural, text

__all__ = ["Owner", "Queue", "QueueOwners"]

Queue: TypeAlias = tuple[str, int]  # topic, queue id


class Owner(NamedTuple):
    client_id: str
    claim: int = 0  # of clients that don't count

    def releases(self, client_id: str, claim: int) -> bool:
        """Whether an unlock by that client ends this ownership."""
        return client_id == self.client_id and claim >= self.claim

    def has_claimed_since(self, client_id: str, claim: int) -> bool:
        """Whether a lock by that client is late: it has claimed the queue again since."""
        return client_id == self.client_id and claim < self.claim


_NONE: Final[Mapping[Queue, Owner]] = {}


class QueueOwners:
    def __init__(self) -> None:
        self._owners: dict[str, dict[Queue, Owner]] = {}  # by group
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QueueOwners) and self._owners == other._owners

    __hash__ = None  # type: ignore[assignment]  # it changes

    def of_group(self, group: str) -> Mapping[Queue, Owner]:
        """Return the owners by queue."""
        return self._owners.get(group, _NONE)

    def groups(self) -> list[str]:
        return list(self._owners)

    def lock(self, group: str, client_id: str, queues: Iterable[Queue], claim: int = 0) -> None:
        """Make the client the owner of queues, whoever owned them before."""
        owners = self._owners.setdefault(group, {})
        for queue in queues:
            before = owners.get(queue)
            if before is not None and before.has_claimed_since(client_id, claim):
                continue
            self._count += before is None
            owners[queue] = Owner(client_id, claim)
        self._drop_empty(group)

    def unlock(self, group: str, client_id: str, queues: Iterable[Queue], claim: int = 0) -> None:
        """End the client's ownership of queues; those that others own by now stay theirs, and those
        that it has claimed again stay its own."""
        owners = self._owners.get(group, {})
        for queue in queues:
            owner = owners.get(queue)
            if owner is not None and owner.releases(client_id, claim):
                del owners[queue]
                self._count -= 1
        self._drop_empty(group)

    def drop_topics(self, topics: Collection[str]) -> None:
        for group, owners in list(self._owners.items()):
            for queue in [queue for queue in owners if queue[0] in topics]:
                del owners[queue]
                self._count -= 1
            self._drop_empty(group)

    def drop_group(self, group: str) -> None:
        self._count -= len(self._owners.pop(group, ()))

    def _drop_empty(self, group: str) -> None:
        if not self._owners.get(group, True):
            del self._owners[group]

    def capture(self) -> Iterable[Row]:
        """See StatePart."""
        return Captured({group: dict(owners) for group, owners in self._owners.items()}, _rows)

    def restore(self, rows: Iterable[Row]) -> None:
        """See StatePart."""
        self._owners = {}
        self._count = 0
        for group, topic, queue_id, client_id, *claims in rows:
            queue = (text(topic), natural(queue_id))
            (claim,) = claims or (0,)  # rows of older versions have none
            self.lock(text(group), text(client_id), [queue], natural(claim))


def _rows(owners_of: Mapping[str, Mapping[Queue, Owner]]) -> Iterator[Row]:
    for group, owners in owners_of.items():
        for queue, owner in owners.items():
            yield [group, *queue, *owner]
