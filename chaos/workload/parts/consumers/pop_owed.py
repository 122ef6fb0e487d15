"""What a POP group still has to do: messages that it must pop and acknowledge before the run ends.

Place in the data path: senders and members of `chaos.workload.parts.consumers.pops` report here;
the part has read everything when no group owes anything.

Invariants: a message is owed from its acknowledged send, or from its first delivery, until an
acknowledgement that certainly counted, or until it is a dead letter; one that was acknowledged too
late, or without an answer, is owed until it would have come again. Pure: time is an argument.
"""

from __future__ import annotations

from collections import Counter

__all__ = ["Owed"]


class Owed:
    """One group's messages by value. Times are of the loop's clock, in seconds."""

    def __init__(self) -> None:
        self._owed: set[str] = set()
        self._done: set[str] = set()
        self._doubtful: dict[str, float] = {}  # until when it may come again
        self._deliveries: Counter[str] = Counter()

    def sent(self, value: str) -> None:
        """Record an acknowledged send, which may be reported after the message was consumed."""
        if value not in self._done:
            self._owed.add(value)

    def deliveries(self, value: str) -> int:
        """Return how often the group's members were handed the message."""
        return self._deliveries[value]

    def delivered(self, value: str) -> None:
        self._deliveries[value] += 1
        self._doubtful.pop(value, None)
        self._done.discard(value)
        self._owed.add(value)

    def acknowledged(self, value: str) -> None:
        """Record an acknowledgement that certainly counted, or a dead letter."""
        self._doubtful.pop(value, None)
        self._owed.discard(value)
        self._done.add(value)

    def maybe_acknowledged(self, value: str, until_s: float) -> None:
        """Record an acknowledgement that may not have counted: then it comes again by `until_s`."""
        if value in self._owed:
            self._owed.discard(value)
            self._done.add(value)
            self._doubtful[value] = until_s

    def is_empty(self, now_s: float) -> bool:
        """Return whether nothing is owed, nor may be owed later."""
        return not self._owed and all(until_s <= now_s for until_s in self._doubtful.values())
