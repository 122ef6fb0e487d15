"""What became of each transaction: one row per transaction, for the checks T*.

Place in the data path: joins what the history told of a transaction with its records in the
committed logs of all replicas together, and with what was delivered.

Invariants: a record stands once here however many replicas hold it; a record or delivery belongs
to a transaction by its tx, else by the value of the half.

Source: the run format's rules for T*.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from verify.frames import PLACE, Frames, is_user_topic

__all__ = ["transaction_outcomes"]

_DISCARDED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
_PLACE = "topic:string,queue:int,offset:bigint"
_FINAL = (
    f"struct<t_visible:bigint,broker_group:string,index:bigint,slot:int,{_PLACE},term:bigint,"
    "node:string,value:string,uniq_key:string>"
)
_OP = "struct<broker_group:string,index:bigint,slot:int,decision:string,node:string>"
_DISCARDED = (
    "struct<broker_group:string,index:bigint,slot:int,term:bigint,node:string,value:string>"
)
_DELIVERED = (
    f"struct<t_complete:bigint,op:bigint,f:string,type:string,broker_group:string,{_PLACE},"
    "value:string>"
)


def transaction_outcomes(frames: Frames) -> DataFrame:
    """One row per transaction that anything tells of.

    `finals` final messages, with the first and last of them; `op_decisions` the set of decisions
    in op records and `op_count` their number; `delivered` the delivery that ended first;
    `discarded` its copy among those that nobody decided; `half_offset` the last place of the half
    in its topic; `kept` false where retention may have taken the half.
    """
    told = frames.transactions
    by_value = told.where(F.col("sent.value").isNotNull()).select(
        F.col("sent.value").alias("value"), F.col("tx").alias("tx_of_value")
    )
    facts = _facts(_deliveries(frames, by_value), "delivered")
    if frames.has("log"):
        facts = facts.unionByName(_facts(_finals(frames, by_value), "final"))
        facts = facts.unionByName(_facts(_op_records(frames, by_value), "op_record"))
        facts = facts.unionByName(_facts(_halves(frames, by_value), "half_kept"))
        facts = facts.unionByName(_facts(_discards(frames, by_value), "discard"))
    seen = facts.groupBy("tx").agg(
        F.count("final").alias("finals"),
        F.min("final").alias("first_final"),
        F.max("final").alias("last_final"),
        F.min("delivered").alias("delivered"),
        F.collect_set("op_record.decision").alias("op_decisions"),
        F.count("op_record").alias("op_count"),
        F.min("op_record").alias("first_op"),
        F.max("op_record").alias("last_op"),
        F.max("half_kept").alias("half_offset"),
        F.min("discard").alias("discarded"),
    )
    joined = told.join(seen, "tx", how="full_outer")
    none = F.array().cast("array<string>")
    kept = _kept_groups(frames)
    return joined.join(
        F.broadcast(kept), F.col("half.broker_group") == F.col("retained_group"), how="left"
    ).select(
        *told.columns,
        F.col("sent.value").alias("value"),
        F.coalesce("finals", F.lit(0)).alias("finals"),
        "first_final",
        "last_final",
        "delivered",
        F.coalesce("op_decisions", none).alias("op_decisions"),
        F.coalesce("op_count", F.lit(0)).alias("op_count"),
        "first_op",
        "last_op",
        "discarded",
        "half_offset",
        (F.col("retained_group").isNull() | F.col("half_offset").isNotNull()).alias("kept"),
    )


def _facts(rows: DataFrame, name: str) -> DataFrame:
    """(tx, one column per kind of fact) with only `name` filled."""
    kinds = {
        "delivered": _DELIVERED,
        "final": _FINAL,
        "op_record": _OP,
        "half_kept": "bigint",
        "discard": _DISCARDED,
    }
    return rows.select(
        "tx",
        *(
            (F.col(name) if other == name else F.lit(None)).cast(kind_of_other).alias(other)
            for other, kind_of_other in kinds.items()
        ),
    )


def _deliveries(frames: Frames, by_value: DataFrame) -> DataFrame:
    """What consumers of user topics, or of their retries, were shown of a transaction."""
    topic = F.col("topic")
    to_consumers = topic.isNull() | is_user_topic(topic) | topic.startswith("%RETRY%")
    # One of unknown outcome is open until the run's end: it shows the message, and never too early.
    t_complete = F.when(F.col("type") != "info", F.col("t_complete")).alias("t_complete")
    open_ended = t_complete.isNull().alias("open_ended")
    shown = F.struct(open_ended, t_complete, "op", "f", "type", *PLACE, "value")
    return (
        frames.reads.where(to_consumers)
        .join(by_value, "value", how="inner")
        .groupBy(F.col("tx_of_value").alias("tx"))
        .agg(F.min(shown).dropFields("open_ended").alias("delivered"))
    )


def _of_transaction(rows: DataFrame, by_value: DataFrame) -> DataFrame:
    named = rows.join(by_value, "value", how="left")
    return named.withColumn("tx", F.coalesce("tx", "tx_of_value")).where(F.col("tx").isNotNull())


def _finals(frames: Frames, by_value: DataFrame) -> DataFrame:
    """Final messages, each with the time of its entry's first append anywhere."""
    rows = _of_transaction(frames.visible.where(F.col("kind") == "final"), by_value)
    at = ("tx", "broker_group", "index", "slot")
    once = rows.groupBy(*at).agg(
        F.min(F.struct(*PLACE[1:], "term", "node", "value", "uniq_key")).alias("row")
    )
    if frames.has("raft"):
        appends = (
            frames.raft.where(F.col("event") == "append")
            .groupBy("broker_group", "index", F.col("entry_term").alias("term"))
            .agg(F.min("t").alias("t_visible"))
        )
        once = once.withColumn("term", F.col("row.term")).join(
            appends, ["broker_group", "index", "term"], how="left"
        )
    else:
        once = once.withColumn("t_visible", F.lit(None).cast("long"))
    return once.select(
        "tx", F.struct("t_visible", "broker_group", "index", "slot", "row.*").alias("final")
    )


def _op_records(frames: Frames, by_value: DataFrame) -> DataFrame:
    rows = _of_transaction(frames.committed.where(F.col("kind") == "op"), by_value)
    at = ("tx", "broker_group", "index", "slot", "decision")
    return (
        rows.groupBy(*at)
        .agg(F.min("node").alias("node"))
        .select("tx", F.struct(*at[1:], "node").alias("op_record"))
    )


def _halves(frames: Frames, by_value: DataFrame) -> DataFrame:
    """Halves that stand where absence counts."""
    rows = frames.committed.where(F.col("kind") == "half").join(
        F.broadcast(frames.first_index), "broker_group", how="inner"
    )
    kept = _of_transaction(rows.where(F.col("index") >= F.col("first_index")), by_value)
    return kept.groupBy("tx").agg(F.max("offset").alias("half_kept"))


def _discards(frames: Frames, by_value: DataFrame) -> DataFrame:
    """Halves that were given up for want of a decision."""
    is_discard = (F.col("topic") == _DISCARDED_TOPIC) & (F.col("kind") == "message")
    rows = _of_transaction(frames.committed.where(is_discard), by_value)
    discard = F.struct("broker_group", "index", "slot", "term", "node", "value")
    return rows.groupBy("tx").agg(F.min(discard).alias("discard"))


def _kept_groups(frames: Frames) -> DataFrame:
    """Groups whose logs have lost their beginning to retention."""
    if not frames.has("log"):
        return frames.session.createDataFrame([], "retained_group string")
    late = frames.first_index.where(F.col("first_index") > 1)
    return late.select(F.col("broker_group").alias("retained_group"))
