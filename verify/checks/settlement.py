"""T7, T8 and T10 to T12: how transactions that nobody had decided were asked about and settled.

Place in the data path: over the one row per transaction that `transaction_outcomes` makes.

A half is settled by its op record, or by its copy among the discarded. Retention may have taken a
settled half: such a transaction is left out of T10 to T12.

Source: the run format's rules for T7, T8, T10 to T12; RocketMQ issues 1517, 4436, 8158, 8311,
9500; the shape of Kafka's KIP-890 for T12.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from verify.checks.finding import findings
from verify.frames import Frames
from verify.outcomes import transaction_outcomes

__all__ = [
    "checked_after_decision",
    "disagreeing_producers",
    "half_bookkeeping",
    "misdirected_decisions",
    "wrong_check_counts",
]

_NS_PER_MS = 1_000_000
_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
_INDEX_MAX = (1 << 63) - 1


def checked_after_decision(frames: Frames) -> DataFrame:
    """T7: the broker asks about what it had acknowledged as decided a check interval before."""
    grace_ms = F.lit((frames.manifest.transactions or {}).get("check_interval_ms"))
    t_acked = F.least("t_commit_acked", "t_rollback_acked")
    late = F.col("t_last_check") - F.col("t_acked") > grace_ms.cast("double") * _NS_PER_MS
    violations = frames.derived(transaction_outcomes).withColumn("t_acked", t_acked).where(late)
    return findings(
        violations,
        check="T7",
        order=("tx",),
        witness=("tx", "value", "t_acked", "t_last_check", "checks"),
    )


def wrong_check_counts(frames: Frames) -> DataFrame:
    """T8: asked more often than configured; or discarded after fewer questions than that.

    Fewer prove nothing where a fault that took effect, or may have, came between the half and the
    discard: it may have swallowed questions.
    """
    check_max = F.lit((frames.manifest.transactions or {}).get("check_max")).cast("double")
    outcomes = frames.derived(transaction_outcomes)
    too_many = outcomes.where(F.col("checks") > check_max).select(
        "tx", "value", "checks", F.lit("asked too often").alias("problem"), "discarded"
    )
    too_few = _undisturbed(
        frames, outcomes.where(F.col("discarded").isNotNull() & (F.col("checks") < check_max))
    ).select("tx", "value", "checks", F.lit("discarded too early").alias("problem"), "discarded")
    return findings(
        too_many.unionByName(too_few),
        check="T8",
        order=("tx", "problem"),
        witness=("problem", "tx", "value", "checks", "discarded"),
    )


def _undisturbed(frames: Frames, discarded: DataFrame) -> DataFrame:
    """Those whose time from half to discard is known, and that no fault overlapped."""
    if not frames.has("raft", "faults"):
        return discarded.limit(0)
    appends = (
        frames.raft.where(F.col("event") == "append")
        .groupBy("broker_group", "index", F.col("entry_term").alias("term"))
        .agg(F.min("t").alias("t_discard"))
    )
    at = ("broker_group", "index", "term")
    timed = appends.join(
        F.broadcast(
            discarded.where(F.col("half.t_invoke").isNotNull()).select(
                "*", *(F.col(f"discarded.{name}").alias(name) for name in at)
            )
        ),
        list(at),
        how="inner",
    )
    faults = frames.faults.where(F.col("effect").isin("taken", "unknown")).select(
        "t_start", F.coalesce("t_healed", F.lit(_INDEX_MAX)).alias("t_end")
    )
    overlaps = (F.col("t_start") <= F.col("t_discard")) & (F.col("t_end") >= F.col("half.t_invoke"))
    return timed.join(F.broadcast(faults), overlaps, how="left_anti")


def half_bookkeeping(frames: Frames) -> DataFrame:
    """T10: two op records of one half, one of no half, or progress past a half not settled."""
    outcomes = frames.derived(transaction_outcomes)
    twice = outcomes.where((F.col("op_count") > 1) & F.col("kept")).select(
        F.lit("two op records").alias("problem"), "tx", "half_offset", "first_op", "last_op"
    )
    nothing = F.lit(None)
    lone = (
        frames.committed.where((F.col("kind") == "op") & F.col("tx").isNull())
        .where(F.col("value").isNull())
        .join(F.broadcast(frames.first_index), "broker_group", how="inner")
        .where(F.col("first_index") == 1)
        .groupBy("broker_group", "index", "slot", "decision")
        .agg(F.min("node").alias("node"))
        .select(
            F.lit("an op record of no half").alias("problem"),
            nothing.cast("string").alias("tx"),
            nothing.cast("long").alias("half_offset"),
            F.struct("broker_group", "index", "slot", "decision", "node").alias("first_op"),
        )
    )
    passed = _passed_halves(frames, outcomes)
    violations = twice.unionByName(lone, allowMissingColumns=True).unionByName(
        passed, allowMissingColumns=True
    )
    return findings(
        violations,
        check="T10",
        order=("tx", "problem"),
        witness=("problem", "tx", "half_offset", "first_op", "last_op", "progress"),
    )


def _passed_halves(frames: Frames, outcomes: DataFrame) -> DataFrame:
    """Halves that the group's progress left behind before anything had settled them."""
    settled = F.least("first_op.index", "discarded.index")
    group = F.coalesce("first_op.broker_group", "discarded.broker_group", "half.broker_group")
    halves = outcomes.where(F.col("half_offset").isNotNull()).select(
        group.alias("broker_group"),
        F.coalesce(settled, F.lit(_INDEX_MAX)).alias("index"),
        F.lit(0).alias("turn"),
        F.struct("tx", "half_offset", "first_op").alias("of_half"),
    )
    progress = (
        frames.log.where(
            F.col("committed") & (F.col("kind") == "offset") & (F.col("topic") == _HALF_TOPIC)
        )
        .groupBy("broker_group", "index", F.col("queue_offset").alias("next_half"))
        .agg(F.min("node").alias("node"))
        .select(
            "broker_group",
            "index",
            F.lit(1).alias("turn"),
            F.struct("next_half", "index", "node").alias("progress_told"),
        )
    )
    # A half and what settles it may share an entry with the progress past it: settled comes first.
    before = (
        Window.partitionBy("broker_group")
        .orderBy("index", "turn")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    return (
        progress.unionByName(halves, allowMissingColumns=True)
        .withColumn("progress", F.max("progress_told").over(before))
        .where(F.col("of_half.half_offset") < F.col("progress.next_half"))
        .select(
            F.lit("progress past a half that nothing had settled").alias("problem"),
            "of_half.*",
            "progress",
        )
    )


def disagreeing_producers(frames: Frames) -> DataFrame:
    """T11: the producer's own outcome is not what became of its message.

    Only where the half was acknowledged and the producer lived to tell its outcome.
    """
    stored = F.col("finals") > 0
    settled = stored | (F.col("op_count") > 0) | F.col("discarded").isNotNull()
    wrong = F.when(F.col("local") == "commit", ~stored).otherwise(stored)
    told = frames.derived(transaction_outcomes).where(
        F.col("local").isNotNull() & (F.col("half.type") == "ok") & F.col("kept")
    )
    return findings(
        told.where(wrong | ~settled),
        check="T11",
        order=("tx",),
        witness=(
            "tx", "value", "local", "t_commit", "t_rollback", "op_decisions", "finals",
            "first_final", "discarded",
        ),
        unknown=F.when(~settled, F.lit("undecided at the end of the run")),
    )  # fmt: skip


def misdirected_decisions(frames: Frames) -> DataFrame:
    """T12: a final message with another content than its half's; or a decision that resolved
    another transaction than the one that it was for."""
    outcomes = frames.derived(transaction_outcomes).where("kept")
    other = outcomes.where(_is_another("first_final") | _is_another("last_final")).select(
        F.lit("the final message is not the half's").alias("problem"),
        "tx",
        "sent",
        "first_final",
        "last_final",
    )
    strayed = _strayed(outcomes)
    return findings(
        other.unionByName(strayed, allowMissingColumns=True),
        check="T12",
        order=("tx", "problem"),
        witness=(
            "problem",
            "tx",
            "sent",
            "first_final",
            "last_final",
            "decision",
            "resolved_instead",
        ),
    )


def _is_another(final: str) -> Column:
    differs = (F.col(f"{final}.value") != F.col("sent.value")) | (
        F.col(f"{final}.uniq_key") != F.col("sent.uniq_key")
    )
    return F.coalesce(differs, F.lit(False))


def _strayed(outcomes: DataFrame) -> DataFrame:
    """An acknowledged decision that resolved nothing, while another transaction was so resolved
    for which nobody had told it."""
    group = F.col("half.broker_group").alias("broker_group")
    unresolved = (F.col("finals") == 0) & (F.size("op_decisions") == 0)
    kinds = (
        ("commit", "t_commit", "t_commit_acked"),
        ("rollback", "t_rollback", "t_rollback_acked"),
    )

    def of(condition: Callable[[str, str, str], Column]) -> Column:
        told = F.array(*(F.when(condition(*kind), F.lit(kind[0])) for kind in kinds))
        return F.explode(F.filter(told, lambda decision: decision.isNotNull()))

    without_effect = outcomes.where(unresolved).select(
        "tx",
        group,
        of(lambda kind, told, acked: F.col(acked).isNotNull()).alias("decision"),
    )
    untold = (
        outcomes.where(F.col("half").isNotNull())
        .select(
            "tx",
            group,
            of(
                lambda kind, told, acked: (
                    F.array_contains("op_decisions", kind) & F.col(told).isNull()
                )
            ).alias("decision"),
        )
        .groupBy("broker_group", "decision")
        .agg(F.min("tx").alias("resolved_instead"))
    )
    return without_effect.join(
        F.broadcast(untold), ["broker_group", "decision"], how="inner"
    ).select(
        F.lit("the decision resolved another transaction").alias("problem"),
        "tx",
        "decision",
        "resolved_instead",
    )
