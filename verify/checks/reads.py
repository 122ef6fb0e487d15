"""A3, A4, A5 and A11: what was read against what was sent.

All four look at the one row per value that `value_facts` makes.

Source: Jepsen's Kafka workload (G1a, lost-write, unseen) and total-queue (unexpected); the run
format's rules for A5 and A11.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from verify.checks.finding import findings
from verify.frames import QUEUE, Frames, is_user_topic
from verify.values import value_facts

__all__ = ["aborted_reads", "lost_writes", "unexpected_values", "unseen_values"]


def aborted_reads(frames: Frames) -> DataFrame:
    """A3: an ok read of a value all of whose attempts failed."""
    failed = (F.col("attempts") > 0) & (F.col("open_attempts") == 0)
    violations = frames.derived(value_facts).where(failed & F.col("was_read"))
    return findings(
        violations,
        check="A3",
        order=("value",),
        witness=("value", F.col("sent_op").alias("failed_op"), "read"),
    )


def lost_writes(frames: Frames) -> DataFrame:
    """A4: a value that must have committed, was never read, and stands before one that was.

    Offsets take the part of dense ranks: both order a queue alike. What stands only below the
    queue's floor may have gone by retention.
    """
    ends = frames.places.groupBy(*QUEUE, "value").agg(
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.bool_or("was_read").alias("read_here"),
    )
    bounds = (
        ends.where(F.col("read_here"))
        .groupBy(*QUEUE)
        .agg(F.max(F.struct("first", "value")).alias("bound"))
    )
    unread = (
        frames.derived(value_facts)
        .where(F.col("must") & ~F.col("was_read"))
        .select("value", "acked_op")
    )
    floors = frames.queues.select(*QUEUE, "floor")
    violations = (
        ends.where(~F.col("read_here"))
        .join(unread, "value", how="inner")
        .join(bounds, list(QUEUE), how="inner")
        .where(F.col("last") <= F.col("bound.first"))
        .join(floors, list(QUEUE), how="left")
        .where(F.col("last") >= F.coalesce("floor", F.lit(0)))
    )
    return findings(
        violations,
        check="A4",
        order=(*QUEUE, "last"),
        witness=(
            *QUEUE,
            F.col("last").alias("offset"),
            "value",
            "acked_op",
            F.col("bound").alias("read_behind_it"),
        ),
    )


def unseen_values(frames: Frames) -> DataFrame:
    """A5: acknowledged, and never read ok by a group that is to read everything.

    In a queue that was not drained an unread value proves nothing, nor does it in a history without
    any read, be it of nothing. Acknowledged at or beyond the queue's end, and in no replica's
    committed log: lost, whoever read it.
    """
    acked = _acked_on_user_topics(frames)
    lost = F.col("lost")
    groups = F.array(
        *(F.lit(g.name) for g in frames.manifest.consumer_groups if g.at_least_once)
    ).cast("array<string>")
    waiting = F.array_sort(F.array_except(groups, F.col("read_by")))
    nobody = F.array(F.lit(None).cast("string"))
    unread = F.when(lost & (F.size(waiting) == 0), nobody).otherwise(waiting)
    undrained = F.concat(
        F.lit("not drained, so what is unread there proves nothing: "),
        F.concat_ws(" ", *QUEUE),
    )
    is_read = F.col("f").isin("poll", "deliver") & (F.col("type") == "ok")
    anybody = frames.ops.agg(F.coalesce(F.bool_or(is_read), F.lit(False)).alias("anybody_read"))
    no_read = F.lit("no read was recorded, so nothing can be called unread")
    return findings(
        acked.where(lost | F.col("kept"))
        .select("*", F.explode(unread).alias("client_group"))
        .join(F.broadcast(anybody), how="cross"),
        check="A5",
        order=(*QUEUE, "offset", "value", "client_group"),
        witness=("value", "client_group", *QUEUE, "offset", "acked_op", "tx", "lost"),
        unknown=F.when(lost, None)
        .when(~F.col("was_drained"), undrained)
        .when(~F.col("anybody_read"), no_read),
    )


def unexpected_values(frames: Frames) -> DataFrame:
    """A11: a value, or a pair of value and uniq_key, that nobody sent."""
    seen = F.col("read").isNotNull() | F.col("logged").isNotNull()
    foreign_key = F.array_except("seen_keys", "sent_keys")
    unknown_pair = (F.col("attempts_without_key") == 0) & (F.size(foreign_key) > 0)
    violations = frames.derived(value_facts).where(seen & ((F.col("attempts") == 0) | unknown_pair))
    return findings(
        violations,
        check="A11",
        order=("value",),
        witness=("value", "sent_keys", "seen_keys", "read", "logged"),
    )


def _acked_on_user_topics(frames: Frames) -> DataFrame:
    """One row per acknowledged value: where it stands, and what is known of its queue.

    A transaction whose queue nobody tells counts as drained only if all queues of its topic are.
    """
    queues = F.broadcast(frames.queues)
    drained = F.coalesce("was_drained", F.lit(False))
    beyond = (F.col("source") == "send") & (F.col("offset") >= F.col("max_offset"))
    stands = (
        frames.places.where(is_user_topic(F.col("topic")))
        .join(queues, list(QUEUE), how="left")
        .groupBy("value")
        .agg(
            F.max(F.struct("offset", *QUEUE)).alias("at"),
            F.bool_and(drained).alias("place_drained"),
            F.bool_or(F.col("offset") >= F.coalesce("floor", F.lit(0))).alias("kept"),
            F.bool_or(F.coalesce(beyond, F.lit(False))).alias("beyond"),
        )
    )
    topics = frames.queues.groupBy(*QUEUE[:2]).agg(F.bool_and(drained).alias("topic_drained"))
    acked = (
        frames.derived(value_facts)
        .where(F.col("acked_op").isNotNull())
        .select("value", "acked_op", "acked_place", "read_by", "tx", "logged")
    )
    of_user = F.coalesce(is_user_topic(F.col("acked_place.topic")), F.lit(True))
    has_log = F.lit(frames.has("log"))
    return (
        acked.where(of_user)
        .join(stands, "value", how="left")
        .select(
            "value",
            "acked_op",
            "read_by",
            "tx",
            *(F.coalesce(f"at.{name}", f"acked_place.{name}").alias(name) for name in QUEUE),
            F.col("at.offset").alias("offset"),
            "place_drained",
            F.coalesce("kept", F.lit(True)).alias("kept"),
            (F.coalesce("beyond", F.lit(False)) & has_log & F.col("logged").isNull()).alias("lost"),
        )
        .join(F.broadcast(topics), list(QUEUE[:2]), how="left")
        .withColumn("was_drained", F.coalesce("place_drained", "topic_drained", F.lit(False)))
    )
