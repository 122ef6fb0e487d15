"""Pull offsets of groups by queue: messages between them and the committed offset are being
consumed.

Place in the data path: written by each pull that is answered or held, read for `mqadmin` ("in
flight"). Known to this process only, as RocketMQ's are: after a failover the new leader learns them
from each group's next pull.

Invariant: bounded; beyond `PULL_OFFSETS_MAX` queues the one that was pulled first is forgotten.
Source: RocketMQ ConsumerOffsetManager (pullOffsetTable).
"""

from __future__ import annotations

from typing import Final

from broker.entry.topics import is_group_name

__all__ = ["PULL_OFFSETS_MAX", "PullOffsets"]

PULL_OFFSETS_MAX: Final = 100_000


class PullOffsets:
    def __init__(self, count_max: int = PULL_OFFSETS_MAX) -> None:
        self._count_max = count_max
        self._offsets: dict[tuple[str, str, int], int] = {}

    def pulled(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Note that the group's next pull of this queue will be at `next_offset`."""
        offsets, queue = self._offsets, (group, topic, queue_id)
        if queue not in offsets:
            if not is_group_name(group):
                return  # a pull may name any group, of any length
            if len(offsets) >= self._count_max:
                del offsets[next(iter(offsets))]
        offsets[queue] = next_offset

    def get(self, group: str, topic: str, queue_id: int, committed: int) -> int:
        """Return the offset of its next pull; `committed` if that is greater, or none is known."""
        return max(committed, self._offsets.get((group, topic, queue_id), 0))
