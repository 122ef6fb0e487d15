"""Apply committed entries on a simulated node, and answer the proposals and reads that wait for
them.

Place in the data path: `SimNode` reports the commit index and which reads have a read point; this
module hands entries to the state machine (`NodeSnapshots`), at once or, where the state machine is
slow, in small turns, and answers proposals and reads.

Invariant: a proposal is answered once its entry is applied, a read once its index is applied. When
the applied index falls far behind the commit index, the core is notified, and again when it has
caught up.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from chaos.sim.cores.core_fixture import World
from chaos.sim.machine.scheduler import Scheduler
from raft.log.segment_log import SegmentLog
from raft.messages import Entry, EntryKind, Index, NodeId, Term

__all__ = ["Applying"]

_APPLY_SIZE_BYTES_MAX = 1 << 40
_SLOW_COUNT_MAX = 4  # entries in one turn of a slow state machine
_LAG_BEGINS = 12
_LAG_ENDS = 2


class Owner(Protocol):
    """The node that owns the state machine."""

    name: NodeId

    @property
    def log(self) -> SegmentLog: ...

    def when_awake(self, action: Callable[[], None]) -> None: ...

    def guard(self, action: Callable[[], None]) -> bool: ...

    def place(self, what: str) -> None: ...

    def on_applied(self, entries: Sequence[Entry]) -> None: ...

    def step_replay(self, *, replaying: bool) -> None:
        """Notify the core that applying has fallen far behind the commit index (`replaying`), or
        has caught up."""


class Applying:
    """Applies for one incarnation, and stops once `stopped` is set (the node is dead)."""

    def __init__(self, owner: Owner, world: World, rng: random.Random, *, slow_us: int) -> None:
        self._owner = owner
        self._scheduler: Scheduler = world.scheduler
        self._invariants = world.invariants
        self._checker = world.checker
        self._trace = world.trace
        self._counts = world.coverage.counts
        self._random = rng.random
        self.stopped = False
        self.slow_us = slow_us
        """Longest delay between two turns of a slow state machine; 0: entries are applied at once.
        """
        self.applied: Index = 0
        self._commit: Index = 0
        self._replaying = False
        self._is_scheduled = False
        self._proposals: dict[Index, tuple[Term, bytes]] = {}
        self._reads: list[tuple[int, Index]] = []

    # --- open proposals and reads --------------------------------------------------------------

    @property
    def open_proposals(self) -> int:
        return len(self._proposals)

    def add_proposal(self, index: Index, term: Term, payload: bytes) -> None:
        self._proposals[index] = (term, payload)

    def add_read(self, request_id: int, index: Index) -> None:
        self._reads.append((request_id, index))

    # --- turns ---------------------------------------------------------------------------------

    def begin_at(self, applied: Index, commit: Index = 0) -> None:
        """Start from a state that holds everything up to `applied`."""
        self.applied = applied
        self._commit = max(self._commit, commit)

    def up_to(self, commit: Index) -> None:
        """Apply entries up to `commit`, now or in later turns; the node may die before that."""
        self._commit = commit
        if self.applied >= commit and not self._reads:
            return
        if self.slow_us and self.applied < commit:
            self._schedule()
            self._answer_reads()
        elif not self._is_scheduled:
            self._owner.place("apply")
            self._apply(commit)
        self._note_lag()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            delay_us = 1 + int(self._random() * self.slow_us)
            self._scheduler.after(delay_us, partial(self._owner.when_awake, self._turn))

    def _turn(self) -> None:
        if self.stopped:
            return
        self._is_scheduled = False
        count = _SLOW_COUNT_MAX if self.slow_us else self._commit
        if self._owner.guard(partial(self._apply, min(self._commit, self.applied + count))):
            if self.applied < self._commit:
                self._schedule()
            self._note_lag()

    def _note_lag(self) -> None:
        if self.stopped:
            return
        lag = self._commit - self.applied
        if self._replaying != (lag > (_LAG_ENDS if self._replaying else _LAG_BEGINS)):
            self._replaying = not self._replaying
            self._counts["replays"] += self._replaying
            self._owner.step_replay(replaying=self._replaying)

    def _apply(self, until: Index) -> None:
        if self.applied < until:
            owner = self._owner
            entries = owner.log.entries(self.applied + 1, until + 1, _APPLY_SIZE_BYTES_MAX)
            self._invariants.on_apply(owner.name, entries)
            owner.on_applied(entries)
            if self._trace.on:
                self._trace.add(owner.name, f"applies {self.applied + 1}..{until}")
            self.applied = until
            if self._proposals:
                self._answer_proposals(entries)
        self._answer_reads()

    def _answer_proposals(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            proposal = self._proposals.pop(entry.index, None)
            if proposal is None:
                continue
            term, payload = proposal
            if term == entry.term and entry.kind is EntryKind.DATA:
                self._checker.on_acknowledged(payload, entry.index)
            else:
                self._checker.on_truncated(payload)

    def _answer_reads(self) -> None:
        if self._reads:
            ready = [read for read in self._reads if read[1] <= self.applied]
            self._reads = [read for read in self._reads if read[1] > self.applied]
            for request_id, index in ready:
                self._checker.on_read(self._owner.name, request_id, index)
