"""The background tasks of one client: the only place of this package where tasks are made.

Place in the data path: `client.instance` owns one `TaskScope`; poll and heartbeat loops, pull loops
and asynchronous sends run in it.

Invariants: no task outlives `stop`; an unexpected error of a loop ends all tasks of the client and
is raised by `stop` (and named by every later use), never swallowed. An asynchronous send's error
belongs to whoever awaits its future and ends nothing else.

`start` and `stop` may be called from different tasks, which is why one owner task holds the
TaskGroup.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from client.errors import ClientClosedError, ClientError

__all__ = ["TaskScope"]

_T = TypeVar("_T")


class TaskScope:
    """Runs tasks between `start` and `stop`."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._owner: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> bool:
        return self._group is not None and self._owner is not None and not self._owner.done()

    async def start(self) -> None:
        assert self._owner is None, "a scope starts once"
        ready = asyncio.Event()
        self._owner = asyncio.get_running_loop().create_task(self._own(ready), name="client-scope")
        await ready.wait()

    async def stop(self) -> None:
        """Cancel all tasks and wait for their end. Raises what a loop failed with, as a group."""
        self._stopping.set()
        for task in list(self._tasks):
            task.cancel()
        if self._owner is not None:
            await self._owner

    def spawn(self, coroutine: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Run a loop whose failure is the failure of the client.

        Raises ClientClosedError where the scope does not run.
        """
        if self._group is None or not self.running or self._stopping.is_set():
            coroutine.close()
            raise ClientClosedError("the client is not running")
        task = self._group.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def launch(self, coroutine: Coroutine[object, object, _T], name: str) -> asyncio.Future[_T]:
        """Run a request whose result, or ClientError, is for whoever awaits the future.

        Raises ClientClosedError where the scope does not run.
        """
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        try:
            self.spawn(_settle(coroutine, future), name)
        except ClientClosedError:
            coroutine.close()
            raise
        return future

    async def _own(self, ready: asyncio.Event) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                ready.set()
                await self._stopping.wait()
        finally:
            self._group = None


async def _settle(coroutine: Coroutine[object, object, _T], future: asyncio.Future[_T]) -> None:
    try:
        result = await coroutine
    except ClientError as error:
        if not future.done():
            future.set_exception(error)
    else:
        if not future.done():
            future.set_result(result)
    finally:
        if not future.done():  # cut short by a cancellation, or by a bug that ends the client
            future.cancel()
