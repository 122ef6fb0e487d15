"""One thread that makes batches durable, so that the loop never waits for a disk.

Place in the data path: `raft.node` gathers in a `SyncBatch` what several Readys want durable and
what they want sent after; while one batch is under way the next one fills, so one fsync serves
all that came meanwhile.

Invariant: batches are carried out one at a time in the order given, each with the hard state
first and the log after it: an entry that is durable proves that the term it is of is, too.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from raft.hard_state import HardStateFile
from raft.messages import HardState, Index, Message, Term
from raft.segment_log import SegmentLog, SyncedTo

__all__ = ["GroupCommit", "SelfVote", "SyncBatch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfVote:
    """The vote that a candidate gave itself, to be traced once it is durable."""

    term: Term
    last_log_index: Index
    last_log_term: Term


@dataclass(slots=True, kw_only=True)
class SyncBatch:
    """What one round makes durable; `messages` leave, in order, once it is."""

    hard_state: HardState | None = None
    sync_log: bool = False  # taken back where a truncation overtakes the round
    target: SyncedTo | None = None  # what the round covers, fixed when it is begun
    messages: list[Message] = field(default_factory=list)
    self_vote: SelfVote | None = None


class GroupCommit:
    """`on_done(batch, error)` is called on the loop; after an error give no more batches."""

    def __init__(
        self,
        log: SegmentLog,
        hard_state: HardStateFile,
        on_done: Callable[[SyncBatch, Exception | None], None],
    ) -> None:
        self._log = log
        self._hard_state = hard_state
        self._on_done = on_done
        self._loop = asyncio.get_running_loop()
        self._batches: queue.SimpleQueue[tuple[SyncBatch, bool] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="raft-fsync", daemon=True)
        self._thread.start()

    def begin(self, batch: SyncBatch) -> None:
        """Carry out the batch. What is appended from now on is not claimed by it."""
        batch.target = SyncedTo(index=self._log.last_index, term=self._log.last_term)
        self._batches.put((batch, batch.sync_log))

    async def stop(self) -> None:
        """Wait for the batches given, then end the thread."""
        self._batches.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while (work := self._batches.get()) is not None:
            batch, sync_log = work
            error: Exception | None = None
            try:
                if batch.hard_state is not None:
                    self._hard_state.save(batch.hard_state)
                if sync_log:
                    self._log.sync()
            except Exception as raised:  # noqa: BLE001 - the thread's edge: it stops the node
                error = raised
            if self._loop.is_closed():
                return
            self._loop.call_soon_threadsafe(self._on_done, batch, error)
