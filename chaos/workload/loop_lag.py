"""How late the event loop of the laboratory has been: what clients are held to when they measure
time is less by that.

Place in the data path: parts that judge how long a call of the client took, which ends by a timer
of this loop; on virtual time the loop is never late.

Invariant: a lag that no tick has shown yet counts, so that it does not matter who wakes first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

__all__ = ["LoopLag"]

TICK_S: Final = 0.1
RETAINED_MAX: Final = 2_000
WORTH_S: Final = 0.005  # less is not remembered


class LoopLag:
    """Ticks, and how late each was."""

    def __init__(self) -> None:
        self._late: deque[tuple[float, float]] = deque(maxlen=RETAINED_MAX)
        self._ticked_s: float | None = None

    async def watch(self, end: asyncio.Event) -> None:
        """Tick until `end`."""
        loop = asyncio.get_running_loop()
        while not end.is_set():
            self._ticked_s = loop.time()
            await asyncio.sleep(TICK_S)
            lag_s = loop.time() - self._ticked_s - TICK_S
            if lag_s > WORTH_S:
                self._late.append((loop.time(), lag_s))
        self._ticked_s = None

    def worst_s(self, since_s: float) -> float:
        """Return by how much the loop was late at most, from `since_s` of its clock until now."""
        known = [lag_s for at_s, lag_s in self._late if at_s >= since_s]
        if self._ticked_s is not None:
            known.append(asyncio.get_running_loop().time() - self._ticked_s - TICK_S)
        return max(0.0, *known, 0.0)
