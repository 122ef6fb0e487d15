"""Halves that were given up, and stored in the half topic again by request.

Place in the data path: RESUME_CHECK_HALF_MESSAGE proposes; a copy in TRANS_CHECK_MAX_TIME_TOPIC is
named by its queue offset there. Pure part of the replicated state.

Invariant: each copy is resumed once: a second half of the same transaction could be committed
beside the first, and its message would be in its topic twice (promise G2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import Final

from broker.entry.state_part import Captured, Row, natural

__all__ = ["RESUMED_MAX", "ResumedHalves"]

RESUMED_MAX: Final = 100_000  # above, the leader resumes no more


class ResumedHalves:
    def __init__(self) -> None:
        self._copies: set[int] = set()

    def __len__(self) -> int:
        return len(self._copies)

    def __contains__(self, queue_offset: int) -> bool:
        return queue_offset in self._copies

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResumedHalves) and self._copies == other._copies

    __hash__ = None  # type: ignore[assignment]  # it changes

    def add(self, queue_offset: int) -> None:
        self._copies.add(queue_offset)

    def capture(self) -> Iterable[Row]:
        """See StatePart."""
        return Captured(frozenset(self._copies), _rows)

    def restore(self, rows: Iterable[Row]) -> None:
        """See StatePart."""
        self._copies = {natural(queue_offset) for (queue_offset,) in rows}


def _rows(copies: Set[int]) -> Iterator[Row]:
    for queue_offset in sorted(copies):
        yield [queue_offset]
