"""Carries out what `raft.core.core` decides, in the order that is its contract; asyncio.

Place in the data path: `raft.node.node` creates one once its store may take part in the group, and
passes it the events of peers, disk and broker. Timers, the trace and the open calls are here.

The order in which a Ready is carried out is a contract (`raft.events`), tested on a recording fake:

1. where a snapshot replaces the log's beginning, reset the log, durably, and restore the state;
   else truncate and append the log file (no fsync yet);
2. send `messages`;
3. make hard state, then log, durable beside the loop, one round for all Readys that came while the
   last round was under way;
4. send `messages_after_sync`, in order; those of a Ready that persists nothing wait for the
   rounds under way;
5. pass `HardStateDurable` and `LogDurable` to the core, for what the log held when the round
   started;
6. apply up to `commit_index`, then resolve proposals and reads.

Work of one turn (`raft.turn`) is batched: at its end the trace is flushed, then messages leave in
one write per peer, then the next round of fsync starts, then proposals are answered.

Invariants:
- a failed write or fsync, a broken invariant and an exception of the state machine all stop the
  node: nothing is sent after it;
- a leader acts on nothing before the Tick that is due: after a pause it first detects that it has
  lost its followers (`raft.node.attended_clock` says which pauses count);
- entries are accepted only where the log has room for them; a leader without room, or one whose
  fsync hangs, hands leadership to a better follower. Room for the entries that a leader writes of
  its own accord is reserved before the node campaigns, and when it wins.

Over 500 lines, because every entry that may step the core, and all that one Ready sets off, stand
together: their order is the contract.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import time
from collections import deque
from collections.abc import Callable

from raft.core.core import Core
from raft.events import (
    ChangeMembership,
    Event,
    HardStateDurable,
    Install,
    InstallChunk,
    LogDurable,
    PeerUnreachable,
    Propose,
    ReadIndexRequest,
    ReadState,
    Ready,
    Receive,
    ReplayChanged,
    Role,
    RoomChanged,
    Tick,
    TransferLeadership,
)
from raft.fail_stop import FailStop, stops_node
from raft.log.damage import DamagedLogError
from raft.log.log_format import HEADER_SIZE
from raft.log.readable_log import ReadableLog
from raft.membership import Configuration, MembershipChange
from raft.messages import AppendEntries, Index, InstallSnapshot, Message, NodeId, Term
from raft.node.applier import Applier
from raft.node.attended_clock import AttendedClock
from raft.node.group_commit import GroupCommit, SyncRound, SyncThread
from raft.node.node_config import NodeConfig
from raft.node.open_calls import OnProposed, OpenProposals, OpenReads, resolve
from raft.node.trace_events import TraceEvents
from raft.peers.transport import Transport
from raft.repair.reminders import Reminders
from raft.replicated_log import (
    ChangeRefusedError,
    LogFullError,
    LogStatus,
    NotLeaderError,
    Phase,
    ProposalResult,
    RestorableStateMachine,
    Slot,
)
from raft.stalls import Stalls, section
from raft.store.node_store import NodeStore
from raft.store.restore import RestoredState
from raft.turn import Turn

__all__ = ["CoreShell"]

_LATE_TIMER_MS = 20
_LATE_TIMER_GRACE_MS = 2
_DAMAGE_RETRY_S = 0.1
_APPLY_WAITS_S_MAX = 0.005  # as long as a notice of a commit does
_APPLY_WAITS_ENTRIES_MAX = 32
_LAG_BEGINS = 1_000  # entries to be applied: some tenths of a second
_LAG_ENDS = 50
_STEADY = frozenset({Receive, Propose, LogDurable})
"""Events that change nothing which the shell knows of or tells, beside what their Ready says."""
_ROOM_RETRY_MS = 100
"""How often a full disk is tried for room, whatever arrives meanwhile."""
_ROOM_SIZE_MIN = 64 << 10
"""Kept free behind every entry for the core's own entries, a no-op and a configuration."""

_log = logging.getLogger(__name__)


class CoreShell:
    """One core with all that it drives. `stopped` and `fail_stop` are for `stops_node`.

    `on_configuration` is notified of each configuration in force, the first included;
    `on_segment_end` is the applier's; `on_install` is called once the log was reset, and restores
    the state; `on_chunk_wanted` and `on_chunk` are for the transfer of snapshots.
    """

    def __init__(
        self,
        config: NodeConfig,
        store: NodeStore,
        restored: RestoredState,
        state_machine: RestorableStateMachine,
        transport: Transport,
        *,
        configuration: Configuration | None,
        clock: Callable[[], float],
        fail: Callable[[BaseException], None],
        on_configuration: Callable[[Configuration], None],
        on_segment_end: Callable[[Index], None],
        on_install: Callable[[Install], None],
        on_chunk_wanted: Callable[[InstallChunk], None],
        on_chunk: Callable[[InstallSnapshot], None],
        turn: Turn,
        stalls: Stalls | None = None,
    ) -> None:
        self._turn = turn
        self._flush_section = section(stalls, "flush")
        self._append_section = section(stalls, "log append")
        self._apply_section = section(stalls, "apply")
        self._config = config
        self._log = log = store.log
        self._state_machine = state_machine
        self._transport = transport
        self._clock = AttendedClock(
            clock,
            period_ms=max(1, config.raft.heartbeat_ms // 2),
            budget_ms=config.raft.election_timeout_ms_max,
        )
        self.now_ms = self._clock.now_ms
        """The core's time: it includes stalls of the loop only up to a bound."""
        self._on_configuration = on_configuration
        self._on_install = on_install
        self._on_chunk_wanted = on_chunk_wanted
        self._on_chunk = on_chunk
        self._store_id = store.identity.store_id
        self._loop = asyncio.get_running_loop()
        self.core = core = Core(
            config.raft,
            ReadableLog(log),
            store.hard_state,
            random.Random(),
            self.now_ms(),
            commit_index=restored.commit_index,
            configuration=configuration,
            store_id=self._store_id,
        )
        self._told = (Role.FOLLOWER, core.current_term, core.leader_id, False, True)
        self.trace = TraceEvents(store.trace, log, config.node_id, core.current_term)
        self._is_traced = store.trace is not None  # asked for each message
        self._proposals = OpenProposals()
        self._reads = OpenReads()
        self.applier = Applier(
            log, state_machine, self._proposals, self.trace, on_segment_end=on_segment_end
        )
        self.applier.begin_at(restored.applied_index, restored.state_index)
        self._sync_thread = SyncThread()
        self.group_commit = GroupCommit(
            log, store.hard_state_file, self._on_synced, self._sync_thread.carry_out
        )
        self._set_out()
        self.fail_stop = FailStop(fail)
        self.stopped = False

    def _set_out(self) -> None:
        """Note that nothing is known of the core yet, and nothing scheduled."""
        self._commit_index: Index = 0  # as traced
        self._noop_index: Index = 0  # of the term led; proposals are accepted once it is applied
        self._statuses: deque[LogStatus] = deque()
        self._not_leading = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0  # never behind the core's deadline
        self._look_timer: asyncio.TimerHandle | None = None
        self._apply_timer: asyncio.TimerHandle | None = None
        self._turn_end_scheduled = self._apply_scheduled = False
        self._sends = False  # what the turn's end has to flush
        self._reminders = Reminders()
        self._is_replaying = False
        self.writable = self._can_begin = True  # the latter: room for a new leader's first entries
        self._room_again_ms = 0  # a full disk is not tried before

    # --- lifecycle -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Start to take part in the group."""
        core = self.core
        self.trace.started(core.current_term, core.voters)
        self._on_configuration(core.configuration)
        self._note_commit(core.commit_index)
        self._note_replay()
        self._arm_timer()
        self._look()

    def shut(self) -> None:
        """Stop all work and answer the open calls."""
        self.stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        if self._apply_timer is not None:
            self._apply_timer.cancel()
            self._apply_timer = None
        self._proposals.stop()
        self._reads.stop()

    async def end_rounds(self) -> None:
        """Start no more rounds of fsync, wait for the one under way, end the thread."""
        await self.group_commit.stop()
        await self._sync_thread.stop()

    # --- calls of the broker -------------------------------------------------------------------

    def status(self) -> LogStatus:
        core, log = self.core, self._log
        return LogStatus(
            role=core.role,
            term=core.current_term,
            leader_id=core.leader_id,
            ready=self._is_ready(),
            first_index=log.first_index,
            last_index=log.last_index,
            commit_index=core.commit_index,
            applied_index=self.applier.applied_index,
            voters=core.voters,
            learners=core.configuration.membership.learner_ids,
            begin_position=log.base.position,
            writable=self.writable and not self.stopped,
            phase=Phase.SERVING,
            store_id=self._store_id,
        )

    def propose(self, fill: Callable[[Slot], bytes], on_done: OnProposed) -> None:
        """See `ReplicatedLog.propose_then`. ValueError also where too many proposals are open."""
        now_ms = self.now_ms()
        if now_ms >= self._timer_at_ms and not self.stopped:
            self._tick_entry(now_ms)
        self._check_ready()
        if len(self._proposals) >= self._config.proposals_count_max:
            raise ValueError(f"{len(self._proposals)} proposals are open")
        if not self.writable:
            raise LogFullError
        slot = Slot(
            index=self._log.last_index + 1,
            term=self.core.current_term,
            position=self._log.end_position + HEADER_SIZE,
        )
        payload = fill(slot)
        if len(payload) > self._config.raft.entry_size_bytes_max:
            raise ValueError(
                f"payload of {len(payload)} bytes, at most "
                f"{self._config.raft.entry_size_bytes_max} are allowed"
            )
        if not self._has_room(HEADER_SIZE + len(payload)):
            raise LogFullError
        self._proposals.add(slot.index, slot.term, on_done)
        self.step_entry(Propose(now_ms=now_ms, payload=payload))

    async def read_index(self) -> Index:
        """See `ReplicatedLog.read_index`. NotLeaderError also where too many reads are open."""
        self._check_ready()
        if self._reads.count >= self._config.reads_count_max:
            raise NotLeaderError(self.core.leader_id)
        future: asyncio.Future[Index] = self._loop.create_future()
        if self._reads.gather(future):
            self._loop.call_soon(self._ask_read_point)
        return await future

    async def change_membership(self, change: MembershipChange) -> ProposalResult:
        """See `ReplicatedLog.change_membership`."""
        now_ms = self.now_ms()
        if not self.stopped:
            self._tick_entry(now_ms)
        if self.stopped or self.core.role is not Role.LEADER:
            raise NotLeaderError(None if self.stopped else self.core.leader_id)
        refused = self.core.change_refusal(change, now_ms)
        if refused is not None:
            raise ChangeRefusedError(refused)
        if not self._has_room(_ROOM_SIZE_MIN):
            raise LogFullError
        outcome: asyncio.Future[ProposalResult] = self._loop.create_future()
        on_done = functools.partial(resolve, outcome)
        self._proposals.add(self._log.last_index + 1, self.core.current_term, on_done)
        self.step_entry(ChangeMembership(now_ms=now_ms, change=change))
        return await outcome

    async def transfer_leadership(self, target: NodeId) -> None:
        """See `ReplicatedLog.transfer_leadership`."""
        core = self.core
        if self.stopped or core.role is not Role.LEADER:
            raise NotLeaderError(None if self.stopped else core.leader_id)
        if target == self._config.node_id or target not in core.voters:
            raise ValueError(f"{target} is no other voter of {self._config.group}")
        self.step_entry(TransferLeadership(now_ms=self.now_ms(), target=target))
        # The core gives a transfer up after this time, and goes on leading.
        async with asyncio.timeout(self._config.raft.election_timeout_ms_max / 1000):
            await self._not_leading.wait()

    def follower_position(self) -> int | None:
        """Position of the first entry that the slowest live follower lacks; None unless leader."""
        core, log = self.core, self._log
        if core.role is not Role.LEADER:
            return None
        live_ms = self.now_ms() - self._config.raft.election_timeout_ms_max
        matches = [
            peer.match_index for peer in core.progress.values() if peer.contact_ms >= live_ms
        ]
        slowest = min([*matches, log.last_index])
        if slowest <= log.base.index:
            return log.base.position
        return log.entry_end(slowest)

    async def hand_over(self) -> None:
        """Hand leadership to the best follower, if there is one; wait a little."""
        target = self.core.successor()
        if target is None:
            return
        self.step_entry(TransferLeadership(now_ms=self.now_ms(), target=target))
        try:
            async with asyncio.timeout(self._config.transfer_timeout_ms / 1000):
                await self._not_leading.wait()
        except TimeoutError:
            _log.info("%s did not take over in time", target)

    # --- entries from the loop -----------------------------------------------------------------

    def on_message(self, message: Message) -> None:
        """Take a message. Caller's duty: it stops the node on whatever is raised."""
        if self.stopped:
            return
        if self._is_traced:
            self.trace.received(message)
        if type(message) is AppendEntries and message.entries and self.writable:
            self._has_room(sum([HEADER_SIZE + len(entry.payload) for entry in message.entries]))
        if not self.stopped:
            self._step(Receive(now_ms=self.now_ms(), message=message))

    @stops_node
    def on_unreachable(self, peer: NodeId) -> None:
        self._step(PeerUnreachable(now_ms=self.now_ms(), peer=peer))

    @stops_node
    def step_entry(self, event: Event) -> None:
        self._step(event)

    @stops_node
    def look_for_room(self) -> None:
        """Reserve room after a full disk; called periodically."""
        if not self.writable and self._log.reserve(2 * _ROOM_SIZE_MIN):
            self._can_begin = True
            self._set_writable(writable=True)

    @stops_node
    def _tick_entry(self, now_ms: int) -> None:
        if now_ms >= self.core.next_deadline_ms:
            self._tick(now_ms)

    @stops_node
    def _on_timer(self, *, late: bool = False) -> None:
        self._timer = None
        now_ms = self.now_ms()
        overdue_ms = now_ms - self.core.next_deadline_ms
        if overdue_ms > _LATE_TIMER_MS and not late and self.core.role is not Role.LEADER:
            # The loop was delayed, and the leader's heartbeat may wait unread in the socket.
            again = functools.partial(self._on_timer, late=True)
            self._timer_at_ms = 0  # before any deadline: no event arms it anew
            self._timer = self._loop.call_later(_LATE_TIMER_GRACE_MS / 1000, again)
            return
        if overdue_ms >= 0:
            self._tick(now_ms)
        self._leave_a_hanging_disk()
        self._arm_timer()

    @stops_node
    def _ask_read_point(self) -> None:
        request_id = self._reads.ask(time.monotonic_ns())
        self._step(ReadIndexRequest(now_ms=self.now_ms(), request_id=request_id))

    @stops_node
    def _on_synced(self, done: SyncRound, error: BaseException | None) -> None:
        """Finish a round of fsync: steps 4 and 5 of the contract."""
        if error is not None:
            raise error
        self._turn.enter()
        try:
            self._finish_round(done)
        finally:
            self._turn.leave()

    def _finish_round(self, done: SyncRound) -> None:
        term, durable = self.core.current_term, done.durable
        if done.self_vote is not None:
            self.trace.voted_for_self(term, done.self_vote)
        if durable is not None:
            self.trace.synced(term, durable.index)
        for message in done.messages:
            # A message of an earlier term would only be refused.
            if message.term >= term:
                self._send(message)
        self.trace.saved(done.hard_state)
        now_ms = self.now_ms()
        if done.hard_state is not None:
            self._step(HardStateDurable(now_ms=now_ms, term=done.hard_state.current_term))
        if durable is not None:
            self._step(LogDurable(now_ms=now_ms, index=durable.index, term=durable.term))
        self._schedule_turn_end()

    @stops_node
    def _end_turn(self) -> None:
        """Flush the trace, then the messages, then start the next round of fsync, then answer."""
        self._turn_end_scheduled = False
        if self._sends or self._is_traced:
            self._sends = False
            with self._flush_section:
                self.trace.flush()
                self._transport.flush()
        self.group_commit.begin()
        if self._proposals.has_outcomes:
            self._proposals.deliver()

    @stops_node
    def _apply_turn(self) -> None:
        """Carry out step 6, bounded in entries and time."""
        self._apply_scheduled = False
        applied_before = self.applier.applied_index
        try:
            with self._apply_section:
                self.applier.turn(self.core.commit_index, self.core.current_term)
        except DamagedLogError as error:
            if self._reminders.due("damage", error.damage.last_index, self.now_ms()):
                _log.error("nothing is applied until it is mended or dropped: %s", error)
            self._apply_scheduled = True
            self._loop.call_later(_DAMAGE_RETRY_S, self._apply_turn)
            return
        # Before the callers of proposals and reads wake: the trace goes first.
        if self._is_traced or self._proposals.has_outcomes:
            self._schedule_turn_end()
        applied_index = self.applier.applied_index
        self._reads.applied(applied_index)
        if applied_before < self._noop_index:
            self._tell_status()
        self._note_replay()
        if applied_index < self.core.commit_index:
            self._schedule_apply(later=True)

    def _note_replay(self) -> None:
        """Notify the core when the lag of application starts or stops to keep it from serving."""
        lag = self.core.commit_index - self.applier.applied_index
        if self._is_replaying != (lag > (_LAG_ENDS if self._is_replaying else _LAG_BEGINS)):
            self._is_replaying = not self._is_replaying
            self._step(ReplayChanged(now_ms=self.now_ms(), replaying=self._is_replaying))

    @stops_node
    def _tell_statuses(self) -> None:
        while self._statuses:
            self._state_machine.on_role_change(self._statuses.popleft())

    # --- carrying out a Ready ------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        core = self.core
        if core.role is not Role.LEADER:
            self._keep_room_to_begin(event.now_ms)
        elif event.now_ms >= self._timer_at_ms and event.now_ms >= core.next_deadline_ms:
            self._tick(event.now_ms)  # a leader first checks whether it still is one
        ready = core.step(event)
        may_tell = type(event) not in _STEADY or self._is_news(ready)
        if may_tell or not ready.is_quiet:
            self._carry_out(ready, may_tell=may_tell)
            self._arm_timer()

    def _is_news(self, ready: Ready) -> bool:
        """Return whether it says anything but what the last one did, effects aside."""
        told = self._told
        return (
            ready.commit_index != self._commit_index
            or ready.role is not told[0]
            or ready.term != told[1]
            or ready.leader_id != told[2]
        )

    def _tick(self, now_ms: int) -> None:
        if self.core.role is not Role.LEADER:
            self._keep_room_to_begin(now_ms)
        self._carry_out(self.core.step(Tick(now_ms=now_ms)))

    def _carry_out(self, ready: Ready, *, may_tell: bool = True) -> None:
        """`may_tell`: whether the status may be another one than before."""
        if not ready.is_quiet:
            self._schedule_turn_end()  # before any caller wakes: the trace goes first
        role_before = self._told[0]
        if self._is_traced:
            self.trace.stepped(ready)
        if ready.hard_state is not None:
            # Before the append: a vote for itself refers to the log as the candidate had it.
            own = ready.hard_state.voted_for == self._config.node_id
            self.group_commit.want_hard_state(ready.hard_state, own_vote=own)
        # Step 1; step 3 is the next round of `group_commit`.
        if ready.install is not None:
            self._install(ready.install, ready.term)
        elif ready.entries or ready.truncate_from is not None:
            self.group_commit.want_log()
            with self._append_section:
                self._write_log(ready)
        if ready.configuration is not None:
            self.trace.configured(ready.term, ready.configuration)
            self._on_configuration(ready.configuration)
        for message in ready.messages:  # step 2
            self._send(message)
        # Step 4: at once only where no round is under way or due.
        if ready.messages_after_sync and not self.group_commit.defer(ready.messages_after_sync):
            for message in ready.messages_after_sync:
                self._send(message)
        for chunk in ready.install_chunks:
            self._on_chunk_wanted(chunk)
        if ready.received_chunk is not None:
            self._on_chunk(ready.received_chunk)
        if ready.role is not Role.LEADER:
            self._not_leading.set()
        elif role_before is not Role.LEADER:
            self._not_leading.clear()
            self._noop_index = self._log.last_index
        if ready.commit_index > self._commit_index:
            # A follower that is kept busy applies several entries at once: for one it would cost
            # as much as writing it did.
            may_wait = ready.role is Role.FOLLOWER and bool(ready.entries)
            self._note_commit(ready.commit_index, may_wait=may_wait)
        if ready.role is not Role.LEADER and len(self._proposals):
            self._proposals.leadership_lost(ready.commit_index, self._log.term)
        for read_state in ready.read_states:
            self._on_read_state(read_state)
        if ready.is_quiet:
            self._schedule_turn_end()  # of a mere commit: behind what it has let apply
        if may_tell:
            self._tell_status()

    def _write_log(self, ready: Ready) -> None:
        log = self._log
        if ready.truncate_from is not None:
            log.truncate_from(ready.truncate_from)
            self.trace.truncated(ready.term, ready.truncate_from)
            self.group_commit.log_truncated()
        log.append(ready.entries)
        if self._is_traced:
            self.trace.appended(ready.term, ready.entries)

    def _install(self, install: Install, term: Term) -> None:
        """Reset the log to the base, dropping all entries, and restore the snapshot's state."""
        self.group_commit.log_truncated()
        self._log.reset(install.base)
        self._on_install(install)
        self.applier.begin_at(install.base.index, install.snapshot_index)
        self.trace.installed(term, install.base)
        self._commit_index = max(self._commit_index, install.base.index)

    def _send(self, message: Message) -> None:
        self._sends = True
        if self._is_traced:
            self.trace.sent(self.core.current_term, message)
        self._transport.send(message)

    def _note_commit(self, commit_index: Index, *, may_wait: bool = False) -> None:
        self._commit_index = commit_index
        if self._is_traced and commit_index > self._log.base.index:
            self.trace.committed(self.core.current_term, commit_index)
        lag = commit_index - self.applier.applied_index
        if lag > 0 and may_wait and lag < _APPLY_WAITS_ENTRIES_MAX:
            if self._apply_timer is None and not self._apply_scheduled:
                self._apply_timer = self._loop.call_later(_APPLY_WAITS_S_MAX, self._apply_waiting)
        elif lag > 0:
            self._schedule_apply()

    @stops_node
    def _apply_waiting(self) -> None:
        self._schedule_apply()

    def _on_read_state(self, state: ReadState) -> None:
        batch = self._reads.answered(state.request_id)
        if state.index is None:
            self._reads.refuse(batch.futures, self.core.leader_id)
            return
        self.trace.read(self.core.current_term, batch.t_begin, state.index)
        self._reads.await_applied(batch.futures, state.index)
        self._reads.applied(self.applier.applied_index)

    def _is_ready(self) -> bool:
        return (
            not self.stopped and self.core.ready and self.applier.applied_index >= self._noop_index
        )

    def _check_ready(self) -> None:
        if not self._is_ready():
            raise NotLeaderError(None if self.stopped else self.core.leader_id)

    def _tell_status(self) -> None:
        core = self.core
        told = (core.role, core.current_term, core.leader_id, self._is_ready(), self.writable)
        if told == self._told:
            return
        self._told = told
        if not self._statuses:
            self._loop.call_soon(self._tell_statuses)
        self._statuses.append(self.status())

    # --- room, and a disk that hangs -----------------------------------------------------------

    def _has_room(self, size: int) -> bool:
        """Return whether the log has room for `size` more bytes; notify the core of a change."""
        has_room = False
        with self.fail_stop:
            has_room = self._log.reserve(size + _ROOM_SIZE_MIN)
            if not has_room and self.writable:
                self._set_writable(writable=False)
        return has_room

    def _keep_room_to_begin(self, now_ms: int) -> None:
        """Reserve room for a new leader's first entries: any event may make this node the leader,
        and the core writes them at once. A start, a truncation and an install give back what was
        reserved, and another process may have it now. Room once reserved costs no system call; a
        full disk costs one each time."""
        if not self._can_begin:
            if now_ms < self._room_again_ms:
                return
            self._room_again_ms = now_ms + _ROOM_RETRY_MS
        if self._log.reserve(_ROOM_SIZE_MIN) == self._can_begin:
            return
        self._can_begin = not self._can_begin
        if not self._can_begin:
            self._room_again_ms = now_ms + _ROOM_RETRY_MS
            _log.warning("the log has no room for what a leader begins with")
            self.writable = False
        event = RoomChanged(now_ms=now_ms, writable=self.writable, can_begin=self._can_begin)
        self._carry_out(self.core.step(event))

    def _set_writable(self, *, writable: bool) -> None:
        _log.warning("the log has %s", "room again" if writable else "no room for more entries")
        self.writable = writable
        now_ms = self.now_ms()
        self._step(RoomChanged(now_ms=now_ms, writable=writable, can_begin=self._can_begin))
        if not writable:
            self._leave_to_a_better_one("has no room")

    def _leave_a_hanging_disk(self) -> None:
        """Hand over if an fsync outlasts an election: meanwhile nothing is acknowledged."""
        limit_s = self._config.raft.election_timeout_ms_max / 1000
        if self.group_commit.running_for_s > limit_s:
            self._leave_to_a_better_one("waits for its disk")

    def _leave_to_a_better_one(self, why: str) -> None:
        core = self.core
        target = core.successor()
        if target is not None and core.progress[target].writable and core.ready:
            _log.warning("this leader %s: handing leadership to %s", why, target)
            self._step(TransferLeadership(now_ms=self.now_ms(), target=target))

    def _look(self) -> None:
        """Note that the loop runs: a long gap between two calls is a stall."""
        self._clock.look()
        self._look_timer = self._loop.call_later(self._clock.period_ms / 1000, self._look)

    # --- scheduling ----------------------------------------------------------------------------

    def _schedule_turn_end(self) -> None:
        if not self._turn_end_scheduled:
            self._turn_end_scheduled = True
            self._turn.at_end(self._end_turn)

    def _schedule_apply(self, *, later: bool = False) -> None:
        """Apply at the end of this turn; `later`: in the loop's next one, so that what has waited
        meanwhile is read."""
        if self._apply_timer is not None:
            self._apply_timer.cancel()
            self._apply_timer = None
        if not self._apply_scheduled:
            self._apply_scheduled = True
            (self._turn.soon if later else self._turn.at_end)(self._apply_turn)

    def _arm_timer(self) -> None:
        """Arm the one timer, anew only where the deadline has come nearer. The grace of a late
        timer is waited for whatever else happens meanwhile."""
        deadline_ms = self.core.next_deadline_ms
        if self._timer is not None:
            if self._timer_at_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_at_ms = deadline_ms
        delay_ms = max(1, deadline_ms - self.now_ms())
        self._timer = self._loop.call_later(delay_ms / 1000, self._on_timer)
