"""Replicated states of half messages: undecided, then committed, rolled back or discarded.

Place in the data path: `broker.state.state` applies committed runs and commands to it; the leader
queries it before it proposes a decision. Pure and deterministic.

Invariants (promise G4): a half is decided at most once; the first decision wins; a decided half is
never checked again; `progress` (the next half to look at) never passes an undecided half. Which
way a half was decided is remembered for the newest `decided_max` of them; of an older one it is
only known that it was decided. An image of the table shares nothing that changes.

The undecided stand in columns, in queue order: some 30 bytes each instead of 230 as objects, none
of which the garbage collector visits. A decided half keeps its row until as many rows are decided
as are not, so that a decision takes a search and no move.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Final, Literal

__all__ = ["DECISIONS", "Decision", "Half", "HalfImage", "HalfTable"]

Decision = Literal["commit", "rollback", "discard"]
DECISIONS: Final[tuple[Decision, ...]] = ("commit", "rollback", "discard")
_DECIDED_ROWS_MIN: Final = 1_024  # fewer are not worth a new table


@dataclass(frozen=True, slots=True)
class Half:
    """Undecided half message."""

    queue_offset: int
    position: int
    size: int
    stored_ms: int
    checks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfImage:
    """Image of the table at one moment; nothing in it ever changes. `undecided`: in queue order."""

    next_offset: int
    undecided: Iterable[Half]
    decided: Mapping[int, Decision]
    decided_before: Mapping[int, Decision]


class _Rows:
    """Columns of halves in queue order, those that are decided meanwhile among them."""

    def __init__(self) -> None:
        self.queue_offsets = array("Q")
        self._positions = array("Q")
        self._sizes = array("I")
        self._stored_ms = array("Q")
        self._checks = array("I")
        self.is_undecided = bytearray()
        self.undecided_count = 0
        self.first = 0  # row of the first undecided half, or the number of rows

    def __len__(self) -> int:
        return len(self.queue_offsets)

    def __iter__(self) -> Iterator[Half]:
        """Iterate over the undecided halves."""
        return (self.half(row) for row in range(self.first, len(self)) if self.is_undecided[row])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Rows) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def find(self, queue_offset: int) -> int | None:
        """Return the row of an undecided half, or None."""
        row = bisect_left(self.queue_offsets, queue_offset)
        if row == len(self) or self.queue_offsets[row] != queue_offset:
            return None
        return row if self.is_undecided[row] else None

    def half(self, row: int) -> Half:
        return Half(
            self.queue_offsets[row],
            self._positions[row],
            self._sizes[row],
            self._stored_ms[row],
            self._checks[row],
        )

    def append(self, half: Half) -> None:
        self.queue_offsets.append(half.queue_offset)
        self._positions.append(half.position)
        self._sizes.append(half.size)
        self._stored_ms.append(half.stored_ms)
        self._checks.append(half.checks)
        self.is_undecided.append(1)
        self.undecided_count += 1

    def count_check(self, row: int) -> None:
        self._checks[row] += 1

    def remove(self, row: int) -> None:
        """Take an undecided half out; its row goes later."""
        self.is_undecided[row] = 0
        self.undecided_count -= 1
        if row == self.first:
            following = self.is_undecided.find(1, row)
            self.first = len(self) if following < 0 else following
        if len(self) - self.undecided_count > self.undecided_count + _DECIDED_ROWS_MIN:
            self._replace_by(self.copy())

    def copy(self) -> _Rows:
        """Return the undecided rows alone; it takes some milliseconds for a million."""
        rows = _Rows()
        retained = self.is_undecided
        if self.undecided_count == len(self):
            rows.queue_offsets = self.queue_offsets[:]
            rows._positions = self._positions[:]
            rows._sizes = self._sizes[:]
            rows._stored_ms = self._stored_ms[:]
            rows._checks = self._checks[:]
        else:
            rows.queue_offsets = array("Q", compress(self.queue_offsets, retained))
            rows._positions = array("Q", compress(self._positions, retained))
            rows._sizes = array("I", compress(self._sizes, retained))
            rows._stored_ms = array("Q", compress(self._stored_ms, retained))
            rows._checks = array("I", compress(self._checks, retained))
        rows.is_undecided = bytearray(b"\1") * self.undecided_count
        rows.undecided_count = self.undecided_count
        return rows

    def _replace_by(self, rows: _Rows) -> None:
        self.queue_offsets = rows.queue_offsets
        self._positions = rows._positions
        self._sizes = rows._sizes
        self._stored_ms = rows._stored_ms
        self._checks = rows._checks
        self.is_undecided = rows.is_undecided
        self.first = 0


class HalfTable:
    def __init__(self, *, decided_max: int) -> None:
        assert decided_max > 0
        self._decided_max = decided_max
        self._undecided = _Rows()
        self._decided: dict[int, Decision] = {}
        self._decided_before: dict[int, Decision] = {}  # replaced as a whole, never changed
        self.next_offset = 0

    def __len__(self) -> int:
        return self._undecided.undecided_count

    def get(self, queue_offset: int) -> Half | None:
        row = self._undecided.find(queue_offset)
        return None if row is None else self._undecided.half(row)

    def undecided(self) -> list[Half]:
        """Return the undecided halves in queue order. It takes as long as there are many."""
        return list(self._undecided)

    def undecided_from(self, queue_offset: int) -> Iterator[Half]:
        """Iterate over the undecided halves from a queue offset on.

        The table must not be changed meanwhile; it takes as long as it is iterated.
        """
        rows = self._undecided
        row = max(rows.first, bisect_left(rows.queue_offsets, queue_offset))
        while (row := rows.is_undecided.find(1, row)) >= 0:
            yield rows.half(row)
            row += 1

    def decision(self, queue_offset: int) -> Decision | None:
        """Return the decision on a half, or None if there is none or it is not remembered."""
        return self._decided.get(queue_offset) or self._decided_before.get(queue_offset)

    @property
    def progress(self) -> int:
        """Return the first undecided half's queue offset, or the next one to be written."""
        oldest = self._oldest()
        return self.next_offset if oldest is None else oldest.queue_offset

    @property
    def begin_position(self) -> int | None:
        """Return the oldest undecided half's log position, the limit of retention, or None."""
        oldest = self._oldest()
        return None if oldest is None else oldest.position

    def _oldest(self) -> Half | None:
        rows = self._undecided
        return rows.half(rows.first) if rows.undecided_count else None

    def add(self, half: Half) -> None:
        assert half.queue_offset >= self.next_offset, "half offsets rise"
        self._undecided.append(half)
        self.next_offset = half.queue_offset + 1

    def check(self, queue_offset: int) -> None:
        row = self._undecided.find(queue_offset)
        if row is not None:  # decided in an entry before: the check is void
            self._undecided.count_check(row)

    def decide(self, queue_offset: int, decision: Decision) -> None:
        row = self._undecided.find(queue_offset)
        assert row is not None, f"half {queue_offset} is not undecided, yet {decision}"
        self._undecided.remove(row)
        if len(self._decided) >= self._decided_max:
            self._decided_before = self._decided
            self._decided = {}
        self._decided[queue_offset] = decision

    def capture(self) -> HalfImage:
        return HalfImage(
            next_offset=self.next_offset,
            undecided=self._undecided.copy(),
            decided=dict(self._decided),
            decided_before=self._decided_before,
        )

    def restore(self, image: HalfImage) -> None:
        """Replace the table by a captured one. Raises ValueError if the image is invalid."""
        rows, end = _Rows(), 0
        for half in image.undecided:
            if not end <= half.queue_offset < image.next_offset:
                raise ValueError("half messages: the undecided are out of order")
            end = half.queue_offset + 1
            try:
                rows.append(half)
            except OverflowError as error:
                raise ValueError(f"half messages: {half} has no such numbers") from error
        self.next_offset = image.next_offset
        self._undecided = rows
        self._decided = dict(image.decided)
        self._decided_before = dict(image.decided_before)
