"""The values that a part's readers are still to read before the run may end.

Place in the data path: a part's senders await what was acknowledged to them, its readers report
what came; `is_settled` and `has_read` of the part come from here. Pure: times are arguments.

Invariant: what never comes is given up `patience_s` after it was due and the last other value came,
so that a run in which a message is lost ends, and the rules say what was lost. Readers that have
fallen behind, one message at a time, lose nothing: they are waited for as long as something comes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["AwaitedValues"]


class AwaitedValues:
    """Values by the time at which they are to be there.

    `patience_s`: how much later is late, if nothing else has come meanwhile.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._due_s: dict[str, float] = {}
        self._seen: set[str] = set()
        self._last_came_s = -math.inf

    def expect(self, value: str, due_s: float) -> None:
        """Await `value`, which is due at `due_s`, unless it came already."""
        if value not in self._seen:
            self._due_s[value] = max(due_s, self._due_s.get(value, due_s))

    def seen(self, values: Iterable[str], now_s: float) -> None:
        """Await `values` no more: they came. What is read a second time is no progress."""
        for value in values:
            if value not in self._seen:
                self._last_came_s = now_s
            self._seen.add(value)
            self._due_s.pop(value, None)

    def forget(self, value: str) -> None:
        """Await `value` no more: it is not to come, or may rightly stay away."""
        self._due_s.pop(value, None)

    def outstanding(self, now_s: float) -> bool:
        """Return whether a value that is awaited is not overdue yet."""
        return any(
            max(due_s, self._last_came_s) + self._patience_s > now_s
            for due_s in self._due_s.values()
        )
