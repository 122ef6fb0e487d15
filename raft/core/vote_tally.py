"""Requests votes, answers vote requests, counts the answers.

Place in the data path: `raft.core.core` decides when a campaign starts and what its outcome means;
this module builds the messages and holds the answers.

Invariants: a vote leaves only once it is durable; a node judges a request by its log as it is when
it answers; only voters' answers count, and of each voter the first.

Source: Raft 5.2, 5.4.1; dissertation 9.6 (pre-vote).
"""

from __future__ import annotations

from collections.abc import Collection

from raft.core.quorum import VoteResult, vote_result
from raft.core.raft_log import RaftLog
from raft.core.ready_builder import ReadyBuilder
from raft.ids import NodeId, Term
from raft.messages import RequestVote, RequestVoteReply

__all__ = ["VoteTally"]


class VoteTally:
    """Votes of one campaign. `log` and `ready_builder` are shared with the core."""

    __slots__ = ("_log", "_node_id", "_ready_builder", "_votes")

    def __init__(self, node_id: NodeId, log: RaftLog, ready_builder: ReadyBuilder) -> None:
        self._node_id = node_id
        self._log = log
        self._ready_builder = ready_builder
        self._votes: dict[NodeId, bool] = {}

    def open(
        self,
        voters: Collection[NodeId],
        *,
        term: Term,
        counts_itself: bool,
        pre_vote: bool,
        leadership_transfer: bool,
    ) -> None:
        """Request the vote of every other voter; this node votes for itself if `counts_itself`.
        `term` as in RequestVote."""
        self._votes = {self._node_id: True} if counts_itself else {}
        for voter in voters:
            if voter == self._node_id:
                continue
            self._ready_builder.send(
                RequestVote(
                    sender=self._node_id,
                    receiver=voter,
                    term=term,
                    last_log_index=self._log.last_index,
                    last_log_term=self._log.last_term,
                    pre_vote=pre_vote,
                    leadership_transfer=leadership_transfer,
                )
            )

    def close(self) -> None:
        self._votes = {}

    def note(self, reply: RequestVoteReply) -> None:
        self._votes.setdefault(reply.sender, reply.granted)

    def result(self, voters: Collection[NodeId]) -> VoteResult:
        return vote_result(voters, self._votes)

    def is_up_to_date(self, request: RequestVote) -> bool:
        """Return whether the candidate's log is at least as up-to-date as this one (5.4.1)."""
        candidate_last = (request.last_log_term, request.last_log_index)
        return candidate_last >= (self._log.last_term, self._log.last_index)

    def reply(self, request: RequestVote, current_term: Term, *, granted: bool) -> None:
        reply = RequestVoteReply(
            sender=self._node_id,
            receiver=request.sender,
            term=request.term if granted else current_term,
            granted=granted,
            pre_vote=request.pre_vote,
        )
        if granted and not request.pre_vote:
            self._ready_builder.send_after_sync(reply)
        else:
            self._ready_builder.send(reply)
