"""Start and stop as a context manager, shared by producers, consumers and the admin client.

Place in the data path: none; `async with` starts a client, and stops it whatever its body raised.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Lifecycle"]


class Lifecycle(ABC):
    __slots__ = ()

    @abstractmethod
    async def start(self) -> None:
        """Start working. Raises ClientError."""

    @abstractmethod
    async def stop(self) -> None:
        """Let work in progress end, then leave the cluster and close."""

    async def stop_after_error(self) -> None:
        """As `stop`, for a program that failed: what it may not have done is not taken for done."""
        await self.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await (self.stop() if error is None else self.stop_after_error())
