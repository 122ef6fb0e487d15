"""Raft as a pure state machine: `step(event) -> Ready`.

Place in the data path: the shell (`raft.node.node`, or the simulator) turns sockets, fsyncs and
timers into events and carries each Ready out in the order that `raft.events` states. The core has
no clock, socket, file, thread or randomness of its own: time comes with each event, a seeded
`Random` at construction.

State changes only here and in the parts that this class owns: roles, term and vote in its base
class `Elections`, through `_become_follower`, `_become_pre_candidate`, `_become_candidate` and
`_become_leader`; the log in `RaftLog`; the group's members in `Configurations`; a leader's state in
`LeaderRole`; a follower's answers to its leader in `FollowerRole`. `ReadyBuilder` decides which
message leaves when.

Invariants:
- current_term and commit_index never fall; voted_for changes once per term;
- at most one leader per term: an AppendEntries of the own term never reaches a leader;
- a committed entry is never truncated, a leader never truncates;
- only a voter of the configuration in force campaigns, or a former voter whose removal is not known
  to be committed, and only voters' votes count; but messages are accepted from any sender, for the
  sender may know a newer configuration (4.2.3);
- a change of members is accepted only once the one before it, and an entry of the leader's own
  term, are committed: else two leaders could each accept a change, and commit by majorities that
  share no voter.

Source: Raft, figure 2 and section 7; Ongaro's dissertation 3.10 (transfer), chapter 4 (membership)
with its correction (raft-dev, "bug in single-server membership changes", 2015), 6.2 (check-quorum),
6.4 (ReadIndex), 9.6 (pre-vote). Differences: `docs/DIVERGENCE.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from raft.config import RaftConfig
from raft.core.configurations import Configurations
from raft.core.election_timer import ElectionTimer
from raft.core.elections import Elections
from raft.core.follower_role import FollowerRole
from raft.core.leader_role import LeaderRole
from raft.core.membership_rules import change_refusal
from raft.core.progress import Progress
from raft.core.raft_log import RaftLog
from raft.core.ready_builder import ReadyBuilder
from raft.core.vote_tally import VoteTally
from raft.events import (
    ChangeMembership,
    ChangeRefusal,
    ChangeRefused,
    ChunkStored,
    Event,
    HardStateDurable,
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
    SnapshotStored,
    Tick,
    TransferLeadership,
)
from raft.membership import (
    Configuration,
    Member,
    MembershipChange,
    changed,
    encode_membership,
    make_membership,
)
from raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    HardState,
    Index,
    InstallSnapshot,
    InstallSnapshotReply,
    Message,
    NodeId,
    RequestVote,
    RequestVoteReply,
    Term,
    TimeoutNow,
)

if TYPE_CHECKING:
    from random import Random

    from raft.storage import LogStorage

__all__ = ["Core"]


class Core(Elections):
    """One node of a group.

    `storage` and `hard_state` are what recovery found, both durable. `commit_index` is a hint that
    is never above the true one: the checkpoint's, or the index of the newest snapshot if that is
    higher; it is cut to the log's end.

    `configuration` is that of the newest snapshot; without a snapshot, at index 0, the group's
    initial members, which the first leader writes into the log; or an empty membership for a node
    that is to join a group and learns the members from its leader. None stands for the voters of
    `config`, of which nothing but the names is known and nothing is written.

    `store_id`: this node's store. A node that lost its store and was added again reads, as it
    catches up, older configurations in which its name is a voter: that voter is not this node.

    Caller's duty: pass events with times that never fall, carry each Ready out, its appends before
    the next step, and step with a Tick at `next_deadline_ms`. Pass only messages of peers whose
    store is the one that `configuration` names for them, where it names one, and that were meant
    for this store: a vote given by another store is not that voter's.
    """

    def __init__(
        self,
        config: RaftConfig,
        storage: LogStorage,
        hard_state: HardState,
        rng: Random,
        now_ms: int,
        *,
        commit_index: Index = 0,
        configuration: Configuration | None = None,
        store_id: str = "",
    ) -> None:
        self._config = config
        self._log = log = RaftLog(
            storage,
            commit_index=commit_index,
            cache_size_bytes_max=config.log_cache_size_bytes_max,
        )
        self._writes_first = configuration is not None
        if configuration is None:
            voters = make_membership(Member(node_id=name) for name in config.voters)
            configuration = Configuration(index=0, membership=voters)
        self._configurations = Configurations(configuration, storage)
        self._configuration = self._configurations.in_force
        ready_builder = ReadyBuilder()
        super().__init__(
            node_id=config.node_id,
            store_id=store_id,
            membership=self._configuration.membership,
            hard_state=hard_state,
            vote_tally=VoteTally(config.node_id, log, ready_builder),
            timer=ElectionTimer(config, rng, now_ms),
            ready_builder=ready_builder,
            now_ms=now_ms,
        )
        self._follower_role = FollowerRole(config.node_id, log, self._configurations, ready_builder)
        self._leader_role: LeaderRole | None = None
        if log.last_term > self._current_term:
            # A crash may leave un-fsynced entries of a term but lose the hard state of their Ready.
            # Nothing of that term has left then, no vote either: enter it, and save it first.
            self._enter_term(log.last_term, None)

    # Properties that the shell may read.

    @property
    def commit_index(self) -> Index:
        return self._log.commit_index

    @property
    def last_index(self) -> Index:
        return self._log.last_index

    @property
    def durable_index(self) -> Index:
        """Highest index that is known to be fsynced on this node."""
        return self._log.durable_index

    @property
    def configuration(self) -> Configuration:
        """The configuration in force, committed or not."""
        return self._configuration

    def configuration_at(self, index: Index) -> Configuration:
        """Return the configuration that a snapshot at `index` holds; `index` is applied here."""
        return self._configurations.at(index)

    @property
    def peer_ids(self) -> frozenset[NodeId]:
        """Peers that this node may have to send to: all other members, and on a leader also members
        that were just removed and are still notified of it."""
        membership = self._configuration.membership
        ids = {*membership.voter_ids, *membership.learner_ids, *self.progress}
        return frozenset(ids - {self._node_id})

    @property
    def ready(self) -> bool:
        """Whether proposals are accepted: this is the leader, its no-op is committed, and it is
        neither handing leadership over nor being removed."""
        leadership = self._leader_role
        return (
            leadership is not None
            and leadership.transfer_target is None
            and leadership.committed_own_term
            and self._is_voter
        )

    @property
    def progress(self) -> dict[NodeId, Progress]:
        """Replication progress of each peer, read-only; empty unless leader."""
        return {} if self._leader_role is None else self._leader_role.progress

    def successor(self) -> NodeId | None:
        """Return the best transfer target; None if this is no leader or the only voter."""
        return None if self._leader_role is None else self._leader_role.successor()

    @property
    def next_deadline_ms(self) -> int:
        """Time at which the next Tick is due."""
        if self._leader_role is not None:
            return self._leader_role.next_deadline_ms
        return self._timer.deadline_ms

    def change_refusal(self, change: MembershipChange, now_ms: int) -> ChangeRefused | None:
        """Return why a ChangeMembership at `now_ms` would be refused, else None."""
        leadership = self._leader_role
        if leadership is None:
            return ChangeRefused(reason=ChangeRefusal.NOT_LEADER)
        return change_refusal(
            change,
            leadership=leadership,
            configuration=self._configuration,
            log=self._log,
            now_ms=now_ms,
        )

    # The only entry point.

    def step(self, event: Event) -> Ready:
        """Apply one event, which states a fact, and return the effects to carry out."""
        log = self._log
        assert event.now_ms >= self._now_ms, f"time fell from {self._now_ms} to {event.now_ms}"
        log.check_storage()
        term_before, commit_before = self._current_term, log.commit_index
        self._now_ms = event.now_ms
        self._take(event)
        assert self._current_term >= term_before
        assert commit_before <= log.commit_index <= log.last_index
        assert log.durable_index <= log.last_index
        assert (self._role is Role.LEADER) == (self._leader_role is not None)
        return self._ready_builder.take(
            role=self._role,
            term=self._current_term,
            voted_for=self._voted_for,
            leader_id=self._leader_id,
            commit_index=log.commit_index,
        )

    def _take(self, event: Event) -> None:
        match event:
            case Receive(message=message):
                self._receive(message)
            case Propose(payload=payload):
                self._propose(payload)
            case LogDurable(index=index, term=term):
                self._on_log_durable(index, term)
            case HardStateDurable(term=term):
                if term == self._current_term:
                    self._ready_builder.term_is_durable = True
            case Tick():
                self._on_tick()
            case ReadIndexRequest(request_id=request_id):
                self._on_read_request(request_id)
            case PeerUnreachable(peer=peer):
                self._on_peer_unreachable(peer)
            case TransferLeadership(target=target):
                if self._leader_role is not None:
                    self._leader_role.begin_transfer(target, self._now_ms)
            case ChangeMembership(change=change):
                self._on_change(change)
            case RoomChanged(writable=writable, can_begin=can_begin):
                self._follower_role.writable = writable
                self._note_room(writable=writable, can_begin=can_begin)
            case ReplayChanged(replaying=replaying):
                self._timer.is_replaying = replaying
            case ChunkStored():
                if self._follows(event.leader):
                    self._follower_role.on_chunk_stored(event, self._current_term)
            case SnapshotStored():
                self._on_snapshot_stored(event)
            case _:
                assert_never(event)

    # Events.

    def _receive(self, message: Message) -> None:
        assert message.receiver == self._node_id, f"a message for {message.receiver}"
        if message.term < self._current_term:
            self._answer_stale(message)
            return
        match message:
            case AppendEntries():
                self._follow(message.sender, message.term)
                self._follower_role.on_append_entries(message)
                self._note_configuration()
            case AppendEntriesReply():
                self._on_append_entries_reply(message)
            case RequestVote():
                self._on_request_vote(message)
            case RequestVoteReply():
                self._on_request_vote_reply(message)
            case TimeoutNow():
                self._on_timeout_now(message)
            case InstallSnapshot():
                self._follow(message.sender, message.term)
                self._follower_role.on_install_snapshot(message)
            case InstallSnapshotReply():
                self._on_install_reply(message)
            case _:
                assert_never(message)

    def _answer_stale(self, message: Message) -> None:
        """Refuse a request of an earlier term with the current one, so that a deposed leader or a
        candidate that was cut off learns of it; ignore a reply of an earlier term."""
        match message:
            case AppendEntries():
                self._follower_role.refuse(message, self._current_term)
            case InstallSnapshot():
                # No progress is reported: the term alone is news to the sender.
                event = ChunkStored(
                    now_ms=self._now_ms,
                    leader=message.sender,
                    base_index=message.base.index,
                    snapshot_index=message.snapshot_index,
                    next_offset=message.offset,
                )
                self._follower_role.on_chunk_stored(event, self._current_term)
            case RequestVote():
                self._vote_tally.reply(message, self._current_term, granted=False)
            case _:
                return

    def _propose(self, payload: bytes) -> None:
        leadership = self._leader_role
        assert leadership is not None, "only a leader takes proposals"
        assert len(payload) <= self._config.entry_size_bytes_max, f"{len(payload)} bytes"
        self._append((EntryKind.DATA, payload))
        leadership.replicate(self._now_ms)

    def _on_log_durable(self, index: Index, term: Term) -> None:
        if not self._log.durable_to(index, term):
            return  # the entry was truncated meanwhile
        if term == self._current_term:
            self._ready_builder.term_is_durable = True
        if self._leader_role is not None and index > self._log.commit_index:
            self._after_progress(self._leader_role)

    def _on_tick(self) -> None:
        if self._leader_role is not None:
            if not self._leader_role.tick(self._now_ms):
                self._become_follower(self._current_term, None)
        elif self._now_ms >= self._timer.deadline_ms:
            self._campaign()

    def _on_read_request(self, request_id: int) -> None:
        leadership = self._leader_role
        if leadership is None or not leadership.request_read(request_id):
            self._ready_builder.answer_reads([ReadState(request_id=request_id, index=None)])
            return
        self._ready_builder.answer_reads(leadership.serve_reads())

    def _on_peer_unreachable(self, peer: NodeId) -> None:
        if self._leader_role is not None:
            self._leader_role.on_unreachable(peer, self._now_ms)
        elif peer == self._leader_id and not self._leader_is_unreachable:
            self._leader_is_unreachable = True
            self._timer.lost_leader(self._now_ms)

    def _on_snapshot_stored(self, event: SnapshotStored) -> None:
        if self._role in {Role.PRE_CANDIDATE, Role.CANDIDATE}:
            self._become_follower(self._current_term, None)  # its log changed
        # A leader has every committed entry, the base too, so it installs nothing.
        self._follower_role.install(event)
        self._note_configuration()
        if self._follows(event.leader):
            self._follower_role.on_installed(event, self._current_term)

    # Members.

    def _on_change(self, change: MembershipChange) -> None:
        leadership = self._leader_role
        refused = self.change_refusal(change, self._now_ms)
        if leadership is None or refused is not None:
            self._ready_builder.change_refused = refused
            return
        membership = changed(self._configuration.membership, change)
        self._append((EntryKind.CONFIG, encode_membership(membership)))
        leadership.replicate(self._now_ms)
        self._after_progress(leadership)

    def _note_configuration(self) -> None:
        """Adopt the configuration in force if this step has changed it."""
        configuration = self._configurations.in_force
        if configuration == self._configuration:
            return
        self._configuration = configuration
        self._vote_in(configuration.membership)
        self._ready_builder.configuration = configuration
        if self._leader_role is not None:
            self._leader_role.change_members(
                configuration, self._now_ms, counts_itself=self._is_voter
            )

    def _may_campaign(self) -> bool:
        """Return whether this node may campaign: a voter with room for a leader's first entries
        may; so may a former voter whose removal is not known to be committed, for the others may
        need its log (4.2.2), but its own vote does not count."""
        if not self._can_begin:
            return False
        if self._is_voter:
            return True
        before = self._configurations.replaced
        return (
            before is not None
            and before.membership.has_voter(self._node_id, self._store_id)
            and self._configuration.index > self._log.commit_index
        )

    # The abstract methods of `Elections`.

    def _begin_leading(self) -> None:
        self._leader_role = LeaderRole(
            config=self._config,
            term=self._current_term,
            configuration=self._configuration,
            counts_itself=self._is_voter,
            log=self._log,
            ready_builder=self._ready_builder,
            now_ms=self._now_ms,
        )
        begin = [(EntryKind.NOOP, b"")]
        if self._writes_first and self._configuration.index == 0:
            # The voters stay the same, so no rule of membership changes applies.
            payload = encode_membership(self._configuration.membership)
            begin.append((EntryKind.CONFIG, payload))
        self._append(*begin)
        self._leader_role.replicate(self._now_ms)

    def _end_leading(self) -> None:
        assert self._leader_role is not None
        self._ready_builder.answer_reads(
            ReadState(request_id=request_id, index=None)
            for request_id in self._leader_role.open_reads()
        )
        self._leader_role = None

    def _hears_majority(self) -> bool:
        assert self._leader_role is not None
        lease_ms = self._config.election_timeout_ms_min
        return self._leader_role.has_quorum_contact(self._now_ms, lease_ms)

    # The log, as a leader.

    def _on_append_entries_reply(self, reply: AppendEntriesReply) -> None:
        if reply.term > self._current_term:
            self._become_follower(reply.term, None)
            return
        leadership = self._leader_role
        if leadership is None:
            return  # stepped down within this term
        leadership.on_reply(reply, self._now_ms)
        # What raises no match beyond the commit index commits nothing.
        if reply.match_index > self._log.commit_index or leadership.has_reads():
            self._after_progress(leadership)

    def _on_install_reply(self, reply: InstallSnapshotReply) -> None:
        if reply.term > self._current_term:
            self._become_follower(reply.term, None)
        elif self._leader_role is not None:
            self._leader_role.on_install_reply(reply, self._now_ms)

    def _after_progress(self, leadership: LeaderRole) -> None:
        has_committed = leadership.maybe_commit(self._now_ms)
        if leadership.has_reads():
            self._ready_builder.answer_reads(leadership.serve_reads())
        is_removed = not self._is_voter and self._configuration.index <= self._log.commit_index
        if has_committed and is_removed:
            # This node's removal is committed (4.2.2): hand over at once, not by a timeout.
            leadership.resign()
            self._become_follower(self._current_term, None)

    def _append(self, *kinds_and_payloads: tuple[EntryKind, bytes]) -> None:
        index = self._log.last_index
        entries = tuple(
            Entry(index=index + place, term=self._current_term, kind=kind, payload=payload)
            for place, (kind, payload) in enumerate(kinds_and_payloads, start=1)
        )
        self._configurations.append(entries)
        self._note_configuration()
        self._log.append(entries)
        self._ready_builder.append(entries)
