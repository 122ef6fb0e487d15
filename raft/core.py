"""Raft as a pure state machine: `step(event) -> Ready`.

Place in the data path: the shell (`raft.node`, or the simulator) turns sockets, fsyncs and timers
into events and carries each Ready out in the order that `raft.events` states. No clock, socket,
file, thread or randomness of its own: time comes with each event, a seeded `Random` at
construction.

State changes here alone: roles through `_become_follower`, `_become_pre_candidate`,
`_become_candidate`, `_become_leader`; the log through `RaftLog`; what only a leader has through
`Leadership`.

What may leave before an fsync. `messages` holds what depends on nothing that is not yet durable:
a leader's AppendEntries, refusals and acknowledgements of what is durable already. Votes given,
requests for votes, and acknowledgements of new entries go into `messages_after_sync`; so does
every message of a term that may not be durable yet (`_term_is_durable`), which an fsynced entry
of that term proves, since term and entry are made durable in the order of their Readys.

Invariants:
- current_term and commit_index never fall; voted_for changes once per term;
- at most one leader per term: an AppendEntries of the own term never reaches a leader;
- a committed entry is never truncated, a leader never truncates;
- a stale or repeated AppendEntries never shortens the log: only an entry whose term differs does.

Over 500 lines, because every rule that changes role, term or vote stands in this one class: split
by role, the rules that hold in all of them would be written three times.

Source: Raft, figure 2; Ongaro's dissertation 3.10 (transfer), 6.2 (check-quorum), 6.4 (ReadIndex),
9.6 (pre-vote). Differences: `docs/DIVERGENCE.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from raft.config import RaftConfig
from raft.events import (
    ChangeMembership,
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
    Role,
    RoomChanged,
    SnapshotStored,
    Tick,
    TransferLeadership,
)
from raft.leadership import Leadership
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
from raft.progress import Progress
from raft.quorum import VoteResult, vote_result
from raft.raft_log import RaftLog

if TYPE_CHECKING:
    from random import Random

    from raft.storage import LogStorage

__all__ = ["Core"]


class Core:
    """One node of a group.

    `storage` and `hard_state` are what recovery found, both durable. `commit_index` is a hint
    that is never above the true one (the checkpoint's); it is cut to the log's end.

    Caller's duty: feed events with times that never fall, carry each Ready out, its appends
    before the next step, and step with a Tick at `next_deadline_ms`.
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
    ) -> None:
        self._config = config
        self._node_id = config.node_id
        self._voters = config.voters
        self._rng = rng
        self._now_ms = now_ms
        self._log = RaftLog(
            storage,
            commit_index=commit_index,
            cache_size_bytes_max=config.log_cache_size_bytes_max,
        )
        self._current_term: Term = hard_state.current_term
        self._voted_for: NodeId | None = hard_state.voted_for
        self._term_is_durable = True
        # A crash may leave un-fsynced entries of a term but lose the hard state of their Ready.
        # Nothing of that term has left then, no vote either: enter it now, and save it first.
        is_behind_log = self._log.last_term > self._current_term
        if is_behind_log:
            self._current_term = self._log.last_term
            self._voted_for = None
            self._term_is_durable = False

        self._role = Role.FOLLOWER
        self._leader_id: NodeId | None = None
        self._leader_contact_ms = now_ms
        self._leader_is_unreachable = False
        self._leadership: Leadership | None = None
        self._votes: dict[NodeId, bool] = {}
        self._election_timeout_ms = 0
        self._election_at_ms = 0
        self._reset_election_timeout()
        if self._voters == (self._node_id,):
            self._election_at_ms = now_ms  # there is nobody to wait for

        # What the Ready of the current step will hold.
        self._hard_state_changed = is_behind_log
        self._truncate_from: Index | None = None
        self._entries: tuple[Entry, ...] = ()
        self._messages: list[Message] = []
        self._messages_after_sync: list[Message] = []
        self._read_states: list[ReadState] = []

    # What the shell may read.

    @property
    def role(self) -> Role:
        return self._role

    @property
    def current_term(self) -> Term:
        return self._current_term

    @property
    def voted_for(self) -> NodeId | None:
        return self._voted_for

    @property
    def leader_id(self) -> NodeId | None:
        return self._leader_id

    @property
    def commit_index(self) -> Index:
        return self._log.commit_index

    @property
    def last_index(self) -> Index:
        return self._log.last_index

    @property
    def durable_index(self) -> Index:
        """Up to here the log is known to be fsynced on this node."""
        return self._log.durable_index

    @property
    def voters(self) -> tuple[NodeId, ...]:
        return self._voters

    @property
    def ready(self) -> bool:
        """Leader, its no-op committed, not handing leadership over: proposals are welcome."""
        leadership = self._leadership
        return (
            leadership is not None
            and leadership.transfer_target is None
            and leadership.committed_own_term
        )

    @property
    def progress(self) -> dict[NodeId, Progress]:
        """The followers as this leader knows them, to look at only; empty unless leader."""
        return {} if self._leadership is None else self._leadership.progress

    @property
    def next_deadline_ms(self) -> int:
        """When the next Tick is due."""
        if self._leadership is not None:
            return self._leadership.next_deadline_ms
        return self._election_at_ms

    # The one way in.

    def step(self, event: Event) -> Ready:
        """Take one event; what it says has happened, has."""
        log = self._log
        assert event.now_ms >= self._now_ms, f"time fell from {self._now_ms} to {event.now_ms}"
        log.check_storage()
        term_before, commit_before = self._current_term, log.commit_index
        self._now_ms = event.now_ms
        match event:
            case Receive(message=message):
                self._receive(message)
            case Propose(payload=payload):
                self._propose(payload)
            case HardStateDurable(term=term):
                self._term_is_durable = self._term_is_durable or term == self._current_term
            case ChangeMembership() | RoomChanged() | ChunkStored() | SnapshotStored():
                pass  # no membership but the first, no snapshot and no bound of room yet
            case LogDurable(index=index, term=term):
                self._on_log_durable(index, term)
            case Tick():
                self._on_tick()
            case ReadIndexRequest(request_id=request_id):
                self._on_read_request(request_id)
            case PeerUnreachable(peer=peer):
                self._on_peer_unreachable(peer)
            case TransferLeadership(target=target):
                if self._leadership is not None:
                    self._leadership.begin_transfer(target, self._now_ms)
            case _:
                assert_never(event)
        assert self._current_term >= term_before
        assert commit_before <= log.commit_index <= log.last_index
        assert log.durable_index <= log.last_index
        assert (self._role is Role.LEADER) == (self._leadership is not None)
        return self._take_ready()

    def _take_ready(self) -> Ready:
        hard_state = None
        if self._hard_state_changed:
            assert not self._messages, "what depends on this hard state waits for its fsync"
            hard_state = HardState(current_term=self._current_term, voted_for=self._voted_for)
            self._hard_state_changed = False
        ready = Ready(
            hard_state=hard_state,
            truncate_from=self._truncate_from,
            entries=self._entries,
            messages=tuple(self._messages),
            messages_after_sync=tuple(self._messages_after_sync),
            commit_index=self._log.commit_index,
            read_states=tuple(self._read_states),
            role=self._role,
            term=self._current_term,
            leader_id=self._leader_id,
        )
        self._truncate_from = None
        self._entries = ()
        self._messages.clear()  # cleared, not replaced: `Leadership` holds its append
        self._messages_after_sync.clear()
        self._read_states.clear()
        return ready

    # Events.

    def _receive(self, message: Message) -> None:
        assert message.receiver == self._node_id, f"a message for {message.receiver}"
        if message.sender not in self._voters:
            return  # it may have been a voter once; it has no say now
        if message.term < self._current_term:
            self._answer_stale(message)
            return
        match message:
            case AppendEntries():
                self._on_append_entries(message)
            case AppendEntriesReply():
                self._on_append_entries_reply(message)
            case RequestVote():
                self._on_request_vote(message)
            case RequestVoteReply():
                self._on_request_vote_reply(message)
            case TimeoutNow():
                self._on_timeout_now(message)
            case InstallSnapshot() | InstallSnapshotReply():
                return  # no log begins above 1 yet
            case _:
                assert_never(message)

    def _propose(self, payload: bytes) -> None:
        leadership = self._leadership
        assert leadership is not None, "only a leader takes proposals"
        assert len(payload) <= self._config.entry_size_bytes_max, f"{len(payload)} bytes"
        self._append(EntryKind.DATA, payload)
        leadership.replicate()

    def _on_log_durable(self, index: Index, term: Term) -> None:
        if not self._log.durable_to(index, term):
            return  # truncated meanwhile
        if term == self._current_term:
            self._term_is_durable = True
        if self._leadership is not None:
            self._after_progress(self._leadership)

    def _on_tick(self) -> None:
        if self._leadership is not None:
            if not self._leadership.tick(self._now_ms):
                self._become_follower(self._current_term, None)
        elif self._now_ms >= self._election_at_ms:
            self._campaign()

    def _on_read_request(self, request_id: int) -> None:
        leadership = self._leadership
        if leadership is None or not leadership.request_read(request_id):
            self._read_states.append(ReadState(request_id=request_id, index=None))
            return
        self._read_states.extend(leadership.serve_reads())

    def _on_peer_unreachable(self, peer: NodeId) -> None:
        if self._leadership is not None:
            self._leadership.on_unreachable(peer)
        elif peer == self._leader_id and not self._leader_is_unreachable:
            self._leader_is_unreachable = True
            delay_ms = self._rng.randint(
                self._config.campaign_delay_ms_min, self._config.campaign_delay_ms_max
            )
            self._election_at_ms = min(self._election_at_ms, self._now_ms + delay_ms)

    # Terms and roles.

    def _become_follower(self, term: Term, leader_id: NodeId | None) -> None:
        assert term >= self._current_term
        if term > self._current_term:
            self._enter_term(term, None)
        if self._leadership is not None:
            self._read_states.extend(
                ReadState(request_id=request_id, index=None)
                for request_id in self._leadership.open_reads()
            )
            self._leadership = None
        if self._role is not Role.FOLLOWER:
            # A follower keeps its deadline: a candidate whose log is too short to win must not
            # keep others from campaigning by raising their terms.
            self._role = Role.FOLLOWER
            self._reset_election_timeout()
        self._leader_id = leader_id
        self._leader_is_unreachable = False
        self._votes = {}

    def _become_pre_candidate(self) -> None:
        assert self._role is not Role.LEADER
        self._role = Role.PRE_CANDIDATE
        self._leader_id = None
        self._votes = {self._node_id: True}
        self._reset_election_timeout()
        self._request_votes(pre_vote=True, leadership_transfer=False)

    def _become_candidate(self, *, leadership_transfer: bool) -> None:
        assert self._role is not Role.LEADER
        self._enter_term(self._current_term + 1, self._node_id)
        self._role = Role.CANDIDATE
        self._leader_id = None
        self._votes = {self._node_id: True}
        self._reset_election_timeout()
        self._request_votes(pre_vote=False, leadership_transfer=leadership_transfer)
        self._count_votes()

    def _become_leader(self) -> None:
        assert self._role is Role.CANDIDATE
        assert self._voted_for == self._node_id
        self._role = Role.LEADER
        self._leader_id = self._node_id
        self._votes = {}
        self._leadership = Leadership(
            config=self._config,
            term=self._current_term,
            voters=self._voters,
            log=self._log,
            now_ms=self._now_ms,
            # Others' votes prove that the term is durable here: the requests left after its fsync.
            send=self._messages.append,
        )
        self._append(EntryKind.NOOP, b"")
        self._leadership.replicate()

    def _enter_term(self, term: Term, voted_for: NodeId | None) -> None:
        assert term > self._current_term
        self._current_term = term
        self._voted_for = voted_for
        self._hard_state_changed = True
        self._term_is_durable = False

    def _reset_election_timeout(self) -> None:
        self._election_timeout_ms = self._rng.randint(
            self._config.election_timeout_ms_min, self._config.election_timeout_ms_max
        )
        self._election_at_ms = self._now_ms + self._election_timeout_ms

    # Elections.

    def _campaign(self) -> None:
        if self._node_id not in self._voters:
            self._reset_election_timeout()
        elif len(self._voters) == 1:
            self._become_candidate(leadership_transfer=False)
        else:
            self._become_pre_candidate()

    def _request_votes(self, *, pre_vote: bool, leadership_transfer: bool) -> None:
        for voter in self._voters:
            if voter == self._node_id:
                continue
            request = RequestVote(
                sender=self._node_id,
                receiver=voter,
                term=self._current_term + 1 if pre_vote else self._current_term,
                last_log_index=self._log.last_index,
                last_log_term=self._log.last_term,
                pre_vote=pre_vote,
                leadership_transfer=leadership_transfer,
            )
            self._send_with_term(request)

    def _on_request_vote(self, request: RequestVote) -> None:
        # A node that hears its leader neither gives votes nor lets its term be raised (6.2, 9.6).
        if not request.leadership_transfer and self._hears_leader():
            self._reply_vote(request, granted=False)
            return
        if request.term > self._current_term and not request.pre_vote:
            self._become_follower(request.term, None)
        granted = self._would_vote(request)
        if granted and not request.pre_vote:
            if self._role is Role.PRE_CANDIDATE:
                self._become_follower(self._current_term, None)  # its own campaign is over
            assert self._role is Role.FOLLOWER
            if self._voted_for is None:
                self._voted_for = request.sender
                self._hard_state_changed = True
            self._reset_election_timeout()
        self._reply_vote(request, granted=granted)

    def _would_vote(self, request: RequestVote) -> bool:
        log = self._log
        if (request.last_log_term, request.last_log_index) < (log.last_term, log.last_index):
            return False  # 5.4.1
        if request.term > self._current_term:
            return True
        if self._voted_for is None:
            return self._leader_id is None
        return self._voted_for == request.sender

    def _hears_leader(self) -> bool:
        lease_ms = self._config.election_timeout_ms_min
        if self._leadership is not None:
            return self._leadership.has_quorum_contact(self._now_ms, lease_ms)
        return (
            self._leader_id is not None
            and not self._leader_is_unreachable
            and self._now_ms < self._leader_contact_ms + lease_ms
        )

    def _reply_vote(self, request: RequestVote, *, granted: bool) -> None:
        reply = RequestVoteReply(
            sender=self._node_id,
            receiver=request.sender,
            term=request.term if granted else self._current_term,
            granted=granted,
            pre_vote=request.pre_vote,
        )
        if granted and not request.pre_vote:
            self._messages_after_sync.append(reply)
        else:
            self._send_with_term(reply)

    def _on_request_vote_reply(self, reply: RequestVoteReply) -> None:
        is_pre_grant = reply.pre_vote and reply.granted
        if reply.term > self._current_term and not is_pre_grant:
            self._become_follower(reply.term, None)
            return
        if reply.pre_vote:
            if self._role is not Role.PRE_CANDIDATE:
                return
            if reply.granted and reply.term != self._current_term + 1:
                return
        elif self._role is not Role.CANDIDATE:
            return
        self._votes.setdefault(reply.sender, reply.granted)
        self._count_votes()

    def _count_votes(self) -> None:
        result = vote_result(self._voters, self._votes)
        if result is VoteResult.LOST:
            self._become_follower(self._current_term, None)
        elif result is VoteResult.WON:
            if self._role is Role.PRE_CANDIDATE:
                self._become_candidate(leadership_transfer=False)
            else:
                self._become_leader()

    def _on_timeout_now(self, message: TimeoutNow) -> None:
        if message.term > self._current_term:
            self._become_follower(message.term, message.sender)
        if self._role is Role.FOLLOWER and self._node_id in self._voters:
            self._become_candidate(leadership_transfer=True)

    # The log, as a follower.

    def _on_append_entries(self, message: AppendEntries) -> None:
        assert self._role is not Role.LEADER or message.term > self._current_term, (
            f"{message.sender} leads in term {message.term}, and so does {self._node_id}"
        )
        if message.term > self._current_term or self._role is not Role.FOLLOWER:
            self._become_follower(message.term, message.sender)
        assert self._leader_id in {None, message.sender}, "two leaders in a term"
        self._leader_id = message.sender
        self._leader_is_unreachable = False
        self._leader_contact_ms = self._now_ms
        self._election_at_ms = self._now_ms + self._election_timeout_ms

        log = self._log
        prev_log_index = message.prev_log_index
        if not log.has(prev_log_index, message.prev_log_term):
            self._refuse(message)
            return
        if message.entries:
            assert message.entries[0].index == prev_log_index + 1
            self._append_received(message.entries)
        last_known_index = prev_log_index + len(message.entries)
        log.commit_to(min(message.leader_commit, last_known_index))
        if message.entries or not self._term_is_durable:
            # Even if all of them were here already: an earlier fsync may still be under way.
            self._acknowledge(message, last_known_index, self._messages_after_sync)
        else:
            # A heartbeat needs no fsync, so that a slow disk does not cost the leader its quorum.
            self._acknowledge(message, min(last_known_index, log.durable_index), self._messages)

    def _append_received(self, entries: tuple[Entry, ...]) -> None:
        """Append what is new. Only an entry with another term truncates (figure 2)."""
        log = self._log
        new_count = 0
        if entries[0].index <= log.last_index:
            for entry in entries:
                if not log.has(entry.index, entry.term):
                    break
                new_count += 1
            entries = entries[new_count:]
            if not entries:
                return
            if entries[0].index <= log.last_index:
                log.truncate_from(entries[0].index)
                self._truncate_from = entries[0].index
        assert entries[-1].term <= self._current_term
        log.append(entries)
        self._entries = entries

    def _acknowledge(
        self, message: AppendEntries, match_index: Index, outbox: list[Message]
    ) -> None:
        outbox.append(
            AppendEntriesReply(
                sender=self._node_id,
                receiver=message.sender,
                term=self._current_term,
                success=True,
                match_index=match_index,
                rejected_prev_index=0,
                conflict_index=0,
                conflict_term=0,
                read_round=message.read_round,
            )
        )

    def _refuse(self, message: AppendEntries) -> None:
        """Tell where to go on (5.3): skip a whole term at once, or go to the log's end."""
        log = self._log
        conflict_index, conflict_term = log.last_index + 1, 0
        if log.first_index <= message.prev_log_index <= log.last_index:
            conflict_term = log.term(message.prev_log_index)
            conflict_index = log.first_index_of_term_at(message.prev_log_index)
        # The rounds of an earlier term are not those of this one, which the sender may lead too.
        read_round = message.read_round if message.term == self._current_term else 0
        self._send_with_term(
            AppendEntriesReply(
                sender=self._node_id,
                receiver=message.sender,
                term=self._current_term,
                success=False,
                match_index=0,
                rejected_prev_index=message.prev_log_index,
                conflict_index=conflict_index,
                conflict_term=conflict_term,
                read_round=read_round,
            )
        )

    def _answer_stale(self, message: Message) -> None:
        """A request of an earlier term is refused with the current one, so that a deposed leader
        or a candidate that was cut off learns of it; a reply of an earlier term says nothing."""
        match message:
            case AppendEntries():
                self._refuse(message)
            case RequestVote():
                self._reply_vote(message, granted=False)
            case _:
                return

    # The log, as a leader.

    def _on_append_entries_reply(self, reply: AppendEntriesReply) -> None:
        if reply.term > self._current_term:
            self._become_follower(reply.term, None)
            return
        leadership = self._leadership
        if leadership is None:
            return  # stepped down since, within the term
        leadership.on_reply(reply, self._now_ms)
        self._after_progress(leadership)

    def _after_progress(self, leadership: Leadership) -> None:
        leadership.maybe_commit(self._now_ms)
        self._read_states.extend(leadership.serve_reads())

    def _append(self, kind: EntryKind, payload: bytes) -> None:
        log = self._log
        entry = Entry(index=log.last_index + 1, term=self._current_term, kind=kind, payload=payload)
        assert not self._entries, "one step appends once"
        self._entries = (entry,)
        log.append(self._entries)

    def _send_with_term(self, message: Message) -> None:
        """Send at once if the term it stands on is durable, else after the fsync."""
        outbox = self._messages if self._term_is_durable else self._messages_after_sync
        outbox.append(message)
