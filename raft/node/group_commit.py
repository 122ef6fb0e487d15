"""Group commit: makes rounds of changes durable beside the loop, which never waits for them.

Place in the data path: `raft.node.core_shell` states what each Ready wants durable and what it
wants sent after. While one round is under way the next one fills, so one fsync serves all that
arrived meanwhile. A round that wants the log alone is an fsync that the kernel carries out, where
the disk can (`SegmentLog.begin_sync`); any other is carried out by `SyncThread`, which the
simulator replaces by virtual time.

Invariants:
- rounds are carried out one at a time, each with the hard state first and the log after it
  (`raft.log.hard_state`). The fsync of a round's log may cover entries of the round after it: the
  log requires their hard state before it counts them, and begins no fsync of its own accord while
  a hard state waits to be saved;
- a round claims what the log held when it started, and nothing where a truncation has overtaken it;
- messages leave in the order in which they were given, each after everything that was to be
  persisted before it;
- a clean stop makes durable what no round was started for, in the same order, and sends nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from raft.log.hard_state import HardStateFile
from raft.log.segment_log import SegmentLog, SyncedTo
from raft.messages import HardState, Index, Message, Term

__all__ = ["CarryOut", "GroupCommit", "SelfVote", "SyncRound", "SyncThread"]

CarryOut: TypeAlias = Callable[
    [Sequence[Callable[[], object]], Callable[[BaseException | None], None]], None
]
"""Called with the steps of a round, to be done in order off the loop, up to the first that raises,
and with a callback for the loop after that, which takes what was raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfVote:
    """The vote that a candidate gave itself, to be traced once it is durable."""

    term: Term
    last_log_index: Index
    last_log_term: Term


@dataclass(slots=True, kw_only=True)
class SyncRound:
    """Work of one round; `messages` may leave once it is durable.

    `durable` is what it proves of the log: None where it does not sync it, or proves nothing.
    """

    hard_state: HardState | None = None
    self_vote: SelfVote | None = None
    syncs_log: bool = False
    durable: SyncedTo | None = None
    begun_at_s: float = 0.0
    messages: list[Message] = field(default_factory=list)


class SyncThread:
    """One thread that carries rounds out, one after the other; `carry_out` is a `CarryOut`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="raft-fsync")

    def carry_out(
        self,
        steps: Sequence[Callable[[], object]],
        done: Callable[[BaseException | None], None],
    ) -> None:
        self._pool.submit(_do_all, steps).add_done_callback(partial(self._return, done))

    async def stop(self) -> None:
        """Wait for the round under way, then end the thread."""
        await asyncio.to_thread(self._pool.shutdown)

    def _return(self, done: Callable[[BaseException | None], None], future: Future[None]) -> None:
        """Return to the loop from the thread, with whatever was raised."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(done, future.exception())


class GroupCommit:
    """Rounds of one node. `on_done(round, error)` is called on the loop; after an error no more
    start.

    `carry_out` does the work of a round.
    """

    def __init__(
        self,
        log: SegmentLog,
        hard_state: HardStateFile,
        on_done: Callable[[SyncRound, BaseException | None], None],
        carry_out: CarryOut,
    ) -> None:
        self._log = log
        self._hard_state = hard_state
        self._on_done = on_done
        self._carry_out = carry_out
        self._running: SyncRound | None = None
        self._next: SyncRound | None = None
        self._ended = False
        self._error: BaseException | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def want_log(self) -> None:
        """Request a sync of the log, which was appended to or truncated."""
        self._filling().syncs_log = True

    def want_hard_state(self, state: HardState, *, own_vote: bool) -> None:
        """Request a hard state; it replaces an earlier one that no round has. `own_vote`: for
        itself.

        Call it before the entries of the same Ready are appended.
        """
        self._hard_state.want(state)
        filling = self._filling()
        filling.hard_state = state
        filling.self_vote = None
        if own_vote:
            filling.self_vote = SelfVote(
                term=state.current_term,
                last_log_index=self._log.last_index,
                last_log_term=self._log.last_term,
            )

    def log_truncated(self) -> None:
        """Void the claim of the round under way: its entries may be dropped, or rewritten."""
        if self._running is not None:
            self._running.durable = None

    def defer(self, messages: Sequence[Message]) -> bool:
        """Hold the messages until earlier requests are durable; False if they are already."""
        last = self._next or self._running
        if last is not None:
            last.messages += messages
        return last is not None

    def begin(self) -> None:
        """Start the next round, if there is one and none is under way."""
        if self._running is not None or self._next is None or self._ended:
            return
        self._running, self._next = self._next, None
        self._idle.clear()
        self._running.begun_at_s = time.monotonic()
        if self._running.syncs_log:
            log = self._log  # entries appended during the round are not claimed
            self._running.durable = SyncedTo(index=log.last_index, term=log.last_term)
            try:
                if log.begin_sync(self._finish):
                    return
            except OSError as error:
                self._finish(error)
                return
        self._carry_out(self._steps(self._running), self._finish)

    @property
    def running_for_s(self) -> float:
        """How long the round under way has taken so far; a disk may hang."""
        return 0.0 if self._running is None else time.monotonic() - self._running.begun_at_s

    async def stop(self) -> None:
        """Start no more rounds, and wait for the one under way."""
        self.end()
        await self._idle.wait()

    def end(self) -> None:
        """Start no more rounds."""
        self._ended = True

    def persist_rest(self) -> None:
        """Make durable what is left after `stop`. Raises OSError, and what a round has raised:
        entries must not become durable behind a hard state that did not."""
        assert self._ended, "rounds go on"
        assert self._running is None, "a round is under way"
        if self._error is not None:
            raise self._error
        rest, self._next = self._next or SyncRound(), None
        rest.syncs_log = True
        _do_all(self._steps(rest))

    def _filling(self) -> SyncRound:
        if self._next is None:
            self._next = SyncRound()
        return self._next

    def _steps(self, work: SyncRound) -> list[Callable[[], object]]:
        """Return the steps, hard state before log; they use only unchanging fields of the round."""
        steps: list[Callable[[], object]] = [self._hard_state.persist]
        if work.syncs_log:
            steps.append(self._log.sync)
        return steps

    def _finish(self, error: BaseException | None) -> None:
        done, self._running = self._running, None
        assert done is not None
        self._idle.set()
        if error is not None:
            self._ended, self._error = True, error
        self._on_done(done, error)


def _do_all(steps: Sequence[Callable[[], object]]) -> None:
    for step in steps:
        step()
