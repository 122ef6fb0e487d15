"""The threads in which blocking listeners run.

Place in the data path: `client.blocking.sync` wraps an application's blocking listeners into
coroutines, which a consumer or transaction producer calls on the session's loop; here they go on to
a thread.

Invariants: whatever a listener raises in its thread arrives on the loop as an error of that call; a
future can't carry StopIteration, and takes some others for an end of its task or of the loop. No
listener is charged with the time that it waits for a thread, and none is called when nobody waits
for it any more.
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

    async def call(
        self, listener: Callable[[*_Ts], _T], *args: *_Ts, limit_ms: int | None = None
    ) -> _T:
        """Return what `listener` returns. Raises what it raises, some of it as a RuntimeError, and
        TimeoutError where it takes longer than `limit_ms`: then it runs on beside."""
        loop = asyncio.get_running_loop()
        begun = asyncio.Event()

        def run() -> _T:
            loop.call_soon_threadsafe(begun.set)
            return _call(listener, *args)

        answer = loop.run_in_executor(self._pool, run)
        try:
            await begun.wait()
            async with asyncio.timeout(None if limit_ms is None else limit_ms / 1000):
                return await answer
        finally:
            answer.cancel()  # a call that no thread has begun is not made

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
