"""Group commit: one thread that makes rounds of changes durable, so that the loop never waits.

Place in the data path: `raft.node` tells what each Ready wants durable and what it wants sent
after. While one round is under way the next one fills, so one fsync serves all that came
meanwhile.

Invariants:
- rounds are carried out one at a time, each with the hard state first and the log after it
  (`raft.hard_state`). The fsync of a round's log may cover entries of the round after it: the log
  requires their hard state before it counts them;
- a round claims what the log held when it was begun, and nothing where a truncation has overtaken
  it;
- messages leave in the order in which they were given, each after everything that was to be
  persisted before it;
- a clean stop makes durable what no round was begun for, in the same order, and sends nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from raft.hard_state import HardStateFile
from raft.messages import HardState, Index, Message, Term
from raft.segment_log import SegmentLog, SyncedTo

__all__ = ["GroupCommit", "SelfVote", "SyncRound"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfVote:
    """The vote that a candidate gave itself, to be traced once it is durable."""

    term: Term
    last_log_index: Index
    last_log_term: Term


@dataclass(slots=True, kw_only=True)
class SyncRound:
    """What one round makes durable; `messages` may leave once it is.

    `durable` is what it proves of the log: None where it does not sync it, or proves nothing.
    """

    hard_state: HardState | None = None
    self_vote: SelfVote | None = None
    syncs_log: bool = False
    durable: SyncedTo | None = None
    begun_at_s: float = 0.0
    messages: list[Message] = field(default_factory=list)


class GroupCommit:
    """`on_done(round, error)` is called on the loop; after an error nothing more is begun."""

    def __init__(
        self,
        log: SegmentLog,
        hard_state: HardStateFile,
        on_done: Callable[[SyncRound, BaseException | None], None],
    ) -> None:
        self._log = log
        self._hard_state = hard_state
        self._on_done = on_done
        self._loop = asyncio.get_running_loop()
        self._running: SyncRound | None = None
        self._next: SyncRound | None = None
        self._ended = False
        self._error: BaseException | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="raft-fsync")

    def want_log(self) -> None:
        """The log was appended to or truncated."""
        self._filling().syncs_log = True

    def want_hard_state(self, state: HardState, *, own_vote: bool) -> None:
        """A later one replaces an earlier one that was not begun. `own_vote`: for itself.

        Before the entries of the same Ready are appended.
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
        """What a round under way covers may be gone, or come back before it ends."""
        if self._running is not None:
            self._running.durable = None

    def defer(self, messages: Sequence[Message]) -> bool:
        """Keep the messages until what was given before is durable; False where it is."""
        last = self._next or self._running
        if last is not None:
            last.messages += messages
        return last is not None

    def begin(self) -> None:
        """Begin the next round, if there is one and none is under way."""
        if self._running is not None or self._next is None or self._ended:
            return
        self._running, self._next = self._next, None
        self._idle.clear()
        self._running.begun_at_s = time.monotonic()
        if self._running.syncs_log:
            log = self._log
            self._running.durable = SyncedTo(index=log.last_index, term=log.last_term)
        self._thread.submit(self._persist, self._running).add_done_callback(self._persisted)

    @property
    def running_for_s(self) -> float:
        """How long the round under way has taken so far; a disk may hang."""
        return 0.0 if self._running is None else time.monotonic() - self._running.begun_at_s

    async def stop(self) -> None:
        """Wait for the round under way, then end the thread."""
        self._ended = True
        await self._idle.wait()
        await asyncio.to_thread(self._thread.shutdown)

    def persist_rest(self) -> None:
        """After `stop`: all that was wanted is durable now. Raises OSError, and what a round has
        raised: entries must not become durable behind a hard state that did not."""
        assert self._ended, "rounds go on"
        if self._error is not None:
            raise self._error
        rest, self._next = self._next or SyncRound(), None
        rest.syncs_log = True
        self._persist(rest)

    def _filling(self) -> SyncRound:
        if self._next is None:
            self._next = SyncRound()
        return self._next

    def _persist(self, work: SyncRound) -> None:
        """On the thread. It reads of a round only what no one changes any more."""
        self._hard_state.persist()
        if work.syncs_log:
            self._log.sync()

    def _persisted(self, future: Future[None]) -> None:
        """On the thread: back to the loop, with whatever was raised."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._finish, future.exception())

    def _finish(self, error: BaseException | None) -> None:
        done, self._running = self._running, None
        assert done is not None
        self._idle.set()
        if error is not None:
            self._ended, self._error = True, error
        self._on_done(done, error)
