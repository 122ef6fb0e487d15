"""The one timer of the loop that wakes a core at its deadline.

Place in the data path: `raft.node.core_shell` arms it behind every step of the core that has done
something, and ticks the core when it fires. Each event carries the time, too, so that the timer is
needed only where nothing else happens.

Invariants: it is never set behind the core's deadline; a follower that was woken late first lets
the loop read what waits in its sockets, where the leader's heartbeat may be, and waits for that
whatever else happens meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Final, Protocol

from raft.core.core import Core
from raft.events import Role

__all__ = ["CoreTimer"]

_LATE_MS: Final = 20
_LATE_GRACE_MS: Final = 2


class _OnTimer(Protocol):
    def __call__(self, *, late: bool = False) -> None: ...


class CoreTimer:
    """Timer of one core. `on_timer` is called when it fires, `late` after a grace."""

    __slots__ = ("_core", "_handle", "_loop", "_now_ms", "_on_timer", "at_ms")

    def __init__(self, core: Core, now_ms: Callable[[], int], on_timer: _OnTimer) -> None:
        self._core = core
        self._now_ms = now_ms
        self._on_timer = on_timer
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self.at_ms = 0
        """When it fires; never behind the core's deadline."""

    def arm(self) -> None:
        """Arm it, anew only where the deadline has come nearer."""
        deadline_ms = self._core.next_deadline_ms
        if self._handle is not None:
            if self.at_ms <= deadline_ms:
                return
            self._handle.cancel()
        self.at_ms = deadline_ms
        delay_ms = max(1, deadline_ms - self._now_ms())
        self._handle = self._loop.call_later(delay_ms / 1000, self._on_timer)

    def fired(self, now_ms: int, *, late: bool) -> bool:
        """Note that it has fired; return whether to act now. False: it fires again, `late`."""
        self._handle = None
        overdue_ms = now_ms - self._core.next_deadline_ms
        if late or overdue_ms <= _LATE_MS or self._core.role is Role.LEADER:
            return True
        self.at_ms = 0  # before any deadline: no event arms it anew
        again = functools.partial(self._on_timer, late=True)
        self._handle = self._loop.call_later(_LATE_GRACE_MS / 1000, again)
        return False

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
