"""Passes committed entries to the state machine and answers their proposals.

Place in the data path: `raft.node.core_shell` calls it, on the loop, when the commit index has
moved.

Entries that a restored state contains are not applied again: up to `state_index` entries are only
indexed, so that files derived from the log can be completed (`index_only`). Entries among them that
retention drops meanwhile are skipped: derived files begin where the log does.

Invariants: each entry once per incarnation, in order, never beyond the commit index; one turn is
bounded in entries and time, so that a long replay doesn't starve heartbeats; a call ends with a
segment where one does, so that the state can be captured there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from raft.log.log_format import HEADER_SIZE
from raft.log.segment_log import SegmentLog
from raft.messages import Entry, Index, Term
from raft.node.open_proposals import OpenProposals
from raft.node.trace_events import TraceEvents
from raft.replicated_log import CommittedEntry, RestorableStateMachine

__all__ = ["Applier"]

_ENTRIES_PER_TURN_MAX = 64
_ENTRIES_PER_CALL_MAX = 8
_SIZE_BYTES_PER_CALL_MAX = 1 << 20
_TIME_PER_TURN_MAX_S = 0.005
_PROGRESS_INTERVAL_S = 2.0
_PROGRESS_ENTRIES_MIN = 1000  # with a smaller lag a node is not replaying

_log = logging.getLogger(__name__)


class Applier:
    """Applier of one node. `applied_index`: every entry up to it was applied or indexed;
    `state_index`: entries up to it are in the state, at least. `on_segment_end` gets the index of a
    segment's last entry."""

    def __init__(
        self,
        log: SegmentLog,
        state_machine: RestorableStateMachine,
        proposals: OpenProposals,
        trace: TraceEvents,
        *,
        on_segment_end: Callable[[Index], None],
    ) -> None:
        self._log = log
        self._state_machine = state_machine
        self._proposals = proposals
        self._trace = trace
        self._on_segment_end = on_segment_end
        self.applied_index: Index = 0
        self.state_index: Index = 0
        self._segment_last: Index | None = 0  # of the segment applied last; None: it is open
        self._progress_logged_at_s = time.monotonic()

    def begin_at(self, applied_index: Index, state_index: Index) -> None:
        """Start behind `applied_index`: the state was restored, or is empty (0 and 0)."""
        assert applied_index <= max(state_index, self._log.base.index)
        self.applied_index = applied_index
        self.state_index = state_index
        self._segment_last = applied_index

    def turn(self, commit_index: Index, term: Term) -> None:
        """Apply up to the commit index, or as much of it as a turn may hold."""
        begin = time.perf_counter()
        if self.applied_index < self._log.base.index:
            self._pass_over_dropped(term)
        limit = min(commit_index, self.applied_index + _ENTRIES_PER_TURN_MAX)
        while self.applied_index < limit:
            self._call(limit, term)
            if time.perf_counter() - begin > _TIME_PER_TURN_MAX_S:
                break
        self._log_progress(commit_index)

    def _pass_over_dropped(self, term: Term) -> None:
        """Skip entries that retention has dropped. It goes no further than a snapshot of this node,
        whose entries the state contains; it may drop some that are not indexed yet: they are many,
        or one of them is damaged."""
        base = self._log.base
        assert base.index <= self.state_index, f"entries up to {base.index} are gone unapplied"
        self._trace.passed_over(term, self.applied_index + 1, base)
        self.begin_at(base.index, self.state_index)

    def _call(self, limit: Index, term: Term) -> None:
        self._report_late_segment_end()
        first = self.applied_index + 1
        high = min(limit, self.applied_index + _ENTRIES_PER_CALL_MAX)
        segment_last = self._segment_end(first)
        if segment_last is not None:
            high = min(high, segment_last)
        is_contained = first <= self.state_index
        if is_contained:
            high = min(high, self.state_index)
        entries = self._log.entries(first, high + 1, _SIZE_BYTES_PER_CALL_MAX)
        committed = [self._committed(entry) for entry in entries]
        if is_contained:
            self._state_machine.index_only(committed)
        else:
            self._state_machine.apply(committed)
        self.applied_index = committed[-1].index
        self._trace.applied(term, committed)
        for entry in committed:
            self._proposals.applied(entry.index, entry.term)
        if self.applied_index == segment_last and self.applied_index >= self.state_index:
            self._on_segment_end(self.applied_index)

    def _report_late_segment_end(self) -> None:
        """Report a late segment end: a leader may apply a last entry before it is the last."""
        applied = self.applied_index
        if (
            self._segment_last is None
            and applied >= max(1, self.state_index)
            and self._log.segment_last_index(applied) == applied
        ):
            self._on_segment_end(applied)

    def _segment_end(self, index: Index) -> Index | None:
        """Return the last index of the segment that holds `index`; None while it grows."""
        last = self._segment_last
        if last is None or index > last:
            self._segment_last = last = self._log.segment_last_index(index)
        return last

    def _committed(self, entry: Entry) -> CommittedEntry:
        log = self._log
        return CommittedEntry(
            index=entry.index,
            term=entry.term,
            kind=entry.kind,
            position=log.position(entry.index) + HEADER_SIZE,
            payload=entry.payload,
            chain=log.chain(entry.index),
        )

    def _log_progress(self, commit_index: Index) -> None:
        """Log the progress every other second while the lag is large, as in a replay."""
        behind = commit_index - self.applied_index
        now_s = time.monotonic()
        if now_s - self._progress_logged_at_s < _PROGRESS_INTERVAL_S:
            return
        self._progress_logged_at_s = now_s
        if behind >= _PROGRESS_ENTRIES_MIN:
            _log.info(
                "applied up to %d of %d (%.0f %%)",
                self.applied_index,
                commit_index,
                100 * self.applied_index / commit_index,
            )
