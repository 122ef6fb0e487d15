"""How many rows of each kind a run has: what the checks examine and what the verdict covers.

Place in the data path: one query before the checks; the driver decides by these counts which
checks apply and which have nothing to look at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from verify.frames import Frames

__all__ = ["Counts", "count"]

_SUMS = ("messages", "sharded", "finals")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """`operations` by (f, type), `messages` in them by the same, `log` by (kind, committed),
    `raft` by (event, role), `units` of all ConsumeQueues, `sharded` messages sent, `finals`: polls
    of the final drain that were ok.
    """

    operations: Mapping[tuple[str, str], int] = field(default_factory=dict)
    messages: Mapping[tuple[str, str], int] = field(default_factory=dict)
    log: Mapping[tuple[str, str], int] = field(default_factory=dict)
    raft: Mapping[tuple[str, str], int] = field(default_factory=dict)
    units: int = 0
    sharded: int = 0
    finals: int = 0

    def ops(self, *f: str, type: str | None = None) -> int:  # noqa: A002 - the column's name
        return _sum(self.operations, f, type)

    def shown(self, *f: str, type: str | None = None) -> int:  # noqa: A002 - the column's name
        """Messages in operations of that kind."""
        return _sum(self.messages, f, type)

    def committed(self, *kinds: str) -> int:
        return _sum(self.log, kinds, "true")

    def records(self) -> int:
        return sum(self.log.values())

    def events(self, *names: str) -> int:
        return _sum(self.raft, names, None)

    def events_of(self, event: str, role: str) -> int:
        return self.raft.get((event, role), 0)


def _sum(counts: Mapping[tuple[str, str], int], first: tuple[str, ...], second: str | None) -> int:
    return sum(
        number
        for (one, two), number in counts.items()
        if (not first or one in first) and second in {None, two}
    )


def count(frames: Frames) -> Counts:
    """Counts of all tables that are at hand, by one Spark job."""
    parts: list[DataFrame] = []
    if frames.has("ops"):
        size = F.greatest(F.coalesce(F.size("messages"), F.lit(0)), F.lit(0))
        shards = F.filter("messages", lambda message: message["shard"].isNotNull())
        sent = (F.col("f") == "send") & F.col("messages").isNotNull()
        final = (F.col("f") == "poll") & (F.col("type") == "ok") & F.col("final")
        parts.append(
            _grouped(
                "ops",
                frames.ops,
                F.col("f"),
                F.col("type"),
                messages=F.sum(size),
                sharded=F.sum(F.when(sent, F.size(shards)).otherwise(0)),
                finals=F.count_if(final),
            )
        )
    if frames.has("log"):
        committed = F.col("committed").cast("string")
        parts.append(_grouped("log", frames.log, F.col("kind"), committed))
    if frames.has("raft"):
        role = F.coalesce("role", F.lit(""))
        parts.append(_grouped("raft", frames.raft, F.col("event"), role))
    if frames.has("cq"):
        parts.append(_grouped("cq", frames.cq, F.lit(""), F.lit("")))
    if not parts:
        return Counts()
    union = parts[0]
    for part in parts[1:]:
        union = union.unionByName(part)
    rows = union.collect()

    def table(name: str, column: str) -> dict[tuple[str, str], int]:
        return {
            (row["one"] or "", row["two"] or ""): row[column]
            for row in rows
            if row["table"] == name
        }

    return Counts(
        operations=table("ops", "rows"),
        messages=table("ops", "messages"),
        log=table("log", "rows"),
        raft=table("raft", "rows"),
        units=sum(table("cq", "rows").values()),
        sharded=sum(table("ops", "sharded").values()),
        finals=sum(table("ops", "finals").values()),
    )


def _grouped(table: str, rows: DataFrame, one: Column, two: Column, **sums: Column) -> DataFrame:
    """Rows by (one, two); of the further sums, those that are not given are 0."""
    none = F.max(F.lit(0))
    return (
        rows.groupBy(one.alias("one"), two.alias("two"))
        .agg(
            F.count("*").alias("rows"),
            *(sums.get(name, none).cast("long").alias(name) for name in _SUMS),
        )
        .withColumn("table", F.lit(table))
    )
