"""Open proposals: those whose outcome is not known yet, or not delivered.

Place in the data path: `raft.node.core_shell` adds them and reports what the core and the state
machine did; outcomes are decided here and nowhere else. They wait until the shell has written what
it traced, and has them delivered then.

Invariant: a proposal resolves once, COMMITTED only after its entry was applied, TRUNCATED only
where another entry is committed at its index.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from raft.messages import Index, Term
from raft.replicated_log import ProposalResult, ProposalStatus

__all__ = ["OnProposed", "OpenProposals", "resolve"]

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


def resolve(future: asyncio.Future[ProposalResult], result: ProposalResult) -> None:
    """Resolve what a caller of a proposal awaits."""
    if not future.done():  # the caller may have cancelled it
        future.set_result(result)
