"""The choice of the queue that a producer sends to next; pure.

Place in the data path: `client.produce.producer` requests a queue before each attempt that may
move, and reports how each attempt went.

Invariants: queues are taken in turn; a group to avoid is taken only where there is no other one;
with latency faults, groups that were slow or failed are skipped while there are others.

Source: RocketMQ TopicPublishInfo.selectOneMessageQueue, MQFaultStrategy.
"""

from __future__ import annotations

from collections.abc import Sequence

from client.message import MessageQueue
from client.produce.latency_faults import FAILURE_MS, LatencyFaults

__all__ = ["QueueChoice"]


class QueueChoice:
    """Chooses queues in turn, from `turn` on; avoids groups by `faults`, if given. Times in ms."""

    __slots__ = ("_faults", "_turn")

    def __init__(self, turn: int, faults: LatencyFaults | None = None) -> None:
        self._turn = turn
        self._faults = faults

    def succeeded(self, broker_name: str, took_ms: float, now_ms: float) -> None:
        if self._faults is not None:
            self._faults.note(broker_name, took_ms, now_ms)

    def failed(self, broker_name: str, now_ms: float) -> None:
        if self._faults is not None:
            self._faults.note(broker_name, FAILURE_MS, now_ms)

    def next(
        self, queues: Sequence[MessageQueue], avoid: str | None, now_ms: float
    ) -> MessageQueue:
        """Return one of `queues` (not empty); not of group `avoid` where there is another."""
        fallback: int | None = None
        for turn in range(self._turn + 1, self._turn + 1 + len(queues)):
            broker_name = queues[turn % len(queues)].broker_name
            if broker_name == avoid:
                continue
            if self._faults is None or self._faults.is_available(broker_name, now_ms):
                break
            fallback = turn if fallback is None else fallback
        else:
            # Not where the search has ended: the next one would begin at the same queue.
            turn = self._turn + 1 if fallback is None else fallback
        self._turn = turn & 0x7FFF_FFFF
        return queues[turn % len(queues)]
