"""Carry out one `Ready` on a simulated node: each effect an action of its own, in order.

Place in the data path: `SimNode` steps the core and hands its `Ready` over; the effects are carried
out here as `raft.node.core_shell` does, and reported to `Invariants` as they happen. Between two
effects the node may die (`Owner.place`): the order is the contract of `raft.events`.

1. truncate and append to the log file;
2. send `messages`;
3. sync, which takes time, while later Readys are appended and wait for the next sync;
4. send `messages_after_sync`;
5. feed `LogDurable`;
6. apply.

The last four are started here, and `SyncRounds` and `Applying` carry them on.

Invariant: role, term and commit index are the core's as of the last Ready that was carried out.
"""

from __future__ import annotations

from typing import Protocol

from chaos.sim.cores.applying import Applying
from chaos.sim.cores.core_fixture import World
from chaos.sim.cores.snapshots import NodeSnapshots
from chaos.sim.cores.sync_rounds import SyncRounds
from raft.core.core import Core
from raft.events import Event, Install, Ready, Role, Tick
from raft.log.segment_log import SegmentLog
from raft.messages import Index, Message, NodeId, Term

__all__ = ["Owner", "ReadyEffects"]


class Owner(Protocol):
    """The node whose core returned the `Ready`."""

    def send(self, message: Message) -> None: ...

    def place(self, what: str) -> None:
        """Mark a place between two effects, where the node may die."""

    def arm_timer(self) -> None: ...


class ReadyEffects:
    """The effects of one incarnation; `begin` comes before `carry_out`, once there is a core."""

    def __init__(
        self, owner: Owner, world: World, name: NodeId, *, preferred_leader: NodeId | None
    ) -> None:
        self._owner = owner
        self._world = world
        self._name = name
        self._preferred_leader = preferred_leader
        self._invariants = world.invariants
        self._counts = world.coverage.counts
        self._trace = world.trace
        self.role = Role.FOLLOWER
        self.term: Term = 0
        self.commit_index: Index = 0

    def begin(
        self,
        core: Core,
        log: SegmentLog,
        rounds: SyncRounds,
        snapshots: NodeSnapshots,
        applying: Applying,
    ) -> None:
        self._core = core
        self._log = log
        self._rounds = rounds
        self._snapshots = snapshots
        self._applying = applying
        self.term = core.current_term  # above the hard state's where the log knows better

    def carry_out(self, ready: Ready, event: Event) -> None:
        """Carry out each effect, in the order of the contract. Raises CrashNow and OSError."""
        removed = self.role is Role.LEADER and ready.role is not Role.LEADER
        if removed and ready.term == self.term and ready.commit_index > self.commit_index:
            self._on_commit(ready.commit_index)  # its own removal, which it counted as the leader
        if ready.role is not self.role or ready.term != self.term:
            self._on_role(ready, event)
        self._note_members(ready)
        if ready.messages_after_sync:
            self._invariants.on_votes(self._name, ready.messages_after_sync)
        rounds = self._rounds
        if ready.hard_state is not None:
            rounds.want_hard_state(ready.hard_state)
        if ready.install is not None:
            self._install(ready.install)
        if ready.truncate_from is not None or ready.entries:
            self._append(ready)
        self._invariants.on_configuration(self._name, self._core.configuration.index)
        if ready.commit_index > self.commit_index:
            self._on_commit(ready.commit_index)
        for message in ready.messages:
            self._owner.send(message)
        if ready.install_chunks:
            self._snapshots.want(ready.install_chunks)
        if ready.received_chunk is not None:
            self._snapshots.received(ready.received_chunk)
        rounds.send(ready.messages_after_sync)
        for state in ready.read_states:
            if state.index is None:
                self._world.checker.on_read(self._name, state.request_id, None)
            else:
                self._applying.add_read(state.request_id, state.index)
        rounds.maybe_begin()
        self._applying.up_to(self.commit_index)
        self._owner.arm_timer()

    def _note_members(self, ready: Ready) -> None:
        if ready.change_refused is not None:
            self._counts["changes_refused"] += 1
            if self._trace.on:
                self._trace.add(self._name, f"refuses: {ready.change_refused}")
        elif ready.configuration is not None:
            self._counts["configurations_in_force"] += 1
            self._counts["configurations_taken_back"] += ready.truncate_from is not None
            if self._trace.on:
                voters = ready.configuration.membership.voter_ids
                self._trace.add(self._name, f"members from {ready.configuration.index}: {voters}")

    def _on_role(self, ready: Ready, event: Event) -> None:
        was, is_now = self.role, ready.role
        if is_now is Role.LEADER:
            self._counts["elections"] += 1
            preferred = self._name == self._preferred_leader
            self._counts["leaderships_of_preferred_nodes"] += preferred
        elif is_now is Role.CANDIDATE:
            self._counts["campaigns"] += 1
        if was is Role.LEADER and is_now is not Role.LEADER:
            by_quorum = isinstance(event, Tick) and ready.term == self.term
            self._counts["step_downs_by_check_quorum" if by_quorum else "step_downs_by_term"] += 1
            self._lose_proposals()
        self.role, self.term = is_now, ready.term
        self._invariants.on_role(self._name, is_now, ready.term)
        if self._trace.on:
            self._trace.add(self._name, f"is {is_now.value} in term {ready.term}")

    def _lose_proposals(self) -> None:
        """Forget the open proposals after losing leadership: from here on their outcome is unknown.

        They are kept in the log: the entry that is applied in their place may prove a truncation.
        """
        self._counts["proposals_unknown"] += self._applying.open_proposals

    def _on_commit(self, index: Index) -> None:
        self.commit_index = index
        configs = len(self._invariants.committed_configs)
        self._counts["entries_committed"] += self._invariants.on_commit(self._name, index)
        committed = len(self._invariants.committed_configs) - configs
        self._counts["configurations_committed"] += committed
        if self._trace.on:
            self._trace.add(self._name, f"commits {index}")

    def _install(self, install: Install) -> None:
        """Replace the start of the log, durably, and the state with it."""
        # As in a truncation, the round under way must not report entries that are gone.
        self._rounds.before_truncation()
        self._rounds.after_truncation()
        self._log.reset(install.base)
        self._invariants.on_install(self._name, install.base, install.configuration)
        self._counts["installs"] += 1
        if self._trace.on:
            self._trace.add(self._name, f"installs {install.base.index}, {install.snapshot_index}")
        self._owner.place("restore after install")
        self._snapshots.install(install.snapshot_index)
        self._applying.begin_at(install.snapshot_index)

    def _append(self, ready: Ready) -> None:
        self._rounds.want_log()
        index = ready.truncate_from
        if index is not None:
            self._truncate(index, ready)
            self._owner.place("append after truncation")
        if ready.entries:
            chain = self._log.chain
            # A leader's own entries are reported one by one: only the leader has them, so after a
            # torn write nobody else could have reported what is left of several.
            is_own = ready.role is Role.LEADER
            for entries in ((one,) for one in ready.entries) if is_own else (ready.entries,):
                self._log.append(entries)
                for entry in entries:
                    self._invariants.on_append(self._name, entry, chain(entry.index))
            self._counts["entries_appended"] += len(ready.entries)
            if self._trace.on:
                first, last = ready.entries[0], ready.entries[-1]
                self._trace.add(
                    self._name,
                    f"appends {first.index}..{last.index}@{last.term} "
                    f"chain {chain(last.index):08x}",
                )
        self._owner.place("send after append")

    def _truncate(self, index: Index, ready: Ready) -> None:
        self._rounds.before_truncation()
        successor = ready.entries[0] if ready.entries else None
        had_durable = self._invariants.on_truncate(self._name, index, successor)
        self._counts["truncations"] += 1
        self._counts["truncations_of_durable_entries"] += had_durable
        if self._trace.on:
            self._trace.add(self._name, f"truncates from {index}")
        self._log.truncate_from(index)
        self._rounds.after_truncation()
