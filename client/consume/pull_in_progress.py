"""The pull of a queue that is in progress: it can be given up, and is still heard when it is.

Place in the data path: `client.consume.queue_consumer` sends each of its pulls through it.

A broker may have answered a pull that was given up: with the reset of the group's offset, it would
take the next pull for that of a member who has heard of it, and forget the reset. So late answers
are read for resets, as long as their requests last.

Invariants: one pull at a time is waited for; at most `_LATE_MAX` more may still be answered; after
`stop` nothing is heard any more.

Source: docs/DIVERGENCE.md, "a server-side offset reset"; RocketMQ's clients give no pull up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from client.consume.queue_requests import offset_of_reset
from client.errors import ClientError
from remoting.protocol.command import RemotingCommand

__all__ = ["PullInProgress", "failed_pull_wait_ms"]

_LATE_MAX: Final = 4
_FAILED_PULL_WAIT_MS_MIN: Final = 20
_FAILED_PULL_WAIT_MS_MAX: Final = 1_000

_log = logging.getLogger(__name__)


class PullInProgress:
    """The present pull of one queue, and the pulls before it that were abandoned.

    An answer that comes late may say that the group's offset was reset: then calls
    `on_late_reset(offset of the pull, offset to continue at)`.
    """

    def __init__(self, on_late_reset: Callable[[int, int], None]) -> None:
        self._on_late_reset = on_late_reset
        self._given_up: asyncio.Future[None] | None = None
        self._late: list[asyncio.Task[RemotingCommand]] = []

    async def wait_for(
        self, offset: int, request: Coroutine[Any, Any, RemotingCommand]
    ) -> RemotingCommand:
        """Return the answer of `request`, a pull from `offset`. Raises what `request` raises, and
        TimeoutError where `give_up` was called meanwhile."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(request)
        self._given_up = given_up = loop.create_future()
        try:
            await asyncio.wait((task, given_up), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self._given_up = None
        if task.done():
            return task.result()
        while len(self._late) >= _LATE_MAX:
            self._late.pop(0).cancel()
        self._late.append(task)
        task.add_done_callback(partial(self._ended, offset))
        raise TimeoutError

    def give_up(self) -> None:
        """Abandon the pull in progress, if there is one: `wait_for` raises TimeoutError."""
        if self._given_up is not None and not self._given_up.done():
            self._given_up.set_result(None)

    def stop(self) -> None:
        """Cancel the abandoned pulls, so that no late answer is handled."""
        late, self._late = self._late, []
        for task in late:
            task.cancel()

    def _ended(self, offset: int, task: asyncio.Task[RemotingCommand]) -> None:
        if task not in self._late:
            return  # it was cancelled
        self._late.remove(task)
        try:
            moved_to = offset_of_reset(task.result())
        except (ClientError, asyncio.CancelledError) as error:
            _log.debug("a pull that was given up ended with: %r", error)
            return
        if moved_to is not None:
            self._on_late_reset(offset, moved_to)


def failed_pull_wait_ms(failures: int) -> int:
    """Return how long to wait after so many pulls in a row have failed."""
    return min(_FAILED_PULL_WAIT_MS_MAX, _FAILED_PULL_WAIT_MS_MIN << min(failures - 1, 16))
