"""Planted bugs in terms, votes and elections."""

from __future__ import annotations

from campaigns.mutants.mutant import Mutant
from campaigns.mutants.source_patch import SourcePatch

__all__ = ["ELECTION_MUTANTS", "MESSAGES_BESIDE_A_HARD_STATE"]

MESSAGES_BESIDE_A_HARD_STATE = SourcePatch(
    module="raft.core.ready_builder",
    within="ReadyBuilder.take",
    before='assert not self._messages, "what depends on this hard state waits for its fsync"',
    after="pass",
)
"""Takes away the assertion that would stop a node with one of these bugs."""

ELECTION_MUTANTS = (
    Mutant(
        name="vote given twice in a term",
        breaks="a node that has voted in a term grants every other candidate of it, too",
        published="camunda#5356, etcd#2461: the vote was forgotten within its term",
        expected=("R2",),
        patches=(
            SourcePatch(
                module="raft.core.elections",
                within="Elections._would_vote",
                before="return self._voted_for == request.sender",
                after="return self._role is Role.FOLLOWER",
            ),
        ),
    ),
    Mutant(
        name="vote not reset in a new term",
        breaks="the vote of the last term is kept in the next one, where it was never given",
        expected=("R2", "R11", "liveness", "vote before durable"),
        patches=(
            SourcePatch(
                module="raft.core.elections",
                within="Elections._become_follower",
                before="self._enter_term(term, None)",
                after="self._enter_term(term, self._voted_for)",
            ),
        ),
    ),
    Mutant(
        name="stale vote after a restart",
        breaks="the term is persisted, the vote is not: after a restart the node votes anew",
        published="cornerstone#65, NodeDB#161, PySyncObj#202",
        expected=("R2",),
        patches=(
            SourcePatch(
                module="raft.log.hard_state",
                within="HardStateFile._save",
                before="image = _image(state)",
                after="""
                state = HardState(current_term=state.current_term, voted_for=None)
                image = _image(state)
                """,
            ),
        ),
    ),
    Mutant(
        name="vote sent before its fsync",
        breaks="a vote leaves while the hard state that holds it is still to be written",
        published="NodeDB#161: answered before it was persisted",
        expected=("vote before durable",),
        patches=(
            SourcePatch(
                module="raft.core.vote_tally",
                within="VoteTally.reply",
                before="self._ready_builder.send_after_sync(reply)",
                after="self._ready_builder._messages.append(reply)",
            ),
            MESSAGES_BESIDE_A_HARD_STATE,
        ),
    ),
    Mutant(
        name="term sent before its fsync",
        breaks="messages of a new term leave while the term is still to be written",
        published="raft-java#57: the term of a campaign was not persisted",
        expected=("sent before durable", "vote before durable", "R3"),
        patches=(
            SourcePatch(
                module="raft.core.ready_builder",
                within="ReadyBuilder.send",
                before="(self._messages if self.term_is_durable else self._messages_after_sync).append(message)",
                after="self._messages.append(message)",
            ),
            MESSAGES_BESIDE_A_HARD_STATE,
        ),
    ),
    Mutant(
        name="election restriction by index only",
        breaks="a longer log of an older term wins against a shorter one of a newer term",
        expected=("R11", "R7"),
        patches=(
            SourcePatch(
                module="raft.core.vote_tally",
                within="VoteTally.is_up_to_date",
                before="return candidate_last >= (self._log.last_term, self._log.last_index)",
                after="return candidate_last[1] >= self._log.last_index",
            ),
        ),
    ),
    Mutant(
        name="election restriction by term only",
        breaks="a shorter log of the same last term wins",
        expected=("R11", "R7"),
        patches=(
            SourcePatch(
                module="raft.core.vote_tally",
                within="VoteTally.is_up_to_date",
                before="return candidate_last >= (self._log.last_term, self._log.last_index)",
                after="return candidate_last[0] >= self._log.last_term",
            ),
        ),
    ),
    Mutant(
        name="transfer overrides the election restriction",
        breaks="who campaigns by order of the leader is voted for whatever its log is",
        expected=("R11", "R7", "R2"),
        patches=(
            SourcePatch(
                module="raft.core.elections",
                within="Elections._would_vote",
                before="""
                if not self._vote_tally.is_up_to_date(request):
                    return False
                """,
                after="""
                if not self._vote_tally.is_up_to_date(request) and not request.leadership_transfer:
                    return False
                """,
            ),
        ),
    ),
    Mutant(
        name="pre-vote counted as a vote",
        breaks="a late answer to the pre-vote counts in the election that it asked for",
        published="canonical/raft#196",
        expected=("R1", "sent before durable"),
        patches=(
            SourcePatch(
                module="raft.core.elections",
                within="Elections._on_request_vote_reply",
                before="""
                if reply.pre_vote:
                    if self._role is not Role.PRE_CANDIDATE:
                        return
                    if reply.granted and reply.term != self._current_term + 1:
                        return
                elif self._role is not Role.CANDIDATE:
                    return
                """,
                after="""
                if self._role not in {Role.PRE_CANDIDATE, Role.CANDIDATE}:
                    return
                """,
            ),
        ),
    ),
    Mutant(
        name="vote of an earlier term counted",
        breaks="a vote that arrives late is counted in the candidate's next term",
        published="little-raft#44",
        expected=("R1",),
        patches=(
            SourcePatch(
                module="raft.core.core",
                within="Core._receive",
                before="""
                if message.term < self._current_term:
                    self._answer_stale(message)
                    return
                """,
                after="""
                if message.term < self._current_term and not isinstance(message, RequestVoteReply):
                    self._answer_stale(message)
                    return
                """,
            ),
        ),
    ),
    Mutant(
        name="majority of half the voters",
        breaks="an election is won with one vote less than a majority",
        expected=("R1",),
        patches=(
            SourcePatch(
                module="raft.core.quorum",
                within="majority_count",
                before="return voters_count // 2 + 1",
                after="return (voters_count + 1) // 2 if voters_count < 3 else voters_count // 2",
            ),
        ),
    ),
    Mutant(
        name="term of the log's end not saved",
        breaks="a node that recovers entries of a newer term than its hard state enters that term "
        "without writing it",
        expected=("sent before durable", "R3", "vote before durable", "exception"),
        patches=(
            # The store enters the term, and the core again where its log came without a store.
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog._settle",
                before="self._hard_state.enter(self._table.last_term)",
                after="pass",
            ),
            SourcePatch(
                module="raft.core.core",
                within="Core.__init__",
                before="self._enter_term(log.last_term, None)",
                after="""
                self._enter_term(log.last_term, None)
                self._ready_builder.hard_state_changed = False
                self._ready_builder.term_is_durable = True
                """,
            ),
        ),
    ),
    Mutant(
        name="no entry at the beginning of a term",
        breaks="a leader waits for a proposal instead of writing a no-op, and can't know what is "
        "committed",
        published="redisraft#22",
        expected=("liveness", "exception"),
        patches=(
            SourcePatch(
                module="raft.core.core",
                within="Core._begin_leading",
                before="self._append(*begin)",
                after="self._append(*begin[1:])",
            ),
        ),
    ),
)
