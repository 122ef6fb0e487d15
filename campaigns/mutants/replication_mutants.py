"""Planted bugs in replication, commitment and reads."""

from __future__ import annotations

from campaigns.mutants.election_mutants import MESSAGES_BESIDE_A_HARD_STATE
from campaigns.mutants.mutant import Mutant
from campaigns.mutants.source_patch import SourcePatch

__all__ = ["REPLICATION_MUTANTS"]

REPLICATION_MUTANTS = (
    Mutant(
        name="old-term entry committed by counting",
        breaks="a leader commits whatever a majority holds, of whatever term (figure 8)",
        published="dledger#4 asks for it",
        expected=("R8", "R7"),
        patches=(
            SourcePatch(
                module="raft.core.leader_role",
                within="LeaderRole.maybe_commit",
                before="if index <= log.commit_index or log.term(index) != self._term:",
                after="if index <= log.commit_index:",
            ),
        ),
    ),
    Mutant(
        name="leader counts itself before its fsync",
        breaks="the leader's own entries count for the majority while they are only written",
        published="goraft/raft#150",
        expected=("R9",),
        patches=(
            SourcePatch(
                module="raft.core.leader_role",
                within="LeaderRole.maybe_commit",
                before="index = self._majority(match_indexes, own=log.durable_index)",
                after="index = self._majority(match_indexes, own=log.last_index)",
            ),
        ),
    ),
    Mutant(
        name="committed with all but the slowest",
        breaks="the commit index is what the fastest of the voters has, not the middle one",
        expected=("R9",),
        patches=(
            SourcePatch(
                module="raft.core.quorum",
                within="majority_reached",
                before="return sorted(values)[(len(values) - 1) // 2]",
                after="return sorted(values)[len(values) // 2 + (len(values) > 1)]",
            ),
        ),
    ),
    Mutant(
        name="acknowledged before the fsync",
        breaks="a follower acknowledges what it has written and not yet fsynced",
        published="nats-server#7564; RocketMQ's DLedger under asynchronous flush",
        expected=("acknowledged before durable", "R9"),
        patches=(
            SourcePatch(
                module="raft.core.follower_role",
                within="FollowerRole.on_append_entries",
                before="""
                if is_durable:
                    self._ready_builder.send(reply)
                else:
                    self._ready_builder.send_after_sync(reply)
                """,
                after="self._ready_builder._messages.append(reply)",
            ),
            MESSAGES_BESIDE_A_HARD_STATE,
        ),
    ),
    Mutant(
        name="heartbeat acknowledges what is not durable",
        breaks="the answer to a heartbeat claims the log up to where it matches, fsynced or not",
        published="c5#263",
        expected=("acknowledged before durable", "R9"),
        patches=(
            SourcePatch(
                module="raft.core.follower_role",
                within="FollowerRole.on_append_entries",
                before="match_index = min(last_known_index, log.durable_index) if is_durable else last_known_index",
                after="match_index = last_known_index",
            ),
        ),
    ),
    Mutant(
        name="heartbeat answer moves match_index on",
        breaks="any success counts as an acknowledgement of all that was sent",
        published="ratis#1519",
        expected=("R9",),
        patches=(
            SourcePatch(
                module="raft.core.leader_role",
                within="LeaderRole.on_reply",
                before="peer.on_success(reply.match_index, first_index=self._log.first_index)",
                after="""
                match_index = max(reply.match_index, peer.next_index - 1)
                peer.on_success(match_index, first_index=self._log.first_index)
                """,
            ),
        ),
    ),
    Mutant(
        name="match_index begins where the leader's log ends",
        breaks="a new leader takes its followers to hold what it holds itself, whatever they refuse",
        expected=("R9", "liveness"),
        patches=(
            SourcePatch(
                module="raft.core.progress",
                within="Progress.__init__",
                before="self.match_index: Index = 0",
                after="self.match_index: Index = next_index - 1",
            ),
            # A refusal lowers it, which alone makes the other patch harmless: an entry of an
            # earlier term is committed by one of the leader's own, which a peer acknowledges.
            SourcePatch(
                module="raft.core.progress",
                within="Progress.on_refusal",
                before="if self.state is ProgressState.REPLICATE:",
                after="if True:",
            ),
        ),
    ),
    Mutant(
        name="stale append reply counted",
        breaks="an acknowledgement of an earlier term moves a follower's progress in this one",
        published="PySyncObj's replies name no term",
        expected=("R9", "reads", "liveness"),
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
                if (
                    isinstance(message, AppendEntriesReply)
                    and message.success
                    and self._leader_role is not None
                    and message.match_index <= self._log.last_index
                ):
                    import msgspec

                    message = msgspec.structs.replace(message, term=self._current_term)
                if message.term < self._current_term:
                    self._answer_stale(message)
                    return
                """,
            ),
        ),
    ),
    Mutant(
        name="commit index of the leader taken unchecked",
        breaks="a follower commits up to the leader's commit index entries that it has not "
        "compared with the leader's",
        published="copycat#110, tinykv#191",
        expected=("R6", "R8", "R10"),
        patches=(
            SourcePatch(
                module="raft.core.follower_role",
                within="FollowerRole.on_append_entries",
                before="log.commit_to(min(message.leader_commit, last_known_index))",
                after="log.commit_to(min(message.leader_commit, log.last_index))",
            ),
        ),
    ),
    Mutant(
        name="commit index beyond the log's end",
        breaks="the commit index is taken over whole, beyond what the log holds, and a leader "
        "elected with it never commits again",
        published="dledger#316",
        expected=("R8",),
        patches=(
            SourcePatch(
                module="raft.core.follower_role",
                within="FollowerRole.on_append_entries",
                before="log.commit_to(min(message.leader_commit, last_known_index))",
                after="log.commit_to(message.leader_commit)",
            ),
            SourcePatch(
                module="raft.core.raft_log",
                within="RaftLog.commit_to",
                before='assert index <= self.last_index, f"commit {index} beyond last index {self.last_index}"',
                after="pass",
            ),
            SourcePatch(
                module="raft.core.core",
                within="Core.step",
                before="assert commit_before <= log.commit_index <= log.last_index",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="appended without the check of prev_log_term",
        breaks="a follower appends behind an entry of another term than the leader's",
        expected=("R6", "R5", "R9"),
        patches=(
            SourcePatch(
                module="raft.core.follower_role",
                within="FollowerRole.on_append_entries",
                before="if not log.has(prev_log_index, message.prev_log_term):",
                after="if prev_log_index > log.last_index:",
            ),
        ),
    ),
    Mutant(
        name="conflicting entry kept",
        breaks="an entry that stands at the index already is taken to be the leader's",
        published="CCF#519",
        expected=("R5", "R6", "R9"),
        patches=(
            SourcePatch(
                module="raft.core.follower_role",
                within="FollowerRole._held_count",
                before="if not log.has(entry.index, entry.term):",
                after="if entry.index > log.last_index:",
            ),
        ),
    ),
    Mutant(
        name="matching tail truncated",
        breaks="a late AppendEntries shortens the log to what it carries, acknowledged or not",
        published="camunda#5295: what was cut had been committed",
        expected=("R4", "R7", "R9"),
        patches=(
            SourcePatch(
                module="raft.core.follower_role",
                within="FollowerRole._held_count",
                before="""
                for count, entry in enumerate(entries):
                    if not log.has(entry.index, entry.term):
                        return count
                return len(entries)
                """,
                after="""
                committed_count = max(0, log.commit_index + 1 - entries[0].index)
                return min(committed_count, len(entries))
                """,
            ),
        ),
    ),
    Mutant(
        name="refusal never moves next_index back",
        breaks="a follower whose log is shorter or other is probed at one place for ever",
        expected=("liveness", "storm"),
        patches=(
            SourcePatch(
                module="raft.core.progress",
                within="Progress.on_refusal",
                before="self.become_probe(next_index)",
                after="self.become_probe(self.next_index)",
            ),
        ),
    ),
    Mutant(
        name="fsync of a truncated entry counted",
        breaks="the report of an fsync that began before a truncation counts for what came in "
        "place of the entries cut",
        # Rare: a follower truncates only for a leader of a new term, and what it answers in that
        # term waits for the term's own fsync, which comes with that of the new entries; a
        # candidate's log is durable before its campaign. What is left is the checkpoint. For the
        # same reasons a shell that lets a round of fsync outlive a truncation or an install is no
        # fault: the core takes no such report.
        expected=("checkpoint before durable", "acknowledged before durable", "R9"),
        patches=(
            SourcePatch(
                module="raft.core.raft_log",
                within="RaftLog.durable_to",
                before="""
                if term <= self._truncated_term:
                    return False
                if not self.first_index - 1 <= index <= self.last_index or self.term(index) != term:
                    return False
                """,
                after="index = min(index, self.last_index)",
            ),
        ),
    ),
    Mutant(
        name="durable_index survives a truncation",
        breaks="entries appended in place of durable ones count as durable at once",
        expected=("acknowledged before durable", "R9", "checkpoint before durable"),
        patches=(
            SourcePatch(
                module="raft.core.raft_log",
                within="RaftLog.truncate_from",
                before="self.durable_index = min(self.durable_index, index - 1)",
                after="pass",
            ),
            SourcePatch(
                module="raft.core.core",
                within="Core.step",
                before="assert log.durable_index <= log.last_index",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="ReadIndex without a round",
        breaks="a leader answers reads at its commit index without asking whether it still leads",
        published="etcd before ReadIndex (Jepsen, etcd 0.4.1)",
        expected=("reads", "R12"),
        patches=(
            SourcePatch(
                module="raft.core.leader_role",
                within="LeaderRole.serve_reads",
                before="if self._majority(rounds, own=reads.round) < waiting_round:",
                after="if self._majority(rounds, own=reads.round) < 0:",
            ),
        ),
    ),
    Mutant(
        name="read before the leader's own entry is committed",
        breaks="a new leader's commit index may be behind the group's, and reads are served at it",
        published="etcd#7331, tikv#6340, redisraft#22",
        expected=("reads", "R12"),
        patches=(
            SourcePatch(
                module="raft.core.leader_role",
                within="LeaderRole.serve_reads",
                before="if not reads.has_queued or not self.committed_own_term:",
                after="if not reads.has_queued:",
            ),
        ),
    ),
    Mutant(
        name="ReadIndex answered by a deposed leader",
        breaks="reads that wait when leadership is lost are answered, not refused",
        expected=("reads", "R12"),
        patches=(
            SourcePatch(
                module="raft.core.core",
                within="Core._end_leading",
                before="ReadState(request_id=request_id, index=None)",
                after="ReadState(request_id=request_id, index=self._log.commit_index)",
            ),
        ),
    ),
    Mutant(
        name="read confirmed by an earlier round",
        breaks="a read that comes while a round is under way joins it, though its answers may "
        "have left before the read was asked",
        expected=("reads", "R12"),
        patches=(
            SourcePatch(
                module="raft.core.read_rounds",
                within="ReadRounds.request",
                before="self._queued.append(request_id)",
                after="(self._confirming or self._queued).append(request_id)",
            ),
        ),
    ),
    Mutant(
        name="read round of an earlier term counted",
        breaks="a refusal echoes the round of a leadership that is over, and confirms reads of "
        "the next one of the same node",
        expected=("reads", "R12"),
        patches=(
            SourcePatch(
                module="raft.core.follower_role",
                within="FollowerRole.refuse",
                before="read_round = message.read_round if message.term == current_term else 0",
                after="read_round = message.read_round",
            ),
        ),
    ),
)
