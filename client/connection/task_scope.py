"""The background tasks of one client: the only place of this package that creates tasks.

Place in the data path: `client.connection.instance` owns one `TaskScope`; poll and heartbeat loops,
pull loops and asynchronous sends run in it.

Invariants: no task outlives `stop`; an unexpected error of a loop is logged when it happens, ends
all tasks of the client and is raised by `stop` (later calls find the client not running), never
swallowed; so does a loop that ends as cancelled although nobody has cancelled it. The error of a
launched request goes to the task's awaiter and ends nothing else.

`start` and `stop` may be called from different tasks, which is why one owner task holds the
TaskGroup.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TypeVar

from client.errors import ClientClosedError

__all__ = ["TaskScope"]

_log = logging.getLogger(__name__)

_T = TypeVar("_T")


class TaskScope:
    """Runs tasks between `start` and `stop`."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._owner: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._failure: RuntimeError | None = None
        self._draining = False
        self._loops: set[asyncio.Task[None]] = set()
        self._launched: set[asyncio.Task[object]] = set()

    @property
    def running(self) -> bool:
        return self._group is not None and not self._stopping.is_set()

    async def start(self) -> None:
        assert self._owner is None, "a scope starts once"
        ready = asyncio.Event()
        self._owner = asyncio.get_running_loop().create_task(self._own(ready), name="client-scope")
        await ready.wait()

    async def drain(self, timeout_ms: float) -> None:
        """Launch nothing more, and wait up to `timeout_ms` for launched requests to end."""
        self._draining = True
        if self._launched:
            await asyncio.wait(self._launched, timeout=timeout_ms / 1000)

    async def stop(self) -> None:
        """Cancel all tasks and wait for their end. Raises the errors of failed loops as a group."""
        self._stopping.set()
        for task in list(self._loops):
            task.cancel()
        if self._owner is not None:
            await self._owner

    def spawn(self, coroutine: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Run a loop whose failure is the failure of the client.

        Raises ClientClosedError where the scope does not run.
        """
        if self._group is None or self._stopping.is_set():
            coroutine.close()
            raise ClientClosedError("the client is not running")
        task = self._group.create_task(coroutine, name=name)
        self._loops.add(task)
        task.add_done_callback(self._loop_ended)
        return task

    def launch(self, coroutine: Coroutine[object, object, _T]) -> asyncio.Task[_T]:
        """Run a request; the awaiter of the task gets its result or error.

        Raises ClientClosedError where the scope does not run.
        """
        if not self.running or self._draining:
            coroutine.close()
            raise ClientClosedError("the client is not running")
        task = asyncio.get_running_loop().create_task(coroutine)
        self._launched.add(task)
        task.add_done_callback(self._launched.discard)
        return task

    async def _own(self, ready: asyncio.Event) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                ready.set()
                await self._stopping.wait()
                if self._failure is not None:
                    raise self._failure
        finally:
            self._group = None
            launched = list(self._launched)
            for task in launched:
                task.cancel()
            if launched:
                await asyncio.wait(launched)

    def _loop_ended(self, task: asyncio.Task[None]) -> None:
        self._loops.discard(task)
        if not task.cancelled():
            error = task.exception()
        elif task.cancelling() == 0 and self.running:
            # Of something that it awaited. The TaskGroup takes that for an end in order, and the
            # client would run on without this loop.
            error = self._failure = RuntimeError("it was not cancelled, but what it awaited")
            self._stopping.set()
        else:
            error = None
        if error is not None:
            # Nobody may call this client again before it is stopped, a consumer's program least.
            _log.error("%s failed, and ends its client", task.get_name(), exc_info=error)
