"""T1 to T5: when a transaction may be seen, and how it may end.

Per transaction: what its producer told (with times), what stands in the committed logs of all
replicas together, and what was delivered. All five look at one row per transaction.

Source: the run format's rules for T*; RocketMQ issues 544, 8158.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from verify.checks.finding import findings
from verify.frames import Frames
from verify.outcomes import transaction_outcomes

__all__ = [
    "committed_half_discarded",
    "committed_half_lost",
    "conflicting_resolutions",
    "double_commits",
    "early_visible",
    "rolled_back_visible",
]

_TOLD = ("tx", "t_commit", "t_rollback", "t_commit_acked")
_STORED = ("finals", "first_final", "last_final", "delivered")


def early_visible(frames: Frames) -> DataFrame:
    """T1: stored or delivered before anybody could have decided to commit."""
    seen = (F.col("finals") > 0) | F.col("delivered").isNotNull()
    first_seen = F.least("first_final.t_visible", "delivered.t_complete")
    violations = frames.derived(transaction_outcomes).where(
        seen & (F.col("t_commit").isNull() | (first_seen < F.col("t_commit")))
    )
    return findings(violations, check="T1", order=("tx",), witness=(*_TOLD, *_STORED))


def rolled_back_visible(frames: Frames) -> DataFrame:
    """T2: stored or delivered though it was rolled back and nobody ever told to commit it."""
    seen = (F.col("finals") > 0) | F.col("delivered").isNotNull()
    rolled_back = F.col("t_rollback").isNotNull() & F.col("t_commit").isNull()
    violations = frames.derived(transaction_outcomes).where(seen & rolled_back)
    return findings(violations, check="T2", order=("tx",), witness=(*_TOLD, *_STORED))


def committed_half_lost(frames: Frames) -> DataFrame:
    """T3: a commit was acknowledged and no replica's committed log has the message."""
    violations = frames.derived(transaction_outcomes).where(
        F.col("t_commit_acked").isNotNull() & (F.col("finals") == 0) & F.col("kept")
    )
    return findings(
        violations,
        check="T3",
        order=("tx",),
        witness=(*_TOLD, "value", "op_commit_acked", "delivered", "op_decisions"),
    )


def double_commits(frames: Frames) -> DataFrame:
    """T4: one transaction, two final messages."""
    violations = frames.derived(transaction_outcomes).where(F.col("finals") > 1)
    return findings(violations, check="T4", order=("tx",), witness=(*_TOLD, *_STORED))


def conflicting_resolutions(frames: Frames) -> DataFrame:
    """T5: op records of both kinds, or a final message of what an op record rolled back."""
    rolled_back = F.array_contains("op_decisions", "rollback")
    both = rolled_back & F.array_contains("op_decisions", "commit")
    outcomes = frames.derived(transaction_outcomes)
    violations = outcomes.where(both | (rolled_back & (F.col("finals") > 0)))
    return findings(
        violations,
        check="T5",
        order=("tx",),
        witness=(*_TOLD, "op_decisions", "first_op", "finals", "first_final"),
    )


def committed_half_discarded(frames: Frames) -> DataFrame:
    """T9: a commit was acknowledged, and the half was discarded for want of a decision."""
    acked = F.col("t_commit_acked").isNotNull() & F.col("kept")
    outcomes = frames.derived(transaction_outcomes).where(acked)
    violations = outcomes.where(F.col("discarded").isNotNull())
    return findings(
        violations,
        check="T9",
        order=("tx",),
        witness=(*_TOLD, "value", "op_commit_acked", "discarded", "finals"),
    )
