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

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
