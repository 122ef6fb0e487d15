"""The locks of one member of an orderly group, as brokers' answers to its requests say it. Pure.

Place in the data path: observers of members (`consumers.locked_commits`, `applications.locks`) tell
it of requests; it says what the member may do, and what it has to give back.

A lock counts from its request for as long as the member's own setting says, unless it was refused
or given back since. An answer to a request that was made before the queue was given back says
nothing any more, however late it comes.

Invariant: the model never believes in less than the client: an answer that the client does not
count, since it came too late, is counted here.

Source: RocketMQ ProcessQueue.REBALANCE_LOCK_MAX_LIVE_TIME, RebalanceImpl.unlockAll (a member gives
back the queues that it has).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from client.message import MessageQueue

__all__ = ["MemberLocks"]

_MS: Final = 1_000_000


class MemberLocks:
    """What one member holds. Times are of CLOCK_MONOTONIC in nanoseconds; `held_ms`: how long it
    may believe in a lock."""

    def __init__(self, *, held_ms: int) -> None:
        self._held_ns = held_ms * _MS
        self._since_ns: dict[MessageQueue, int] = {}
        self._granted_ns: dict[MessageQueue, int] = {}  # the last request that was granted
        self._released_ns: dict[MessageQueue, int] = {}  # when it was given back for the last time

    def answered(
        self, queues: Iterable[MessageQueue], held: Collection[MessageQueue], *, t_invoke: int
    ) -> None:
        """Take the answer to a request for locks on `queues`: the member holds `held`."""
        for queue in queues:
            if t_invoke < self._released_ns.get(queue, t_invoke):
                continue
            if queue in held:
                self._since_ns[queue] = max(t_invoke, self._since_ns.get(queue, t_invoke))
                self._granted_ns[queue] = max(t_invoke, self._granted_ns.get(queue, t_invoke))
            else:
                self._since_ns.pop(queue, None)

    def unanswered(self, queues: Iterable[MessageQueue], *, t_invoke: int) -> None:
        """Take that a request for locks on `queues` had no answer: the member may have got them."""
        for queue in queues:
            self._granted_ns[queue] = max(t_invoke, self._granted_ns.get(queue, t_invoke))

    def released(self, queues: Sequence[MessageQueue], *, t_invoke: int) -> list[MessageQueue]:
        """Take that `queues` were given back; return those that were not the member's any more: it
        had given them back before, and got none of them since."""
        strange = []
        for queue in queues:
            granted_ns, before_ns = self._granted_ns.get(queue), self._released_ns.get(queue, 0)
            if granted_ns is None or granted_ns < before_ns:
                strange.append(queue)
            if self._since_ns.get(queue, t_invoke) < t_invoke:
                del self._since_ns[queue]
            self._released_ns[queue] = max(t_invoke, before_ns)
        return strange

    def since_ns(self, queue: MessageQueue) -> int | None:
        """Return when the lock was requested that counts now; None where it is not held."""
        return self._since_ns.get(queue)

    def is_held(self, queue: MessageQueue, at_ns: int) -> bool:
        since_ns = self._since_ns.get(queue)
        return since_ns is not None and at_ns - since_ns <= self._held_ns
