"""What a group is to be shown of each queue since it was reset there.

Place in the data path: parts whose groups are reset report sends, deliveries and resets; their
`has_read` asks whether something is owed. It judges nothing: rule C9 does. Pure.

Source: rule C9.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from client.message import MessageQueue

__all__ = ["DueOffsets"]


class DueOffsets:
    """What the group is to be shown of each queue since the last reset of it."""

    def __init__(self) -> None:
        self._stored: dict[MessageQueue, set[int]] = {}
        self._owed: dict[MessageQueue, set[int]] = {}
        self._from: dict[MessageQueue, int] = {}
        self._shown: dict[MessageQueue, set[int]] = {}

    def acknowledged(self, queue: MessageQueue, offset: int) -> None:
        self._stored.setdefault(queue, set()).add(offset)
        shown = self._shown.get(queue, set())
        if offset >= self._from.get(queue, 0) and offset not in shown:
            self._owed.setdefault(queue, set()).add(offset)

    def shown(self, queue: MessageQueue, offsets: Sequence[int]) -> None:
        self._shown.setdefault(queue, set()).update(offsets)
        self._owed.get(queue, set()).difference_update(offsets)

    def reset(self, queue: MessageQueue, offset: int | None) -> None:
        """Begin anew at `offset`; None: where the group goes on is not known, nothing is owed."""
        self._shown[queue] = set()
        self._from[queue] = offset if offset is not None else 1 << 62
        stored = self._stored.get(queue, set())
        self._owed[queue] = {at for at in stored if at >= self._from[queue]}

    def draw(self, queue: MessageQueue, rng: random.Random) -> int:
        """Draw an offset from 0 to the queue's end, both included, as far as acknowledgements have
        shown it; 0 where nothing was acknowledged."""
        return rng.randint(0, max(self._stored.get(queue, {-1})) + 1)

    def is_before_reset(self, queue: MessageQueue, offset: int) -> bool:
        """Return whether the last reset of the queue went behind `offset`."""
        return offset < self._from.get(queue, 0)

    @property
    def is_empty(self) -> bool:
        return not any(self._owed.values())
