"""The one asyncio shell around `raft.core`: a node of a replication group.

Place in the data path: the broker proposes and applies through `raft.replicated_log`, which this
class implements; peers' messages come and go through `raft.transport`.

The order in which a Ready is carried out is a contract (`raft.events`), tested on a recording
fake:

1. truncate and append the log file (no fsync yet);
2. send `messages`;
3. make hard state, then log, durable, in one thread, one round for all Readys that came while the
   last round was under way;
4. send `messages_after_sync`, in order; those of a Ready that persists nothing wait for the
   rounds under way;
5. feed `LogDurable` to the core, for what the log held when the round was begun;
6. apply up to `commit_index`, then resolve proposals and reads.

Work of one loop turn is gathered: at its end the trace is flushed, then messages leave in one
write per peer, then the next round of fsync begins.

Invariants:
- a failed write or fsync, a broken invariant and a state machine that raises all stop the node:
  nothing is sent after it, `wait_failed` tells it;
- a leader acts on nothing before the Tick that is due: after a pause it first finds out that it
  has lost its followers;
- the commit index that a checkpoint holds is durable on this node.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import logging
import random
import time
from collections import deque
from collections.abc import Callable

from raft.applier import Applier
from raft.core import Core
from raft.edge import Edge, stops_node
from raft.events import (
    ChangeMembership,
    ChangeRefused,
    Event,
    LogDurable,
    PeerUnreachable,
    Propose,
    ReadIndexRequest,
    ReadState,
    Ready,
    Receive,
    Role,
    Tick,
    TransferLeadership,
)
from raft.group_commit import GroupCommit, SyncRound
from raft.handshake import Identity
from raft.log_format import HEADER_SIZE
from raft.membership import Membership, MembershipChange
from raft.messages import (
    FetchEntries,
    FetchEntriesReply,
    Index,
    Introduce,
    Message,
    NodeId,
    PeerMessage,
    Term,
)
from raft.node_config import NodeConfig
from raft.node_store import NodeStore
from raft.open_calls import OpenProposals, OpenReads
from raft.ready_trace import ReadyTrace
from raft.replicated_log import (
    ChangeRefusedError,
    LogStatus,
    NotLeaderError,
    Phase,
    ProposalResult,
    RetentionBounds,
    Slot,
    StateMachine,
)
from raft.storage import Disk
from raft.transport import TcpTransport, Transport

__all__ = ["RaftNode"]

_LATE_TIMER_MS = 20
_LATE_TIMER_GRACE_MS = 2
_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG})

_log = logging.getLogger(__name__)


class RaftNode:
    """Implements `ReplicatedLog`. `disk` and `transport` are replaced in tests only."""

    def __init__(
        self,
        config: NodeConfig,
        state_machine: StateMachine,
        *,
        clock: Callable[[], float] = time.monotonic,
        disk: Disk | None = None,
        transport: Transport | None = None,
    ) -> None:
        self._config = config
        self._state_machine = state_machine
        self._clock = clock
        self._disk = disk
        self._transport: Transport = transport or TcpTransport(
            Identity(group=config.group, node_id=config.node_id, secret=config.secret),
            listen=config.listen,
            peers={peer: a for peer, a in config.peers.items() if peer != config.node_id},
            dial=config.dial,
        )
        self._background: asyncio.Task[None] | None = None
        self._proposals = OpenProposals()
        self._reads = OpenReads()
        self._commit_index: Index = 0  # as traced
        self._noop_index: Index = 0  # of the term led; it may propose once that is applied
        self._told: tuple[Role, Term, NodeId | None, bool] = (Role.FOLLOWER, 0, None, False)
        self._statuses: deque[LogStatus] = deque()
        self._change_refused: ChangeRefused | None = None  # the answer to the last change asked
        self._not_leading = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._turn_end_scheduled = False
        self._apply_scheduled = False
        self.edge = Edge(self.fail)
        self.stopped = True  # until started, and after a stop or a failure

    # --- start and stop ------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover, listen, join the group.

        Raises OSError (also StoreLockedError, WrongStoreError, and an address in use) and
        CorruptLogError; the node is as before then.
        """
        self._loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[BaseException] = self._loop.create_future()
        # On a thread: recovery of a long log takes seconds.
        self._store = store = await asyncio.to_thread(NodeStore, self._config, self._disk)
        self._segment_log = store.log
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(store.close)
            self._core = Core(
                self._config.raft,
                store.log,
                store.hard_state,
                random.Random(),
                self._now_ms(),
                commit_index=store.checkpoint.commit_index,
            )
            term = self._core.current_term
            self._told = (Role.FOLLOWER, term, None, False)
            self._trace = ReadyTrace(store.trace, store.log, self._config.node_id, term)
            self._trace.started(term, self._core.voters)
            store.write_checkpoint(self._core.commit_index, 0, clean=False)
            await self._transport.start(self._on_message, self._on_unreachable, store_id="")
            on_failure.pop_all()
        self._applier = Applier(store.log, self._state_machine, self._proposals, self._trace)
        self._group_commit = GroupCommit(store.log, store.hard_state_file, self._on_synced)
        self.stopped = False
        self._note_commit(self._core.commit_index)
        self._arm_timer()
        # The one task without a group: it outlives this call, `stop` and `fail` end it.
        self._background = asyncio.create_task(self._run_background(), name="raft-node")
        self._background.add_done_callback(self._on_background_done)

    async def stop(self) -> None:
        """Leave cleanly: hand leadership over, make everything appended durable, checkpoint.

        Safe to call after a failure, and twice.
        """
        if not self.stopped:
            await self._hand_over()
        was_running = not self.stopped
        self.stopped = True
        self._shut()
        if self._background is None:
            return
        self._background.cancel()
        await asyncio.wait([self._background])
        await self._group_commit.stop()
        self._background = None
        try:
            if was_running:
                # A failure here still tells that what was written may not be safe.
                await asyncio.to_thread(self._segment_log.sync)
                self._trace.flush()
                commit_index, applied_index = self._core.commit_index, self._applier.applied_index
                self._store.write_checkpoint(commit_index, applied_index, clean=True)
        finally:
            self._store.close()

    async def wait_failed(self) -> BaseException:
        return await asyncio.shield(self._failed)

    def fail(self, error: BaseException) -> None:
        """Stop for good: nothing is sent, appended or applied any more."""
        if self.stopped:
            return
        # A disk that fails is for a person to mend; anything else is a bug and shows its way here.
        trace = None if isinstance(error, OSError) and error.errno in _DISK_ERRORS else error
        _log.error("the node stops: %s: %s", type(error).__name__, error, exc_info=trace)
        self.stopped = True
        self._shut()
        if self._background is not None:
            self._background.cancel()
        if not self._failed.done():
            self._failed.set_result(error)

    def _shut(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._proposals.stop()
        self._reads.stop()

    async def _hand_over(self) -> None:
        """Give leadership to the voter that is nearest, if there is one; wait a little."""
        target = self._core.successor()
        if target is None:
            return
        self._step_entry(TransferLeadership(now_ms=self._now_ms(), target=target))
        try:
            async with asyncio.timeout(self._config.transfer_timeout_ms / 1000):
                await self._not_leading.wait()
        except TimeoutError:
            _log.info("%s did not take over in time", target)

    async def _run_background(self) -> None:
        """Connections and checkpoints, until the node stops."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._transport.run())
                group.create_task(self._checkpoint_regularly())
        finally:
            # Also after a failure: peers learn of it by the connections that break.
            await self._transport.stop()

    def _on_background_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if error is not None:
            self.fail(error)

    async def _checkpoint_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._config.checkpoint_interval_ms / 1000)
            # Not beyond what is durable here: what a crash leaves of the log must fit the hint.
            commit_index = min(self._core.commit_index, self._core.durable_index)
            if self._store.checkpoint.commit_index != commit_index:
                await asyncio.to_thread(
                    self._store.write_checkpoint,
                    commit_index,
                    self._applier.applied_index,
                    clean=False,
                )

    # --- what the broker calls -----------------------------------------------------------------

    def status(self) -> LogStatus:
        core = self._core
        return LogStatus(
            role=core.role,
            term=core.current_term,
            leader_id=core.leader_id,
            ready=self._is_ready(),
            first_index=self._segment_log.first_index,
            last_index=self._segment_log.last_index,
            commit_index=core.commit_index,
            applied_index=self._applier.applied_index,
            voters=core.voters,
            learners=core.configuration.membership.learner_ids,
            begin_position=0,
            writable=not self.stopped,
            phase=Phase.SERVING,
        )

    def propose(self, fill: Callable[[Slot], bytes]) -> asyncio.Future[ProposalResult]:
        """See `ReplicatedLog.propose`. ValueError also where too many proposals are open."""
        now_ms = self._now_ms()
        if not self.stopped:
            self._tick_entry(now_ms)
        if self.stopped or not self._is_ready():
            raise NotLeaderError(None if self.stopped else self._core.leader_id)
        if len(self._proposals) >= self._config.proposals_count_max:
            raise ValueError(f"{len(self._proposals)} proposals are open")
        log = self._segment_log
        slot = Slot(
            index=log.last_index + 1,
            term=self._core.current_term,
            position=log.end_position + HEADER_SIZE,
        )
        payload = fill(slot)
        if len(payload) > self._config.raft.entry_size_bytes_max:
            raise ValueError(
                f"payload of {len(payload)} bytes, at most "
                f"{self._config.raft.entry_size_bytes_max} are allowed"
            )
        future: asyncio.Future[ProposalResult] = self._loop.create_future()
        self._proposals.add(slot.index, slot.term, future)
        self._step_entry(Propose(now_ms=now_ms, payload=payload))
        return future

    async def read_index(self) -> Index:
        """See `ReplicatedLog.read_index`. NotLeaderError also where too many reads are open."""
        too_many = self._reads.count >= self._config.reads_count_max
        if self.stopped or not self._is_ready() or too_many:
            raise NotLeaderError(None if self.stopped else self._core.leader_id)
        future: asyncio.Future[Index] = self._loop.create_future()
        if self._reads.gather(future):
            self._loop.call_soon(self._ask_read_point)
        return await future

    def read(self, position: int, size: int) -> bytes:
        return self._segment_log.read(position, size)

    async def transfer_leadership(self, target: NodeId) -> None:
        """See `ReplicatedLog.transfer_leadership`."""
        core = self._core
        if self.stopped or core.role is not Role.LEADER:
            raise NotLeaderError(None if self.stopped else core.leader_id)
        if target not in core.progress:
            raise ValueError(f"{target} is no other voter of {self._config.group}")
        self._step_entry(TransferLeadership(now_ms=self._now_ms(), target=target))
        # The core gives a transfer up after this time, and goes on leading.
        async with asyncio.timeout(self._config.raft.election_timeout_ms_max / 1000):
            await self._not_leading.wait()

    def membership(self) -> Membership:
        return self._core.configuration.membership

    async def change_membership(self, change: MembershipChange) -> ProposalResult:
        """See `ReplicatedLog.change_membership`."""
        if self.stopped or not self._is_ready():
            raise NotLeaderError(None if self.stopped else self._core.leader_id)
        index = self._segment_log.last_index + 1
        self._change_refused = None
        self._step_entry(ChangeMembership(now_ms=self._now_ms(), change=change))
        if self._change_refused is not None:
            raise ChangeRefusedError(self._change_refused)
        if self.stopped or self._core.role is not Role.LEADER:
            raise NotLeaderError(None if self.stopped else self._core.leader_id)
        future: asyncio.Future[ProposalResult] = self._loop.create_future()
        self._proposals.add(index, self._core.current_term, future)
        return await future

    def retention_bounds(self) -> RetentionBounds:
        """See `ReplicatedLog.retention_bounds`."""
        return RetentionBounds(
            begin_position=0,
            end_position=self._segment_log.end_position,
            snapshot_position=0,
            follower_position=None,
        )

    async def retain_from(self, position: int) -> int:
        """See `ReplicatedLog.retain_from`."""
        return 0  # no snapshot is kept, so nothing may go

    # --- entries from the loop -----------------------------------------------------------------

    @stops_node
    def _on_message(self, message: PeerMessage) -> None:
        if isinstance(message, Introduce | FetchEntries | FetchEntriesReply):
            return  # talk between shells, which this one does not take part in yet
        self._trace.received(message)
        self._step(Receive(now_ms=self._now_ms(), message=message))

    @stops_node
    def _on_unreachable(self, peer: NodeId) -> None:
        self._step(PeerUnreachable(now_ms=self._now_ms(), peer=peer))

    @stops_node
    def _step_entry(self, event: Event) -> None:
        self._step(event)

    @stops_node
    def _tick_entry(self, now_ms: int) -> None:
        if now_ms >= self._core.next_deadline_ms:
            self._carry_out(self._core.step(Tick(now_ms=now_ms)))

    @stops_node
    def _on_timer(self, *, late: bool = False) -> None:
        self._timer = None
        now_ms = self._now_ms()
        overdue_ms = now_ms - self._core.next_deadline_ms
        if overdue_ms > _LATE_TIMER_MS and not late and self._core.role is not Role.LEADER:
            # The loop was held up, and the leader's heartbeat may wait in the socket: one look.
            again = functools.partial(self._on_timer, late=True)
            self._timer_at_ms = now_ms + _LATE_TIMER_GRACE_MS
            self._timer = self._loop.call_later(_LATE_TIMER_GRACE_MS / 1000, again)
            return
        if overdue_ms >= 0:
            self._carry_out(self._core.step(Tick(now_ms=now_ms)))
        self._arm_timer()

    @stops_node
    def _ask_read_point(self) -> None:
        request_id = self._reads.ask(time.monotonic_ns())
        self._step(ReadIndexRequest(now_ms=self._now_ms(), request_id=request_id))

    @stops_node
    def _on_synced(self, done: SyncRound, error: BaseException | None) -> None:
        """A round of fsync is over: steps 4 and 5 of the contract."""
        if error is not None:
            raise error
        term, durable = self._core.current_term, done.durable
        if done.self_vote is not None:
            self._trace.voted_for_self(term, done.self_vote)
        if durable is not None:
            self._trace.synced(term, durable.index)
        for message in done.messages:
            # What speaks for a term that has passed meanwhile would only be refused.
            if message.term >= term:
                self._send(message)
        self._trace.saved(done.hard_state)
        if durable is not None:
            self._step(LogDurable(now_ms=self._now_ms(), index=durable.index, term=durable.term))
        self._schedule_turn_end()

    @stops_node
    def _end_turn(self) -> None:
        """Trace, then messages, then the next round of fsync."""
        self._turn_end_scheduled = False
        self._trace.flush()
        self._transport.flush()
        self._group_commit.begin()

    @stops_node
    def _apply_turn(self) -> None:
        """Step 6, bounded in entries and time."""
        self._apply_scheduled = False
        self._schedule_turn_end()  # before the proposals' callers wake: the trace goes first
        self._applier.turn(self._core.commit_index, self._core.current_term)
        self._reads.applied(self._applier.applied_index)
        self._tell_status()
        if self._applier.applied_index < self._core.commit_index:
            self._schedule_apply()

    @stops_node
    def _tell_statuses(self) -> None:
        while self._statuses:
            self._state_machine.on_role_change(self._statuses.popleft())

    # --- carrying out --------------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        core = self._core
        if core.role is Role.LEADER and event.now_ms >= core.next_deadline_ms:
            # After a pause a leader first finds out whether it still is one.
            self._carry_out(core.step(Tick(now_ms=event.now_ms)))
        self._carry_out(core.step(event))
        self._arm_timer()

    def _carry_out(self, ready: Ready) -> None:
        self._schedule_turn_end()  # before anybody who is answered wakes: the trace goes first
        role_before = self._told[0]
        self._trace.stepped(ready)
        if ready.hard_state is not None:
            # Before the append: a vote for itself stands on the log as the candidate had it.
            own = ready.hard_state.voted_for == self._config.node_id
            self._group_commit.want_hard_state(ready.hard_state, own_vote=own)
        if ready.entries or ready.truncate_from is not None:
            self._group_commit.want_log()
            self._write_log(ready)
        for message in ready.messages:
            self._send(message)
        if ready.messages_after_sync and not self._group_commit.defer(ready.messages_after_sync):
            for message in ready.messages_after_sync:
                self._send(message)
        if ready.role is not Role.LEADER:
            self._not_leading.set()
        elif role_before is not Role.LEADER:
            self._not_leading.clear()
            self._noop_index = self._segment_log.last_index
        if ready.commit_index > self._commit_index:
            self._note_commit(ready.commit_index)
        if ready.role is not Role.LEADER and len(self._proposals):
            self._proposals.leadership_lost(ready.commit_index, self._segment_log.term)
        if ready.change_refused is not None:
            self._change_refused = ready.change_refused
        for read_state in ready.read_states:
            self._on_read_state(read_state)
        self._tell_status()

    def _write_log(self, ready: Ready) -> None:
        log = self._segment_log
        if ready.truncate_from is not None:
            log.truncate_from(ready.truncate_from)
            self._trace.truncated(ready.term, ready.truncate_from)
            self._group_commit.log_truncated()
        log.append(ready.entries)
        self._trace.appended(ready.term, ready.entries)

    def _send(self, message: Message) -> None:
        self._trace.sent(self._core.current_term, message)
        self._transport.send(message)

    def _note_commit(self, commit_index: Index) -> None:
        self._commit_index = commit_index
        if commit_index:
            self._trace.committed(self._core.current_term, commit_index)
        if self._applier.applied_index < commit_index:
            self._schedule_apply()

    def _on_read_state(self, state: ReadState) -> None:
        batch = self._reads.answered(state.request_id)
        if state.index is None:
            self._reads.refuse(batch.futures, self._core.leader_id)
            return
        self._trace.read(self._core.current_term, batch.t_begin, state.index)
        self._reads.await_applied(batch.futures, state.index)
        self._reads.applied(self._applier.applied_index)

    def _is_ready(self) -> bool:
        return self._core.ready and self._applier.applied_index >= self._noop_index

    def _tell_status(self) -> None:
        core = self._core
        told = (core.role, core.current_term, core.leader_id, self._is_ready())
        if told == self._told:
            return
        self._told = told
        if not self._statuses:
            self._loop.call_soon(self._tell_statuses)
        self._statuses.append(self.status())

    # --- scheduling ----------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _schedule_turn_end(self) -> None:
        if not self._turn_end_scheduled:
            self._turn_end_scheduled = True
            self._loop.call_soon(self._end_turn)

    def _schedule_apply(self) -> None:
        if not self._apply_scheduled:
            self._apply_scheduled = True
            self._loop.call_soon(self._apply_turn)

    def _arm_timer(self) -> None:
        """One timer, armed anew only where the deadline has come nearer."""
        deadline_ms = self._core.next_deadline_ms
        if self._timer is not None:
            if self._timer_at_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = deadline_ms
        delay_ms = max(1, deadline_ms - self._now_ms())
        self._timer = self._loop.call_later(delay_ms / 1000, self._on_timer)
