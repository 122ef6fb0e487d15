"""A1 and A2: what stands where. One value per place, one place per value.

Source: Jepsen's Kafka workload (inconsistent-offsets, duplicate); the run format's rules for L_k.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from verify.checks.finding import findings
from verify.frames import PLACE, QUEUE, Frames, is_user_topic
from verify.values import tried_twice

__all__ = ["duplicates", "inconsistent_offsets"]


def inconsistent_offsets(frames: Frames) -> DataFrame:
    """A1: two values at one offset of one queue, whoever says so: reads, acks or a log."""
    said = F.struct("value", "source", "op", "node")
    violations = (
        frames.places.groupBy(*PLACE)
        .agg(F.min(said).alias("one"), F.max(said).alias("other"))
        .where(F.col("one.value") != F.col("other.value"))
    )
    return findings(violations, check="A1", order=PLACE, witness=(*PLACE, "one", "other"))


def duplicates(frames: Frames) -> DataFrame:
    """A2: one value, or one uniq_key, at two places of one broker group's user topics.

    Without dedupe, a value with two attempts that may have been stored is left out.
    """
    places = frames.places.where(is_user_topic(F.col("topic")))
    if not frames.manifest.dedupe:
        places = places.join(tried_twice(frames), "value", how="left_anti")
    said = F.struct(*QUEUE[1:], "offset", "value", "source", "op", "node")
    named = F.explode(
        F.array(
            F.struct(F.lit("value").alias("by"), F.col("value").alias("name")),
            F.struct(F.lit("uniq_key").alias("by"), F.col("uniq_key").alias("name")),
        )
    )
    at = ("topic", "queue", "offset")
    differs = F.struct(*(f"one.{name}" for name in at)) != F.struct(
        *(f"other.{name}" for name in at)
    )
    violations = (
        places.select("*", named.alias("named"))
        .where(F.col("named.name").isNotNull())
        .groupBy("broker_group", "named.by", "named.name")
        .agg(F.min(said).alias("one"), F.max(said).alias("other"))
        .where(differs)
    )
    # A message stored twice is one violation, though its value and its key both tell of it.
    once = (
        violations.groupBy("broker_group", F.col("one.value").alias("value"))
        .agg(F.max(F.struct("by", "name", "one", "other")).alias("found"))
        .select("broker_group", "value", "found.*")
    )
    return findings(
        once,
        check="A2",
        order=("broker_group", "value"),
        witness=("broker_group", "by", "name", "one", "other"),
    )
