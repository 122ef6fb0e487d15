"""Tombstone offsets: the ends of the queues of deleted topics, below which nothing is ever read.

Place in the data path: DELETE_TOPIC_IN_BROKER puts a floor under each queue of the topic. A new
topic of the same name continues there: a queue offset identifies one message for ever (promise G3),
and a consumer with an old offset of the deleted topic does not skip new messages.
`broker.queues.consume_queues` drops the units below, and a rebuilt queue begins at its floor. Pure
part of the replicated state.

Invariants: floors rise only; a floor is never above the queue's end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from broker.entry.state_part import Captured, Row, natural, text
from broker.state.queue_offsets import QueueOffsets

__all__ = ["FLOORS_MAX", "TombstoneOffsets"]

FLOORS_MAX: Final = 100_000  # queues of deleted topics; the leader deletes no more topics then


class TombstoneOffsets:
    def __init__(self) -> None:
        self._floors: dict[tuple[str, int], int] = {}

    def __len__(self) -> int:
        return len(self._floors)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TombstoneOffsets) and self._floors == other._floors

    __hash__ = None  # type: ignore[assignment]  # it changes

    def get(self, topic: str, queue_id: int) -> int:
        """Return the first offset that may be read."""
        return self._floors.get((topic, queue_id), 0)

    def all(self) -> Mapping[tuple[str, int], int]:
        return self._floors

    def topics_deleted(
        self, topics: Collection[str], next_offsets: QueueOffsets[tuple[str, int]]
    ) -> None:
        for key in next_offsets.of_topics(topics):
            end = next_offsets[key]
            assert end >= self._floors.get(key, 0), f"{key}: the queue ends below its floor"
            self._floors[key] = end

    def capture(self) -> Iterable[Row]:
        """See StatePart."""
        return Captured(dict(self._floors), _rows)

    def restore(self, rows: Iterable[Row]) -> None:
        """See StatePart."""
        self._floors = {
            (text(topic), natural(queue_id)): natural(floor) for topic, queue_id, floor in rows
        }


def _rows(floors: Mapping[tuple[str, int], int]) -> Iterator[Row]:
    for key, floor in floors.items():
        yield [*key, floor]
