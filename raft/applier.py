"""Feeds committed entries to the state machine and answers their proposals.

Place in the data path: `raft.node` calls it, on the loop, when the commit index has moved.

Invariants: each entry once per incarnation, in order, never beyond the commit index; one turn is
bounded in entries and time, so that a long replay doesn't starve heartbeats.
"""

from __future__ import annotations

import time

from raft.log_format import HEADER_SIZE
from raft.messages import Index, Term
from raft.open_calls import OpenProposals
from raft.ready_trace import ReadyTrace
from raft.replicated_log import CommittedEntry, StateMachine
from raft.segment_log import SegmentLog

__all__ = ["Applier"]

_ENTRIES_PER_TURN_MAX = 64
_ENTRIES_PER_CALL_MAX = 8
_SIZE_BYTES_PER_CALL_MAX = 1 << 20
_TIME_PER_TURN_MAX_S = 0.005


class Applier:
    """`applied_index` is 0 at first: the state machine begins empty."""

    def __init__(
        self,
        log: SegmentLog,
        state_machine: StateMachine,
        proposals: OpenProposals,
        trace: ReadyTrace,
    ) -> None:
        self._log = log
        self._state_machine = state_machine
        self._proposals = proposals
        self._trace = trace
        self.applied_index: Index = 0

    def turn(self, commit_index: Index, term: Term) -> None:
        """Apply up to the commit index, or as much of it as a turn may hold."""
        begin = time.perf_counter()
        limit = min(commit_index, self.applied_index + _ENTRIES_PER_TURN_MAX)
        while self.applied_index < limit:
            self._call(limit, term)
            if time.perf_counter() - begin > _TIME_PER_TURN_MAX_S:
                return

    def _call(self, limit: Index, term: Term) -> None:
        log = self._log
        first = self.applied_index + 1
        high = min(limit, self.applied_index + _ENTRIES_PER_CALL_MAX) + 1
        committed = [
            CommittedEntry(
                index=entry.index,
                term=entry.term,
                kind=entry.kind,
                position=log.position(entry.index) + HEADER_SIZE,
                payload=entry.payload,
                chain=log.chain(entry.index),
            )
            for entry in log.entries(first, high, _SIZE_BYTES_PER_CALL_MAX)
        ]
        self._state_machine.apply(committed)
        self.applied_index = committed[-1].index
        self._trace.applied(term, committed)
        for entry in committed:
            self._proposals.applied(entry.index, entry.term)
