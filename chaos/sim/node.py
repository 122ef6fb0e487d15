"""The simulator's shell around one real core, its real log and its real hard state.

Place in the data path: what `raft.node` is in a broker. It carries every `Ready` out in the order
that `raft.events` states, tells `Invariants` each thing as it happens, and can die between any two
of them:

1. truncate and append to the log file; 2. send `messages`; 3. sync, which takes time, while later
Readys are appended and wait for the next sync; 4. send `messages_after_sync`; 5. feed `LogDurable`;
6. apply.

What is nasty here on purpose: whatever a crash may fall between is an action of its own; a
truncation may come while a sync is under way, whose report then names entries that are gone; a
paused node goes on with what it believed, in any order of messages and timers; after a crash of the
process alone, un-fsynced bytes are still readable.

Store, rounds of fsync, checkpoints and a clean stop are the product's (`NodeStore`, `GroupCommit`).

As `raft.transport` does, it lets votes and acknowledgements count only from the store that the
configuration in force names for their sender.

Over 500 lines: the node may die between any two effects of a step, so they stand in one class,
whose order is the contract's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from chaos.sim.applying import Applying
from chaos.sim.disk import SimDisk, Survival, fail_power
from chaos.sim.room import Room
from chaos.sim.snapshots import NodeSnapshots
from chaos.sim.store import SimStore, format_disk, node_config
from chaos.sim.sync_rounds import SyncRounds
from chaos.sim.violation import CrashNow, Violation
from chaos.sim.world import World, message_line
from raft.checkpoint import hint
from raft.damage import DamagedLogError
from raft.events import (
    ChangeMembership,
    ChunkStored,
    Event,
    HardStateDurable,
    Install,
    LogDurable,
    PeerUnreachable,
    Propose,
    ReadIndexRequest,
    Ready,
    Receive,
    ReplayChanged,
    Role,
    RoomChanged,
    SnapshotStored,
    Tick,
    TransferLeadership,
)
from raft.log_format import HEADER_SIZE, CorruptLogError
from raft.membership import Configuration, Membership, MembershipChange
from raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    Index,
    InstallSnapshotReply,
    Message,
    NodeId,
    RequestVoteReply,
    Term,
)

__all__ = ["SimNode", "store_of_disk"]

_INBOX_COUNT_MAX = 5_000  # events that wait for a paused node
_COUNTED = (AppendEntriesReply, InstallSnapshotReply, RequestVoteReply)
_STEPS_MAX = 500_000  # of all nodes in one seed: more than a hundred times the usual


def store_of_disk(name: NodeId, disk_number: int) -> str:
    """The identity of the store on a node's n-th disk."""
    return f"{int(name[1:]):016x}{disk_number:016x}"


class SimNode:
    """`alive` tells whether a process runs; everything but the disk is gone when it does not."""

    def __init__(
        self,
        world: World,
        name: NodeId,
        voters: tuple[NodeId, ...],
        configuration: Configuration | None,
        *,
        is_member: bool,
    ) -> None:
        """`voters`: of the first configuration; `is_member`: whether the node is in it, else it
        does not run until it joins. `configuration`: with which the group begins; None: only the
        voters' names are known."""
        options = world.options
        self._configuration = configuration
        self.is_member = is_member
        self.is_wiped = False  # its disk is empty: it must not start under its old identity
        self.name = name
        self._world = world
        self._scheduler = world.scheduler
        self._invariants = world.invariants
        self._counts = world.coverage.counts
        self._trace = world.trace
        self._rng = random.Random(f"node/{options.seed}/{options.node_count}/{name}")
        self.disk_count = 0
        self.disk = self._new_disk()
        self._config = options.raft_config(name, voters)
        self._node_config = node_config(self._config, options)
        spread = options.clock_rate_spread
        self._clock_rate = 1.0 + spread * (2 * self._rng.random() - 1)
        self._clock_offset_ms = int(self._rng.random() * 1_000_000)
        self.sync_slow_us = 0  # a slow disk's addition to each sync
        self.apply_slow_us = 0  # between two turns of a slow state machine
        self.alive = False
        self.incarnation = 0
        self._timer_number = 0
        self.step_fuse = 0  # counts places between effects down; the node dies at 0
        self.fuse_is_power = False
        self._rounds: SyncRounds | None = None
        self._store: SimStore
        self._snapshots: NodeSnapshots
        self._applying: Applying
        self._room: Room
        self._forget()

    def _new_disk(self) -> SimDisk:
        options = self._world.options
        self.disk_count += 1
        self.store_id = store_of_disk(self.name, self.disk_count)
        key = f"disk/{options.seed}/{options.node_count}/{self.name}/{self.disk_count}"
        disk = SimDisk(
            random.Random(key),
            short_write_rate=options.short_write_rate,
            garbage_rate=options.garbage_rate,
        )
        format_disk(disk, self.name, self.store_id)
        return disk

    def _forget(self) -> None:
        """What a process has in memory."""
        self.paused = False
        self._inbox: list[Callable[[], None]] = []
        self._wake_us = -1
        self._timer_number += 1
        self._role = Role.FOLLOWER
        self._term: Term = 0
        self._is_stopping = False
        self._has_recovered = False  # its snapshots were found
        self._commit: Index = 0
        self.has_replayed = False  # it was told that it is far behind

    # --- what the cluster sees -----------------------------------------------------------------

    @property
    def leads(self) -> bool:
        return self.alive and self._role is Role.LEADER

    @property
    def term(self) -> Term:
        return self._term

    @property
    def membership(self) -> Membership:
        """In force there."""
        return self.core.configuration.membership

    @property
    def applied_index(self) -> Index:
        return self._applying.applied if self.alive else 0

    def set_apply_slow_us(self, slow_us: int) -> None:
        """How slow its state machine is from now on, 0: not at all."""
        self.apply_slow_us = slow_us
        if self.alive:
            self._applying.slow_us = slow_us

    @property
    def open_count(self) -> int:
        """Entries that are not known to be committed."""
        return self.core.last_index - self._commit

    @property
    def is_ready(self) -> bool:
        """It takes proposals."""
        return self.leads and self.core.ready

    def now_ms(self) -> int:
        return self._clock_offset_ms + int(self._scheduler.now_us * self._clock_rate / 1000)

    # --- life and death ------------------------------------------------------------------------

    def start(self) -> None:
        """Recover and begin to take part. It may die in the middle of it."""
        assert not self.alive, f"{self.name} runs already"
        self.incarnation += 1
        self._rounds = None
        self._forget()
        try:
            self._recover()
        except CrashNow as crash:
            self.alive = True
            self._counts["crashes_in_openings"] += 1
            self._on_fuse(crash)
        except OSError as error:
            self.alive = True
            self._counts["errors_in_openings"] += 1
            self._on_disk_error(error)
        except CorruptLogError as error:
            raise Violation("recovery", f"{self.name} refuses to start: {error}") from error

    def _recover(self) -> None:
        hint = self._open_store()
        options, store = self._world.options, self._store
        options_key = f"{options.seed}/{options.node_count}/{self.name}/{self.incarnation}"
        self.core = self._world.parts.core(
            self._config,
            self.log,
            store.hard_state,
            random.Random(f"core/{options_key}"),
            self.now_ms(),
            commit_index=hint,
            configuration=self._snapshots.configuration or self._configuration,
            store_id=self.store_id,
        )
        self._applying = Applying(self, self._world, self._rng, slow_us=self.apply_slow_us)
        self._applying.begin_at(self._snapshots.index)
        self._room = Room(
            self,
            self._scheduler,
            self._counts,
            size_min=options.room_size_bytes,
            look_every_us=options.election_timeout_ms_min * 500,
        )
        self._rounds = SyncRounds(
            self,
            store,
            options=options,
            scheduler=self._scheduler,
            invariants=self._invariants,
            rng=self._rng,
            counts=self._counts,
        )
        self._term = self.core.current_term  # above the hard state's where the log knows better
        self.alive = True
        if self._trace.on:
            self._trace.add(
                self.name,
                f"starts: term {self._term} vote {store.hard_state.voted_for} last "
                f"{self.log.last_index} chain {self.log.chain(self.log.last_index):08x} "
                f"torn {self.log.recovery.torn_bytes}",
            )
        self._commit = hint
        self._applying.up_to(hint)
        self._arm_timer()
        self._checkpoint_later()

    def _open_store(self) -> Index:
        """What was found there, told to the rules; up to where it is known to be committed."""
        options = self._world.options
        self._store = store = SimStore(
            self._node_config,
            self.disk,
            options=options,
            parts=self._world.parts,
            invariants=self._invariants,
        )
        self.log = store.log
        if self.log.damages:  # a disk that only forgets and tears damages nothing durable
            raise DamagedLogError(self.log.damages[0])
        found = store.checkpoint.commit_index
        store.write_checkpoint(found, 0, clean=False)
        self._snapshots = NodeSnapshots(
            self,
            store.snapshots,
            options=options,
            scheduler=self._scheduler,
            invariants=self._invariants,
            rng=self._rng,
            counts=self._counts,
        )
        self._has_recovered = True
        committed = self._snapshots.restore(commit_index=found)
        survived = self._invariants.on_start(
            self.name,
            store.hard_state,
            self.log,
            commit_hint=committed,
            restored_index=self._snapshots.index,
        )
        configuration = self._snapshots.configuration
        if configuration is not None:
            self._invariants.on_configuration_restored(self.name, configuration)
        self._counts["tails_survived_unsynced"] += survived > 0
        self._counts["torn_tails_cut"] += self.log.recovery.torn_bytes > 0
        self._counts["recoveries_of_hints"] += committed > 0
        self._counts["restarts"] += self.incarnation > 1
        return committed

    def _checkpoint_later(self) -> None:
        again = partial(self._checkpoint, self.incarnation)
        self._scheduler.after(self._world.options.checkpoint_us, partial(self.when_awake, again))

    def _checkpoint(self, incarnation: int) -> None:
        """As `raft.node` does, without fsync: any older one may be what a crash leaves."""
        if incarnation != self.incarnation or not self.alive or self._is_stopping:
            return
        core = self.core
        index = hint(commit_index=core.commit_index, durable_index=core.durable_index)
        if self._store.checkpoint.commit_index == index or self.guard(
            lambda: self._store.write_checkpoint(index, self._applying.applied, clean=False)
        ):
            self._checkpoint_later()

    def join(self) -> None:
        """Start with an empty disk, knowing of no group: its leader will tell who belongs to it."""
        self.wipe()
        self._configuration = Configuration(index=0, membership=Membership())
        self.is_wiped = False
        self.is_member = True
        self.start()

    def wipe(self) -> None:
        """Lose the disk, and everything that was on it."""
        assert not self.alive, f"{self.name} runs"
        self.disk = self._new_disk()
        self._invariants.forget(self.name, self.store_id)
        self.is_wiped = True

    def crash(self, *, power: bool, survival: Survival) -> None:
        """The process dies; with `power` the machine too."""
        assert self.alive, f"{self.name} is dead already"
        self.alive = False
        if self._rounds is not None:
            self._rounds.stopped = True
            self._room.stopped = self._applying.stopped = True
            self._world.promises.on_unknown(self._applying.open_proposals)
        if self._has_recovered:
            self._snapshots.stopped = True
        self.step_fuse = 0
        self._counts["crashes"] += 1
        if self._trace.on:
            self._trace.add(self.name, f"dies, power failure: {survival.value if power else 'no'}")
        if power:
            fail_power(self.disk, survival, self._counts)
        else:
            self.disk.process_crash()
        self._forget()
        self._world.network.reset_node(self.name)

    def stop_cleanly(self) -> None:
        """As SIGTERM does: hand leadership over, wait a little, then end."""
        self._counts["clean_stops_begun"] += 1
        successor = self.core.successor()
        delay_us = 0
        if successor is not None:
            self._transfer(successor)
            delay_us = int(self._rng.random() * self._world.options.election_timeout_ms_min * 1000)
        if self.alive:
            end = partial(self._end_cleanly, self.incarnation)
            self._scheduler.after(delay_us, partial(self.when_awake, end))

    def _end_cleanly(self, incarnation: int) -> None:
        if self.incarnation == incarnation and self.alive and self.guard(self._leave):
            self._counts["clean_stops_ended"] += 1
            self._store.close()
            self.crash(power=False, survival=self.draw_survival())
            self._world.on_death(self)

    def _leave(self) -> None:
        """What was appended is durable, and only then the checkpoint says so."""
        assert self._rounds is not None, "a node that runs has rounds"
        self._is_stopping = True
        self._rounds.end()
        self._store.end_cleanly(
            self._rounds.persist_rest,
            self._snapshots.write_last,
            commit_index=self._commit,
            applied_index=self._applying.applied,
        )

    def draw_survival(self) -> Survival:
        return self._rng.choice(tuple(Survival))

    def _on_fuse(self, crash: CrashNow) -> None:
        kind = (
            "crashes_in_disk_operations" if crash.place.startswith("disk") else "crashes_in_steps"
        )
        self._counts[kind] += 1
        if self._trace.on:
            self._trace.add(self.name, f"is killed at: {crash.place}")
        self.crash(power=self.fuse_is_power, survival=self.draw_survival())
        self._world.on_death(self)

    def _on_disk_error(self, error: OSError) -> None:
        """A failed persist stops the node: nothing after it happens."""
        self._counts["disk_errors"] += 1
        if self._trace.on:
            self._trace.add(self.name, f"stops: {error.strerror}")
        # The machine may go on: then what a failed fsync left unwritten still reads well.
        self.crash(power=self._rng.random() < 0.5, survival=self.draw_survival())
        self._world.on_death(self)

    def pause(self) -> None:
        self.paused = True
        self._counts["pauses"] += 1
        if self._trace.on:
            self._trace.add(self.name, "pauses")

    def resume(self) -> None:
        """What has come meanwhile is handled now, messages and timers in any order."""
        self.paused = False
        if self._trace.on:
            self._trace.add(self.name, f"resumes with {len(self._inbox)} waiting")
        inbox, self._inbox = self._inbox, []
        if inbox and self._rng.random() < 0.5:
            inbox.append(inbox.pop(0))
        incarnation = self.incarnation
        for action in inbox:
            if self.incarnation == incarnation and self.alive:
                action()

    # --- events --------------------------------------------------------------------------------

    def receive(self, message: Message, sender_store: str) -> None:
        self.when_awake(partial(self._receive, message, sender_store))

    def peer_unreachable(self, peer: NodeId) -> None:
        self.when_awake(partial(self._peer_unreachable, peer))

    def propose(self, payload: bytes) -> None:
        self.when_awake(partial(self._propose, payload))

    def read(self, request_id: int) -> None:
        self.when_awake(partial(self._read, request_id))

    def transfer(self, target: NodeId) -> None:
        self.when_awake(partial(self._transfer, target))

    def change(self, change: MembershipChange) -> None:
        self.when_awake(partial(self._change, change))

    def when_awake(self, action: Callable[[], None]) -> None:
        if not self.alive:
            return
        if not self.paused:
            action()
        elif len(self._inbox) < _INBOX_COUNT_MAX:
            self._inbox.append(action)

    def _receive(self, message: Message, sender_store: str) -> None:
        if self._trace.on:
            self._trace.add(self.name, f"<- {message_line(message)}")
        if isinstance(message, _COUNTED):
            member = self.membership.member(message.sender)
            if member is not None and member.store_id not in {"", sender_store}:
                self._counts["messages_of_lost_stores"] += 1
                return
        if isinstance(message, InstallSnapshotReply) and message.installed:
            self._snapshots.ended(message.sender)
        if type(message) is AppendEntries and message.entries and self._room.writable:
            self._has_room(sum(HEADER_SIZE + len(entry.payload) for entry in message.entries))
        if self.alive:
            self._step(Receive(now_ms=self.now_ms(), message=message))

    def _has_room(self, size: int) -> bool:
        """False also where the node died of the question."""
        incarnation, answers = self.incarnation, [False]
        self.guard(lambda: answers.append(self._room.has(size)))
        return answers[-1] and self.alive and self.incarnation == incarnation

    def _peer_unreachable(self, peer: NodeId) -> None:
        self._step(PeerUnreachable(now_ms=self.now_ms(), peer=peer))

    def _transfer(self, target: NodeId) -> None:
        if self._role is Role.LEADER:
            self._step(TransferLeadership(now_ms=self.now_ms(), target=target))

    def _change(self, change: MembershipChange) -> None:
        if self._trace.on:
            self._trace.add(self.name, f"is asked to {change}")
        self._step(ChangeMembership(now_ms=self.now_ms(), change=change))

    def _propose(self, payload: bytes) -> None:
        # Refused for certain, where it is not ready or has no room: nothing was appended.
        if not self.is_ready or not self._has_room(HEADER_SIZE + len(payload)):
            return
        self._applying.add_proposal(self.core.last_index + 1, self._term, payload)
        self._step(Propose(now_ms=self.now_ms(), payload=payload))

    def _read(self, request_id: int) -> None:
        self._step(ReadIndexRequest(now_ms=self.now_ms(), request_id=request_id))

    def _on_timer(self, number: int) -> None:
        if self._timer_number != number or not self.alive:
            return  # another one, or another incarnation's, has taken its place
        self._wake_us = -1
        self.when_awake(self._tick)

    def _tick(self) -> None:
        now_ms = self.now_ms()
        if now_ms >= self.core.next_deadline_ms:
            self._step(Tick(now_ms=now_ms))
        else:
            self._arm_timer()

    def _arm_timer(self) -> None:
        """One timer; a deadline that moved back is found too early and armed again."""
        local_ms = self.core.next_deadline_ms - self._clock_offset_ms
        due_us = int(local_ms * 1000 / self._clock_rate) + 1
        due_us = max(due_us, self._scheduler.now_us + 1)
        if 0 <= self._wake_us <= due_us:
            return
        lateness_us = int(self._rng.random() * self._world.options.timer_lateness_us_max)
        self._wake_us = due_us
        self._timer_number += 1
        self._scheduler.at(due_us + lateness_us, partial(self._on_timer, self._timer_number))

    # --- steps ---------------------------------------------------------------------------------

    def guard(self, action: Callable[[], object]) -> bool:
        """Do it; False if the node died of it."""
        try:
            action()
        except CrashNow as crash:
            self._on_fuse(crash)
        except OSError as error:
            self._on_disk_error(error)
        else:
            return True
        return False

    def step_durable(self, index: Index, term: Term) -> None:
        self._step(LogDurable(now_ms=self.now_ms(), index=index, term=term))

    def step_room(self, *, writable: bool) -> None:
        if self._trace.on:
            self._trace.add(self.name, f"has {'room again' if writable else 'no room'}")
        self._step(RoomChanged(now_ms=self.now_ms(), writable=writable))

    def step_transfer(self, target: NodeId) -> None:
        self._transfer(target)

    def step_replay(self, *, replaying: bool) -> None:
        self.has_replayed = True
        self._step(ReplayChanged(now_ms=self.now_ms(), replaying=replaying))

    def step_stored(self, event: ChunkStored | SnapshotStored) -> None:
        self._step(event)

    def step_hard_state_durable(self, term: Term) -> None:
        self._step(HardStateDurable(now_ms=self.now_ms(), term=term))

    def _step(self, event: Event) -> None:
        if self._is_stopping:
            return
        try:
            ready = self.core.step(event)
            self._counts["steps"] += 1
            if self._counts["steps"] > _STEPS_MAX:
                raise Violation("storm", f"{_STEPS_MAX} steps, the cluster talks to itself")
            self._carry_out(ready, event)
        except CrashNow as crash:
            self._on_fuse(crash)
        except OSError as error:
            self._on_disk_error(error)
        except AssertionError as error:
            raise Violation("assert", f"{self.name}: {error}") from error

    def _carry_out(self, ready: Ready, event: Event) -> None:
        removed = self._role is Role.LEADER and ready.role is not Role.LEADER
        if removed and ready.term == self._term and ready.commit_index > self._commit:
            self._on_commit(ready.commit_index)  # its own removal, which it counted as the leader
        if ready.role is not self._role or ready.term != self._term:
            self._on_role(ready, event)
        self._note_members(ready)
        if ready.messages_after_sync:
            self._invariants.on_votes(self.name, ready.messages_after_sync)
        rounds = self._rounds
        assert rounds is not None, "a node that steps runs"
        if ready.hard_state is not None:
            rounds.want_hard_state(ready.hard_state)
        if ready.install is not None:
            self._install(ready.install)
        if ready.truncate_from is not None or ready.entries:
            self._append(ready)
        self._invariants.on_configuration(self.name, self.core.configuration.index)
        if ready.commit_index > self._commit:
            self._on_commit(ready.commit_index)
        for message in ready.messages:
            self.send(message)
        if ready.install_chunks:
            self._snapshots.want(ready.install_chunks)
        if ready.received_chunk is not None:
            self._snapshots.received(ready.received_chunk)
        rounds.send(ready.messages_after_sync)
        for state in ready.read_states:
            if state.index is None:
                self._world.promises.on_read(self.name, state.request_id, None)
            else:
                self._applying.add_read(state.request_id, state.index)
        rounds.maybe_begin()
        self._applying.up_to(self._commit)
        self._arm_timer()

    def _note_members(self, ready: Ready) -> None:
        if ready.change_refused is not None:
            self._counts["changes_refused"] += 1
            if self._trace.on:
                self._trace.add(self.name, f"refuses: {ready.change_refused}")
        elif ready.configuration is not None:
            self._counts["configurations_in_force"] += 1
            self._counts["configurations_taken_back"] += ready.truncate_from is not None
            if self._trace.on:
                voters = ready.configuration.membership.voter_ids
                self._trace.add(self.name, f"members from {ready.configuration.index}: {voters}")

    def _on_role(self, ready: Ready, event: Event) -> None:
        was, is_now = self._role, ready.role
        if is_now is Role.LEADER:
            self._counts["elections"] += 1
            preferred = self.name == self._config.preferred_leader
            self._counts["leaderships_of_preferred_nodes"] += preferred
        elif is_now is Role.CANDIDATE:
            self._counts["campaigns"] += 1
        if was is Role.LEADER and is_now is not Role.LEADER:
            by_quorum = isinstance(event, Tick) and ready.term == self._term
            self._counts["step_downs_by_check_quorum" if by_quorum else "step_downs_by_term"] += 1
            self._lose_proposals()
        self._role, self._term = is_now, ready.term
        self._invariants.on_role(self.name, is_now, ready.term)
        if self._trace.on:
            self._trace.add(self.name, f"is {is_now.value} in term {ready.term}")

    def _lose_proposals(self) -> None:
        """Unknown from here on, but kept: what is applied in their place tells a truncation."""
        self._counts["proposals_unknown"] += self._applying.open_proposals

    def _on_commit(self, index: Index) -> None:
        self._commit = index
        configs = len(self._invariants.committed_configs)
        self._counts["entries_committed"] += self._invariants.on_commit(self.name, index)
        committed = len(self._invariants.committed_configs) - configs
        self._counts["configurations_committed"] += committed
        if self._trace.on:
            self._trace.add(self.name, f"commits {index}")

    def _install(self, install: Install) -> None:
        """The log's beginning is replaced, durably, and the state with it."""
        assert self._rounds is not None, "a node that steps runs"
        self._rounds.before_truncation()
        self._rounds.after_truncation()
        self.log.reset(install.base)
        self._invariants.on_install(self.name, install.base, install.configuration)
        self._counts["installs"] += 1
        if self._trace.on:
            self._trace.add(self.name, f"installs {install.base.index}, {install.snapshot_index}")
        self.place("restore after install")
        self._snapshots.install(install.snapshot_index)
        self._applying.begin_at(install.snapshot_index)

    def _append(self, ready: Ready) -> None:
        assert self._rounds is not None, "a node that steps runs"
        self._rounds.want_log()
        index = ready.truncate_from
        if index is not None:
            self._truncate(index, ready)
            self.place("append after truncation")
        if ready.entries:
            chain = self.log.chain
            # A leader's own come one by one: what a crash in a write leaves of several of them,
            # nobody else could have told of.
            is_own = ready.role is Role.LEADER
            for entries in ((one,) for one in ready.entries) if is_own else (ready.entries,):
                self.log.append(entries)
                for entry in entries:
                    self._invariants.on_append(self.name, entry, chain(entry.index))
            self._counts["entries_appended"] += len(ready.entries)
            if self._trace.on:
                first, last = ready.entries[0], ready.entries[-1]
                self._trace.add(
                    self.name,
                    f"appends {first.index}..{last.index}@{last.term} "
                    f"chain {chain(last.index):08x}",
                )
        self.place("send after append")

    def _truncate(self, index: Index, ready: Ready) -> None:
        assert self._rounds is not None, "a node that steps runs"
        self._rounds.before_truncation()
        successor = ready.entries[0] if ready.entries else None
        had_durable = self._invariants.on_truncate(self.name, index, successor)
        self._counts["truncations"] += 1
        self._counts["truncations_of_durable_entries"] += had_durable
        if self._trace.on:
            self._trace.add(self.name, f"truncates from {index}")
        self.log.truncate_from(index)
        self._rounds.after_truncation()

    def send(self, message: Message) -> None:
        self._invariants.on_send(self.name, message)
        match message:
            case RequestVoteReply(granted=False):
                kind = "pre_vote_rejections" if message.pre_vote else "vote_rejections"
                self._counts[kind] += 1
            case AppendEntriesReply(success=False):
                self._counts["log_refusals"] += 1
            case _:
                pass
        if self._trace.on:
            self._trace.add(self.name, f"-> {message_line(message)}")
        self._world.send(message)
        self.place("next effect after a send")

    def place(self, what: str) -> None:
        """Between two effects: here a node may die."""
        if self.step_fuse:
            self.step_fuse -= 1
            if not self.step_fuse:
                raise CrashNow(what)

    def on_applied(self, entries: Sequence[Entry]) -> None:
        self._snapshots.applied(entries)
