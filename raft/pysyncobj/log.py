"""The replicated log on PySyncObj: the same interface, another consensus under it.

Place in the data path: implements `raft.replicated_log` over `raft.pysyncobj.engine`. It exists to
be compared with `raft.node.node` under the same scenarios, not to be used for data that matters.

PySyncObj does not report a command's place before it is committed, and the interface promises just
that. So what is replicated is the whole entry, made for the end of the log as this leader knows it,
its proposals under way included; `raft.pysyncobj.chained_entry` decides at every replica alike
whether it fits. Where another leader's entry came first, the rest of this leader's chain is void: a
definite refusal. The entries that fit are the log, written to the same segments as those of the
default engine, from which consumers are served and which a verifier can compare.

Invariants:
- a leader proposes only once its own no-op stands in the log, so that it knows the end of it;
- an entry is applied once per incarnation, in the order of the group; PySyncObj delivers everything
  again after a restart, and what the segments hold already is compared, not written;
- durability is PySyncObj's journal (flushed, where so configured): the segments are derived.

Source: docs/decisions/0011-what-the-seam-demands.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from raft.events import ChangeRefusal, ChangeRefused, Role
from raft.fail_stop import FailStop, fails_with, stops_node
from raft.log.log_format import HEADER_SIZE
from raft.membership import Member, Membership, MembershipChange, make_membership
from raft.messages import EntryKind, Index, NodeId, Term
from raft.pysyncobj.chained_entry import EMPTY_LOG, LogEnd, entry_for, fit
from raft.pysyncobj.config import PySyncObjConfig
from raft.pysyncobj.engine import Command, EngineState, PySyncObjEngine, Refused, Vote
from raft.pysyncobj.store import PySyncObjStore
from raft.replicated_log import (
    ChangeRefusedError,
    CommittedEntry,
    LogStatus,
    NotLeaderError,
    Phase,
    ProposalResult,
    ProposalStatus,
    RetentionBounds,
    Slot,
    StateMachine,
)

__all__ = ["PySyncObjLog"]

_TIME_PER_TURN_MAX_S = 0.005
_ENTRIES_PER_CALL_MAX = 8
_RETRY_S = 0.05
_READ_MAGIC = b"READ"

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Open:
    """A proposal under way; `future` None: the no-op of a new leader."""

    ticket: int
    index: Index
    term: Term
    chain: int
    future: asyncio.Future[ProposalResult] | None


class PySyncObjLog:
    """Implements `ReplicatedLog`."""

    def __init__(self, config: PySyncObjConfig, state_machine: StateMachine) -> None:
        self._config = config
        self._state_machine = state_machine
        self._state = EngineState(role=Role.FOLLOWER, term=0, leader_id=None)
        self._has_reported = False  # whether PySyncObj has reported anything yet
        self._term_seen = 0  # of votes too: terms never fall along the trace
        self._end: LogEnd = EMPTY_LOG  # of the committed entries
        self._ahead: LogEnd = EMPTY_LOG  # and of what this leader has proposed behind it
        self._ready = False
        self._open: dict[Index, _Open] = {}
        self._batch: list[CommittedEntry] = []
        self._reads: list[asyncio.Future[Index]] = []  # for the next barrier
        self._barriers: dict[bytes, list[asyncio.Future[Index]]] = {}
        self._tickets = 0
        self._not_leading = asyncio.Event()
        self._background: asyncio.Task[None] | None = None
        self.fail_stop = FailStop(self.fail)
        self.stopped = True

    # --- start and stop ------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the store, start PySyncObj. Raises OSError (StoreLockedError, WrongStoreError, an
        address in use) and CorruptLogError."""
        self._loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[BaseException] = self._loop.create_future()
        self._store = await asyncio.to_thread(PySyncObjStore, self._config)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(self._store.close)
            self._trace = self._store.trace
            self._engine = PySyncObjEngine(self._config.engine_config(), self._drain)
            self._incarnation_id = os.urandom(8)
            self._not_leading.set()
            await self._engine.start()
            on_failure.pop_all()
        self.stopped = False
        self._drain()  # what was reported before the node could process it
        self._background = asyncio.create_task(self._run_background(), name="pysyncobj-log")
        self._background.add_done_callback(fails_with(self.fail))

    async def stop(self) -> None:
        """Leave cleanly. Safe to call after a failure, and twice."""
        if not self.stopped and self._state.role is Role.LEADER:
            self._engine.transfer(None)
            with contextlib.suppress(TimeoutError):  # no node came far enough: they will elect
                async with asyncio.timeout(self._config.transfer_timeout_ms / 1000):
                    await self._not_leading.wait()
        was_running = not self.stopped
        self.stopped = True
        self._shut()
        if self._background is None:
            return
        self._background.cancel()
        await asyncio.wait([self._background])
        await self._engine.stop()
        self._background = None
        try:
            if was_running:
                await asyncio.to_thread(self._store.log.sync)
                self._store.write_checkpoint(self._end.index, clean=True)
        finally:
            self._store.close()

    async def wait_failed(self) -> BaseException:
        return await asyncio.shield(self._failed)

    def fail(self, error: BaseException) -> None:
        """Stop for good."""
        if self.stopped:
            return
        _log.error("the node stops: %s: %s", type(error).__name__, error, exc_info=error)
        self.stopped = True
        self._shut()
        if self._background is not None:
            self._background.cancel()
        if not self._failed.done():
            self._failed.set_result(error)

    def _shut(self) -> None:
        for proposal in list(self._open.values()):
            self._resolve(proposal, ProposalStatus.STOPPED)
        self._refuse_reads(None)

    async def _run_background(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._fail_with_engine())
            group.create_task(self._checkpoint_regularly())

    async def _fail_with_engine(self) -> None:
        raise await self._engine.wait_ended()

    async def _checkpoint_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._config.checkpoint_interval_ms / 1000)
            # What is committed here is the shorter of what was delivered and what is on the disk.
            index = self._end.index
            if index != self._store.checkpoint.commit_index:
                synced = await asyncio.to_thread(self._store.log.sync)
                self._store.write_checkpoint(min(index, synced.index), clean=False)

    # --- calls of the broker -------------------------------------------------------------------

    def status(self) -> LogStatus:
        state = self._state
        return LogStatus(
            role=state.role,
            term=state.term,
            leader_id=state.leader_id,
            ready=self._ready,
            first_index=1,
            last_index=self._ahead.index,
            commit_index=self._end.index,
            applied_index=self._end.index - len(self._batch),
            voters=tuple(sorted(self._config.peers)),
            learners=(),
            begin_position=0,
            writable=True,
            phase=Phase.SERVING,
        )

    def confirm(self, on_done: Callable[[ProposalStatus], None]) -> None:
        """See `ReplicatedLog.confirm`."""
        on_done(ProposalStatus.COMMITTED)

    def propose(self, fill: Callable[[Slot], bytes]) -> asyncio.Future[ProposalResult]:
        """See `ReplicatedLog.propose`. ValueError also where the journal is full."""
        if self.stopped or not self._ready:
            raise NotLeaderError(None if self.stopped else self._state.leader_id)
        config, ahead, term = self._config, self._ahead, self._state.term
        if len(self._open) >= config.proposals_count_max:
            raise ValueError(f"{len(self._open)} proposals are open")
        if ahead.position >= config.journal_size_bytes_max:
            raise ValueError(
                f"the log has {ahead.position} bytes; PySyncObj's journal is never compacted here"
                f" and may have {config.journal_size_bytes_max}"
            )
        slot = Slot(index=ahead.index + 1, term=term, position=ahead.position + HEADER_SIZE)
        payload = fill(slot)
        if len(payload) > config.entry_size_bytes_max:
            raise ValueError(
                f"payload of {len(payload)} bytes, at most {config.entry_size_bytes_max} are"
                " allowed"
            )
        future: asyncio.Future[ProposalResult] = self._loop.create_future()
        self._propose(EntryKind.DATA, payload, future)
        return future

    def propose_then(
        self, fill: Callable[[Slot], bytes], on_done: Callable[[ProposalResult], None]
    ) -> None:
        """See `ReplicatedLog.propose_then`."""
        self.propose(fill).add_done_callback(lambda done: on_done(done.result()))

    async def read_index(self) -> Index:
        """See `ReplicatedLog.read_index`. PySyncObj has none: a command of this node goes through
        its log, and when it comes back everything committed before has come."""
        if self.stopped or not self._ready:
            raise NotLeaderError(None if self.stopped else self._state.leader_id)
        future: asyncio.Future[Index] = self._loop.create_future()
        self._reads.append(future)
        if len(self._reads) == 1:
            self._loop.call_soon(self._send_barrier)
        return await future

    def read(self, position: int, size: int) -> bytes:
        return self._store.log.read(position, size)

    async def transfer_leadership(self, target: NodeId) -> None:
        """See `ReplicatedLog.transfer_leadership`."""
        if self._state.role is not Role.LEADER:
            raise NotLeaderError(self._state.leader_id)
        if target == self._config.node_id or target not in self._config.peers:
            raise ValueError(f"{target} is no other voter of {self._config.group}")
        self._engine.transfer(target)
        async with asyncio.timeout(self._config.transfer_timeout_ms / 1000):
            await self._not_leading.wait()

    def membership(self) -> Membership:
        peers = self._config.peers
        return make_membership(Member(node_id=name, address=peers[name]) for name in peers)

    async def change_membership(self, change: MembershipChange) -> ProposalResult:
        """Refuse: PySyncObj can change its members, but neither as learners nor through a log that
        holds this one's entries."""
        if self.stopped or not self._ready:
            raise NotLeaderError(None if self.stopped else self._state.leader_id)
        raise ChangeRefusedError(
            ChangeRefused(
                reason=ChangeRefusal.IMPOSSIBLE, detail="the engine pysyncobj keeps its members"
            )
        )

    def retention_bounds(self) -> RetentionBounds:
        return RetentionBounds(
            begin_position=0,
            end_position=self._end.position,
            follower_position=None,
        )

    async def retain_from(self, position: int) -> int:
        """Drop nothing: PySyncObj delivers everything again after a restart."""
        return 0

    # --- items of the engine -------------------------------------------------------------------

    @stops_node
    def _drain(self) -> None:
        begin = time.perf_counter()
        while (item := self._engine.take()) is not None:
            match item:
                case Command():
                    self._on_command(item.data)
                case EngineState():
                    self._apply_batch()
                    self._on_state(item)
                case Refused():
                    self._on_refused(item)
                case Vote():
                    self._term_seen = max(self._term_seen, item.term)
                    self._record("vote", peer=item.peer)
                case _:
                    assert_never(item)
            if time.perf_counter() - begin > _TIME_PER_TURN_MAX_S:
                self._loop.call_soon(self._drain)
                break
        self._apply_batch()
        if self._trace is not None:
            self._trace.flush()

    def _on_command(self, data: bytes) -> None:
        if data.startswith(_READ_MAGIC):
            self._apply_batch()
            for future in self._barriers.pop(data, ()):
                if not future.done():
                    future.set_result(self._end.index)
            return
        fitting = fit(self._end, data)
        if fitting is None:
            return  # void, here and everywhere: earlier commands have shown it to its proposer
        entry, self._end = fitting
        position = self._end.position - len(entry.payload)
        self._store.write_entry(entry, self._end.chain)
        self._batch.append(
            CommittedEntry(
                index=entry.index,
                term=entry.term,
                kind=entry.kind,
                position=position,
                payload=entry.payload,
                chain=self._end.chain,
            )
        )
        if self._open:
            self._settle(entry.index)
        else:
            self._ahead = self._end
        if len(self._batch) >= _ENTRIES_PER_CALL_MAX:
            self._apply_batch()

    def _settle(self, index: Index) -> None:
        """Match a committed entry with this leader's proposal for its index, if any."""
        proposal = self._open.get(index)
        if proposal is None or proposal.chain != self._end.chain:
            self._void_from(index)
            return
        if proposal.future is None:
            del self._open[index]
            self._ready = self._state.role is Role.LEADER
            self._apply_batch()
            self._notify_status()

    def _void_from(self, index: Index) -> None:
        """Refuse proposals for `index` and behind it, which can never fit; find the end anew."""
        for proposal in [each for each in self._open.values() if each.index >= index]:
            self._resolve(proposal, ProposalStatus.TRUNCATED)
        self._begin_leading()

    def _apply_batch(self) -> None:
        batch, self._batch = self._batch, []
        if not batch:
            return
        if self._trace is not None:
            for entry in batch:
                self._record("append", index=entry.index, entry_term=entry.term, chain=entry.chain)
        self._state_machine.apply(batch)
        last = batch[-1]
        self._record(
            "apply",
            first=batch[0].index,
            index=last.index,
            entry_term=last.term,
            chain=last.chain,
        )
        if self._trace is not None:
            self._trace.flush()
        for entry in batch:
            proposal = self._open.get(entry.index)
            if proposal is not None and proposal.chain == entry.chain:
                self._resolve(proposal, ProposalStatus.COMMITTED)

    def _on_state(self, state: EngineState) -> None:
        before, self._state = self._state, state
        self._term_seen = max(self._term_seen, state.term)
        if not self._has_reported:
            self._has_reported = True
            # No entry of the log counts before PySyncObj has delivered it again.
            voters = sorted(self._config.peers)
            self._record("start", index=0, entry_term=0, chain=0, voters=list(voters))
        leads = state.role is Role.LEADER
        if (state.role, state.term) != (before.role, before.term):
            self._record("role", role=state.role.value)
            if before.role is Role.LEADER:
                self._lose_leadership()
            if leads:
                self._not_leading.clear()
                self._begin_leading()
        self._notify_status()

    def _begin_leading(self) -> None:
        """Propose a no-op for the presumed end of the log; once it fits, the end is known."""
        self._ready = False
        self._ahead = self._end
        if self._state.role is Role.LEADER and not self.stopped:
            self._propose(EntryKind.NOOP, b"", None)

    def _lose_leadership(self) -> None:
        self._ready = False
        self._not_leading.set()
        for proposal in list(self._open.values()):
            self._resolve(proposal, ProposalStatus.LOST_LEADERSHIP)
        self._ahead = self._end
        self._refuse_reads(self._state.leader_id)

    def _on_refused(self, refused: Refused) -> None:
        futures = self._barriers.pop(self._barrier(refused.ticket), None)
        if futures is not None:
            _refuse(futures, self._state.leader_id)
            return
        proposal = next((o for o in self._open.values() if o.ticket == refused.ticket), None)
        if proposal is None:
            return  # answered already
        for each in list(self._open.values()):
            never = refused.definite and each.index >= proposal.index  # no place for it any more
            self._resolve(
                each, ProposalStatus.TRUNCATED if never else ProposalStatus.LOST_LEADERSHIP
            )
        self._ready = False
        self._ahead = self._end
        self._loop.call_later(_RETRY_S, self._retry_leading)
        self._notify_status()

    @stops_node
    def _retry_leading(self) -> None:
        if not self._ready and not self._open:
            self._begin_leading()

    # --- inside --------------------------------------------------------------------------------

    def _propose(
        self, kind: EntryKind, payload: bytes, future: asyncio.Future[ProposalResult] | None
    ) -> None:
        data, self._ahead = entry_for(
            self._ahead, term=self._state.term, kind=kind, payload=payload
        )
        self._tickets += 1
        proposal = _Open(
            ticket=self._tickets,
            index=self._ahead.index,
            term=self._ahead.term,
            chain=self._ahead.chain,
            future=future,
        )
        self._open[proposal.index] = proposal
        self._engine.submit(data, proposal.ticket)

    def _resolve(self, proposal: _Open, status: ProposalStatus) -> None:
        self._open.pop(proposal.index, None)
        if proposal.future is not None and not proposal.future.done():
            result = ProposalResult(status=status, index=proposal.index, term=proposal.term)
            proposal.future.set_result(result)

    @stops_node
    def _send_barrier(self) -> None:
        futures, self._reads = self._reads, []
        if not futures:
            return
        self._tickets += 1
        command = self._barrier(self._tickets)
        self._barriers[command] = futures
        self._engine.submit(command, self._tickets)

    def _barrier(self, ticket: int) -> bytes:
        """Return a command that is no entry, and no other incarnation's barrier."""
        return _READ_MAGIC + self._incarnation_id + ticket.to_bytes(8, "big")

    def _refuse_reads(self, leader_id: NodeId | None) -> None:
        futures = [*self._reads, *(f for each in self._barriers.values() for f in each)]
        self._reads = []
        self._barriers.clear()
        _refuse(futures, leader_id)

    def _notify_status(self) -> None:
        self._state_machine.on_role_change(self.status())

    def _record(self, event: str, **fields: int | str | list[str] | None) -> None:
        if self._trace is not None:
            self._trace.record(event, self._term_seen, **fields)


def _refuse(futures: Sequence[asyncio.Future[Index]], leader_id: NodeId | None) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(NotLeaderError(leader_id))
