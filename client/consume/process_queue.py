"""The messages of one queue between their pull and their consumption; pure.

Place in the data path: a queue's pull loop adds the messages it received, its consume loop takes
batches out and reports how each ended; the offset committed for the group is read here.

Invariants:
- `commit_offset` never passes a message that is not consumed, and never falls except by
  `reposition`.
- Every message added is handed out until it is consumed; a failed one is handed out again when it
  is due, its reconsume_times one higher. In an ordered queue nothing behind a failed message is
  handed out before that one is consumed.
- Messages held are bounded: the pull loop checks `has_room` before it pulls.

Source: RocketMQ ProcessQueue (its commit offset is the lowest offset held, or else the next one to
pull) and ConsumeMessageOrderlyService (a failure suspends the queue).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from client.message import DeliveredMessage

__all__ = ["ProcessQueue"]


class ProcessQueue:
    """Messages held of a queue; `next_offset` is the next to pull, `moves` how often it was
    repositioned. Times are ms of any clock."""

    __slots__ = (
        "_bytes",
        "_bytes_max",
        "_count_max",
        "_due",
        "_in_hand",
        "_ordered",
        "_span_max",
        "_waiting",
        "moves",
        "next_offset",
    )

    def __init__(
        self,
        next_offset: int,
        *,
        count_max: int = 1_000,
        bytes_max: int = 100 * 1024 * 1024,
        span_max: int = 2_000,
        ordered: bool = False,
    ) -> None:
        assert next_offset >= 0
        self.next_offset = next_offset
        self.moves = 0
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._span_max = span_max
        self._ordered = ordered
        self._waiting: deque[DeliveredMessage] = deque()
        self._in_hand: dict[int, DeliveredMessage] = {}
        self._due: dict[int, tuple[int, DeliveredMessage]] = {}
        self._bytes = 0

    @property
    def held(self) -> int:
        """Return the number of messages that are held and not consumed."""
        return len(self._waiting) + len(self._in_hand) + len(self._due)

    @property
    def held_bytes(self) -> int:
        """Return the bytes of the held messages' bodies."""
        return self._bytes

    @property
    def has_room(self) -> bool:
        """Whether more may be pulled. The span counts, since a restart redelivers all of it."""
        return (
            self.held < self._count_max
            and self._bytes < self._bytes_max
            and (self.held == 0 or self.next_offset - self.commit_offset < self._span_max)
        )

    @property
    def commit_offset(self) -> int:
        """Return the lowest offset that is not known to be consumed."""
        lowest = self.next_offset
        if self._waiting:
            lowest = min(lowest, self._waiting[0].queue_offset)
        if self._in_hand:
            lowest = min(lowest, *self._in_hand)
        if self._due:
            lowest = min(lowest, *self._due)
        return lowest

    def add(self, messages: Iterable[DeliveredMessage], next_offset: int) -> None:
        """Add what a pull from `self.next_offset` returned; the next one starts at `next_offset`.

        Messages below the position (a record batch may begin before it) are left out.
        """
        expected = self.next_offset
        for message in messages:
            if message.queue_offset < expected:
                continue
            self._waiting.append(message)
            self._bytes += len(message.body)
            expected = message.queue_offset + 1
        self.next_offset = max(expected, next_offset)

    def take(self, count_max: int, now_ms: int) -> list[DeliveredMessage]:
        """Return the next messages to consume, lowest offsets first; empty where none is due.

        The caller reports each of them by `done` or `retry`.
        """
        assert count_max > 0
        batch: list[DeliveredMessage] = []
        if self._due and (not self._ordered or not self._in_hand):
            for offset in sorted(self._due):
                due_ms, message = self._due[offset]
                if due_ms <= now_ms and len(batch) < count_max:
                    batch.append(message)
                elif self._ordered:
                    break
            for message in batch:
                del self._due[message.queue_offset]
        if not self._ordered or not (self._due or self._in_hand):
            while self._waiting and len(batch) < count_max:
                batch.append(self._waiting.popleft())
        for message in batch:
            self._in_hand[message.queue_offset] = message
        return batch

    def done(self, messages: Sequence[DeliveredMessage]) -> None:
        """Mark messages as consumed. Those taken before a `reposition` are ignored."""
        for message in messages:
            if self._in_hand.get(message.queue_offset) is message:
                del self._in_hand[message.queue_offset]
                self._bytes -= len(message.body)

    def retry(self, messages: Sequence[DeliveredMessage], due_ms: int) -> None:
        """Hand these messages out again at `due_ms` or later, since they were not consumed."""
        for message in messages:
            if self._in_hand.get(message.queue_offset) is message:
                del self._in_hand[message.queue_offset]
                message.reconsume_times += 1
                self._due[message.queue_offset] = (due_ms, message)

    def next_due_ms(self) -> int | None:
        """Return when the next failed message is due; None where none waits for its retry."""
        if not self._due:
            return None
        if self._ordered:
            return self._due[min(self._due)][0]
        return min(due_ms for due_ms, _ in self._due.values())

    def reposition(self, offset: int) -> None:
        """Continue at `offset`: the broker reported that the position is outside of the queue.

        Drops everything held; messages being consumed right now no longer affect the offset.
        """
        assert offset >= 0
        self._waiting.clear()
        self._in_hand.clear()
        self._due.clear()
        self._bytes = 0
        self.next_offset = offset
        self.moves += 1
