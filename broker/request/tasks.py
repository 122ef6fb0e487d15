"""Owner of the broker's short tasks: started anywhere, cancelled with the broker, never lost.

An exception in one of them is a broken invariant: it stops the broker (the process edge logs it),
instead of disappearing in a task that nobody awaits. A task that answers a request is as tolerant
as the handler that started it: a refusal or an unforeseen error is answered.
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
        """Run the rest of a request's handling, which waits for something, as a task.

        Its coroutine is created when the task first runs: a task cancelled before that, or ended
        with its loop, would leave a coroutine that nobody closes.
        """
        self.spawn(_answered(request, begin))

    async def wait_failed(self) -> BaseException:
        """Return the first failure, once there is one."""
        return await asyncio.shield(self._failed)

    def fail(self, error: BaseException) -> None:
        """Stop the broker for a failure outside of a task, in the same way."""
        if not self._failed.done():
            self._failed.set_result(error)

    async def stop(self) -> None:
        """Cancel running tasks and wait until they have ended."""
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
