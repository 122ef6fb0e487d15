"""A6, A7, A8 and A10: offsets against the order in which things were done.

A6 and A7 follow one reader through a queue, between its polls and inside one; A8 follows one
sender; A10 compares all senders of a queue by real time.

A gap between two offsets is a skip only if a value is known to stand in it, at or above the place
from where absence counts: retention moves readers on.

Source: Jepsen's Kafka workload (poll-skip, nonmonotonic-poll, nonmonotonic-send); the run format's
rules for A6, A8 and A10.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from verify.checks.finding import findings
from verify.frames import PLACE, QUEUE, Frames, is_user_topic
from verify.values import tried_twice

__all__ = ["overtaken_values", "poll_jumps", "polled_batch_jumps", "send_order"]

_STEP = ("process", *QUEUE)


def poll_jumps(frames: Frames) -> DataFrame:
    """A6: a poll that begins behind, or beyond, where the process's poll before it ended.

    An assignment starts every position anew.
    """
    so_far = (
        Window.partitionBy("process")
        .orderBy("op")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    offsets = F.filter(
        F.transform("messages", lambda message: message["offset"]),
        lambda offset: offset.isNotNull(),
    )
    polls = (
        frames.ops.where(F.col("f").isin("poll", "assign") & (F.col("type") == "ok"))
        .select(
            *_STEP,
            "f",
            "op",
            F.count_if(F.col("f") == "assign").over(so_far).alias("epoch"),
            offsets.alias("offsets"),
        )
        .where((F.col("f") == "poll") & (F.size("offsets") > 0))
    )
    own = Window.partitionBy(*_STEP, "epoch").orderBy("op")
    steps = polls.select(
        *_STEP,
        "op",
        F.lag("op").over(own).alias("op_before"),
        F.lag(F.element_at("offsets", -1)).over(own).alias("from_offset"),
        F.element_at("offsets", 1).alias("to_offset"),
    )
    return _jumps(frames, steps, "A6", "op_before")


def polled_batch_jumps(frames: Frames) -> DataFrame:
    """A7: messages of one poll that go back, or leave one out between two of them."""
    inside = Window.partitionBy("op").orderBy("place_in_op")
    steps = frames.reads.where(
        (F.col("f") == "poll") & (F.col("type") == "ok") & F.col("offset").isNotNull()
    ).select(
        *_STEP,
        "op",
        F.lag("offset").over(inside).alias("from_offset"),
        F.col("offset").alias("to_offset"),
    )
    return _jumps(frames, steps, "A7")


def _jumps(frames: Frames, steps: DataFrame, check: str, *more: str) -> DataFrame:
    """Steps from one offset to the next that go back, or over a value. Few are suspicious."""
    suspicious = steps.where(F.col("to_offset") - F.col("from_offset") != 1)
    columns = suspicious.columns
    skipped = (F.col("offset") > F.col("from_offset")) & (F.col("offset") < F.col("to_offset"))
    floors = F.broadcast(frames.queues.select(*QUEUE, "floor"))
    passed = (
        frames.places.select(*PLACE, "value")
        .join(F.broadcast(suspicious), list(QUEUE), how="inner")
        .where(skipped)
        .join(floors, list(QUEUE), how="left")
        .where(F.col("offset") >= F.coalesce("floor", F.lit(0)))
        .groupBy(*columns)
        .agg(F.min(F.struct("offset", "value")).alias("skipped"))
    )
    back = suspicious.where(F.col("to_offset") <= F.col("from_offset"))
    return findings(
        passed.unionByName(back, allowMissingColumns=True),
        check=check,
        order=("process", "op", "to_offset"),
        witness=(*columns, "skipped"),
    )


def send_order(frames: Frames) -> DataFrame:
    """A8: a sender whose later acknowledged message stands before an earlier one of its own.

    A value that was tried again is left out: it is answered with its old offset.
    """
    sends = frames.attempts.where(F.col("f") == "send")
    tried_again = sends.groupBy("value").agg(F.count("*").alias("tries")).where(F.col("tries") > 1)
    own = Window.partitionBy(*_STEP).orderBy("op", "place_in_op")
    acked = sends.where((F.col("type") == "ok") & F.col("offset").isNotNull())
    violations = (
        acked.join(tried_again, "value", how="left_anti")
        .select(
            *_STEP,
            "op",
            "value",
            "offset",
            F.lag(F.struct("op", "value", "offset")).over(own).alias("sent_before"),
        )
        .where(F.col("offset") <= F.col("sent_before.offset"))
    )
    return findings(
        violations,
        check="A8",
        order=("process", "op"),
        witness=(*_STEP, "op", "value", "offset", "sent_before"),
    )


def overtaken_values(frames: Frames) -> DataFrame:
    """A10: a value that was acknowledged before another was first sent stands behind it.

    Without dedupe, a value with two attempts that may have been stored is left out.
    """
    first_sent = frames.attempts.groupBy("value").agg(F.min("t_invoke").alias("t_sent"))
    acked = frames.acked.groupBy("value").agg(F.min(F.struct("t_acked", "op")).alias("acked"))
    places = frames.places.where(is_user_topic(F.col("topic")))
    if not frames.manifest.dedupe:
        places = places.join(tried_twice(frames), "value", how="left_anti")
    stands = (
        places.select(*PLACE, "value")
        .distinct()
        .join(first_sent, "value", how="inner")
        .join(acked, "value", how="left")
    )
    behind = (
        Window.partitionBy(*QUEUE)
        .orderBy(F.desc("offset"))
        .rangeBetween(Window.unboundedPreceding, -1)
    )
    told = F.when(
        F.col("acked").isNotNull(), F.struct("acked.t_acked", "acked.op", "offset", "value")
    )
    violations = stands.withColumn("behind_it", F.min(told).over(behind)).where(
        F.col("behind_it.t_acked") < F.col("t_sent")
    )
    return findings(
        violations,
        check="A10",
        order=PLACE,
        witness=(*PLACE, "value", "t_sent", "behind_it"),
    )
