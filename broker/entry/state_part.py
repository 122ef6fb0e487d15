"""Interface of a part of the replicated state with rows of its own in a snapshot.

Place in the data path: `broker.state.state` holds the parts by name and only delegates; `capture`
goes into the state's image on the loop, its rows are written on a thread
(`broker.state.state_image`), one msgpack array each, under the part's name. An image without a
part's rows restores it empty, so a new part reads what older versions wrote.

Invariants: a part changes only by committed commands; what `capture` returned never changes;
restoring what was captured gives an equal part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

__all__ = ["Captured", "Row", "StatePart", "natural", "text"]

Row: TypeAlias = list[Any]
_Table = TypeVar("_Table")


class StatePart(Protocol):
    def capture(self) -> Iterable[Row]:
        """Return the rows in the order of their creation; they may be iterated more than once.

        This is called on the loop, of every replica at the same entry: it copies what changes, and
        leaves it to the thread that writes the rows to make them.
        """

    def restore(self, rows: Iterable[Row]) -> None:
        """Replace the part's content by captured rows. Raises ValueError or TypeError for invalid
        rows; the part is undefined then."""


@dataclass(frozen=True, slots=True)
class Captured(Generic[_Table]):
    """Captured table, a copy that the loop has made; rows are made whenever they are iterated."""

    table: _Table
    rows_of: Callable[[_Table], Iterator[Row]]

    def __iter__(self) -> Iterator[Row]:
        return self.rows_of(self.table)


def natural(value: object) -> int:
    """Return `value` if it is a whole number of at least 0. Raises ValueError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r:.40} is no whole number of at least 0")
    return value


def text(value: object) -> str:
    """Return `value` if it is text. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value
