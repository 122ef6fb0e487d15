"""S1, S2 and S6: the replicas' logs against each other, their ConsumeQueues, and what was read.

Source: facts of RocketMQ's and DLedger's own defects; the run format's rules for S1, S2, S6 and
retention.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from verify.checks.finding import findings
from verify.frames import PLACE, QUEUE, RECORD_KINDS, Frames, is_user_topic
from verify.schema import LOG

__all__ = ["consume_queues", "phantom_reads", "replica_differences"]

_REPLICA = ("broker_group", "node")
_OFFSET_MAX = (1 << 63) - 1
_NOT_COMPARED = {"broker_group", "node", "index", "slot", "committed", "cq_ok", "damage"}


def replica_differences(frames: Frames) -> DataFrame:
    """S2: committed entries that are not the same on every replica that has committed as far."""
    told = [name for name in LOG.names if name not in _NOT_COMPARED]
    row = F.struct(F.xxhash64(*_comparable(told)).alias("hash"), "node", *told, "damage")
    ends = (
        frames.replicas.where(F.col("last_committed") > 0)
        .groupBy("broker_group")
        .agg(F.collect_list(F.struct("node", "last_committed")).alias("ends"))
    )
    damaged = F.col("kind") == "damaged"
    from_index = F.coalesce("first_index", F.lit(0))
    rows = (
        frames.log.where("committed")
        .join(F.broadcast(frames.first_index), "broker_group", how="left")
        .where((F.col("index") >= from_index) | damaged)
        .groupBy("broker_group", "index", "slot")
        .agg(
            F.min(row).alias("one"),
            F.max(row).alias("other"),
            F.collect_list("node").alias("nodes"),
            F.bool_or(damaged).alias("is_damaged"),
        )
        .join(F.broadcast(ends), "broker_group", how="left")
    )
    reached = F.filter("ends", lambda end: end["last_committed"] >= F.col("index"))
    missing = F.array_except(F.transform(reached, lambda end: end["node"]), F.col("nodes"))
    repeated = F.size("nodes") > F.size(F.array_distinct("nodes"))
    violations = rows.withColumn("missing_on", F.array_sort(missing)).where(
        F.col("is_damaged")
        | (F.col("one.hash") != F.col("other.hash"))
        | (F.size("missing_on") > 0)
        | repeated
    )
    order = ("broker_group", "index", "slot")
    found = findings(
        violations,
        check="S2",
        order=order,
        witness=(*order, "missing_on", "one", "other"),
    )
    return found.unionByName(_replicas_without_log(frames, "S2"))


def consume_queues(frames: Frames) -> DataFrame:
    """S1: per replica and queue, records and ConsumeQueue units one to one, offsets dense."""
    place = (*_REPLICA, "topic", "queue", "offset")
    fact = ("position", "size", "tag_hash")
    nothing = F.lit(None)
    records = frames.log.where(F.col("kind").isin(*RECORD_KINDS)).select(
        *_REPLICA, "topic", "queue", F.col("queue_offset").alias("offset"),
        F.col("committed").alias("committed"), "cq_ok",
        F.struct(*fact, "index", "slot", "value").alias("record"),
        nothing.cast("struct<position:bigint,size:int,tag_hash:bigint>").alias("unit"),
    )  # fmt: skip
    units = frames.cq.select(
        *_REPLICA, "topic", "queue", F.col("queue_offset").alias("offset"),
        F.lit(False).alias("committed"), nothing.cast("boolean").alias("cq_ok"),
        nothing.cast(
            "struct<position:bigint,size:int,tag_hash:bigint,index:bigint,slot:int,value:string>"
        ).alias("record"),
        F.struct(*fact).alias("unit"),
    )  # fmt: skip
    committed = F.col("committed") & F.col("record").isNotNull()
    places = (
        records.unionByName(units)
        .groupBy(*place)
        .agg(
            F.count("record").alias("records"),
            F.count_if(committed).alias("committed"),
            F.count("unit").alias("units"),
            F.min(F.when(committed, F.col("record"))).alias("record"),
            F.min("unit").alias("unit"),
            F.coalesce(F.bool_or(committed & ~F.col("cq_ok")), F.lit(False)).alias("cq_not_ok"),
            F.bool_or(committed & F.col("cq_ok").isNotNull()).alias("owes_unit"),
        )
    )
    bounded = _from_bound_on(frames, places)
    before_it = (
        Window.partitionBy(*place[:-1]).orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    )
    has_record = F.col("committed") > 0
    before = F.coalesce(
        F.max(F.when(has_record, F.col("offset"))).over(before_it), F.col("bound") - F.lit(1)
    )
    wrong = F.lit(False)
    for name in fact:
        known = F.col(f"record.{name}").isNotNull() & F.col("unit").isNotNull()
        wrong = wrong | (known & (F.col(f"record.{name}") != F.col(f"unit.{name}")))
    problems = {
        "a message without its unit": F.col("owes_unit") & (F.col("units") == 0),
        "a unit without its message": (F.col("units") > 0) & (F.col("records") == 0),
        "the unit is not the record's": wrong,
        "cq_ok is false": F.col("cq_not_ok"),
        "two messages": F.col("committed") > 1,
        "two units": F.col("units") > 1,
        "no message at the offsets before it": has_record & (F.col("offset") != before + 1),
    }
    told = F.filter(
        F.array(*(F.when(is_so, F.lit(text)) for text, is_so in problems.items())),
        lambda text: text.isNotNull(),
    )
    violations = bounded.withColumn("problems", told).where(F.size("problems") > 0)
    found = findings(
        violations,
        check="S1",
        order=place,
        witness=(*place, "problems", "record", "unit"),
    )
    return found.unionByName(_replicas_without_log(frames, "S1"))


def phantom_reads(frames: Frames) -> DataFrame:
    """S6: a message that was served, and that no replica's committed log has where it was read.

    Where the client hides the place (a retry), the value must be somewhere in a committed log.
    """
    reads = (
        frames.reads.where(F.col("value").isNotNull())
        .groupBy(*PLACE, "value")
        .agg(F.min(F.struct("op", "process", "f", "type")).alias("read"))
    )
    placed = F.col("offset").isNotNull() & F.col("queue").isNotNull()
    stored = frames.committed.withColumn("value", F.coalesce("value", "uniq_key"))
    at_places = stored.select(*PLACE, "value").distinct()
    floors = frames.queues.select(*QUEUE, "floor")
    kept = F.col("offset") >= F.coalesce("floor", F.lit(0))
    absent = (
        reads.where(placed)
        .join(at_places, [*PLACE, "value"], how="left_anti")
        .join(floors, list(QUEUE), how="left")
        .where(kept)
        .drop("floor")
    )
    delivered = stored.where(F.col("kind").isin("message", "final")).select("value").distinct()
    hidden = reads.where(~placed).join(delivered, "value", how="left_anti")
    return findings(
        absent.unionByName(_not_retained(frames, hidden)),
        check="S6",
        order=(*PLACE, "value"),
        witness=(*PLACE, "value", "read"),
    )


def _not_retained(frames: Frames, hidden: DataFrame) -> DataFrame:
    """Reads of hidden places whose value retention can't have taken.

    A value whose place is known from elsewhere (its acknowledgement, other reads) may be gone
    where all its places are below their queues' floors; any other, where its topic has a floor.
    """
    floors = F.broadcast(frames.queues.select(*QUEUE, "floor"))
    at_or_above = F.col("offset") >= F.coalesce("floor", F.lit(0))
    known = (
        frames.places.join(hidden.select("value").distinct(), "value", how="left_semi")
        .join(floors, list(QUEUE), how="left")
        .groupBy("value")
        .agg(F.bool_or(at_or_above).alias("stands_above"))
    )
    floored = frames.queues.where(F.col("floor") > 0).agg(F.collect_set("topic").alias("floored"))
    own_topic = F.coalesce(is_user_topic(F.col("topic")), F.lit(False))
    untouched = F.when(own_topic, ~F.array_contains("floored", F.col("topic"))).otherwise(
        F.size("floored") == 0
    )
    return (
        hidden.join(known, "value", how="left")
        .join(F.broadcast(floored), how="cross")
        .where(F.coalesce("stands_above", untouched))
        .select(*hidden.columns)
    )


def _comparable(names: list[str]) -> list[Column]:
    """Columns whose hash tells null from every value, so that equal hashes mean equal rows."""
    kinds = {field.name: field.dataType.simpleString() for field in LOG.fields}
    parts: list[Column] = []
    for name in names:
        column = F.col(name)
        text = F.concat_ws("\x01", column) if kinds[name].startswith("array") else column
        parts += [column.isNull(), text]
    return parts


def _from_bound_on(frames: Frames, places: DataFrame) -> DataFrame:
    """Places from where S1 judges: min_offset on, or the replica's first record if it begins late.

    A replica whose log begins late and has no record of a queue owes nothing there; one without
    any log is not judged here.
    """
    queue = (*_REPLICA, "topic", "queue")
    firsts = places.groupBy(*queue).agg(
        F.min(F.when(F.col("records") > 0, F.col("offset"))).alias("first_record")
    )
    late = F.col("first_index") > 1
    least = F.coalesce("min_offset", F.lit(0))
    from_record = F.greatest(least, F.coalesce("first_record", F.lit(_OFFSET_MAX)))
    bounds = (
        firsts.join(F.broadcast(frames.replicas), list(_REPLICA), how="inner")
        .join(frames.queues.select(*QUEUE, "min_offset"), list(QUEUE), how="left")
        .select(*queue, F.when(late, from_record).otherwise(least).alias("bound"))
    )
    return places.join(bounds, list(queue), how="inner").where(F.col("offset") >= F.col("bound"))


def _replicas_without_log(frames: Frames, check: str) -> DataFrame:
    """A voter whose log is not there: nothing can be said of it."""
    voters = frames.session.createDataFrame(
        [(group, node) for group, nodes in frames.manifest.groups.items() for node in nodes],
        "broker_group string, node string",
    )
    absent = voters.join(F.broadcast(frames.replicas), list(_REPLICA), how="left_anti")
    return findings(
        absent,
        check=check,
        order=_REPLICA,
        witness=_REPLICA,
        unknown=F.concat(F.lit("there is no log of "), F.concat_ws("/", *_REPLICA)),
    )
