"""Fsyncs of the log beside the event loop, one at a time: one serves all that wait.

Place in the data path: `broker.ha.engine` requests an fsync after a turn's appends, or at
intervals, and answers by what `on_durable` says. The kernel carries it out where it can
(`raft.log.kernel_aio`), else a thread.

Invariants: an fsync claims what the log held when it began; files before the last one are durable
already (`broker.ha.commit_log`), so one file's fsync covers the log; after an error none begins.

Source: RocketMQ GroupCommitService, FlushRealTimeService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from broker.ha.commit_log import CommitLog
from raft.messages import LogBase

__all__ = ["Flusher"]


class Flusher:
    """Runs the fsyncs of one log; calls `on_durable(position)` and `on_error` on the loop."""

    def __init__(
        self,
        log: CommitLog,
        on_durable: Callable[[int], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._log = log
        self._on_durable = on_durable
        self._on_error = on_error
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ha-fsync")
        self._claimed: LogBase | None = None  # what the fsync under way proves; None: none is
        self._again = False
        self._ended = False
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._idle = asyncio.Event()
        self._idle.set()

    def want(self) -> None:
        """Request an fsync of what was appended so far; it begins once the present one ended."""
        if self._claimed is not None:
            self._again = True
        elif not self._ended:
            self._begin()

    async def made_durable(self, position: int) -> None:
        """Wait until everything before `position` is durable."""
        if self._log.durable.position < position:
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((position, future))
            self.want()
            await future

    async def stop(self) -> None:
        """Begin no more fsyncs, and wait until the present one has ended."""
        self._ended = True
        await self._idle.wait()
        await asyncio.to_thread(self._thread.shutdown)

    async def pause(self) -> None:
        """Wait until no fsync is in progress, so that the log can be truncated."""
        while self._claimed is not None:
            self._again = False
            await self._idle.wait()

    def _begin(self) -> None:
        end, file = self._log.end, self._log.last_file
        if file is None or end.position <= self._log.durable.position:
            self._claimed_up_to(self._log.durable.position)
            return
        self._claimed = end
        self._idle.clear()
        try:
            if file.begin_sync(self._finish):
                return
        except OSError as error:
            self._finish(error)
            return
        self._thread.submit(file.sync).add_done_callback(self._return)

    def _claimed_up_to(self, position: int) -> None:
        waiting, self._waiting = self._waiting, []
        for wanted, future in waiting:
            if wanted > position:
                self._waiting.append((wanted, future))
            elif not future.done():
                future.set_result(None)
        self._on_durable(position)

    def _return(self, future: Future[None]) -> None:
        """Return to the loop from the thread, with whatever was raised."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._finish, future.exception())

    def _finish(self, error: BaseException | None) -> None:
        claimed, self._claimed = self._claimed, None
        assert claimed is not None
        self._idle.set()
        if error is None:
            try:
                self._log.claim(claimed)
            except OSError as of_the_mark:  # or of another fsync of the log, which failed meanwhile
                error = of_the_mark
        if error is not None:
            self._ended = True
            self._on_error(error)
            return
        self._claimed_up_to(self._log.durable.position)
        if self._again and not self._ended:
            self._again = False
            self._begin()
