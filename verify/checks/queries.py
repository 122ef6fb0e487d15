"""S8: a query by key shows what is there, and nothing else.

Shown must be every committed message of that broker group and topic with that key or UNIQ_KEY
which was acknowledged, or read ok, before the query began; of what was shown, the committed log
must have the value at that place. Only what stands where absence counts is asked for.

Source: RocketMQ issue 7477; the run format's rule for S8 and for retention.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from verify.checks.finding import findings
from verify.frames import PLACE, QUEUE, Frames

__all__ = ["query_answers"]

_QUERY = ("op", "process", "node", "key", "t_invoke")


def query_answers(frames: Frames) -> DataFrame:
    """S8: messages that a query left out, and messages that it made up."""
    answered = (F.col("f") == "query") & (F.col("type") == "ok")
    queries = frames.ops.where(answered & F.col("key").isNotNull()).select(
        *_QUERY, *QUEUE[:2], F.transform("messages", lambda m: m["value"]).alias("shown")
    )
    stored = (
        frames.committed.where(F.col("kind").isin("message", "final"))
        .withColumn("value", F.coalesce("value", "uniq_key"))
        .groupBy(*PLACE, "value")
        .agg(F.min("uniq_key").alias("uniq_key"), F.min("keys").alias("keys"))
    )
    return _left_out(frames, queries, stored).unionByName(_made_up(frames, stored))


def _left_out(frames: Frames, queries: DataFrame, stored: DataFrame) -> DataFrame:
    keys = F.array_distinct(
        F.concat(F.array("uniq_key"), F.coalesce("keys", F.array().cast("array<string>")))
    )
    floors = F.broadcast(frames.queues.select(*QUEUE, "floor"))
    owed = (
        stored.withColumn("key", F.explode(keys))
        .join(F.broadcast(queries), ["key", *QUEUE[:2]], how="inner")
        .join(floors, list(QUEUE), how="left")
        .where(F.col("offset") >= F.coalesce("floor", F.lit(0)))
        .where(~F.coalesce(F.array_contains("shown", F.col("value")), F.lit(False)))
    )
    read = F.col("f").isin("poll", "deliver") & (F.col("type") == "ok")
    reads = frames.messages.where(read).select("value", "op", F.col("t_complete").alias("t_known"))
    known = frames.acked.select("value", "op", F.col("t_acked").alias("t_known")).unionByName(reads)
    violations = (
        known.withColumnRenamed("op", "known_by")
        .join(F.broadcast(owed), "value", how="inner")
        .where(F.col("t_known") < F.col("t_invoke"))
        .groupBy(*_QUERY, *QUEUE[:2], "value")
        .agg(
            F.min(F.struct("queue", "offset")).alias("stands_at"),
            F.min(F.struct("t_known", F.col("known_by").alias("op"))).alias("known"),
        )
    )
    return findings(
        violations,
        check="S8",
        order=("op", "value"),
        witness=(
            F.lit("left out").alias("problem"),
            *_QUERY,
            *QUEUE[:2],
            "value",
            "stands_at",
            "known",
        ),
    )


def _made_up(frames: Frames, stored: DataFrame) -> DataFrame:
    """What stands below a queue's floor may have been there when it was shown."""
    shown = frames.messages.where((F.col("f") == "query") & (F.col("type") == "ok"))
    placed = F.col("offset").isNotNull() & F.col("queue").isNotNull()
    floors = F.broadcast(frames.queues.select(*QUEUE, "floor"))
    violations = (
        shown.where(placed)
        .join(stored.select(*PLACE, "value"), [*PLACE, "value"], how="left_anti")
        .join(floors, list(QUEUE), how="left")
        .where(F.col("offset") >= F.coalesce("floor", F.lit(0)))
    )
    return findings(
        violations,
        check="S8",
        order=("op", "value"),
        witness=(F.lit("not in the log").alias("problem"), *_QUERY, *PLACE, "value"),
    )
