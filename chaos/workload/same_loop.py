"""The clients for scripts on the loop of the laboratory, without a thread of their own.

Place in the data path: a part of the workload makes some of its calls through the blocking clients,
which pass them on to the asyncio ones; here the call returns the coroutine, to be awaited.

Invariant: nothing but the waiting differs from the blocking client: its own method chooses what is
called, and with what.

Source: `client.blocking.sync_clients`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar, cast

from client.blocking.sync_clients import LoopThread, Opened

__all__ = ["SameLoop", "awaited", "no_stop"]

_T = TypeVar("_T")


class SameLoop(LoopThread):
    """Stands for the thread: hands the coroutine back to the caller."""

    def __init__(self) -> None:  # it starts no thread
        pass

    def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return cast("_T", coroutine)

    def close(self) -> None:
        pass


async def awaited(result: _T) -> _T:
    """Await what a call of a blocking client returned on a `SameLoop`."""
    return await cast("Awaitable[_T]", result)


def no_stop(_: Opened[Any]) -> None:
    """Leave the stop to whoever started the asyncio client."""
