"""Rules for which membership change a leader may accept now.

Place in the data path: `raft.core.core` applies them before it appends a CONFIG entry, and callers
may query them in advance to inform an operator.

The rules, and what breaks without them:
- an entry of the leader's own term is committed: else two leaders in turn could each accept a
  change from the same membership, and commit by majorities that share no voter;
- the configuration in force is committed: one step at a time (4.1);
- a learner that becomes a voter has nearly all of the log: else nothing would be committed until it
  has caught up (4.2.1);
- of the resulting voters a majority answers: else neither the change nor anything after it could
  ever be committed. This rule is not Raft's: it guards against an operator's mistake.

Source: Ongaro's dissertation 4.1 to 4.2.1, and the correction "bug in single-server membership
changes" (raft-dev, 2015).
"""

from __future__ import annotations

from raft.core.leader_role import LeaderRole
from raft.core.quorum import majority_count
from raft.core.raft_log import RaftLog
from raft.events import ChangeRefusal, ChangeRefused
from raft.membership import (
    Configuration,
    MembershipChange,
    MembershipError,
    PromoteLearner,
    changed,
)

__all__ = ["change_refusal"]


def change_refusal(
    change: MembershipChange,
    *,
    leadership: LeaderRole,
    configuration: Configuration,
    log: RaftLog,
    now_ms: int,
) -> ChangeRefused | None:
    """Return why `change` is refused, else None. `configuration` is in force."""
    if not leadership.committed_own_term:
        return ChangeRefused(reason=ChangeRefusal.NOT_READY)
    if configuration.index > log.commit_index:
        return ChangeRefused(reason=ChangeRefusal.UNDERWAY)
    if leadership.transfer_target is not None:
        return ChangeRefused(reason=ChangeRefusal.HANDING_OVER)
    try:
        membership = changed(configuration.membership, change)
    except MembershipError as error:
        return ChangeRefused(reason=ChangeRefusal.IMPOSSIBLE, detail=str(error))
    if isinstance(change, PromoteLearner) and not leadership.is_caught_up(change.node_id, now_ms):
        return ChangeRefused(reason=ChangeRefusal.NOT_CAUGHT_UP)
    voters = membership.voter_ids
    answering = [voter for voter in voters if leadership.answers(voter, now_ms)]
    if len(answering) < majority_count(len(voters)):
        return ChangeRefused(
            reason=ChangeRefusal.NO_MAJORITY,
            detail=f"of {', '.join(voters)} only {', '.join(answering) or 'none'} would answer",
        )
    return None
