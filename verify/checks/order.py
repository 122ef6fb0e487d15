"""A13: what a producer ordered, consumers see in that order.

Source: the run format's rule for A13; RocketMQ's message groups.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from verify.checks.finding import findings
from verify.frames import Frames

__all__ = ["shard_disorder"]


def shard_disorder(frames: Frames) -> DataFrame:
    """A13: per process of an ordered group and since its last assign, shards in send order.

    Only sends that did not overlap are ordered: a before b where a was acknowledged before b was
    first invoked. Then a's first consumption must not come after b's.
    """
    ordered = [group.name for group in frames.manifest.consumer_groups if group.ordered]
    attempted = frames.attempts.where(
        (F.col("f") == "send") & F.col("shard").isNotNull() & (F.col("type") != "fail")
    )
    ok = F.col("type") == "ok"
    sent = attempted.groupBy("value").agg(
        F.min("shard").alias("shard"),
        F.min("topic").alias("topic"),
        F.min("t_invoke").alias("t_sent"),
        F.min(F.when(ok, F.col("t_complete"))).alias("t_acked"),
        F.count("*").alias("tries"),
    )
    if not frames.manifest.dedupe:
        sent = sent.where(F.col("tries") == 1)
    own = Window.partitionBy("process").orderBy("op")
    so_far = own.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    steps = frames.ops.where(F.col("client_group").isin(ordered)).select(
        "process",
        "op",
        "type",
        "f",
        "client_group",
        "messages",
        F.count_if(F.col("f") == "assign").over(so_far).alias("epoch"),
    )
    consumed = (
        steps.where(F.col("f").isin("poll", "deliver") & ok)
        .select("process", "client_group", "epoch", "op", F.posexplode("messages"))
        .select("process", "client_group", "epoch", "op", "pos", F.col("col.value").alias("value"))
        .groupBy("process", "client_group", "epoch", "value")
        .agg(F.min(F.struct("op", "pos")).alias("consumed"))
        .join(sent, "value", how="inner")
    )
    shard = ("process", "epoch", "topic", "shard")
    before = (
        Window.partitionBy(*shard).orderBy("consumed").rowsBetween(Window.unboundedPreceding, -1)
    )
    latest = F.max(F.struct("t_sent", "value", "consumed")).over(before)
    violations = consumed.withColumn("ahead_of_it", latest).where(
        F.col("ahead_of_it.t_sent") > F.col("t_acked")
    )
    return findings(
        violations,
        check="A13",
        order=("process", "epoch", "shard", "t_acked"),
        witness=(
            "process", "client_group", "shard", "value", "t_acked", "consumed", "ahead_of_it",
        ),
    )  # fmt: skip
