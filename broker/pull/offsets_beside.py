"""Consumer offsets that a slave takes while its master is away.

Place in the data path: consumers that go on at a slave commit there, and query there after a
rebalance. Nothing of it enters the log, which is the master's alone.

Invariants: it is kept in memory only, and forgotten once the master is back, as RocketMQ's slave
overwrites its own with what it copies from the master; it is bounded as the offsets in the log are.

Source: RocketMQ ConsumerManageProcessor, SlaveSynchronize.syncConsumerOffset.
"""

from __future__ import annotations

from broker.request.leadership import Leadership

__all__ = ["OffsetsBeside"]


class OffsetsBeside:
    """Offsets by group, topic and queue; empty on any other node."""

    def __init__(self, leadership: Leadership, *, count_max: int) -> None:
        self._leadership = leadership
        self._count_max = count_max
        self._offsets: dict[tuple[str, str, int], int] = {}

    def put(self, key: tuple[str, str, int], offset: int) -> bool:
        """Keep an offset; False where this node is no slave without a master, or has too many."""
        if not self._leadership.is_orphan:
            return False
        if key not in self._offsets and len(self._offsets) >= self._count_max:
            return False
        self._offsets[key] = offset
        return True

    def get(self, key: tuple[str, str, int]) -> int | None:
        """Return an offset that was kept since the master went away, or None."""
        if self._offsets and not self._leadership.is_orphan:
            self._offsets.clear()
        return self._offsets.get(key)
