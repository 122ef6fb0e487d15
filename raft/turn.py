"""The end of what the event loop is calling: work that many callers request, done once behind all.

Place in the data path: between the loop and everything that gathers work before it does it. A read
of a socket opens a turn and closes it behind the last frame that it has brought; what the frames
have requested is done then: a batch is proposed, the trace is written, messages to peers leave, an
fsync begins, committed entries are applied, answers leave. By `call_soon` each of these would cost
a turn of the loop of its own, and there are up to seven of them in the way of one message.

Invariants: what was requested first is done first; nothing is done while a turn is open; outside of
one the loop does it, in its next turn. So whoever requests X and then Y may rely on that order, in
a turn or outside of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager

__all__ = ["Turn"]


class Turn:
    """Turn of one loop. What is done runs within `guard`: it gets whatever is raised, and the rest
    is done if it swallows that."""

    __slots__ = ("_depth", "_due", "_guard", "_is_scheduled", "_loop")

    def __init__(self, guard: AbstractContextManager[object]) -> None:
        self._guard = guard
        self._due: deque[Callable[[], object]] = deque()
        self._depth = 0
        self._is_scheduled = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def enter(self) -> None:
        """Open a turn, or another one within it. Caller's duty: `leave`, whatever is raised."""
        self._depth += 1

    def leave(self) -> None:
        """Close it; behind the outermost one, do what is due."""
        self._depth -= 1
        if self._due and not self._depth:
            self._run()

    def at_end(self, callback: Callable[[], object]) -> None:
        """Call back at the end of the turn that is open, else in the loop's next one."""
        self._due.append(callback)
        if not self._depth and not self._is_scheduled:
            self._is_scheduled = True
            self.soon(self._run_scheduled)

    def soon(self, callback: Callable[[], object]) -> None:
        """Call back in the loop's next turn, in any case: behind all reads of the present one."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()  # not each time: it is a system call
        self._loop.call_soon(callback)

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        self._run()

    def _run(self) -> None:
        due = self._due
        self._depth += 1  # what is done requests more, which is done here, too
        try:
            while due:
                with self._guard:
                    while due:
                        due.popleft()()
        finally:
            self._depth -= 1
