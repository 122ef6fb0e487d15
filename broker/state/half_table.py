"""Replicated states of half messages: undecided, then committed, rolled back or discarded.

Place in the data path: `broker.state.state` applies committed runs and commands to it; the leader
queries it before it proposes a decision. Pure and deterministic.

Invariants (promise G4): a half is decided at most once; the first decision wins; a decided half is
never checked again; `progress` (the next half to look at) never passes an undecided half. Which
way a half was decided is remembered for the newest `decided_max` of them; of an older one it is
only known that it was decided. A `Half` never changes, so that an image of the table can share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

__all__ = ["DECISIONS", "Decision", "Half", "HalfImage", "HalfTable"]

Decision = Literal["commit", "rollback", "discard"]
DECISIONS: Final[tuple[Decision, ...]] = ("commit", "rollback", "discard")


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
    """Image of the table at one moment; its mappings never change."""

    next_offset: int
    undecided: Mapping[int, Half]
    decided: Mapping[int, Decision]
    decided_before: Mapping[int, Decision]


class HalfTable:
    def __init__(self, *, decided_max: int) -> None:
        assert decided_max > 0
        self._decided_max = decided_max
        self._undecided: dict[int, Half] = {}  # by queue offset, in order
        self._decided: dict[int, Decision] = {}
        self._decided_before: dict[int, Decision] = {}  # replaced as a whole, never changed
        self.next_offset = 0

    def __len__(self) -> int:
        return len(self._undecided)

    def get(self, queue_offset: int) -> Half | None:
        return self._undecided.get(queue_offset)

    def undecided(self) -> list[Half]:
        """Return the undecided halves in queue order."""
        return list(self._undecided.values())

    def decision(self, queue_offset: int) -> Decision | None:
        """Return the decision on a half, or None if there is none or it is not remembered."""
        return self._decided.get(queue_offset) or self._decided_before.get(queue_offset)

    @property
    def progress(self) -> int:
        """Return the first undecided half's queue offset, or the next one to be written."""
        return next(iter(self._undecided), self.next_offset)

    @property
    def begin_position(self) -> int | None:
        """Return the oldest undecided half's log position, the limit of retention, or None."""
        oldest = next(iter(self._undecided.values()), None)
        return None if oldest is None else oldest.position

    def add(self, half: Half) -> None:
        assert half.queue_offset >= self.next_offset, "half offsets rise"
        self._undecided[half.queue_offset] = half
        self.next_offset = half.queue_offset + 1

    def check(self, queue_offset: int) -> None:
        half = self._undecided.get(queue_offset)
        if half is not None:  # decided in an entry before: the check is void
            self._undecided[queue_offset] = replace(half, checks=half.checks + 1)

    def decide(self, queue_offset: int, decision: Decision) -> None:
        half = self._undecided.pop(queue_offset, None)
        assert half is not None, f"half {queue_offset} is not undecided, yet {decision}"
        if len(self._decided) >= self._decided_max:
            self._decided_before = self._decided
            self._decided = {}
        self._decided[queue_offset] = decision

    def capture(self) -> HalfImage:
        return HalfImage(
            next_offset=self.next_offset,
            undecided=dict(self._undecided),
            decided=dict(self._decided),
            decided_before=self._decided_before,
        )

    def restore(self, image: HalfImage) -> None:
        """Replace the table by a captured one. Raises ValueError if the image is invalid."""
        offsets = list(image.undecided)
        if offsets != sorted(set(offsets)) or (offsets and offsets[-1] >= image.next_offset):
            raise ValueError("half messages: the undecided are out of order")
        self.next_offset = image.next_offset
        self._undecided = dict(image.undecided)
        self._decided = dict(image.decided)
        self._decided_before = dict(image.decided_before)
