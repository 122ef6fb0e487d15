"""A gate that counts the application's calls, so that a stopping client can wait for them.

Place in the data path: a producer's public calls run inside `with gate:`; `stop` closes the gate.

Invariant: once `close` has begun no new call enters; those inside are waited for, up to a timeout.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from client.errors import ClientClosedError

__all__ = ["DrainGate"]


class DrainGate:
    """Counts calls in progress. Not reentrant: a nested call must not enter; it may be refused."""

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

    async def close(self, timeout_ms: float) -> None:
        """Refuse new calls, and wait up to `timeout_ms` for those inside to end."""
        self._closed = True
        if self._count == 0:
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._idle.wait()
        except TimeoutError:
            return  # the remaining calls end with the connections, their outcome unknown
