"""What a group of readers has still to read: acknowledged messages that nobody consumed yet.

Place in the data path: the parts' senders and listeners report to it; a part's `has_read` asks it,
so that the run does not end before its readers are done. It judges nothing: what is owed when time
is up is found by the rules.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["Owed"]


class Owed:
    """Values by name. A message may be consumed before its sender knows that it is stored."""

    def __init__(self) -> None:
        self._read: set[str] = set()
        self._owed: set[str] = set()

    def acknowledged(self, value: str) -> None:
        if value not in self._read:
            self._owed.add(value)

    def consumed(self, values: Iterable[str]) -> None:
        for value in values:
            self._read.add(value)
            self._owed.discard(value)

    @property
    def is_empty(self) -> bool:
        return not self._owed
