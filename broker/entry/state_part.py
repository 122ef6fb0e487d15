"""A part of the replicated state that keeps its own rows in a snapshot.

Place in the data path: `broker.state.state` holds the parts by name and only delegates; `capture`
goes into the state's image on the loop, its rows are written on a thread
(`broker.state.state_image`), one msgpack array each, under the part's name. An image without a
part's rows restores it empty, so a new part reads what older versions wrote.

Invariants: a part changes only by committed commands; what `capture` returned never changes;
restoring what was captured gives an equal part.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeAlias

__all__ = ["Row", "StatePart", "natural", "text"]

Row: TypeAlias = list[Any]


class StatePart(Protocol):
    def capture(self) -> Iterable[Row]:
        """The rows, in the order in which they came to be; may be walked more than once."""

    def restore(self, rows: Iterable[Row]) -> None:
        """Become what was captured. Raises ValueError or TypeError for rows that are none; the
        part is undefined then."""


def natural(value: object) -> int:
    """A whole number of at least 0. Raises ValueError."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r:.40} is no whole number of at least 0")
    return value


def text(value: object) -> str:
    """Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value
