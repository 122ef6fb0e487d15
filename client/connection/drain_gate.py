"""Which calls of the application are under way, so that a client that stops can let them end.

Place in the data path: a producer's public calls run inside `with under_way:`; `stop` closes it.

Invariant: after `close` began no new call gets in; those inside are waited for, at most so long.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from client.errors import ClientClosedError

__all__ = ["DrainGate"]


class DrainGate:
    """Not reentrant: a call inside another one must not enter again, it may be refused."""

    __slots__ = ("_closed", "_count", "_idle")

    def __init__(self) -> None:
        self._count = 0
        self._closed = False
        self._idle = asyncio.Event()

    def __enter__(self) -> None:
        if self._closed:
            raise ClientClosedError("the client is stopping")
        self._count += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._count -= 1
        if self._closed and self._count == 0:
            self._idle.set()

    async def close(self, timeout_ms: int) -> None:
        """Let nothing more in, and give what is inside `timeout_ms` to end."""
        self._closed = True
        if self._count == 0:
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._idle.wait()
        except TimeoutError:
            return  # what is left ends with the connections, its outcome unknown
