"""A16: how long nobody, or one client, got an answer. A17: replicas that never came back.

A16 has two measures: per fault that took effect, from the last ok answer before it to the first
after it (recovery time); per client, the longest time between two ok answers while the load ran.
Both are judged against the run's limits, or only measured where it sets none.

A17: once every fault is healed and nothing is sent any more, each replica has to apply what its
leader has committed, within the time that the scenario gives; who didn't stands in the manifest.

Source: Redpanda's availability measure; the run format's rule for limits.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from verify.checks.finding import findings
from verify.frames import Frames

__all__ = ["client_gaps", "left_behind", "recovery_times", "unavailability"]

# What a broker answers; a local transaction, a listener or a rebalance is none of it.
_ANSWERED = (
    "send",
    "half",
    "decide",
    "poll",
    "commit_offset",
    "fetch_offset",
    "max_offset",
    "query",
)
_NS_PER_MS = 1_000_000


def unavailability(frames: Frames) -> DataFrame:
    """A16: recovery times and gaps beyond the limits."""
    limits = frames.manifest.limits or {}
    columns = ("measure", "name", "t_from", "t_to", "took_ms", "limit_ms")
    rto = recovery_times(frames).withColumn("limit_ms", _limit(limits.get("rto_ms")))
    gaps = client_gaps(frames).withColumn("limit_ms", _limit(limits.get("gap_ms")))
    violations = rto.unionByName(gaps).where(F.col("took_ms") > F.col("limit_ms"))
    return findings(violations, check="A16", order=("measure", "t_from", "name"), witness=columns)


def left_behind(frames: Frames) -> DataFrame:
    """A17: replicas that had not caught up when the heal was over."""
    columns = ("broker_group", "node")
    violations = frames.session.createDataFrame(
        list(frames.manifest.left_behind or ()), "broker_group string, node string"
    )
    return findings(violations, check="A17", order=columns, witness=columns)


def recovery_times(frames: Frames) -> DataFrame:
    """Per fault taken: last ok answer at or before its effect, first after; the end where none."""
    if not frames.has("faults"):
        faults = frames.session.createDataFrame([], "t long, fault string")
    else:
        faults = frames.faults.where(F.col("effect") == "taken").select(
            F.coalesce("t_effect", "t_start").alias("t"),
            F.concat_ws(" ", F.col("fault").cast("string"), "name").alias("fault"),
        )
    answers = _answers(frames).select(
        F.col("t_complete").alias("t"), F.lit(None).cast("string").alias("fault")
    )
    answered = F.when(F.col("fault").isNull(), F.col("t"))
    # Range frames, so that an answer at the very time of the effect counts as before it; both grow
    # as they go, for a frame that shrinks costs Spark a pass over the rest at every row.
    before = Window.orderBy("t").rangeBetween(Window.unboundedPreceding, Window.currentRow)
    after = Window.orderBy(F.desc("t")).rangeBetween(Window.unboundedPreceding, -1)
    end = frames.ops.agg(F.max(F.greatest("t_invoke", "t_complete")).alias("t_end"))
    return (
        answers.unionByName(faults)
        .select(
            "t", "fault",
            F.max(answered).over(before).alias("t_from"),
            F.min(answered).over(after).alias("first_after"),
        )
        .where(F.col("fault").isNotNull())
        .join(F.broadcast(end), how="cross")
        .select(
            F.lit("recovery").alias("measure"),
            F.col("fault").alias("name"),
            F.coalesce("t_from", "t").alias("t_from"),
            F.coalesce("first_after", "t_end").alias("t_to"),
        )
        .withColumn("took_ms", _took())
    )  # fmt: skip


def client_gaps(frames: Frames) -> DataFrame:
    """Between two ok answers of one client, as far as it lies in the load phase."""
    load = frames.manifest.phases.get("load")
    in_load = F.lit(True) if load is None else F.col("t_complete").between(*load)
    of_client = Window.partitionBy("client").orderBy("t_complete")
    return (
        _answers(frames)
        .where(in_load)
        .select(
            F.lit("gap").alias("measure"),
            F.col("client").alias("name"),
            F.lag("t_complete").over(of_client).alias("t_from"),
            F.col("t_complete").alias("t_to"),
        )
        .where(F.col("t_from").isNotNull())
        .withColumn("took_ms", _took())
    )


def _answers(frames: Frames) -> DataFrame:
    answered = F.col("f").isin(*_ANSWERED) & (F.col("type") == "ok")
    return frames.ops.where(answered & F.col("t_complete").isNotNull()).select(
        "client", "t_complete"
    )


def _took() -> Column:
    return (F.col("t_to") - F.col("t_from")) / F.lit(_NS_PER_MS)


def _limit(limit_ms: float | None) -> Column:
    return F.lit(limit_ms).cast("double")
