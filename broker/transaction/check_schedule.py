"""Which undecided half the check-back examines next. Pure.

Place in the data path: `broker.transaction.check_back` takes some halves at a time, and says of
each when it is to be examined again. What a leader has not examined yet follows a cursor in queue
order; all else waits in one of four lines: for its interval since the last check, for a producer of
its group, for the end of its immunity, or for the next round.

Invariants: each half stands in one line, or behind the cursor; a half that is only waiting costs
nothing, however many do; of several lines none starves another. It holds queue offsets alone, and
whoever takes one has to ask the table whether the half is still undecided.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from broker.state.half_table import HalfTable

__all__ = ["CheckSchedule", "Place"]

Place = tuple[str, str]
"""A producer group and the topic of its half: by both it is known who may be asked."""
_LINES_SCANNED_MAX: Final = 1_000  # groups without a producer, of which each is looked up


class CheckSchedule:
    def __init__(self) -> None:
        self._cursor = 0  # queue offset of the first half that was never examined
        self._expiry_cursor: int | None = None  # None: the round has passed all
        self._checked: deque[tuple[int, deque[int]]] = deque()  # by the time of the check
        self._without_producer: dict[Place, deque[int]] = {}
        self._immune: list[tuple[int, int]] = []  # heap of (end of immunity, queue offset)
        self._next_round: deque[int] = deque()
        self._this_round: deque[int] = deque()

    def begin_round(self) -> None:
        """Let what waits for the next round be taken, and what has expired."""
        if self._expiry_cursor is None:
            self._expiry_cursor = 0
        self._this_round.extend(self._next_round)
        self._next_round.clear()

    # Putting -----------------------------------------------------------------------------------

    def put_next_round(self, queue_offset: int) -> None:
        self._next_round.append(queue_offset)

    def put_checked(self, queue_offset: int, now_ms: int) -> None:
        """Have the half examined again an interval after `now_ms`."""
        if not self._checked or self._checked[-1][0] != now_ms:
            self._checked.append((now_ms, deque()))
        self._checked[-1][1].append(queue_offset)

    def put_without_producer(self, queue_offset: int, place: Place) -> None:
        self._without_producer.setdefault(place, deque()).append(queue_offset)

    def put_immune(self, queue_offset: int, until_ms: int) -> None:
        heapq.heappush(self._immune, (until_ms, queue_offset))

    # Taking ------------------------------------------------------------------------------------

    def fresh(self, halves: HalfTable, stored_ms_max: int) -> Iterator[int]:
        """Iterate over halves that were never examined, up to the first that is stored later."""
        while (half := next(halves.undecided_from(self._cursor), None)) is not None:
            if half.stored_ms > stored_ms_max:
                return
            self._cursor = half.queue_offset + 1
            yield half.queue_offset

    def expired(self, halves: HalfTable, stored_ms_max: int) -> Iterator[int]:
        """Iterate over halves that were stored by then, once in a round or in several. They keep
        their place in a line."""
        while self._expiry_cursor is not None:
            half = next(halves.undecided_from(self._expiry_cursor), None)
            if half is None or half.stored_ms > stored_ms_max:
                self._expiry_cursor = None
                return
            self._expiry_cursor = half.queue_offset + 1
            yield half.queue_offset

    def retried(self) -> Iterator[int]:
        while self._this_round:
            yield self._this_round.popleft()

    def immune(self, now_ms: int) -> Iterator[int]:
        """Iterate over halves whose immunity is over."""
        while self._immune and self._immune[0][0] <= now_ms:
            yield heapq.heappop(self._immune)[1]

    def checked(self, last_ms_max: int) -> Iterator[int]:
        """Iterate over halves that were checked by then."""
        while self._checked and self._checked[0][0] <= last_ms_max:
            checked_together = self._checked[0][1]
            if checked_together:
                yield checked_together.popleft()
            else:
                self._checked.popleft()

    def with_producer(self, may_go_on: Callable[[Place, int], bool]) -> Iterator[int]:
        """Iterate over halves that waited for a producer, of places that may go on now by what
        `may_go_on` says of the place and the half that waits there longest."""
        for place in list(islice(self._without_producer, _LINES_SCANNED_MAX)):
            line = self._without_producer[place]
            if may_go_on(place, line[0]):
                while line:
                    queue_offset = line.popleft()
                    if not line:
                        del self._without_producer[place]
                    yield queue_offset
            else:  # at the end: the others get their turn
                self._without_producer[place] = self._without_producer.pop(place)
