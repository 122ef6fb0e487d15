"""Reads that wait for a point at which this replica may answer them: ReadIndex, batched.

Place in the data path: `raft.node.core_shell` requests a point here for each linearizable read of
the broker; all reads of one turn of the loop share one request to the core, whose answer is a
commit index that a majority has confirmed. They go on once it is applied.

Invariant: a read resolves with an index that was committed when it was requested, or later, and is
applied here.

Source: Raft dissertation 6.4.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass

from raft.core.core import Core
from raft.events import ReadIndexRequest, ReadState
from raft.fail_stop import FailStop, stops_node
from raft.messages import Index, NodeId
from raft.node.applier import Applier
from raft.node.trace_events import TraceEvents
from raft.replicated_log import NotLeaderError

__all__ = ["ReadPoints"]


@dataclass(slots=True, kw_only=True)
class _Batch:
    """Reads that share one request to the core, made at `t_begin` (CLOCK_MONOTONIC, ns)."""

    t_begin: int
    futures: list[asyncio.Future[Index]]


class ReadPoints:
    """Reads batched for the next request, those requested, and those that wait for apply. `step`
    steps the core with a request."""

    def __init__(
        self,
        core: Core,
        applier: Applier,
        trace: TraceEvents,
        *,
        now_ms: Callable[[], int],
        fail_stop: FailStop,
        step: Callable[[ReadIndexRequest], None],
    ) -> None:
        self._core = core
        self._applier = applier
        self._trace = trace
        self._now_ms = now_ms
        self._step = step
        self._loop = asyncio.get_running_loop()
        self._gathered: list[asyncio.Future[Index]] = []
        self._requested: dict[int, _Batch] = {}
        self._waiting: list[tuple[Index, int, asyncio.Future[Index]]] = []  # heap
        self._request_id = 0
        self._waiting_count = 0
        self.count = 0
        self.fail_stop = fail_stop
        self.stopped = False

    def request(self) -> asyncio.Future[Index]:
        """Return what a read awaits. Caller's duty: this node is a ready leader."""
        future: asyncio.Future[Index] = self._loop.create_future()
        self.count += 1
        future.add_done_callback(self._forget)
        self._gathered.append(future)
        if len(self._gathered) == 1:
            self._loop.call_soon(self._request_batch)
        return future

    def answered(self, state: ReadState) -> None:
        """Take the core's answer to a request."""
        batch = self._requested.pop(state.request_id)
        if state.index is None:
            self._refuse(batch.futures, self._core.leader_id)
            return
        self._trace.read(self._core.current_term, batch.t_begin, state.index)
        for future in batch.futures:
            self._waiting_count += 1
            heapq.heappush(self._waiting, (state.index, self._waiting_count, future))
        self.applied(self._applier.applied_index)

    def applied(self, applied_index: Index) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= applied_index:
            index, _, future = heapq.heappop(waiting)
            if not future.done():
                future.set_result(index)

    def stop(self) -> None:
        self.stopped = True
        futures = [*self._gathered, *(future for _, _, future in self._waiting)]
        for batch in self._requested.values():
            futures += batch.futures
        self._gathered, self._waiting, self._requested = [], [], {}
        self._refuse(futures, None)

    @stops_node
    def _request_batch(self) -> None:
        self._request_id += 1
        self._requested[self._request_id] = _Batch(
            t_begin=time.monotonic_ns(), futures=self._gathered
        )
        self._gathered = []
        self._step(ReadIndexRequest(now_ms=self._now_ms(), request_id=self._request_id))

    @staticmethod
    def _refuse(futures: list[asyncio.Future[Index]], leader_id: NodeId | None) -> None:
        for future in futures:
            if not future.done():
                future.set_exception(NotLeaderError(leader_id))

    def _forget(self, _: asyncio.Future[Index]) -> None:
        self.count -= 1
