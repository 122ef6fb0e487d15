"""A12: nobody consumes a message twice without a cause.

A cause is a retry that was asked for or whose answer is unknown, or a change of owner: at least
once means that a new owner may begin below what the old one had consumed.

Source: OpenChaos's consume counts; the run format's rule for A12.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from verify.checks.finding import findings
from verify.frames import QUEUE, Frames
from verify.values import tried_twice

__all__ = ["repeated_consumptions"]


def repeated_consumptions(frames: Frames) -> DataFrame:
    """A12: a second ok read of a value by one group (broadcast: one client) with no cause.

    Each ok read is held against the one before it. Repeats are few, so only they meet the
    assignments.
    """
    repeats = _repeats(frames)
    assigns = frames.ops.where((F.col("f") == "assign") & (F.col("type") == "ok")).select(
        F.col("process").alias("assigned_process"),
        F.col("client_group").alias("assigned_group"),
        F.col("op").alias("assign_op"),
        F.col("t_invoke").alias("assigned_from"),
        F.col("t_complete").alias("assigned_to"),
        "assigned",
    )
    names_queue = F.exists(
        "assigned",
        lambda queue: (
            queue["broker_group"].eqNullSafe(F.col("broker_group"))
            & queue["topic"].eqNullSafe(F.col("topic"))
            & queue["queue"].eqNullSafe(F.col("queue"))
        ),
    )
    between = (F.col("assigned_to") >= F.col("first.t_invoke")) & (
        F.col("assigned_from") <= F.col("t_complete")
    )
    own_of_second = (F.col("assigned_process") == F.col("process")) & (
        F.col("assign_op") < F.col("op")
    )
    own_of_first = (F.col("assigned_process") == F.col("first.process")) & (
        F.col("assign_op") < F.col("first.op")
    )
    last_of_second = F.max(F.when(own_of_second, F.struct("assign_op", names_queue.alias("names"))))
    columns = repeats.columns
    judged = (
        repeats.join(assigns, F.col("client_group") == F.col("assigned_group"), how="left")
        .groupBy(*columns)
        .agg(
            F.coalesce(F.bool_or(names_queue & between), F.lit(False)).alias("reassigned"),
            last_of_second.alias("under"),
            F.max(F.when(own_of_first, F.col("assign_op"))).alias("first_under"),
        )
    )
    under_another = F.coalesce(
        F.col("under.names") & ~F.col("under.assign_op").eqNullSafe(F.col("first_under")),
        F.lit(False),
    )
    violations = judged.where(~F.col("reassigned") & ~under_another)
    return findings(
        violations,
        check="A12",
        order=("client_group", "value", "op"),
        witness=("client_group", "value", *QUEUE, "offset", "first", "op", "process", "t_complete"),
    )


def _repeats(frames: Frames) -> DataFrame:
    """Ok reads of what the same group, or client, had read ok; none that was asked for again."""
    kinds = {group.name: group.kind for group in frames.manifest.consumer_groups}
    broadcast = F.col("client_group").isin([n for n, kind in kinds.items() if kind == "broadcast"])
    reads = frames.reads.where(
        F.col("client_group").isin(list(kinds)) & F.col("value").isNotNull()
    ).select(
        "client_group",
        F.when(broadcast, F.col("client")).alias("member"),
        "value",
        *QUEUE,
        "offset",
        "op",
        "process",
        "t_invoke",
        "t_complete",
        (F.col("type") == "ok").alias("ok"),
        F.coalesce("reconsume", F.lit(0)).alias("reconsume"),
    )
    if not frames.manifest.dedupe:
        reads = reads.join(tried_twice(frames), "value", how="left_anti")
    before = (
        Window.partitionBy("client_group", "member", "value")
        .orderBy("op")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    was_ok = F.when(F.col("ok"), F.struct("op", "process", "t_invoke"))
    return (
        reads.select(
            "*",
            F.last(was_ok, ignorenulls=True).over(before).alias("first"),
            F.coalesce(F.bool_or(~F.col("ok")).over(before), F.lit(False)).alias("asked_again"),
        )
        .where(F.col("ok") & F.col("first").isNotNull())
        .where(~F.col("asked_again") & (F.col("reconsume") == 0))
        .drop("member", "ok", "reconsume", "asked_again", "t_invoke")
    )
