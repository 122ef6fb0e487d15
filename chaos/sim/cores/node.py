"""The simulator's shell around one real core, its real log and its real hard state.

Place in the data path: what `raft.node.node` is in a broker. It steps the core, whose every `Ready`
is carried out in the order that `raft.events` states (`ready_effects`, `sync_rounds`, `applying`),
and can die between any two effects.

Deliberately hostile: each place where a crash may fall is an action of its own; a truncation may
come while a sync is under way, whose report then names entries that are gone; a paused node resumes
with its old beliefs, and handles messages and timers in any order; after a crash of the process
alone, un-fsynced bytes are still readable.

Store, rounds of fsync, checkpoints and a clean stop are the product's (`NodeStore`, `GroupCommit`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from chaos.sim.cores.applying import Applying
from chaos.sim.cores.core_fixture import World, message_line
from chaos.sim.cores.node_clock import NodeClock
from chaos.sim.cores.ready_effects import ReadyEffects
from chaos.sim.cores.requests import Requests
from chaos.sim.cores.room import Room
from chaos.sim.cores.snapshots import NodeSnapshots
from chaos.sim.cores.store import SimStore, make_disk, node_config, store_of_disk
from chaos.sim.cores.sync_rounds import SyncRounds
from chaos.sim.machine.disk import SimDisk, Survival, fail_power
from chaos.sim.machine.violation import CrashNow, Violation
from raft.events import (
    ChunkStored,
    Event,
    HardStateDurable,
    LogDurable,
    ReplayChanged,
    Role,
    RoomChanged,
    SnapshotStored,
    Tick,
)
from raft.log.damage import DamagedLogError
from raft.log.log_format import CorruptLogError
from raft.log.segment_log import SegmentLog
from raft.membership import Configuration, Membership
from raft.messages import (
    AppendEntriesReply,
    Entry,
    Index,
    Message,
    NodeId,
    RequestVoteReply,
    Term,
)
from raft.store.checkpoint import hint

__all__ = ["SimNode"]

_STEPS_MAX = 500_000  # of all nodes in one seed: more than a hundred times the usual


class SimNode:
    """One simulated node. While `alive` is false no process runs, and only the disk is left."""

    def __init__(
        self,
        world: World,
        name: NodeId,
        voters: tuple[NodeId, ...],
        configuration: Configuration | None,
        *,
        is_member: bool,
    ) -> None:
        """Build the node without starting it.

        `voters`: of the first configuration; `is_member`: whether the node is in it, else it does
        not run until it joins. `configuration`: the group's initial one; None: only the voters'
        names are known.
        """
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
        self.requests = Requests(self, world, self._rng)
        self.disk_count = 0
        self.disk = self._new_disk()
        self._config = options.raft_config(name, voters)
        self._node_config = node_config(self._config, options)
        self._clock = NodeClock(
            self._scheduler,
            self._rng,
            partial(self.when_awake, self._tick),
            rate_spread=options.clock_rate_spread,
            lateness_us_max=options.timer_lateness_us_max,
        )
        self.sync_slow_us = 0  # a slow disk's addition to each sync
        self.apply_slow_us = 0  # between two turns of a slow state machine
        self.alive = False
        self.incarnation = 0
        self.step_fuse = 0  # counts places between effects down; the node dies at 0
        self.fuse_is_power = False
        self._rounds: SyncRounds | None = None
        self._store: SimStore
        self.log: SegmentLog
        self.snapshots: NodeSnapshots
        self.applying: Applying
        self.room: Room
        self._forget()

    def _new_disk(self) -> SimDisk:
        self.disk_count += 1
        self.store_id = store_of_disk(self.name, self.disk_count)
        return make_disk(self._world.options, self.name, self.disk_count)

    def _forget(self) -> None:
        """Drop the memory of the process."""
        self.requests.forget()
        self._clock.disarm()
        self._is_stopping = False
        self._has_recovered = False  # its snapshots were found
        self._effects = ReadyEffects(
            self, self._world, self.name, preferred_leader=self._config.preferred_leader
        )
        self.has_replayed = False  # the core was notified that applying is far behind

    # --- queries of the cluster ----------------------------------------------------------------

    @property
    def leads(self) -> bool:
        return self.alive and self._effects.role is Role.LEADER

    @property
    def paused(self) -> bool:
        return self.requests.paused

    @property
    def term(self) -> Term:
        return self._effects.term

    @property
    def membership(self) -> Membership:
        """The configuration in force on this node."""
        return self.core.configuration.membership

    @property
    def applied_index(self) -> Index:
        return self.applying.applied if self.alive else 0

    def set_apply_slow_us(self, slow_us: int) -> None:
        """Set how slow the state machine is from now on; 0: not slow."""
        self.apply_slow_us = slow_us
        if self.alive:
            self.applying.slow_us = slow_us

    @property
    def open_count(self) -> int:
        """Number of entries not known to be committed."""
        return self.core.last_index - self._effects.commit_index

    @property
    def is_ready(self) -> bool:
        """Whether the node accepts proposals."""
        return self.leads and self.core.ready

    def now_ms(self) -> int:
        return self._clock.now_ms()

    # --- start, stop and crash -----------------------------------------------------------------

    def start(self) -> None:
        """Recover and start to take part. The node may die in the middle of it."""
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
            configuration=self.snapshots.configuration or self._configuration,
            store_id=self.store_id,
        )
        self.applying = Applying(self, self._world, self._rng, slow_us=self.apply_slow_us)
        self.applying.begin_at(self.snapshots.index)
        self.room = Room(
            self,
            self._scheduler,
            self._counts,
            size_min=options.room_size_bytes,
            poll_every_us=options.election_timeout_ms_min * 500,
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
        self._effects.begin(self.core, self.log, self._rounds, self.snapshots, self.applying)
        self.alive = True
        if self._trace.on:
            self._trace.add(
                self.name,
                f"starts: term {self._effects.term} vote {store.hard_state.voted_for} last "
                f"{self.log.last_index} chain {self.log.chain(self.log.last_index):08x} "
                f"torn {self.log.recovery.torn_bytes}",
            )
        self._effects.commit_index = hint
        self.applying.up_to(hint)
        self.arm_timer()
        self._checkpoint_later()

    def _open_store(self) -> Index:
        """Open the store, report what was found to the invariants, and return its commit index."""
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
        self.snapshots = NodeSnapshots(
            self,
            store.snapshots,
            options=options,
            scheduler=self._scheduler,
            invariants=self._invariants,
            rng=self._rng,
            counts=self._counts,
        )
        self._has_recovered = True
        committed = self.snapshots.restore(commit_index=found)
        survived = self._invariants.on_start(
            self.name,
            store.hard_state,
            self.log,
            commit_hint=committed,
            restored_index=self.snapshots.index,
        )
        configuration = self.snapshots.configuration
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
        """Write a checkpoint as `raft.node.node` does.

        There is no fsync: a crash may leave any older one.
        """
        if incarnation != self.incarnation or not self.alive or self._is_stopping:
            return
        core = self.core
        index = hint(commit_index=core.commit_index, durable_index=core.durable_index)
        if self._store.checkpoint.commit_index == index or self.guard(
            lambda: self._store.write_checkpoint(index, self.applying.applied, clean=False)
        ):
            self._checkpoint_later()

    def join(self) -> None:
        """Start with an empty disk and no group: the leader will send the configuration."""
        self.wipe()
        self._configuration = Configuration(index=0, membership=Membership())
        self.is_wiped = False
        self.is_member = True
        self.start()

    def wipe(self) -> None:
        """Lose the disk and everything on it."""
        assert not self.alive, f"{self.name} runs"
        self.disk = self._new_disk()
        self._invariants.forget(self.name, self.store_id)
        self.is_wiped = True

    def crash(self, *, power: bool, survival: Survival) -> None:
        """Kill the process; with `power` the machine loses power too."""
        assert self.alive, f"{self.name} is dead already"
        self.alive = False
        if self._rounds is not None:
            self._rounds.stopped = True
            self.room.stopped = self.applying.stopped = True
            self._world.checker.on_unknown(self.applying.open_proposals)
        if self._has_recovered:
            self.snapshots.stopped = True
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
        """Stop as on SIGTERM: transfer leadership, wait a little, then end."""
        self._counts["clean_stops_begun"] += 1
        successor = self.core.successor()
        delay_us = 0
        if successor is not None:
            self.requests.transfer_now(successor)
            delay_us = int(self._rng.random() * self._world.options.election_timeout_ms_min * 1000)
        if self.alive:
            end = partial(self._end_cleanly, self.incarnation)
            self._scheduler.after(delay_us, partial(self.when_awake, end))

    def _end_cleanly(self, incarnation: int) -> None:
        if self.incarnation == incarnation and self.alive and self.guard(self._leave):
            self._counts["clean_stops_ended"] += 1
            self._store.close()
            self.crash(power=False, survival=self.draw_survival())
            self._world.on_death(self.name)

    def _leave(self) -> None:
        """Make what was appended durable, and only then write the clean checkpoint."""
        assert self._rounds is not None, "a node that runs has rounds"
        self._is_stopping = True
        self._rounds.end()
        self._store.end_cleanly(
            self._rounds.persist_rest,
            self.snapshots.write_last,
            commit_index=self._effects.commit_index,
            applied_index=self.applying.applied,
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
        self._world.on_death(self.name)

    def _on_disk_error(self, error: OSError) -> None:
        """Stop the node after a failed persist: nothing after it happens."""
        self._counts["disk_errors"] += 1
        if self._trace.on:
            self._trace.add(self.name, f"stops: {error.strerror}")
        # The machine may go on: then what a failed fsync left unwritten is still readable.
        self.crash(power=self._rng.random() < 0.5, survival=self.draw_survival())
        self._world.on_death(self.name)

    def pause(self) -> None:
        self.requests.paused = True
        self._counts["pauses"] += 1
        if self._trace.on:
            self._trace.add(self.name, "pauses")

    def resume(self) -> None:
        """Handle what came during the pause, messages and timers in any order."""
        if self._trace.on:
            self._trace.add(self.name, f"resumes with {self.requests.waiting_count} waiting")
        self.requests.resume()

    # --- events --------------------------------------------------------------------------------

    def peer_unreachable(self, peer: NodeId) -> None:
        self.requests.peer_unreachable(peer)

    def transfer(self, target: NodeId) -> None:
        self.requests.transfer(target)

    def when_awake(self, action: Callable[[], None]) -> None:
        self.requests.when_awake(action)

    def _tick(self) -> None:
        now_ms = self.now_ms()
        if now_ms >= self.core.next_deadline_ms:
            self.step(Tick(now_ms=now_ms))
        else:
            self.arm_timer()

    def arm_timer(self) -> None:
        """Arm the one timer; if the deadline moved back, it rings too early and is armed again."""
        self._clock.arm(self.core.next_deadline_ms)

    # --- steps ---------------------------------------------------------------------------------

    def guard(self, action: Callable[[], object]) -> bool:
        """Run the action; return False if the node died of it."""
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
        self.step(LogDurable(now_ms=self.now_ms(), index=index, term=term))

    def step_room(self, *, writable: bool) -> None:
        if self._trace.on:
            self._trace.add(self.name, f"has {'room again' if writable else 'no room'}")
        self.step(RoomChanged(now_ms=self.now_ms(), writable=writable))

    def step_transfer(self, target: NodeId) -> None:
        self.requests.transfer_now(target)

    def step_replay(self, *, replaying: bool) -> None:
        self.has_replayed = True
        self.step(ReplayChanged(now_ms=self.now_ms(), replaying=replaying))

    def step_stored(self, event: ChunkStored | SnapshotStored) -> None:
        self.step(event)

    def step_hard_state_durable(self, term: Term) -> None:
        self.step(HardStateDurable(now_ms=self.now_ms(), term=term))

    def step(self, event: Event) -> None:
        if self._is_stopping:
            return
        try:
            ready = self.core.step(event)
            self._counts["steps"] += 1
            if self._counts["steps"] > _STEPS_MAX:
                raise Violation("storm", f"{_STEPS_MAX} steps, the cluster talks to itself")
            self._effects.carry_out(ready, event)
        except CrashNow as crash:
            self._on_fuse(crash)
        except OSError as error:
            self._on_disk_error(error)
        except AssertionError as error:
            raise Violation("assert", f"{self.name}: {error}") from error

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
        """Mark a place between two effects, where the node may die."""
        if self.step_fuse:
            self.step_fuse -= 1
            if not self.step_fuse:
                raise CrashNow(what)

    def on_applied(self, entries: Sequence[Entry]) -> None:
        self.snapshots.applied(entries)
