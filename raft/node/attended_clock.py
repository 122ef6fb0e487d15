"""The time that a node's event loop has attended: the core's clock.

Place in the data path: `raft.node.core_shell` stamps every event for the core with it. While the
loop is stalled (the process gets no processor, a garbage collection, a long callback) no message of
a peer is read and no heartbeat leaves. Such time says nothing about a peer's silence, so it does
not count: neither does a starved follower campaign against a leader that it had no chance to
receive from, nor does a starved leader step down before it has read the answers in its sockets.

`now_ms` detects a stall by itself: a timer of the loop calls `sample` every `period_ms`, once the
clock attends to it, and a call of `now_ms` much later than the last `sample` shows that the loop
was stalled.

The forgiven time is bounded, so that a leader that is really gone is replaced: at most `budget_ms`
at once, and in the long run no more than half of the time that passes. Behind a longer pause
(SIGSTOP) the clock jumps, and a leader detects at once that it has lost its followers.

Invariants: never goes back; never runs ahead of the clock below it; runs at least half as fast as
that one over any time much longer than `budget_ms`. Safety rests on no clock (reads are confirmed
by a majority), so a slow one costs time and nothing else.

Source: etcd-io/raft counts ticks that its loop has served, not time; Raft 5.6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

__all__ = ["AttendedClock"]

_LATE_MS: Final = 20  # timers are never exact


class AttendedClock:
    """Clock of one node. `clock` is monotonic, in seconds; `now_ms` is in milliseconds."""

    __slots__ = (
        "_budget_ms",
        "_budget_ms_max",
        "_clock",
        "_forgiven_ms",
        "_refilled_ms",
        "_returned_ms",
        "_sampled_ms",
        "_timer",
        "period_ms",
    )

    def __init__(self, clock: Callable[[], float], *, period_ms: int, budget_ms: int) -> None:
        assert period_ms >= 1
        assert budget_ms >= 0
        self._clock = clock
        self.period_ms: Final = period_ms
        self._budget_ms_max = self._budget_ms = budget_ms
        self._forgiven_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self._returned_ms = self._sampled_ms = self._refilled_ms = int(clock() * 1000)

    def now_ms(self) -> int:
        """Return the time in milliseconds, without the stalls that are forgiven."""
        now_ms = int(self._clock() * 1000)
        if now_ms - self._sampled_ms > self.period_ms + _LATE_MS:
            self._forgive(now_ms)
        self._returned_ms = now_ms
        return now_ms - self._forgiven_ms

    def sample(self) -> None:
        """Note that the loop runs. Caller's duty: every `period_ms`, or `attend`."""
        self.now_ms()
        self._sampled_ms = int(self._clock() * 1000)

    def attend(self) -> None:
        """Sample now, and from now on by a timer of the running loop."""
        self.sample()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.period_ms / 1000, self.attend)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _forgive(self, now_ms: int) -> None:
        passed_ms = now_ms - self._refilled_ms
        self._refilled_ms = now_ms
        self._budget_ms = min(self._budget_ms_max, self._budget_ms + passed_ms // 2)
        # A time that was returned already stays in the past.
        begin_ms = max(self._returned_ms, self._sampled_ms + self.period_ms)
        forgiven_ms = min(now_ms - begin_ms, self._budget_ms)
        self._budget_ms -= forgiven_ms
        self._forgiven_ms += forgiven_ms
