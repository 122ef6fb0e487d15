"""Pending offset resets, which consumers have not followed yet: (group, topic, queue) -> offset.

Place in the data path: INVOKE_BROKER_TO_RESET_OFFSET proposes them; the first pull of such a queue,
and each from another offset, is answered with PULL_OFFSET_MOVED and this one; the next from it, or
pop of the queue, clears it, and is answered once that is committed: a group is sent back once,
whoever leads, or once more where a follower that has not heard of the reset yet answers in between.
Pure part of the replicated state.

Invariants: while a reset is pending, the group's offset of the queue is the reset's, whatever its
members commit; a reset is forgotten only by a command that names its offset, by a newer reset, or
with its topic or group. RocketMQ forgets it with the first answer, which may be lost: the reset
would be too. Source: RocketMQ ConsumerOffsetManager.resetOffsetTable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from broker.entry.state_part import Captured, Row, natural, text

__all__ = ["RESETS_MAX", "OffsetResets"]

RESETS_MAX: Final = 100_000  # pending ones; the leader takes no more

Key = tuple[str, str, int]


class OffsetResets:
    def __init__(self) -> None:
        self._pending: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetResets) and self._pending == other._pending

    __hash__ = None  # type: ignore[assignment]  # it changes

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset of a pending reset, or None."""
        return self._pending.get((group, topic, queue_id))

    def set(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self._pending[group, topic, queue_id] = offset

    def clear(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """End the reset to `offset`, which the group has followed; a newer reset stays."""
        if self._pending.get((group, topic, queue_id)) == offset:
            del self._pending[group, topic, queue_id]

    def drop_topics(self, topics: Collection[str]) -> None:
        self._retain(lambda key: key[1] not in topics)

    def drop_group(self, group: str) -> None:
        self._retain(lambda key: key[0] != group)

    def _retain(self, wanted: Callable[[Key], bool]) -> None:
        self._pending = {key: offset for key, offset in self._pending.items() if wanted(key)}

    def capture(self) -> Iterable[Row]:
        """See StatePart."""
        return Captured(dict(self._pending), _rows)

    def restore(self, rows: Iterable[Row]) -> None:
        """See StatePart."""
        self._pending = {
            (text(group), text(topic), natural(queue_id)): natural(offset)
            for group, topic, queue_id, offset in rows
        }


def _rows(pending: Mapping[Key, int]) -> Iterator[Row]:
    for key, offset in pending.items():
        yield [*key, offset]
