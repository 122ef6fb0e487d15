"""What a queue has given a group in order, as the drills of POP expect it: messages that block the
queue until all are acknowledged or visible again, and are counted when they come again.

Place in the data path: the model of `pops`, which shares no code with a broker's. Pure.

An attempt has a name, by which a member that had no answer gets the same messages once more, which
are not counted then; one without a name is never the same as another.

Source: RocketMQ ConsumerOrderInfoManager (attemptId, orderCountInfo).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from chaos.workload.parts.drills.handles import Handle

__all__ = ["UNNAMED", "OrderSet"]

UNNAMED: Final = ""


@dataclass(slots=True, kw_only=True)
class OrderSet:
    attempt: str
    held: dict[int, Handle]
    done: set[int]
    counts: dict[int, int]

    def is_of(self, attempt: str) -> bool:
        return attempt != UNNAMED and self.attempt == attempt

    def left(self) -> dict[int, Handle]:
        """Return what is not acknowledged."""
        return {offset: handle for offset, handle in self.held.items() if offset not in self.done}

    def first_left(self) -> int:
        return next((at for at in self.held if at not in self.done), max(self.held) + 1)

    def counts_of(self, attempt: str, offsets: Iterable[int]) -> dict[int, int]:
        """Return how often those of some offsets that were given before come again to `attempt`."""
        if self.is_of(attempt):
            return dict(self.counts)
        return {at: self.counts.get(at, 0) + 1 for at in offsets if at in self.held}
