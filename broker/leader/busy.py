"""Held messages with a proposal in flight: they are not delivered again meanwhile.

Place in the data path: in the leader's memory, between a proposal of POP and its outcome. Without
it a message could be stored again in the very entry behind its acknowledgement. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from broker.state.pop_state import QueueKey

__all__ = ["BusyHoldings", "Held"]

Held: TypeAlias = tuple[QueueKey, int]  # queue of a group, queue offset


class BusyHoldings:
    def __init__(self) -> None:
        self._count: dict[Held, int] = {}

    def __len__(self) -> int:
        return len(self._count)

    def __contains__(self, held: Held) -> bool:
        return held in self._count

    def begin(self, held: Sequence[Held]) -> Sequence[Held]:
        """Mark messages as busy, and return the argument of `end`."""
        for one in held:
            self._count[one] = self._count.get(one, 0) + 1
        return held

    def end(self, held: Sequence[Held]) -> None:
        for one in held:
            left = self._count[one] - 1
            if left:
                self._count[one] = left
            else:
                del self._count[one]
