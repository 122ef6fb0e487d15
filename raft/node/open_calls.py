"""Open calls into the node: proposals, and reads waiting for their read point.

Place in the data path: `raft.node.core_shell` adds the calls and reports what the core and the
state machine did; the futures resolve here and nowhere else.

Invariants: a proposal resolves once, COMMITTED only after its entry was applied, TRUNCATED only
where another entry is committed at its index; a read resolves with an index that is applied.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass

from raft.messages import Index, NodeId, Term
from raft.replicated_log import NotLeaderError, ProposalResult, ProposalStatus

__all__ = ["OpenProposals", "OpenReads", "ReadBatch"]


class OpenProposals:
    """Proposals by index, in the order of the log."""

    def __init__(self) -> None:
        self._open: dict[Index, tuple[Term, asyncio.Future[ProposalResult]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, index: Index, term: Term, future: asyncio.Future[ProposalResult]) -> None:
        assert index not in self._open
        self._open[index] = (term, future)

    def applied(self, index: Index, term: Term) -> None:
        """Resolve the proposal of the entry at `index`, which was applied."""
        proposal = self._open.pop(index, None)
        if proposal is not None:
            assert proposal[0] == term, "what was replaced is answered when leadership is lost"
            _resolve(proposal[1], ProposalStatus.COMMITTED, index, term)

    def leadership_lost(self, commit_index: Index, term_at: Callable[[Index], Term]) -> None:
        """Resolve proposals that are lost or of unknown fate; committed ones wait for apply."""
        for index, (term, future) in list(self._open.items()):
            if index > commit_index:
                status = ProposalStatus.LOST_LEADERSHIP
            elif term_at(index) != term:
                status = ProposalStatus.TRUNCATED
            else:
                continue
            del self._open[index]
            _resolve(future, status, index, term)

    def stop(self) -> None:
        """Resolve all as STOPPED: their fate is unknown here."""
        while self._open:
            index, (term, future) = self._open.popitem()
            _resolve(future, ProposalStatus.STOPPED, index, term)


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


def _resolve(
    future: asyncio.Future[ProposalResult], status: ProposalStatus, index: Index, term: Term
) -> None:
    if not future.done():  # the caller may have cancelled it
        future.set_result(ProposalResult(status=status, index=index, term=term))
