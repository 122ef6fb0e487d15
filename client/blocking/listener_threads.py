"""The threads in which blocking listeners run.

Place in the data path: `client.blocking.sync` wraps an application's blocking listeners into
coroutines, which a consumer or transaction producer calls on the session's loop; here they go on to
a thread.

Invariant: whatever a listener raises in its thread arrives on the loop as an error of that call; a
future can't carry StopIteration, and takes some others for an end of its task or of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent import futures
from typing import TypeVar, TypeVarTuple

__all__ = ["ListenerThreads"]

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class ListenerThreads:
    """At most `count` threads, in which as many listeners run at a time."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = futures.ThreadPoolExecutor(count, name)

    async def call(self, listener: Callable[[*_Ts], _T], *args: *_Ts) -> _T:
        """Return what `listener` returns. Raises what it raises, some of it as a RuntimeError."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, _call, listener, *args)

    def shutdown(self) -> None:
        """Wait for the listeners at work, and end the threads."""
        self._pool.shutdown()


def _call(listener: Callable[[*_Ts], _T], *args: *_Ts) -> _T:
    try:
        return listener(*args)
    except (
        StopIteration,
        futures.CancelledError,
        asyncio.CancelledError,
        KeyboardInterrupt,
        SystemExit,
        GeneratorExit,
    ) as error:
        raise RuntimeError(f"the listener raised {error!r}") from error
