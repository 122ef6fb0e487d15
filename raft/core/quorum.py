"""Majorities: what a majority has reached, and how an election stands.

Place in the data path: called by `raft.core.leader_role` at each reply (commit index, read round,
time of contact) and by `raft.core.vote_tally` at each vote. Pure functions.

Invariant: two majorities of one set of voters share a voter. A joint configuration (dissertation
4.3) would query both of its sets and take the lower answer.

Source: Raft 5.2, 5.3.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence

from raft.messages import NodeId

__all__ = ["VoteResult", "majority_count", "majority_reached", "vote_result"]


class VoteResult(enum.Enum):
    PENDING = "pending"
    WON = "won"
    LOST = "lost"  # a majority is out of reach


def majority_count(voters_count: int) -> int:
    """Return the least size at which any two sets of voters share a voter."""
    return voters_count // 2 + 1


def majority_reached(values: Sequence[int]) -> int:
    """Return the largest value that a majority has reached; `values` has one per voter."""
    assert values, "a group without voters has no majority"
    return sorted(values)[(len(values) - 1) // 2]


def vote_result(voters: Collection[NodeId], votes: Mapping[NodeId, bool]) -> VoteResult:
    """Return how the election stands; answers of non-voters don't count."""
    granted_count = sum(1 for voter in voters if votes.get(voter) is True)
    refused_count = sum(1 for voter in voters if votes.get(voter) is False)
    needed_count = majority_count(len(voters))
    if granted_count >= needed_count:
        return VoteResult.WON
    if len(voters) - refused_count < needed_count:
        return VoteResult.LOST
    return VoteResult.PENDING
