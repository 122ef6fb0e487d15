"""Leases of queue owners, in the leader's memory.

Place in the data path: LOCK_BATCH_MQ calls `claim` for the queues that a client renews and those
that it may get; the latter go through the log first (`broker.state.queue_owners`). Clients renew
every 20 s, and consume in order only for 30 s after the last answer that they hold a queue:
settings of theirs, with which a broker's `lock_lease_ms` has to agree.

| the owner | another client may have its queue |
|---|---|
| stops renewing | a lease (60 s) after its last renewal, as in RocketMQ |
| is not connected here | 7/12 of that (35 s) after it: its lease has expired at the client then |
| has given the queue back | at once |

An owner with a higher claim than the log has of it gets its queue through the log once more: from
then on, requests that it sent before it gave the queue back have no effect.

A leader takes owners that it did not see renew for renewed when its leadership began: the leader
before it may have renewed them until then. The 5 s beyond the 30 are for that leader's last
answers. Pure: time is an argument, of a clock that never jumps.

Invariants: a queue is given to a client only while no lease of another client may last; while a
change of its owner is in flight, no client is answered that it holds the queue, nor is its owner:
the change that ends its ownership may be about to be committed. Source: RocketMQ
RebalanceLockManager, ProcessQueue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from broker.state.queue_owners import Owner, Queue, QueueOwners

__all__ = ["Claims", "RebalanceLocks"]

_LEASE_MS: Final = 60_000
_OF_THE_GONE: Final = (7, 12)  # of a lease: the half that clients believe in, and a margin


@dataclass(slots=True)
class Claims:
    """Result of a request for queues."""

    held: list[Queue] = field(default_factory=list)  # renewed
    free: list[Queue] = field(default_factory=list)  # may be given, through the log


class RebalanceLocks:
    """Leases of the queues that clients lock, in the leader's memory.

    `lease_ms` is twice the time for which clients consume in order after their last renewal.
    """

    def __init__(self, *, locks_max: int = 100_000, lease_ms: int = _LEASE_MS) -> None:
        self._lease_ms = lease_ms
        self._lease_of_the_gone_ms = lease_ms * _OF_THE_GONE[0] // _OF_THE_GONE[1]
        self._locks_max = locks_max
        self._renewed_ms: dict[tuple[str, Queue], int] = {}
        self._began_ms = 0
        self._under_way: Counter[tuple[str, Queue]] = Counter()  # changes of the owner

    def begin(self, now_ms: int) -> None:
        """Start leadership: every owner counts as renewed now.

        Changes in flight stay so: a node whose transfer of leadership was given up leads on in the
        same term, and what it had proposed is committed behind that.
        """
        self._renewed_ms.clear()
        self._began_ms = now_ms

    def claim(
        self,
        owners: QueueOwners,
        group: str,
        client_id: str,
        queues: Iterable[Queue],
        *,
        members: Collection[str],
        now_ms: int,
        claim: int = 0,
    ) -> Claims:
        """Renew the queues that the client owns, and return those that it may get, too. Caller's
        duty: `end_change` for the latter.

        `members` are the group's clients that are connected here.
        """
        claims = Claims()
        of_group = owners.of_group(group)
        for queue in dict.fromkeys(queues):
            key = (group, queue)
            owner = of_group.get(queue)
            if key in self._under_way:
                continue
            if owner == (client_id, claim):
                self._renewed_ms[key] = now_ms
                claims.held.append(queue)
            elif owner is not None and owner.client_id == client_id:
                if not owner.has_claimed_since(client_id, claim):
                    claims.free.append(queue)
            elif owner is None or self._is_over(group, queue, owner.client_id in members, now_ms):
                coming = len(self._under_way) + len(claims.free)
                if owner is None and len(owners) + coming >= self._locks_max:
                    continue
                claims.free.append(queue)
        self.change(group, claims.free)
        return claims

    def change(self, group: str, queues: Iterable[Queue]) -> None:
        """Note a change of these owners in flight. Caller's duty: `end_change`."""
        self._under_way.update((group, queue) for queue in queues)

    def is_changing(self, group: str, queue: Queue) -> bool:
        """Whether a change of the queue's owner is in flight."""
        return (group, queue) in self._under_way

    def end_change(self, group: str, queues: Iterable[Queue], now_ms: int | None) -> None:
        """End a change of these owners. `now_ms`: a client holds them from then on; None: they were
        given back, or the change failed, or its outcome is unknown."""
        for queue in queues:
            key = (group, queue)
            if self._under_way[key] > 1:
                self._under_way[key] -= 1
            else:
                del self._under_way[key]
            if now_ms is not None:
                self._renewed_ms[key] = now_ms

    def is_ordered(self, owners: QueueOwners, group: str, now_ms: int) -> bool:
        """Whether any client holds a queue of the group."""
        return any(
            not self._is_over(group, queue, True, now_ms) for queue in owners.of_group(group)
        )

    def expired(self, owners: QueueOwners, now_ms: int) -> list[tuple[str, Owner, list[Queue]]]:
        """Return (group, owner, queues) of owners whose leases have expired."""
        found: list[tuple[str, Owner, list[Queue]]] = []
        for group in owners.groups():
            of_owner: dict[Owner, list[Queue]] = {}
            for queue, owner in owners.of_group(group).items():
                is_free = (group, queue) not in self._under_way
                if is_free and self._is_over(group, queue, True, now_ms):
                    of_owner.setdefault(owner, []).append(queue)
            found += [(group, owner, queues) for owner, queues in of_owner.items()]
        known = {(group, queue) for group in owners.groups() for queue in owners.of_group(group)}
        self._renewed_ms = {key: at for key, at in self._renewed_ms.items() if key in known}
        return found

    def _is_over(self, group: str, queue: Queue, is_member: bool, now_ms: int) -> bool:
        lease_ms = self._lease_ms if is_member else self._lease_of_the_gone_ms
        return now_ms - self._renewed_ms.get((group, queue), self._began_ms) > lease_ms
