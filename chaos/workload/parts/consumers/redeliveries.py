"""A model of how a push consumer delivers again, by itself, what its listener refused.

Place in the data path: listeners of broadcasting and ordered members report what they were given
and how it ended; `hold_counts` and `hold_overdue` record what came beside what was to come. Times
are arguments, in seconds.

Invariants: a refused message comes again to the same member, its count one higher, until it was
refused `limit` times more than once; each wait is twice the one before, from `wait_s` on, or always
`wait_s` where the queue is ordered; nothing behind it in an ordered queue comes before it.

Source: RocketMQ ConsumeMessageOrderlyService; docs/CLIENT.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from chaos.workload.expectations import Expectations
from client.message import DeliveredMessage, MessageQueue

__all__ = ["Redeliveries", "Refused", "hold_counts", "hold_overdue"]

SLACK_S: Final = 8.0  # another call of the queue's listener may hang until its limit
EARLY_S: Final = 0.02  # by which a member's clock may count otherwise


@dataclass(slots=True)
class Refused:
    """A message that was refused: how often, and when it is to come again."""

    failures: int
    due_s: float


class Redeliveries:
    """What one member was given and refused. `limit` None: a message comes for ever."""

    def __init__(self, *, limit: int | None, wait_s: float, ordered: bool) -> None:
        self._limit = limit
        self._wait_s = wait_s
        self._ordered = ordered
        self._refused: dict[MessageQueue, dict[int, Refused]] = {}
        self._dropped: dict[MessageQueue, set[int]] = {}
        self._open: dict[MessageQueue, set[int]] = {}

    def count_of(self, queue: MessageQueue, offset: int) -> int:
        """Return the reconsume count with which the message is to come now."""
        refused = self._refused.get(queue, {}).get(offset)
        return 0 if refused is None else refused.failures

    def next_of(self, queue: MessageQueue) -> int | None:
        """Return the offset that is to come next in an ordered queue; None: whatever comes."""
        if not self._ordered or self._open.get(queue):
            return None
        return min(self._refused.get(queue, {}), default=None)

    def is_open(self, queue: MessageQueue, offset: int) -> bool:
        """Return whether nobody knows what an ordered member does with the message next: it is to
        be a dead letter, and comes again where no broker takes it."""
        return offset in self._open.get(queue, set())

    def passed(self, queue: MessageQueue, offset: int) -> None:
        """Take what is open before `offset` as done, since a later message has come."""
        self._open[queue] = {each for each in self._open.get(queue, set()) if each >= offset}

    def is_early(self, queue: MessageQueue, offset: int, now_s: float) -> bool:
        """Return whether a message that was refused comes again before its wait is over."""
        refused = self._refused.get(queue, {}).get(offset)
        return refused is not None and now_s < refused.due_s - EARLY_S

    def is_dropped(self, queue: MessageQueue, offset: int) -> bool:
        """Return whether the message was refused for the last time."""
        return offset in self._dropped.get(queue, set())

    def consumed(self, queue: MessageQueue, offsets: Sequence[int]) -> None:
        for offset in offsets:
            self._refused.get(queue, {}).pop(offset, None)

    def refused(self, queue: MessageQueue, offsets: Sequence[int], now_s: float) -> None:
        of_queue = self._refused.setdefault(queue, {})
        for offset in offsets:
            if self.is_open(queue, offset):
                continue
            before = of_queue[offset].failures if offset in of_queue else 0
            if self._limit is not None and before >= self._limit:
                of_queue.pop(offset, None)
                ended = self._open if self._ordered else self._dropped
                ended.setdefault(queue, set()).add(offset)
                continue
            wait_s = self._wait_s if self._ordered else self._wait_s * (1 << before)
            of_queue[offset] = Refused(before + 1, now_s + wait_s)

    def forget(self, queue: MessageQueue) -> None:
        """Expect nothing more of a queue: it was lost, or its position was changed."""
        self._refused.pop(queue, None)
        self._dropped.pop(queue, None)
        self._open.pop(queue, None)

    def overdue(self, now_s: float) -> list[tuple[MessageQueue, int]]:
        """Return the messages that should have come again by now."""
        return [
            (queue, offset)
            for queue, of_queue in sorted(self._refused.items())
            for offset, refused in sorted(of_queue.items())
            if refused.due_s + SLACK_S < now_s
        ]


def hold_counts(
    expectations: Expectations, model: Redeliveries, messages: Sequence[DeliveredMessage]
) -> None:
    """Hold what a listener is given against what the model has of its messages."""
    queue = messages[0].queue
    model.passed(queue, messages[0].queue_offset)
    for message in messages:
        offset, count = message.queue_offset, message.reconsume_times
        if model.is_open(queue, offset):
            continue
        if model.is_dropped(queue, offset):
            expectations.hold(
                "message that was refused for the last time",
                expected="not delivered",
                answered=f"delivered, count {count}",
                queue=queue,
            )
        elif count or model.count_of(queue, offset):
            is_early = model.is_early(queue, offset, asyncio.get_running_loop().time())
            expectations.hold(
                "count of refusals, and whether the wait behind the last one is over",
                expected=f"offset {offset}: {model.count_of(queue, offset)}, True",
                answered=f"offset {offset}: {count}, {not is_early}",
                queue=queue,
            )
    wanted = model.next_of(queue)
    if wanted is not None:
        expectations.hold(
            "next message of an ordered queue that was refused one",
            expected=wanted,
            answered=messages[0].queue_offset,
            queue=queue,
        )


def hold_overdue(expectations: Expectations, model: Redeliveries) -> None:
    """Hold against a member, at its end, which refused messages should have come again."""
    overdue = model.overdue(asyncio.get_running_loop().time())
    expectations.hold(
        "refused messages that did not come again",
        expected="none",
        answered=", ".join(f"{queue}: {offset}" for queue, offset in overdue) or "none",
        queue=overdue[0][0] if overdue else None,
    )
