"""Rounds of fsync in virtual time: the fsync thread of a simulated node.

Place in the data path: `SimNode` passes what each Ready wants durable. The rounds are those of the
product's `GroupCommit`; this module is the thread that carries them out, each step an action of its
own, so that the node may die, or go on appending and truncating, in between.

In some incarnations the disk carries out by itself what wants the log alone, as a kernel does, and
the node is told late; the thread has the rest.

Deliberately hostile: an fsync takes time, and a crash in it leaves a random part of it done; a
truncation may come meanwhile, and the core then gets a late report of entries that are gone; it may
be notified of a hard state, or find it proved by an entry; messages of a term that has passed may
leave all the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from chaos.sim.cores.invariants import Invariants
from chaos.sim.machine.disk import SimDisk
from chaos.sim.machine.scheduler import Scheduler
from chaos.sim.machine.sync_lock import SyncLock
from chaos.sim.seed.core_options import SimOptions
from raft.log.segment_log import SyncedTo
from raft.messages import HardState, Index, Message, NodeId, Term
from raft.node.group_commit import GroupCommit, SyncRound
from raft.store.node_store import NodeStore

__all__ = ["Shell", "SyncRounds"]

_KERNEL_RATE = 0.6  # share of incarnations whose disk carries syncs out by itself
_HARD_STATE_REPORTED_RATE = 0.5
_STALE_SENT_RATE = 0.5
_HANDOVER_US_MAX = 100  # between threads; the disk's own time comes on top


class Shell(Protocol):
    """The node whose rounds these are."""

    name: NodeId
    disk: SimDisk
    sync_slow_us: int

    @property
    def paused(self) -> bool: ...

    @property
    def term(self) -> Term: ...

    def when_awake(self, action: Callable[[], None]) -> None: ...

    def guard(self, action: Callable[[], object]) -> bool:
        """Run the action; return False if the node died of it."""

    def send(self, message: Message) -> None: ...

    def place(self, what: str) -> None:
        """Mark a place between two effects, where the node may die."""

    def step_durable(self, index: Index, term: Term) -> None: ...

    def step_hard_state_durable(self, term: Term) -> None: ...


_Phase = tuple[bool, Callable[[], object]]  # whether it takes the disk's time, and its action


class SyncRounds:
    """The rounds of one incarnation; nothing happens once `stopped` is set (the node is dead)."""

    def __init__(
        self,
        shell: Shell,
        store: NodeStore,
        *,
        options: SimOptions,
        scheduler: Scheduler,
        invariants: Invariants,
        rng: random.Random,
        counts: dict[str, int],
    ) -> None:
        self._shell = shell
        self._log = store.log
        self._hard_state_file = store.hard_state_file
        self._group_commit = GroupCommit(
            store.log, store.hard_state_file, self._on_done, self._carry_out
        )
        self._sync_us_min = options.sync_us_min
        self._sync_us_spread = max(1, options.sync_us_max - options.sync_us_min)
        self._scheduler = scheduler
        self._invariants = invariants
        self._random = rng.random
        self._counts = counts
        self.stopped = False
        self._reported = store.hard_state  # last one reported durable to the core
        self._wants_hard_state = False
        self._phases: list[_Phase] = []  # phases of the round under way
        self._covered: SyncedTo | None = None  # end of the log when the round began
        self._kernel_syncs: list[tuple[Callable[[], None], Callable[[], None]]] = []
        store.log._sync_lock = SyncLock(store.log)  # type: ignore[assignment]  # as good as a lock
        if self._random() < _KERNEL_RATE:
            shell.disk.kernel = self
            store.open_syncs()

    # --- requests ------------------------------------------------------------------------------

    def want_hard_state(self, state: HardState) -> None:
        """Request a durable hard state, before the entries of the same Ready are appended."""
        self._wants_hard_state = True
        self._group_commit.want_hard_state(state, own_vote=state.voted_for == self._shell.name)

    def want_log(self) -> None:
        self._group_commit.want_log()

    def before_truncation(self) -> None:
        """Wait for the fsync under way, as a truncation does on the log's lock."""
        self._shell.disk.complete_sync()

    def after_truncation(self) -> None:
        """Correct the round's late report: it must not name truncated entries."""
        self._group_commit.log_truncated()

    def send(self, messages: Sequence[Message]) -> None:
        """Send the messages once everything requested before them is durable."""
        if messages and not self._group_commit.defer(messages):
            for message in messages:
                self._shell.send(message)

    def maybe_begin(self) -> None:
        """Start the next round, unless one is under way or nothing waits."""
        if not self.stopped:
            self._group_commit.begin()

    def end(self) -> None:
        """Finish the round under way at a clean stop; nothing is reported any more."""
        self.stopped = True
        self._group_commit.end()
        while self._phases:
            self._phases.pop(0)[1]()
        for work, report in self._kernel_syncs:
            work()
            report()
        self._kernel_syncs.clear()

    def persist_rest(self) -> None:
        """Make everything that was requested durable, after `end`."""
        self._group_commit.persist_rest()
        self._report_hard_state()
        self._invariants.on_fsync(self._shell.name, self._log.last_index)

    # --- a round that the disk carries out by itself -------------------------------------------

    def begin_sync(self, work: Callable[[], None], report: Callable[[], None]) -> None:
        """See `chaos.sim.machine.disk.Kernel`. No hard state waits: where this round wants one, the
        end of a segment has saved it."""
        self._report_hard_state()
        self._covered = SyncedTo(index=self._log.last_index, term=self._log.last_term)
        self._kernel_syncs.append((work, report))
        delay_us = self._sync_us_min + int(self._random() ** 2 * self._sync_us_spread)
        delay_us += self._shell.sync_slow_us
        self._scheduler.after(delay_us, partial(self._work_in_kernel, work, report))

    def report_soon(self, report: Callable[[], None]) -> None:
        """See `chaos.sim.machine.disk.Kernel`."""
        self._scheduler.after(0, partial(self._report, report))

    def _work_in_kernel(self, work: Callable[[], None], report: Callable[[], None]) -> None:
        if not self.stopped and self._shell.guard(work):
            self._counts["syncs"] += 1
            self._counts["kernel_syncs"] += 1
            delay_us = int(self._random() * _HANDOVER_US_MAX)
            self._scheduler.after(delay_us, partial(self._report, report))

    def _report(self, report: Callable[[], None]) -> None:
        if self.stopped:
            return
        if self._shell.paused:
            self._shell.when_awake(partial(self._report, report))
            return
        self._kernel_syncs = [one for one in self._kernel_syncs if one[1] != report]
        self._shell.guard(report)

    # --- one round -----------------------------------------------------------------------------

    def _carry_out(
        self, steps: Sequence[Callable[[], object]], done: Callable[[BaseException | None], None]
    ) -> None:
        self._covered = SyncedTo(index=self._log.last_index, term=self._log.last_term)
        for step in steps:
            if step == self._log.sync:
                self._phases += [(False, self._begin_log_sync), (True, self._end_log_sync)]
            else:
                self._phases.append((self._wants_hard_state, partial(self._save, step)))
        self._wants_hard_state = False
        self._phases.append((False, partial(done, None)))
        self._schedule(done)

    def _schedule(self, done: Callable[[BaseException | None], None]) -> None:
        delay_us = int(self._random() * _HANDOVER_US_MAX)
        if self._phases[0][0]:
            delay_us += self._sync_us_min + int(self._random() ** 2 * self._sync_us_spread)
            delay_us += self._shell.sync_slow_us
        self._scheduler.after(delay_us, partial(self._run, done))

    def _run(self, done: Callable[[BaseException | None], None]) -> None:
        if self.stopped:
            return
        if self._shell.paused:
            self._shell.when_awake(partial(self._run, done))
            return
        phase = self._phases.pop(0)[1]
        if not self._phases:
            self._shell.guard(phase)  # the report; another round may have started with it
        elif self._shell.guard(partial(self._do, phase, done)) and self._phases:
            self._schedule(done)

    def _do(
        self, phase: Callable[[], object], done: Callable[[BaseException | None], None]
    ) -> None:
        try:
            phase()
        except OSError as error:
            self._phases.clear()
            done(error)

    def _save(self, step: Callable[[], object]) -> None:
        step()
        self._report_hard_state()

    def _report_hard_state(self) -> None:
        state = self._hard_state_file.state
        if state != self._reported:
            self._reported = state
            self._counts["hard_states_saved"] += 1
            self._invariants.on_hard_state_durable(self._shell.name, state)

    def _begin_log_sync(self) -> None:
        disk = self._shell.disk
        disk.begin_sync()
        try:
            self._log.sync()
        finally:
            disk.end_begin_sync()

    def _end_log_sync(self) -> None:
        self._shell.disk.complete_sync()
        self._counts["syncs"] += 1
        self._report_hard_state()

    # --- the end of a round --------------------------------------------------------------------

    def _on_done(self, done: SyncRound, error: BaseException | None) -> None:
        """Send the waiting messages, then report to the core, as `raft.node.core_shell` does."""
        if error is not None:
            raise error
        if not self._is_running():
            return
        durable, covered = done.durable, self._covered
        if durable is not None:
            self._invariants.on_fsync(self._shell.name, durable.index)
        self._shell.place("send after sync")
        for message in done.messages:
            # A shell may drop messages of a term that has passed; both courses must be safe.
            if message.term >= self._shell.term or self._random() < _STALE_SENT_RATE:
                self._shell.send(message)
        # Without this report the core finds the term proved by a durable entry of it.
        if done.hard_state is not None and self._random() < _HARD_STATE_REPORTED_RATE:
            self._shell.step_hard_state_durable(done.hard_state.current_term)
        if not self._is_running():
            return
        if durable is not None:
            self._shell.step_durable(durable.index, durable.term)
        elif done.syncs_log and covered is not None and not self._has(covered):
            # The core must tell truncated entries from those in their place (index and term).
            self._shell.step_durable(covered.index, covered.term)
        self.maybe_begin()  # unless it has died of the report

    def _is_running(self) -> bool:
        """Return whether the node still runs: it may die of each step."""
        return not self.stopped

    def _has(self, covered: SyncedTo) -> bool:
        index = covered.index
        if index < self._log.base.index:
            return True
        return index <= self._log.last_index and self._log.term(index) == covered.term
