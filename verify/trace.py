"""What each replica knew at each event of its trace.

Place in the data path: between the table raft and `verify.checks.consensus`; one window over a
node's events in the order of their `seq`, which rises for ever on a node.

Invariants: what a trace does not tell is null or a bound on the safe side, so that no check
accuses a node of what it may not have done.

Source: the run format, table raft.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

__all__ = ["known_entries", "with_state"]


def with_state(raft: DataFrame) -> DataFrame:
    """The trace with these columns, each as of the event:

    `term_before`; `role_now` (null before the first start or role); `voters_now`, those of the
    configuration in force (null before the first start or config); `last_index_most` and
    `last_index_least`: bounds of the last entry's index, for an installed snapshot may or may not
    have kept what stood behind it, `last_index_least_before` without the event itself;
    `committed_before` and `applied_before` within the incarnation; `own_last`, the last entry's
    (term, index), null after a truncation until the next append.
    """
    event, index = F.col("event"), F.col("index")
    so_far = Window.partitionBy("broker_group", "node").orderBy("seq")
    until_now = so_far.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = so_far.rowsBetween(Window.unboundedPreceding, -1)
    incarnation = (
        Window.partitionBy("broker_group", "node", "incarnation")
        .orderBy("seq")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    cut = F.when(event == "truncate", index - 1)
    told = F.when(event.isin("append", "start"), index)
    end = F.coalesce(told, cut)
    installed = F.when(event == "install", index)
    end_or_install = F.coalesce(end, installed)
    entry = F.struct(F.col("entry_term").alias("term"), index.alias("index"))
    # A struct of nulls hides what stood before a truncation, whose new last term is not told.
    last_entry = F.when(event.isin("append", "start", "install"), F.struct(entry.alias("it"))).when(
        event == "truncate",
        F.struct(F.lit(None).cast("struct<term:bigint,index:bigint>").alias("it")),
    )
    role = F.when(event == "role", F.col("role")).when(event == "start", F.lit("follower"))
    voters = F.when(event.isin("start", "config"), F.col("voters"))
    last_end = F.last(end, ignorenulls=True).over(until_now)
    return raft.select(
        "*",
        F.last("term", ignorenulls=True).over(before).alias("term_before"),
        F.last(role, ignorenulls=True).over(until_now).alias("role_now"),
        F.last(voters, ignorenulls=True).over(until_now).alias("voters_now"),
        F.when(last_end.isNotNull(), F.greatest(last_end, F.max(installed).over(until_now))).alias(
            "last_index_most"
        ),
        F.last(end_or_install, ignorenulls=True).over(before).alias("last_index_least_before"),
        F.max(F.when(event.isin("commit", "install"), index))
        .over(incarnation)
        .alias("committed_before"),
        F.last(F.when(event.isin("apply", "install"), index), ignorenulls=True)
        .over(incarnation)
        .alias("applied_before"),
        F.last(last_entry, ignorenulls=True).over(before).getField("it").alias("own_last"),
    )


def known_entries(raft: DataFrame, log: DataFrame | None) -> DataFrame:
    """Every telling of an entry: who tells it, index, entry_term, chain, and if it is committed."""
    events = raft.where(
        F.col("event").isin("append", "commit", "apply", "start", "install")
        & (F.col("index") > 0)
        & F.col("entry_term").isNotNull()
        & F.col("chain").isNotNull()
    ).select(
        "broker_group",
        "node",
        "index",
        "entry_term",
        "chain",
        F.col("event").isin("commit", "apply", "install").alias("is_committed"),
        F.col("event").alias("source"),
        "seq",
    )
    if log is None:
        return events
    stored = log.where(F.col("chain").isNotNull() & F.col("term").isNotNull()).select(
        "broker_group",
        "node",
        "index",
        F.col("term").alias("entry_term"),
        "chain",
        F.coalesce("committed", F.lit(False)).alias("is_committed"),
        F.lit("log").alias("source"),
        F.lit(None).cast("long").alias("seq"),
    )
    return events.unionByName(stored)
