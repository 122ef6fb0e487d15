"""Carries out what `raft.core.core` decides, in the order that is its contract; asyncio.

Place in the data path: `raft.node.node` creates one once its store may take part in the group, and
passes it the events of peers, disk and broker. Every entry that may step the core, and all that one
Ready sets off, stand here together: their order is the contract.

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
  its own accord is reserved before the node campaigns, and when it wins (`raft.node.log_room`).
"""

from __future__ import annotations

import asyncio
import functools
import random
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
    Ready,
    Receive,
    Role,
    RoomChanged,
    Tick,
)
from raft.fail_stop import FailStop, stops_node
from raft.log.log_format import HEADER_SIZE
from raft.log.readable_log import ReadableLog
from raft.membership import Configuration, MembershipChange
from raft.messages import AppendEntries, Index, InstallSnapshot, Message, NodeId, Term
from raft.node.applier import Applier
from raft.node.apply_schedule import WAITING_ENTRIES_MAX, ApplySchedule
from raft.node.attended_clock import AttendedClock
from raft.node.core_timer import CoreTimer
from raft.node.group_commit import GroupCommit, SyncRound, SyncThread
from raft.node.leadership_transfer import LeadershipTransfer
from raft.node.log_room import ROOM_SIZE_MIN, LogRoom
from raft.node.node_config import NodeConfig
from raft.node.node_status import NodeStatus
from raft.node.open_proposals import OnProposed, OpenProposals, resolve
from raft.node.read_points import ReadPoints
from raft.node.trace_events import TraceEvents
from raft.peers.transport import Transport
from raft.replicated_log import (
    ChangeRefusedError,
    LogFullError,
    NotLeaderError,
    ProposalResult,
    RestorableStateMachine,
    Slot,
)
from raft.stalls import Stalls, section
from raft.store.node_store import NodeStore
from raft.store.restore import RestoredState
from raft.turn import Turn

__all__ = ["CoreShell"]

_STEADY = frozenset({Receive, Propose, LogDurable})
"""Events that change nothing which the shell knows of or notifies, beside what their Ready says."""


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
        self._turn, self._turn_end_scheduled = turn, False
        self._flush_section = section(stalls, "flush")
        self._append_section = section(stalls, "log append")
        self._config = config
        self._log = log = store.log
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
        self.core = core = Core(
            config.raft,
            ReadableLog(log),
            store.hard_state,
            random.Random(),
            self.now_ms(),
            commit_index=restored.commit_index,
            configuration=configuration,
            store_id=store.identity.store_id,
        )
        self.trace = TraceEvents(store.trace, log, config.node_id, core.current_term)
        self._is_traced = store.trace is not None  # read for each message
        self._proposals = OpenProposals()
        self.applier = Applier(
            log, state_machine, self._proposals, self.trace, on_segment_end=on_segment_end
        )
        self.applier.begin_at(restored.applied_index, restored.state_index)
        self._sync_thread = SyncThread()
        self.group_commit = GroupCommit(
            log, store.hard_state_file, self._on_synced, self._sync_thread.carry_out
        )
        self.fail_stop = FailStop(fail)
        self.stopped = False
        self._commit_index: Index = 0  # as traced
        self._sends = False  # what the turn's end has to flush
        self._create_parts(state_machine, store.identity.store_id, stalls)

    def _create_parts(
        self, state_machine: RestorableStateMachine, store_id: str, stalls: Stalls | None
    ) -> None:
        """Create what calls back into this shell, or works on its core."""
        core, now_ms, fail_stop = self.core, self.now_ms, self.fail_stop
        self._room = LogRoom(self._log, now_ms, fail_stop, self._on_room_changed)
        self.status = NodeStatus(
            core,
            self._log,
            self.applier,
            self._room,
            state_machine,
            fail_stop=fail_stop,
            store_id=store_id,
        )
        self.transfer = LeadershipTransfer(self._config, core, now_ms, self.step_entry)
        self._reads = ReadPoints(
            core, self.applier, self.trace, now_ms=now_ms, fail_stop=fail_stop, step=self._step
        )
        self._timer = CoreTimer(core, now_ms, self._on_timer)
        self._apply_schedule = ApplySchedule(
            core,
            self.applier,
            now_ms=now_ms,
            turn=self._turn,
            fail_stop=fail_stop,
            step=self._step,
            on_applied=self._on_applied,
            stalls=stalls,
        )

    # --- lifecycle -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Start to take part in the group."""
        core = self.core
        self.trace.started(core.current_term, core.voters)
        self._on_configuration(core.configuration)
        self._note_commit(core.commit_index)
        self._apply_schedule.note_replay()
        self._timer.arm()
        self._clock.attend()

    def shut(self) -> None:
        """Stop all work and answer the open calls."""
        self.stopped = self.status.stopped = True
        self._timer.cancel()
        self._clock.stop()
        self._apply_schedule.stop()
        self._proposals.stop()
        self._reads.stop()

    async def end_rounds(self) -> None:
        """Start no more rounds of fsync, wait for the one under way, end the thread."""
        await self.group_commit.stop()
        await self._sync_thread.stop()

    # --- calls of the broker -------------------------------------------------------------------

    def propose(self, fill: Callable[[Slot], bytes], on_done: OnProposed) -> None:
        """See `ReplicatedLog.propose_then`. ValueError also where too many proposals are open."""
        now_ms = self.now_ms()
        if now_ms >= self._timer.at_ms and not self.stopped:
            self._tick_entry(now_ms)
        self.status.check_ready()
        if len(self._proposals) >= self._config.proposals_count_max:
            raise ValueError(f"{len(self._proposals)} proposals are open")
        if not self._room.writable:
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
        if not self._room.has(HEADER_SIZE + len(payload)):
            raise LogFullError
        self._proposals.add(slot.index, slot.term, on_done)
        self.step_entry(Propose(now_ms=now_ms, payload=payload))

    async def read_index(self) -> Index:
        """See `ReplicatedLog.read_index`. NotLeaderError also where too many reads are open."""
        self.status.check_ready()
        if self._reads.count >= self._config.reads_count_max:
            raise NotLeaderError(self.core.leader_id)
        return await self._reads.request()

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
        if not self._room.has(ROOM_SIZE_MIN):
            raise LogFullError
        outcome: asyncio.Future[ProposalResult] = asyncio.get_running_loop().create_future()
        on_done = functools.partial(resolve, outcome)
        self._proposals.add(self._log.last_index + 1, self.core.current_term, on_done)
        self.step_entry(ChangeMembership(now_ms=now_ms, change=change))
        return await outcome

    async def transfer_leadership(self, target: NodeId) -> None:
        """See `ReplicatedLog.transfer_leadership`."""
        if self.stopped:
            raise NotLeaderError(None)
        await self.transfer.to(target)

    # --- entries from the loop -----------------------------------------------------------------

    def on_message(self, message: Message) -> None:
        """Take a message. Caller's duty: it stops the node on whatever is raised."""
        if self.stopped:
            return
        if self._is_traced:
            self.trace.received(message)
        if type(message) is AppendEntries and message.entries and self._room.writable:
            self._room.has(sum([HEADER_SIZE + len(entry.payload) for entry in message.entries]))
        if not self.stopped:
            self._step(Receive(now_ms=self.now_ms(), message=message))

    @stops_node
    def on_unreachable(self, peer: NodeId) -> None:
        self._step(PeerUnreachable(now_ms=self.now_ms(), peer=peer))

    @stops_node
    def step_entry(self, event: Event) -> None:
        self._step(event)

    @stops_node
    def poll_room(self) -> None:
        """Reserve room after a full disk; called periodically."""
        self._room.poll()

    @stops_node
    def _tick_entry(self, now_ms: int) -> None:
        if now_ms >= self.core.next_deadline_ms:
            self._tick(now_ms)

    @stops_node
    def _on_timer(self, *, late: bool = False) -> None:
        now_ms = self.now_ms()
        if not self._timer.fired(now_ms, late=late):
            return
        if now_ms >= self.core.next_deadline_ms:
            self._tick(now_ms)
        # Meanwhile nothing is acknowledged.
        if self.group_commit.running_for_s * 1000 > self._config.raft.election_timeout_ms_max:
            self._leave_to_a_better_one("waits for its disk")
        self._timer.arm()

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

    def _on_applied(self, applied_before: Index) -> None:
        """Go on behind a turn of step 6."""
        # Before the callers of proposals and reads wake: the trace goes first.
        if self._is_traced or self._proposals.has_outcomes:
            self._schedule_turn_end()
        if self._reads.count:
            self._reads.applied(self.applier.applied_index)
        if applied_before < self.status.noop_index:
            self.status.notify_if_changed()

    # --- carrying out a Ready ------------------------------------------------------------------

    def _step(self, event: Event) -> None:
        core = self.core
        if core.role is not Role.LEADER:
            if changed := self._room.reserve_to_begin(event.now_ms):
                self._carry_out(core.step(changed))
        elif event.now_ms >= self._timer.at_ms and event.now_ms >= core.next_deadline_ms:
            self._tick(event.now_ms)  # a leader first checks whether it still is one
        ready = core.step(event)
        may_notify = type(event) not in _STEADY or (
            ready.commit_index != self._commit_index or self.status.is_news(ready)
        )
        if may_notify or not ready.is_quiet:
            self._carry_out(ready, may_notify=may_notify)
            self._timer.arm()

    def _tick(self, now_ms: int) -> None:
        core = self.core
        if core.role is not Role.LEADER and (changed := self._room.reserve_to_begin(now_ms)):
            self._carry_out(core.step(changed))
        self._carry_out(core.step(Tick(now_ms=now_ms)))

    def _carry_out(self, ready: Ready, *, may_notify: bool = True) -> None:
        """`may_notify`: whether the status may be another one than before."""
        if not ready.is_quiet:
            self._schedule_turn_end()  # before any caller wakes: the trace goes first
        role_before = self.status.notified[0]
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
            self.transfer.not_leading.set()
        elif role_before is not Role.LEADER:
            self.transfer.not_leading.clear()
            self.status.noop_index = self._log.last_index
        if ready.commit_index > self._commit_index:
            # A follower that is kept busy applies several entries at once: for one it would cost
            # as much as writing it did.
            may_wait = ready.role is Role.FOLLOWER and bool(ready.entries)
            self._note_commit(ready.commit_index, may_wait=may_wait)
        if ready.role is not Role.LEADER and len(self._proposals):
            self._proposals.leadership_lost(ready.commit_index, self._log.term)
        for read_state in ready.read_states:
            self._reads.answered(read_state)
        if ready.is_quiet:
            self._schedule_turn_end()  # of a mere commit: behind what it has let apply
        if may_notify:
            self.status.notify_if_changed()

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
        if lag > 0 and may_wait and lag < WAITING_ENTRIES_MAX:
            if not self._apply_schedule.is_due:
                self._apply_schedule.wait()
        elif lag > 0:
            self._apply_schedule.due()

    # --- room, and a disk that hangs -----------------------------------------------------------

    def _on_room_changed(self, event: RoomChanged) -> None:
        self._step(event)
        if not event.writable:
            self._leave_to_a_better_one("has no room")

    def _leave_to_a_better_one(self, why: str) -> None:
        transfer = self.transfer.away(why)
        if transfer is not None:
            self._step(transfer)

    def _schedule_turn_end(self) -> None:
        if not self._turn_end_scheduled:
            self._turn_end_scheduled = True
            self._turn.at_end(self._end_turn)
