"""What is known of each value: one row per value, for the checks on reads.

Place in the data path: attempts, acknowledgements, reads and committed records are brought to one
narrow shape and grouped by value, so that one shuffle serves A3, A4, A5, A11 and A2.

Source: verification as dataflow: many checks per shuffle; the run format's rules for A3 to A11.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from verify.frames import PLACE, Frames

__all__ = ["tried_twice", "value_facts"]

_PLACE: Final = "broker_group:string,topic:string,queue:int,offset:bigint"
_FACTS: Final[Mapping[str, str]] = {
    "sent_op": "long",
    "sent_type": "string",
    "sent_key": "string",
    "acked_op": "long",
    "acked_place": f"struct<{_PLACE}>",
    "tx": "string",
    "must": "boolean",
    "read": f"struct<not_ok:boolean,op:bigint,f:string,{_PLACE}>",
    "ok_group": "string",
    "seen_key": "string",
    "logged": f"struct<index:bigint,node:string,{_PLACE}>",
}


def value_facts(frames: Frames) -> DataFrame:
    """One row per value that was attempted, acknowledged, read or found in a log.

    `attempts`, of them `open_attempts` that did not end fail; `acked_op` null where it was never
    acknowledged; `must`: it must have committed; `read`: a read of it, an ok one if there is one;
    `read_by`: the at-least-once groups that read it ok; `logged`: a committed record of it.
    """
    rows = reduce(DataFrame.union, _telling(frames))
    groups = [group.name for group in frames.manifest.consumer_groups if group.at_least_once]
    reader = F.when(F.col("ok_group").isin(groups), F.col("ok_group"))
    attempted = F.col("sent_type").isNotNull()
    return (
        rows.groupBy("value")
        .agg(
            F.count("sent_type").alias("attempts"),
            F.count_if(attempted & (F.col("sent_type") != "fail")).alias("open_attempts"),
            F.count_if(attempted & F.col("sent_key").isNull()).alias("attempts_without_key"),
            F.min("sent_op").alias("sent_op"),
            F.min("acked_op").alias("acked_op"),
            F.max("acked_place").alias("acked_place"),
            F.min("tx").alias("tx"),
            F.coalesce(F.bool_or("must"), F.lit(False)).alias("must"),
            F.min("read").alias("read"),
            F.collect_set(reader).alias("read_by"),
            F.collect_set("sent_key").alias("sent_keys"),
            F.collect_set("seen_key").alias("seen_keys"),
            F.min("logged").alias("logged"),
        )
        .withColumn("was_read", F.col("read").isNotNull() & ~F.col("read.not_ok"))
    )


def tried_twice(frames: Frames) -> DataFrame:
    """Values with two attempts that may have been stored: without dedupe, both may stand."""
    return frames.derived(value_facts).where(F.col("open_attempts") > 1).select("value")


def _telling(frames: Frames) -> list[DataFrame]:
    """What attempts, acknowledgements, reads and logs tell, each as rows of `_FACTS`."""
    ok = F.col("type") == "ok"
    must = frames.must_have_committed.withColumn("must", F.lit(True))
    attempts = frames.attempts.join(must, "op", how="left")
    parts = [
        _facts(
            attempts,
            sent_op=F.col("op"),
            sent_type=F.col("type"),
            sent_key=F.col("uniq_key"),
            must=F.col("must") & (F.col("f") == "send"),
        ),
        _facts(
            frames.acked,
            acked_op=F.col("op"),
            acked_place=F.struct(*PLACE),
            tx=F.col("tx"),
            must=F.lit(True),
        ),
        _facts(
            frames.reads,
            read=F.struct((~ok).alias("not_ok"), "op", "f", *PLACE),
            ok_group=F.when(ok, F.col("client_group")),
            seen_key=F.col("uniq_key"),
        ),
    ]
    if frames.has("log"):
        found = frames.visible.withColumn("value", F.coalesce("value", "uniq_key"))
        logged = F.struct("index", "node", *PLACE)
        parts.append(_facts(found, seen_key=F.col("uniq_key"), logged=logged))
    return parts


def _facts(rows: DataFrame, **given: Column) -> DataFrame:
    columns = {name: given.get(name, F.lit(None)) for name in _FACTS}
    return rows.select(
        "value", *(columns[name].cast(kind).alias(name) for name, kind in _FACTS.items())
    )
