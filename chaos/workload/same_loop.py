"""The clients for scripts on the loop of the laboratory, without a thread of their own.

Place in the data path: parts of the workload make some of their calls through the blocking clients,
which pass them on to the asyncio ones; here such a call returns the coroutine, which is awaited.

Invariant: nothing but the waiting differs from the blocking client: its own method chooses what is
called, and with what.

Source: `client.blocking.sync_clients`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, cast

from client.blocking.sync_clients import LoopThread, Opened

__all__ = ["BLOCKING_SHARE", "SameLoop", "through_blocking"]

BLOCKING_SHARE: Final = 0.5
"""Of the clients that parts run one after another, how many are used so."""

_T = TypeVar("_T")


class SameLoop(LoopThread):
    """Stands for the thread: hands the coroutine back to the caller."""

    def __init__(self) -> None:
        """Start no thread."""
        self.begun: Coroutine[Any, Any, Any] | None = None

    def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        self.begun = coroutine
        return cast("_T", coroutine)

    def take(self) -> Coroutine[Any, Any, Any] | None:
        """Return the coroutine that the last call handed on, once; None where there was none."""
        begun, self.begun = self.begun, None
        return begun

    def close(self) -> None:
        """End no thread."""


class _Through:
    """An asyncio client whose calls go through its blocking one, as far as that has them."""

    def __init__(self, client: object, blocking: Opened[Any], loop: SameLoop) -> None:
        self._client = client
        self._blocking = blocking
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        passed_on = getattr(type(self._blocking), name, None)
        if name == "stop" or not callable(passed_on):
            return getattr(self._client, name)

        async def call(*args: Any, **named: Any) -> Any:
            result = passed_on(self._blocking, *args, **named)
            begun = self._loop.take()
            if begun is None:
                return result
            answer = await begun  # also where the blocking method returns nothing
            return answer if result is begun else result

        return call

    async def __aenter__(self) -> _Through:
        await cast("Any", self._client).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await cast("Any", self._client).stop()


def through_blocking(client: _T, kind: Callable[..., Opened[Any]]) -> _T:
    """Return `client` with its calls going through the blocking client `kind`, a class of
    `client.blocking.sync_clients`; starts, stops and all that this has not go on to `client`."""
    loop = SameLoop()
    blocking = kind(loop, client, lambda *_: None)
    return cast("_T", _Through(client, blocking, loop))
