"""From a manifest to the tables that the checks see.

Place in the data path: chooses between exported tables and the replicas' own stores. An exported
`log` wins over the stores; `cq` likewise. Where the log comes from the stores, op records are
joined to their half here, and a replica's commit index is raised to what its own trace tells: the
checkpoint is a hint that may be up to a second old.

Invariants: a table that is not listed is not in the answer; nothing unlisted is read, but for the
stores, whose files are listed as table `nodes`.

Source: the run format, `tables`, `log` and `cq`; docs/FORMATS.md section 1.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from verify.manifest import Manifest
from verify.schema import CQ, LOG, TABLES
from verify.sources.tables import read_table

__all__ = ["load_tables"]

_REPLICA = ("broker_group", "node")


def load_tables(session: SparkSession, run: Path, manifest: Manifest) -> dict[str, DataFrame]:
    """The tables that the run has, by name.

    Raises:
        TableError: a listed table does not have the format's columns.
    """
    tables = {
        name: read_table(session, [run / file.name for file in manifest.tables[name]], schema)
        for name, schema in TABLES.items()
        if name in manifest.tables
    }
    if "nodes" in manifest.tables:
        if "log" not in tables:
            stored = session.read.format("commitlog").load(str(run.resolve()))
            tables["log"] = _log_of_stores(stored, tables.get("raft"))
        if "cq" not in tables:
            tables["cq"] = session.read.format("consumequeue").load(str(run.resolve()))
            tables["cq"] = tables["cq"].select(*CQ.names)
    if "log" in tables and "damage" not in tables["log"].columns:
        tables["log"] = tables["log"].withColumn("damage", F.lit(None).cast("string"))
    return tables


def _log_of_stores(stored: DataFrame, raft: DataFrame | None) -> DataFrame:
    """The table `log` of the format, from what the data source yields."""
    kept = stored.cache()
    half = F.col("kind") == "half"
    halves = kept.where(half).select(
        *_REPLICA,
        F.col("queue_offset").alias("half_offset"),
        *(F.col(name).alias(f"half_{name}") for name in ("value", "uniq_key", "keys", "tx")),
    )
    joined = kept.join(halves, [*_REPLICA, "half_offset"], how="left")
    is_op = F.col("kind") == "op"
    log = joined.select(
        *(
            F.when(is_op, F.col(f"half_{name}")).otherwise(F.col(name)).alias(name)
            if name in {"value", "uniq_key", "keys", "tx"}
            else F.col(name)
            for name in (*LOG.names, "damage")
        )
    )
    if raft is None:
        return log
    told = (
        raft.where(F.col("event").isin("commit", "install"))
        .groupBy(*_REPLICA)
        .agg(F.max("index").alias("told_index"))
    )
    raised = F.col("committed") | (F.col("index") <= F.coalesce("told_index", F.lit(0)))
    return (
        log.join(F.broadcast(told), list(_REPLICA), how="left")
        .withColumn("committed", raised)
        .select(*LOG.names, "damage")
    )
