"""Log positions of the last deletion of each topic.

Place in the data path: DELETE_TOPIC_IN_BROKER's command notes it. A message that waits elsewhere
than in its topic (undecided, delayed, to be retried) belongs to the topic of that name only if it
is behind the deletion; before it, to one that was deleted (`broker.request.deleted_topics`). So its
log position is all that a message has to carry of its topic's generation. Pure part of the
replicated state.

Invariants: positions rise only; only names that were topics have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from broker.entry.state_part import Captured, Row, natural, text

__all__ = ["TopicDeletions"]


class TopicDeletions:
    def __init__(self) -> None:
        self._ends: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ends)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicDeletions) and self._ends == other._ends

    __hash__ = None  # type: ignore[assignment]  # it changes

    def note(self, topic: str, end: int) -> None:
        """Note a deletion; `end` is the log position behind the records of its entry."""
        assert end >= self._ends.get(topic, 0), f"{topic}: deletions follow each other in the log"
        self._ends[topic] = end

    def took(self, topic: str, position: int) -> bool:
        """Whether a message at `position` was sent to a topic of this name since deleted."""
        return position < self._ends.get(topic, 0)

    def capture(self) -> Iterable[Row]:
        """See StatePart."""
        return Captured(dict(self._ends), _rows)

    def restore(self, rows: Iterable[Row]) -> None:
        """See StatePart."""
        self._ends = {text(topic): natural(end) for topic, end in rows}


def _rows(ends: Mapping[str, int]) -> Iterator[Row]:
    for topic, end in ends.items():
        yield [topic, end]
