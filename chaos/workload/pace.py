"""Paces a process to a mean rate, with jitter, without catching up after an outage.

Place in the data path: between the operations of a process of `chaos.workload`.

Invariant: after a stall the next operation comes at once and the following ones at the rate again;
a burst that catches up would measure the burst.
"""

from __future__ import annotations

import asyncio
import random

from chaos.scenario.scenario import WorkloadSection

__all__ = ["Pace", "impatience", "sleep_until_set"]


def impatience(settings: WorkloadSection, rng: random.Random) -> int:
    """Draw how long the application waits for this answer, in ms."""
    if rng.random() < settings.impatient_share:
        return settings.impatient_timeout_ms
    return settings.send_timeout_ms


class Pace:
    """The pace of one process. `rate` is per second and above 0."""

    def __init__(self, rate: float, rng: random.Random) -> None:
        assert rate > 0
        self._interval_s = 1 / rate
        self._rng = rng
        self._next = 0.0

    async def wait(self, stop: asyncio.Event) -> bool:
        """Wait until the next operation is due; return False where `stop` was set meanwhile."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._next == 0.0:
            self._next = now + self._rng.random() * self._interval_s
        delay = self._next - now
        self._next = max(self._next, now) + self._interval_s * self._rng.uniform(0.5, 1.5)
        return not await sleep_until_set(stop, delay)


async def sleep_until_set(stop: asyncio.Event, seconds: float) -> bool:
    """Sleep, or return early with True where `stop` is set."""
    if stop.is_set():
        return True
    if seconds <= 0:
        await asyncio.sleep(0)
        return stop.is_set()
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return False
    return True
