"""Open calls into the node: proposals, and reads waiting for their read point.

Place in the data path: `raft.node.core_shell` adds the calls and reports what the core and the
state machine did; outcomes are decided here and nowhere else, and futures resolve here. Those of
proposals wait until the shell has written what it traced, and has them delivered then.

Invariants: a proposal resolves once, COMMITTED only after its entry was applied, TRUNCATED only
where another entry is committed at its index; a read resolves with an index that is applied.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from raft.messages import Index, NodeId, Term
from raft.replicated_log import NotLeaderError, ProposalResult, ProposalStatus

__all__ = ["OnProposed", "OpenProposals", "OpenReads", "ReadBatch", "resolve"]

OnProposed: TypeAlias = Callable[[ProposalResult], None]
"""Called once, with the outcome of a proposal."""


class OpenProposals:
    """Proposals by index, in the order of the log; an outcome waits until it is delivered."""

    def __init__(self) -> None:
        self._open: dict[Index, tuple[Term, OnProposed]] = {}
        self._ended: deque[tuple[OnProposed, ProposalResult]] = deque()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def has_outcomes(self) -> bool:
        """Whether `deliver` has something to deliver."""
        return bool(self._ended)

    def add(self, index: Index, term: Term, on_done: OnProposed) -> None:
        assert index not in self._open
        self._open[index] = (term, on_done)

    def applied(self, index: Index, term: Term) -> None:
        """Resolve the proposal of the entry at `index`, which was applied."""
        proposal = self._open.pop(index, None)
        if proposal is not None:
            assert proposal[0] == term, "what was replaced is answered when leadership is lost"
            self._end(proposal[1], ProposalStatus.COMMITTED, index, term)

    def deliver(self) -> None:
        """Call back with the outcomes that wait. Caller's duty: what was traced of them is
        written."""
        ended = self._ended
        while ended:
            on_done, result = ended.popleft()
            on_done(result)

    def leadership_lost(self, commit_index: Index, term_at: Callable[[Index], Term]) -> None:
        """Resolve proposals that are lost or of unknown fate; committed ones wait for apply."""
        for index, (term, on_done) in list(self._open.items()):
            if index > commit_index:
                status = ProposalStatus.LOST_LEADERSHIP
            elif term_at(index) != term:
                status = ProposalStatus.TRUNCATED
            else:
                continue
            del self._open[index]
            self._end(on_done, status, index, term)

    def stop(self) -> None:
        """Resolve all as STOPPED: their fate is unknown here. The loop delivers what waits."""
        while self._open:
            index, (term, on_done) = self._open.popitem()
            self._end(on_done, ProposalStatus.STOPPED, index, term)
        loop = asyncio.get_running_loop()
        while self._ended:
            on_done, result = self._ended.popleft()
            loop.call_soon(on_done, result)

    def _end(self, on_done: OnProposed, status: ProposalStatus, index: Index, term: Term) -> None:
        self._ended.append((on_done, ProposalResult(status=status, index=index, term=term)))


@dataclass(slots=True, kw_only=True)
class ReadBatch:
    """Reads that share one request to the core, made at `t_begin` (CLOCK_MONOTONIC, ns)."""

    t_begin: int
    futures: list[asyncio.Future[Index]]


class OpenReads:
    """Reads batched for the next request, those requested, and those that wait for apply."""

    def __init__(self) -> None:
        self._gathered: list[asyncio.Future[Index]] = []
        self._asked: dict[int, ReadBatch] = {}
        self._waiting: list[tuple[Index, int, asyncio.Future[Index]]] = []  # heap
        self._request_id = 0
        self._waiting_count = 0
        self.count = 0

    def gather(self, future: asyncio.Future[Index]) -> bool:
        """Add a read to the batch; True for the first of it: a request is due soon."""
        self.count += 1
        future.add_done_callback(self._forget)
        self._gathered.append(future)
        return len(self._gathered) == 1

    def ask(self, t_begin: int) -> int:
        """Start a request for the batch and return its id."""
        self._request_id += 1
        self._asked[self._request_id] = ReadBatch(t_begin=t_begin, futures=self._gathered)
        self._gathered = []
        return self._request_id

    def answered(self, request_id: int) -> ReadBatch:
        return self._asked.pop(request_id)

    def await_applied(self, futures: list[asyncio.Future[Index]], index: Index) -> None:
        for future in futures:
            self._waiting_count += 1
            heapq.heappush(self._waiting, (index, self._waiting_count, future))

    def applied(self, applied_index: Index) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= applied_index:
            index, _, future = heapq.heappop(waiting)
            if not future.done():
                future.set_result(index)

    @staticmethod
    def refuse(futures: list[asyncio.Future[Index]], leader_id: NodeId | None) -> None:
        for future in futures:
            if not future.done():
                future.set_exception(NotLeaderError(leader_id))

    def stop(self) -> None:
        futures = [*self._gathered, *(future for _, _, future in self._waiting)]
        for batch in self._asked.values():
            futures += batch.futures
        self._gathered, self._waiting, self._asked = [], [], {}
        self.refuse(futures, None)

    def _forget(self, _: asyncio.Future[Index]) -> None:
        self.count -= 1


def resolve(future: asyncio.Future[ProposalResult], result: ProposalResult) -> None:
    """Resolve what a caller of a proposal awaits."""
    if not future.done():  # the caller may have cancelled it
        future.set_result(result)
