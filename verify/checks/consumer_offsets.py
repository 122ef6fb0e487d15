"""S5: a group's stored offset is a register that neither rewinds nor forgets.

Three looks at the same commits: every fetch answers one that may be the current one; every stored
offset in the committed log was written by some commit; and what the log stores last is a commit
that no later one had overwritten.

A commit may be the current one unless it ended before another began that was itself acknowledged.
One of unknown outcome never ended: it may take effect at any time.

Source: RocketMQ issue 3210; the run format's rule for S5 and for retention.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from verify.checks.finding import findings
from verify.frames import QUEUE, Frames

__all__ = ["consumer_offsets"]

_STORED = ("client_group", *QUEUE)
_NEVER = (1 << 63) - 1


def consumer_offsets(frames: Frames) -> DataFrame:
    """S5: fetches of what was not stored; stored offsets that nobody committed, or that rewind."""
    commits = _commits(frames)
    found = _wrong_fetches(frames, commits)
    if frames.has("log"):
        found = found.unionByName(_wrong_rows(frames, commits))
    return found


def _listed(frames: Frames) -> Column:
    return F.col("client_group").isin([group.name for group in frames.manifest.consumer_groups])


def _commits(frames: Frames) -> DataFrame:
    """Commits that may have been stored; `t_end` never comes where the outcome is unknown."""
    acked = F.col("type") == "ok"
    return frames.ops.where(
        (F.col("f") == "commit_offset") & (F.col("type") != "fail") & _listed(frames)
    ).select(
        *_STORED,
        "offset",
        "t_invoke",
        acked.alias("acked"),
        F.when(acked, F.col("t_complete")).otherwise(_NEVER).alias("t_end"),
    )


def _wrong_fetches(frames: Frames, commits: DataFrame) -> DataFrame:
    fetches = frames.ops.where(
        (F.col("f") == "fetch_offset") & (F.col("type") == "ok") & _listed(frames)
    ).select(*_STORED, "op", "process", "node", "offset", "t_invoke", "t_complete")
    told = commits.where("acked").select(
        *_STORED, F.col("t_end").alias("at"), F.col("t_invoke").alias("begun")
    )
    asked = fetches.select(
        *_STORED,
        F.col("t_invoke").alias("at"),
        F.struct("op", "process", "node", "offset", "t_invoke", "t_complete").alias("fetch"),
    )
    # What ended at the very time of the invoke may have ended after it.
    before = (
        Window.partitionBy(*_STORED)
        .orderBy("at", F.asc_nulls_last("fetch.op"))
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    judged = (
        told.unionByName(asked, allowMissingColumns=True)
        .withColumn("overwritten_at", F.max("begun").over(before))
        .where(F.col("fetch").isNotNull())
        .select(*_STORED, "overwritten_at", "fetch.*")
    )
    of_commit = commits.select(
        *_STORED, "offset", F.col("t_invoke").alias("begun"), F.col("t_end").alias("ended")
    )
    in_time = F.col("begun") < F.col("t_complete")
    columns = judged.columns
    violations = (
        judged.join(of_commit, [*_STORED, "offset"], how="left")
        .groupBy(*columns)
        .agg(F.max(F.when(in_time, F.col("ended"))).alias("ended"))
        .withColumn("problem", _fetch_problem())
        .where(F.col("problem").isNotNull())
    )
    return findings(
        violations,
        check="S5",
        order=(*_STORED, "op"),
        witness=("problem", *columns),
    )


def _fetch_problem() -> Column:
    stored_before = F.col("overwritten_at").isNotNull()
    return (
        F.when(
            F.col("offset").isNull(),
            F.when(stored_before, "nothing was stored, though a commit was acknowledged"),
        )
        .when(F.col("ended").isNull(), "nobody had committed that offset")
        .when(F.col("ended") < F.col("overwritten_at"), "a later commit had been acknowledged")
    )


def _wrong_rows(frames: Frames, commits: DataFrame) -> DataFrame:
    """Offsets stored in the committed logs of all replicas together, against the commits."""
    stored = (
        frames.log.where(F.col("committed") & (F.col("kind") == "offset") & _listed(frames))
        .groupBy(*_STORED, F.col("queue_offset").alias("offset"))
        .agg(F.max(F.struct("index", "slot", "node")).alias("row"))
    )
    by_offset = commits.groupBy(*_STORED, "offset").agg(F.max("t_end").alias("ended"))
    by_queue = commits.groupBy(*_STORED).agg(
        F.max(F.when(F.col("acked"), F.col("t_invoke"))).alias("overwritten_at")
    )
    last = F.max("row").over(Window.partitionBy(*_STORED))
    judged = (
        stored.withColumn("is_last", F.col("row") == last)
        .join(by_offset, [*_STORED, "offset"], how="left")
        .join(by_queue, list(_STORED), how="full_outer")
        .join(F.broadcast(frames.first_index), "broker_group", how="left")
    )
    problem = (
        F.when(
            F.col("row").isNull(),
            F.when(
                F.col("overwritten_at").isNotNull() & (F.col("first_index") == 1),
                "a commit was acknowledged, and no log stores any offset",
            ),
        )
        .when(F.col("ended").isNull(), "nobody committed the offset that the log stores")
        .when(
            F.col("is_last") & (F.col("ended") < F.col("overwritten_at")),
            "the offset stored last had been overwritten by an acknowledged commit",
        )
    )
    violations = (
        judged.withColumn("problem", problem)
        .withColumn("index", F.col("row.index"))
        .where(F.col("problem").isNotNull())
    )
    return findings(
        violations,
        check="S5",
        order=(*_STORED, "index"),
        witness=("problem", *_STORED, "offset", "row", "ended", "overwritten_at"),
    )
