"""Queues popped in order: until when a group's members are held off, and that those who wait learn
of a change.

Place in the data path: `broker.pop.pop` queries it before it takes a queue in order, and tells it
what it has taken; `broker.pop.pop_ack` tells it what was acknowledged or postponed. It passes on to
`broker.request.pop_polling` when those who wait are to look again.

Invariant: whoever waits for a queue with messages looks again once nobody holds it any more, though
nothing arrives: at the end of the holder's time as it is known then, not as it was when the wait
began. Source: RocketMQ ConsumerOrderInfoLockManager.
"""

from __future__ import annotations

from typing import Final

from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.state.pop_order import OrderSet
from broker.state.pop_state import QueueKey

__all__ = ["OrderedQueues"]

_RETRY_MS: Final = 50  # at a queue whose outcome is under way


class OrderedQueues:
    """Queues of groups that pop in order, on the leader."""

    def __init__(self, replica: Replica, leadership: Leadership, desk: Desk) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk

    def wake_ms(self, key: QueueKey, attempt_id: str, now_ms: int) -> int | None:
        """Return when to look at the queue again, by the monotonic clock; None if this attempt may
        pop it now."""
        held = self._replica.state.pop.orders.get(key)
        if held is None or self._replica.state.resets.get(*key) is not None:
            return None
        until_ms = held.blocked_until_ms(attempt_id, now_ms)
        if until_ms is None:
            # An acknowledgement or a change of a message of the set may be in flight: only its
            # outcome says whether the queue is free. The same attempt gets the same set again.
            if held.is_of(attempt_id) or not self._is_busy(key, held):
                return None
            until_ms = now_ms + _RETRY_MS
        return self._replica.monotonic_ms() + until_ms - now_ms

    def popped(self, key: QueueKey) -> None:
        """Have all that wait for the queue look again when it is free, after a pop of it whose
        outcome is known: they may have begun to wait while it was under way."""
        group, topic, queue_id = key
        wake_ms = self._wake_ms_of_others(key) or self._replica.monotonic_ms()
        self._desk.pop_polling.wake_by(topic, group, queue_id, wake_ms)

    def changed(self, key: QueueKey) -> None:
        """Wake one of those that wait for the queue if it is free after an acknowledgement or
        another time of a message; else have all look again when it is."""
        group, topic, queue_id = key
        wake_ms = self._wake_ms_of_others(key)
        if wake_ms is None:
            self._desk.pop_polling.wake_one(topic, group, queue_id)
        else:
            self._desk.pop_polling.wake_by(topic, group, queue_id, wake_ms)

    def _wake_ms_of_others(self, key: QueueKey) -> int | None:
        return self.wake_ms(key, "", self._replica.clock_ms())

    def _is_busy(self, key: QueueKey, held: OrderSet) -> bool:
        busy = self._leadership.pop_busy
        return bool(busy) and any((key, offset) in busy for offset in held.offsets)
