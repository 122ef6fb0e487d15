"""The DataFrames that checks share, each made once and kept in memory.

Place in the data path: between the tables of a run and `verify.checks`. A check asks for what it
needs; what several checks need (places of values, facts per value, transactions) is computed by
one shuffle and cached.

Words: a *place* is where a value stands: broker_group, topic, queue, offset. A value is *open*
where an attempt to send it did not end `fail`. A *read* is a message that a poll or a deliver
showed; only an ok one counts as having been read.

Source: the run format, "Rules that the checks share".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from verify.manifest import Manifest
from verify.schema import OPS
from verify.trace import known_entries, with_state

__all__ = ["PLACE", "QUEUE", "RECORD_KINDS", "Frames", "is_user_topic"]

QUEUE = ("broker_group", "topic", "queue")
PLACE = (*QUEUE, "offset")
RECORD_KINDS = ("message", "half", "op", "final")
"""Rows of the log that are records in a queue; offsets and the rest are none."""

_SYSTEM_TOPICS = ("SCHEDULE_TOPIC_XXXX", "TRANS_CHECK_MAX_TIME_TOPIC")
_SYSTEM_PREFIXES = ("%RETRY%", "%DLQ%", "RMQ_SYS_", "rmq_sys_")
_OFFSET_MAX = (1 << 63) - 1


def is_user_topic(topic: Column) -> Column:
    """Whether producers own the topic; null where the topic is not known."""
    system = topic.isin(*_SYSTEM_TOPICS)
    for prefix in _SYSTEM_PREFIXES:
        system = system | topic.startswith(prefix)
    return ~system


class Frames:
    """The run's tables and what is derived from them. `tables` holds those that are at hand."""

    def __init__(
        self, session: SparkSession, manifest: Manifest, tables: Mapping[str, DataFrame]
    ) -> None:
        self.session = session
        self.manifest = manifest
        self._tables = tables
        self._derived: dict[Callable[[Frames], DataFrame], DataFrame] = {}

    def has(self, *tables: str) -> bool:
        return all(name in self._tables for name in tables)

    def derived(self, make: Callable[[Frames], DataFrame]) -> DataFrame:
        """What `make` makes of these frames, made once and kept."""
        if make not in self._derived:
            self._derived[make] = make(self).cache()
        return self._derived[make]

    # The tables themselves.

    @cached_property
    def ops(self) -> DataFrame:
        return self._tables["ops"].cache()

    @cached_property
    def log(self) -> DataFrame:
        return self._tables["log"].cache()

    @cached_property
    def cq(self) -> DataFrame:
        return self._tables["cq"].cache()

    @cached_property
    def raft(self) -> DataFrame:
        return self._tables["raft"].cache()

    @cached_property
    def faults(self) -> DataFrame:
        return self._tables["faults"].cache()

    # What the history says.

    @cached_property
    def messages(self) -> DataFrame:
        """One row per message of an operation, with what the checks need of the operation."""
        exploded = self.ops.select("*", F.posexplode("messages").alias("place_in_op", "m"))
        of_op = [
            name
            for name in OPS.names
            if name not in {"messages", "assigned", "tx", "broker_group", "topic", "queue"}
        ]
        return exploded.select(
            *(F.col(name) for name in of_op if name != "offset"),
            F.col("offset").alias("op_offset"),
            "place_in_op",
            *(F.col(f"m.{name}").alias(name) for name in ("value", "uniq_key", "keys", "offset")),
            *(F.coalesce(f"m.{name}", name).alias(name) for name in QUEUE),
            *(F.col(f"m.{name}").alias(name) for name in ("shard", "seq", "reconsume")),
            F.coalesce("m.tx", "tx").alias("tx"),
        ).cache()

    @cached_property
    def reads(self) -> DataFrame:
        return self.messages.where(F.col("f").isin("poll", "deliver"))

    @cached_property
    def attempts(self) -> DataFrame:
        return self.messages.where(F.col("f").isin("send", "half"))

    @cached_property
    def transactions(self) -> DataFrame:
        """One row per transaction: its half, and the decisions that were told, with their times.

        A `decide` that ended `fail` was refused and is no decision; the answer to a check counts
        from its t_invoke and acknowledges nothing. `local`: what the producer's own database did;
        `checks` and `t_last_check`: how often, and when at last, the broker asked.
        """
        told = F.col("f").isin("decide", "check") & (F.col("type") != "fail")
        acked = (F.col("f") == "decide") & (F.col("type") == "ok")
        commit, rollback = F.col("decision") == "commit", F.col("decision") == "rollback"
        half, check = F.col("f") == "half", F.col("f") == "check"
        local = (F.col("f") == "local") & (F.col("type") == "ok") & (commit | rollback)
        first = F.element_at("messages", 1)
        tx = F.coalesce("tx", F.when(half & (F.size("messages") > 0), first["tx"]))
        of_half = F.struct(
            "op", "type", "t_invoke", "client_group", "broker_group", "topic", "queue", "messages"
        )
        rows = self.ops.where(F.col("f").isin("half", "local", "decide", "check"))
        return (
            rows.withColumn("tx", tx)
            .where(F.col("tx").isNotNull())
            .groupBy("tx")
            .agg(
                F.min(F.when(half, of_half)).alias("half"),
                F.min(F.when(told & commit, F.col("t_invoke"))).alias("t_commit"),
                F.min(F.when(told & rollback, F.col("t_invoke"))).alias("t_rollback"),
                F.min(F.when(acked & commit, F.col("t_complete"))).alias("t_commit_acked"),
                F.min(F.when(acked & rollback, F.col("t_complete"))).alias("t_rollback_acked"),
                F.min(F.when(told & (commit | rollback), F.col("op"))).alias("op_decided"),
                F.min(F.when(acked & commit, F.col("op"))).alias("op_commit_acked"),
                F.min(F.when(local, F.col("decision"))).alias("local"),
                F.count_if(check).alias("checks"),
                F.max(F.when(check, F.col("t_invoke"))).alias("t_last_check"),
            )
            .select("*", F.element_at("half.messages", 1).alias("sent"))
            .cache()
        )

    @cached_property
    def acked(self) -> DataFrame:
        """(value, op, t_acked, place as far as known): sends that were ok, committed transactions.

        A value that was acknowledged twice has two rows.
        """
        sends = self.attempts.where((F.col("f") == "send") & (F.col("type") == "ok"))
        committed = self.transactions.where(
            F.col("t_commit_acked").isNotNull() & F.col("half").isNotNull()
        )
        return sends.select(
            "value", "op", F.col("t_complete").alias("t_acked"), *PLACE, F.lit(None).alias("tx")
        ).unionByName(
            committed.select(
                F.col("sent.value").alias("value"),
                F.col("op_commit_acked").alias("op"),
                F.col("t_commit_acked").alias("t_acked"),
                *(F.coalesce(f"sent.{name}", f"half.{name}").alias(name) for name in QUEUE),
                F.lit(None).cast("long").alias("offset"),
                "tx",
            )
        )

    # What the replicas' logs say.

    @cached_property
    def committed(self) -> DataFrame:
        """Committed records of all replicas, `offset` being their queue offset."""
        return self.log.where(
            F.col("committed") & F.col("kind").isin(*RECORD_KINDS)
        ).withColumnRenamed("queue_offset", "offset")

    @cached_property
    def visible(self) -> DataFrame:
        """Committed records that consumers of user topics can be given."""
        return self.committed.where(
            F.col("kind").isin("message", "final") & is_user_topic(F.col("topic"))
        )

    @cached_property
    def first_index(self) -> DataFrame:
        """(broker_group, first_index): from where absence counts; the highest of the replicas'."""
        highest = F.max("first_index").alias("first_index")
        return self.replicas.groupBy("broker_group").agg(highest).cache()

    @cached_property
    def replicas(self) -> DataFrame:
        """(broker_group, node, first_index, last_committed) of every replica with a log."""
        return (
            self.log.groupBy("broker_group", "node")
            .agg(
                F.min(F.when(F.col("index") > 0, F.col("index"))).alias("first_index"),
                F.coalesce(F.max(F.when(F.col("committed"), F.col("index"))), F.lit(0)).alias(
                    "last_committed"
                ),
            )
            .cache()
        )

    @cached_property
    def trace(self) -> DataFrame:
        """The table raft with what each node knew at each event."""
        return with_state(self.raft).cache()

    @cached_property
    def entries(self) -> DataFrame:
        """Every telling of an entry, by traces and logs."""
        return known_entries(self.raft, self.log if self.has("log") else None).cache()

    @cached_property
    def queues(self) -> DataFrame:
        """The manifest's queues, with `floor` (absence below proves nothing) and `was_drained`."""
        listed = self.session.createDataFrame(
            [
                (q.broker_group, q.topic, q.queue, q.min_offset, q.max_offset, q.drained)
                for q in self.manifest.queues
            ],
            "broker_group string, topic string, queue int, min_offset long, max_offset long, "
            "drained boolean",
        )
        if not self.has("log"):
            return listed.select(
                "*", F.col("min_offset").alias("floor"), F.col("drained").alias("was_drained")
            ).cache()
        kept = F.col("index") >= F.col("first_index")
        ends = (
            self.committed.join(F.broadcast(self.first_index), "broker_group", how="left")
            .groupBy(*QUEUE)
            .agg(
                F.min(F.when(kept, F.col("offset"))).alias("kept_from"),
                F.max("offset").alias("last_offset"),
            )
        )
        retained = F.col("first_index") > 1
        return (
            listed.join(ends, list(QUEUE), how="left")
            .join(F.broadcast(self.first_index), "broker_group", how="left")
            .select(
                *listed.columns,
                F.when(
                    retained,
                    F.greatest("min_offset", F.coalesce("kept_from", F.lit(_OFFSET_MAX))),
                )
                .otherwise(F.col("min_offset"))
                .alias("floor"),
                (
                    F.col("drained") & (F.coalesce("last_offset", F.lit(-1)) < F.col("max_offset"))
                ).alias("was_drained"),
            )
            .cache()
        )

    # Both together.

    @cached_property
    def places(self) -> DataFrame:
        """L_k: every place where a value is known to stand, and who says so.

        Reads of any outcome; acknowledged sends; sends of unknown outcome with a value that an ok
        read showed, if that value was attempted only once; committed records of user topics.
        """
        columns = (*PLACE, "value", "uniq_key", "source", "op", "node", "was_read")
        nobody = F.lit(None).cast("string")
        reads = self.reads.select(
            *PLACE,
            "value",
            "uniq_key",
            F.col("f").alias("source"),
            "op",
            nobody.alias("node"),
            (F.col("type") == "ok").alias("was_read"),
        )
        sends = self.attempts.where(F.col("f") == "send").join(
            self.must_have_committed, "op", how="left_semi"
        )
        rows = reads.unionByName(
            sends.select(
                *PLACE,
                "value",
                "uniq_key",
                F.col("f").alias("source"),
                "op",
                nobody.alias("node"),
                F.lit(False).alias("was_read"),
            )
        )
        if self.has("log"):
            rows = rows.unionByName(
                self.visible.select(
                    *PLACE,
                    F.coalesce("value", "uniq_key").alias("value"),
                    "uniq_key",
                    F.lit("log").alias("source"),
                    F.lit(None).cast("long").alias("op"),
                    "node",
                    F.lit(False).alias("was_read"),
                )
            )
        known = F.col("offset").isNotNull() & F.col("queue").isNotNull()
        return rows.where(known & F.col("value").isNotNull()).select(*columns).cache()

    @cached_property
    def must_have_committed(self) -> DataFrame:
        """(op): sends that were ok, or unknown with a value of a single attempt read ok."""
        seen = self.reads.where(F.col("type") == "ok").select("value").distinct()
        single = (
            self.attempts.where(F.col("type") != "fail")
            .groupBy("value")
            .agg(F.count("*").alias("attempts"), F.min("op").alias("op"))
            .where(F.col("attempts") == 1)
        )
        proved = single.join(seen, "value", how="left_semi").select("op")
        acked = self.ops.where((F.col("f") == "send") & (F.col("type") == "ok")).select("op")
        return proved.unionByName(acked).distinct().cache()
