"""Planted bugs in the change of members."""

from __future__ import annotations

from campaigns.mutants.mutant import Mutant
from campaigns.mutants.source_patch import SourcePatch

__all__ = ["MEMBERSHIP_MUTANTS"]

MEMBERSHIP_MUTANTS = (
    Mutant(
        name="change taken before the leader's own entry is committed",
        breaks="two leaders in turn each take a change from the same membership, and commit by "
        "majorities that share nobody",
        published="Ongaro, raft-dev 2015, 'bug in single-server membership changes'; copycat#23, "
        "axon-server-se#120",
        expected=("members", "R1", "R6", "R7", "R9"),
        patches=(
            SourcePatch(
                module="raft.core.membership_rules",
                within="change_refusal",
                before="if not leadership.committed_own_term:",
                after="if leadership is None:",
            ),
        ),
    ),
    Mutant(
        name="two changes under way",
        breaks="a change is taken while the one before it is not committed",
        published="etcd#5004 asks for it",
        expected=("members", "R9", "R1"),
        patches=(
            SourcePatch(
                module="raft.core.membership_rules",
                within="change_refusal",
                before="if configuration.index > log.commit_index:",
                after="if configuration.index < 0:",
            ),
        ),
    ),
    Mutant(
        name="config change committed by the old quorum",
        breaks="the leader counts by the voters that were before the change until it is committed",
        published="etcd#5004: adopted only once it is committed",
        expected=("R9", "R1", "members"),
        patches=(
            SourcePatch(
                module="raft.core.core",
                within="Core._note_configuration",
                before="if configuration == self._configuration:",
                after="""
                is_uncommitted = configuration.index > self._log.commit_index
                if configuration == self._configuration or is_uncommitted:
                """,
            ),
        ),
    ),
    Mutant(
        name="configuration survives its truncation",
        breaks="a change that was never committed stays in force where its entry was cut",
        expected=("members", "R9", "R1"),
        patches=(
            SourcePatch(
                module="raft.core.configurations",
                within="Configurations.truncate_from",
                before="""
                while self._in_log and self._in_log[-1].index >= index:
                    self._in_log.pop()
                """,
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="learners asked for their votes",
        breaks="a learner's vote helps to a majority",
        published="RedisLabs/raft#13",
        expected=("R1",),
        patches=(
            SourcePatch(
                module="raft.core.quorum",
                within="vote_result",
                before="granted_count = sum(1 for voter in voters if votes.get(voter) is True)",
                after="granted_count = sum(1 for voter in votes if votes.get(voter) is True)",
            ),
            SourcePatch(
                module="raft.core.elections",
                within="Elections._become_candidate",
                before="self._voters,",
                after="(*self._voters, *self._configuration.membership.learner_ids),",
            ),
        ),
    ),
    Mutant(
        name="learners counted in the majority",
        breaks="what learners hold helps to commit",
        published="RedisLabs/raft#13: a leader that does not vote counted itself",
        expected=("R9",),
        patches=(
            SourcePatch(
                module="raft.core.leader_role",
                within="LeaderRole.maybe_commit",
                before="""
                match_indexes = [peer.match_index for peer in self._voting_peers]
                index = self._majority(match_indexes, own=log.durable_index)
                """,
                after="""
                matches = sorted([peer.match_index for peer in self._peers] + [log.durable_index])
                index = matches[-(len(self._voting_peers) // 2 + 1)]
                """,
            ),
        ),
    ),
    Mutant(
        name="removed leader counts itself",
        breaks="a leader that commits its own removal counts itself in the new majority",
        published="RedisLabs/raft#13",
        expected=("R9",),
        patches=(
            SourcePatch(
                module="raft.core.leader_role",
                within="LeaderRole._majority",
                before="return majority_reached([*values, own] if self._counts_itself else values)",
                after="return majority_reached([*values, own])",
            ),
        ),
    ),
)
