"""Term, vote and role of one node, and all transitions of them.

Place in the data path: the election half of `raft.core.core`. `Core` inherits from it, adds the
log, the members and the events, and implements what a leader does.

Invariants:
- current_term never falls; voted_for changes once per term, and both are durable before a message
  that depends on them leaves (`ReadyBuilder`);
- at most one leader per term: an AppendEntries of the own term never reaches a leader;
- a node in contact with its leader neither grants votes nor adopts a candidate's term.

Source: Raft 5.1, 5.2, 5.4.1; Ongaro's dissertation 3.10 (TimeoutNow), 6.2 (check-quorum), 9.6
(pre-vote).
"""

from __future__ import annotations

import abc

from raft.core.election_timer import ElectionTimer
from raft.core.quorum import VoteResult
from raft.core.ready_builder import ReadyBuilder
from raft.core.vote_tally import VoteTally
from raft.events import Role
from raft.membership import Membership
from raft.messages import HardState, NodeId, RequestVote, RequestVoteReply, Term, TimeoutNow

__all__ = ["Elections"]


class Elections(abc.ABC):
    """Election state of one node. `hard_state` is durable."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        store_id: str,
        membership: Membership,
        hard_state: HardState,
        vote_tally: VoteTally,
        timer: ElectionTimer,
        ready_builder: ReadyBuilder,
        now_ms: int,
    ) -> None:
        self._node_id = node_id
        self._store_id = store_id
        self._vote_tally = vote_tally
        self._timer = timer
        self._ready_builder = ready_builder
        self._now_ms = now_ms
        self._current_term: Term = hard_state.current_term
        self._voted_for: NodeId | None = hard_state.voted_for
        self._role = Role.FOLLOWER
        self._leader_id: NodeId | None = None
        self._leader_is_unreachable = False
        self._can_begin = True
        self._vote_in(membership)
        if self._is_sole_voter():
            timer.deadline_ms = now_ms  # there is no other voter to wait for

    # Properties that the shell may read.

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
    def voters(self) -> tuple[NodeId, ...]:
        return self._voters

    # Implemented by the subclass.

    @abc.abstractmethod
    def _may_campaign(self) -> bool:
        """Return whether the configuration in force lets this node campaign."""

    @abc.abstractmethod
    def _begin_leading(self) -> None:
        """Start the leader's work; the node has become leader of the current term."""

    @abc.abstractmethod
    def _end_leading(self) -> None:
        """Stop the leader's work; the node has stepped down."""

    @abc.abstractmethod
    def _hears_majority(self) -> bool:
        """Return whether a majority answered this leader within the minimal election timeout."""

    # Voters.

    def _vote_in(self, membership: Membership) -> None:
        """Count only the voters of `membership` from now on."""
        self._voters = membership.voter_ids
        self._is_voter = membership.has_voter(self._node_id, self._store_id)

    def _is_sole_voter(self) -> bool:
        return self._is_voter and len(self._voters) == 1

    # Terms and roles.

    def _follow(self, leader_id: NodeId, term: Term) -> None:
        """Note contact with the leader of the current term or of a later one."""
        assert self._role is not Role.LEADER or term > self._current_term, (
            f"{leader_id} leads in term {term}, and so does {self._node_id}"
        )
        if term > self._current_term or self._role is not Role.FOLLOWER:
            self._become_follower(term, leader_id)
        assert self._leader_id in {None, leader_id}, "two leaders in a term"
        self._leader_id = leader_id
        self._leader_is_unreachable = False
        self._timer.heard_leader(self._now_ms)

    def _follows(self, leader_id: NodeId) -> bool:
        return self._role is Role.FOLLOWER and self._leader_id == leader_id

    def _become_follower(self, term: Term, leader_id: NodeId | None) -> None:
        assert term >= self._current_term
        if term > self._current_term:
            self._enter_term(term, None)
        if self._role is Role.LEADER:
            self._end_leading()
        if self._role is not Role.FOLLOWER:
            # A follower's deadline stands: a candidate whose log is too short to win must not keep
            # others from campaigning by raising their terms.
            self._role = Role.FOLLOWER
            self._timer.restart(self._now_ms)
        self._leader_id = leader_id
        self._leader_is_unreachable = False
        self._vote_tally.close()

    def _become_pre_candidate(self) -> None:
        assert self._role is not Role.LEADER
        self._role = Role.PRE_CANDIDATE
        self._leader_id = None
        self._timer.restart(self._now_ms)
        self._vote_tally.open(
            self._voters,
            term=self._current_term + 1,
            counts_itself=self._is_voter,
            pre_vote=True,
            leadership_transfer=False,
        )

    def _become_candidate(self, *, leadership_transfer: bool) -> None:
        assert self._role is not Role.LEADER
        self._enter_term(self._current_term + 1, self._node_id)
        self._role = Role.CANDIDATE
        self._leader_id = None
        self._timer.restart(self._now_ms)
        self._vote_tally.open(
            self._voters,
            term=self._current_term,
            counts_itself=self._is_voter,
            pre_vote=False,
            leadership_transfer=leadership_transfer,
        )
        self._count_votes()

    def _become_leader(self) -> None:
        assert self._role is Role.CANDIDATE
        assert self._voted_for == self._node_id
        self._role = Role.LEADER
        self._leader_id = self._node_id
        self._vote_tally.close()
        if not self._is_sole_voter():
            # The others' votes prove that the term is durable: their requests left after its fsync.
            self._ready_builder.term_is_durable = True
        self._begin_leading()

    def _enter_term(self, term: Term, voted_for: NodeId | None) -> None:
        assert term > self._current_term
        self._current_term = term
        self._voted_for = voted_for
        self._ready_builder.hard_state_changed = True
        self._ready_builder.term_is_durable = False

    # Elections.

    def _note_room(self, *, writable: bool, can_begin: bool) -> None:
        """Note whether the log has room for any entries, and for a leader's first ones."""
        self._timer.is_without_room = not writable
        self._can_begin = can_begin
        if not can_begin and self._role in {Role.PRE_CANDIDATE, Role.CANDIDATE}:
            self._become_follower(self._current_term, None)

    def _campaign(self) -> None:
        if not self._may_campaign():
            self._timer.restart(self._now_ms)
        elif self._is_sole_voter():
            self._become_candidate(leadership_transfer=False)
        else:
            self._become_pre_candidate()

    def _on_request_vote(self, request: RequestVote) -> None:
        # In contact with the leader: neither grant a vote nor adopt the candidate's term (6.2,
        # 9.6).
        if not request.leadership_transfer and self._hears_leader():
            self._vote_tally.reply(request, self._current_term, granted=False)
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
                self._ready_builder.hard_state_changed = True
            self._timer.restart(self._now_ms)
        self._vote_tally.reply(request, self._current_term, granted=granted)

    def _would_vote(self, request: RequestVote) -> bool:
        if not self._vote_tally.is_up_to_date(request):
            return False
        if request.term > self._current_term:
            return True
        if self._voted_for is None:
            # A leader of this term means that its election is over.
            return self._leader_id is None
        return self._voted_for == request.sender

    def _hears_leader(self) -> bool:
        if self._role is Role.LEADER:
            return self._hears_majority()
        return (
            self._leader_id is not None
            and not self._leader_is_unreachable
            and self._timer.holds_lease(self._now_ms)
        )

    def _on_request_vote_reply(self, reply: RequestVoteReply) -> None:
        is_pre_grant = reply.pre_vote and reply.granted
        if reply.term > self._current_term and not is_pre_grant:
            self._become_follower(reply.term, None)
            return
        if reply.pre_vote:
            if self._role is not Role.PRE_CANDIDATE:
                return
            # A granted pre-vote echoes the requested term: this one is of an earlier campaign.
            if reply.granted and reply.term != self._current_term + 1:
                return
        elif self._role is not Role.CANDIDATE:
            return
        self._vote_tally.note(reply)
        self._count_votes()

    def _count_votes(self) -> None:
        result = self._vote_tally.result(self._voters)
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
        if self._timer.is_replaying:
            return  # the leader goes on serving while this node replays
        if self._role is Role.FOLLOWER and self._may_campaign():
            self._become_candidate(leadership_transfer=True)
