"""Making durable, round by round, in virtual time: the fsync thread of a simulated node.

Place in the data path: `SimNode` adds each Ready here; while one round is under way, what comes
later waits for the next one (group commit). A round makes hard state and log durable one after
the other, in either order, with time in between, then lets go the messages that waited for it and
reports what of the log it covered.

Invariant: what a round reports was appended before the round began, and has not been truncated
since. So the hard state that came with an entry is in the same round or an earlier one, and a
durable entry proves its term durable, which the core relies on.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from chaos.sim.disk import SimDisk
from chaos.sim.invariants import Invariants
from chaos.sim.options import SimOptions
from chaos.sim.scheduler import Scheduler
from raft.events import Ready
from raft.hard_state import HardStateFile
from raft.messages import HardState, Index, Message, NodeId, Term
from raft.segment_log import SegmentLog

__all__ = ["Shell", "SyncRounds"]

_HARD_STATE_TOLD_RATE = 0.5
_HANDOVER_US_MAX = 100  # between threads; the disk's own time comes on top


class Shell(Protocol):
    """The node whose rounds these are."""

    name: NodeId
    disk: SimDisk
    sync_slow_us: int
    paused: bool

    def when_awake(self, action: Callable[[], None]) -> None: ...

    def guard(self, action: Callable[[], None]) -> bool:
        """Do it; False if the node died of it."""

    def send(self, message: Message) -> None: ...

    def place(self, what: str) -> None:
        """Between two effects: here the node may die."""

    def step_durable(self, index: Index, term: Term) -> None: ...

    def step_hard_state_durable(self, term: Term) -> None: ...


@dataclass(slots=True, kw_only=True)
class _Round:
    """What one round covers and who waits for it."""

    hard_state: HardState | None
    messages: list[Message]
    target: tuple[Index, Term]  # the log's end when it began
    covered: tuple[Index, Term] = (0, 0)  # once its log sync has begun
    truncated_from: Index | None = None  # lowest truncation since


class SyncRounds:
    """Of one incarnation: `stopped` once the node is dead, and nothing happens any more."""

    def __init__(
        self,
        shell: Shell,
        *,
        log: SegmentLog,
        hard_state_file: HardStateFile,
        options: SimOptions,
        scheduler: Scheduler,
        invariants: Invariants,
        rng: random.Random,
        counts: dict[str, int],
    ) -> None:
        self._shell = shell
        self._log = log
        self._hard_state_file = hard_state_file
        self._sync_us_min = options.sync_us_min
        self._sync_us_spread = max(1, options.sync_us_max - options.sync_us_min)
        self._scheduler = scheduler
        self._invariants = invariants
        self._random = rng.random
        self._counts = counts
        self.stopped = False
        self._under_way: _Round | None = None
        # What waits for the next round.
        self._hard_state: HardState | None = None
        self._log_is_dirty = False
        self._messages: list[Message] = []

    def add(self, ready: Ready) -> None:
        """Its entries are appended already; call `maybe_begin` when the rest is done."""
        if ready.hard_state is not None:
            self._hard_state = ready.hard_state
        if ready.entries or ready.truncate_from is not None:
            self._log_is_dirty = True
        self._messages += ready.messages_after_sync

    def maybe_begin(self) -> None:
        """Begin the next round, unless one is under way or nothing waits."""
        if self._under_way is not None or self.stopped:
            return
        messages, self._messages = self._messages, []
        if self._hard_state is None and not self._log_is_dirty:
            for message in messages:
                self._shell.send(message)
            return
        self._under_way = one = _Round(
            hard_state=self._hard_state,
            messages=messages,
            target=(self._log.last_index, self._log.last_term),
        )
        phases: list[tuple[bool, Callable[[_Round], None]]] = []
        if self._hard_state is not None:
            phases.append((True, self._save_hard_state))
        if self._log_is_dirty:
            place = 0 if self._random() < 0.5 else len(phases)
            phases[place:place] = [(False, self._begin_log_sync), (True, self._end_log_sync)]
        phases.append((False, self._finish))
        self._hard_state = None
        self._log_is_dirty = False
        self._schedule(one, phases)

    def before_truncation(self, index: Index) -> None:
        """A truncation waits for the sync under way; the round's report comes later all the
        same, and must not name what is gone."""
        one = self._under_way
        if one is not None:
            self._shell.disk.complete_sync()
            one.truncated_from = min(index, one.truncated_from or index)

    # --- one round -----------------------------------------------------------------------------

    def _schedule(self, one: _Round, phases: list[tuple[bool, Callable[[_Round], None]]]) -> None:
        delay_us = int(self._random() * _HANDOVER_US_MAX)
        if phases[0][0]:  # it takes the disk's time
            delay_us += self._sync_us_min + int(self._random() ** 2 * self._sync_us_spread)
            delay_us += self._shell.sync_slow_us
        self._scheduler.after(delay_us, partial(self._run, one, phases))

    def _run(self, one: _Round, phases: list[tuple[bool, Callable[[_Round], None]]]) -> None:
        if self.stopped:
            return
        if self._shell.paused:
            self._shell.when_awake(partial(self._run, one, phases))
            return
        phase = phases.pop(0)[1]
        if self._shell.guard(partial(phase, one)) and phases:
            self._schedule(one, phases)

    def _save_hard_state(self, one: _Round) -> None:
        assert one.hard_state is not None
        self._hard_state_file.save(one.hard_state)
        self._counts["hard_states_saved"] += 1
        self._invariants.on_hard_state_durable(self._shell.name, one.hard_state)

    def _begin_log_sync(self, one: _Round) -> None:
        disk = self._shell.disk
        disk.begin_sync()
        try:
            covered = self._log.sync()
        finally:
            disk.end_begin_sync()
        one.covered = min(one.target, (covered.index, covered.term))

    def _end_log_sync(self, one: _Round) -> None:
        self._shell.disk.complete_sync()
        self._counts["syncs"] += 1

    def _finish(self, one: _Round) -> None:
        """All of it is durable: say so, then send what waited, then report to the core."""
        index, term = one.covered
        if one.truncated_from is not None:
            index = min(index, one.truncated_from - 1)
        if index:
            self._invariants.on_fsync(self._shell.name, index)
        self._shell.place("send after sync")
        for message in one.messages:
            self._shell.send(message)
        self._under_way = None
        # The core may be told of the hard state or find it proved by an entry: both must do.
        if one.hard_state is not None and self._random() < _HARD_STATE_TOLD_RATE:
            self._shell.step_hard_state_durable(one.hard_state.current_term)
        if index and not self.stopped:
            self._report(one, index, term)
        self.maybe_begin()

    def _report(self, one: _Round, index: Index, term: Term) -> None:
        log = self._log
        if one.truncated_from is not None:
            # The late report of entries that are gone comes too: the core must tell it from one
            # of those in their place.
            covered_index, covered_term = one.covered
            if covered_index > log.last_index or log.term(covered_index) != covered_term:
                self._shell.step_durable(covered_index, covered_term)
            if self.stopped or index > log.last_index:
                return
            term = log.term(index)
        self._shell.step_durable(index, term)
