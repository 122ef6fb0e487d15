"""Short tasks that belong to the broker: started anywhere, ended with it, never lost.

An exception in one of them is a broken invariant: it stops the broker (the process edge logs it),
instead of dying silently in a task that nobody awaits. A task that answers a request is as tolerant
as the handler that began it: what it raises for the request's sake is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from broker.request.request import UNFORESEEN, RefusedError, Request

__all__ = ["TaskOwner"]


class TaskOwner:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def answer(self, request: Request, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """The rest of a request's handling, which waits for something.

        Its coroutine is made once its turn has come: the task may be cancelled before, or end with
        its loop, and nobody would be left to close what never began.
        """
        self.spawn(_answered(request, begin))

    async def wait_failed(self) -> BaseException:
        """Returns what failed first."""
        return await asyncio.shield(self._failed)

    def fail(self, error: BaseException) -> None:
        """What failed outside of a task ends the broker in the same way."""
        if not self._failed.done():
            self._failed.set_result(error)

    async def stop(self) -> None:
        """Cancel what still runs and wait for its end."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.fail(error)


async def _answered(request: Request, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await begin()
    except RefusedError as refused:
        request.refuse(refused)
    except UNFORESEEN as error:
        request.refuse_unforeseen(error)
