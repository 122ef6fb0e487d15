"""R9: what a leader commits is on the disks of a quorum.

Place in the data path: over the table raft. Every commit of a leader becomes one question to each
voter of the configuration in force at the leader (that of its last start or config; learners are
not asked): how far was your log durable at that time, and was it this log?

Rules:
- durable is what an fsync told, and what a start found: recovery keeps nothing that it does not
  make durable;
- a truncation takes durability back; so does an install that replaces what the node held at its
  index, and no install gives any: the snapshot is durable with a later fsync;
- a voter whose durable log reaches the index may hold other entries there: it counts only if it has
  told an entry of the committed one's term, or of a later one, by then. A term has one leader and
  so one log, and whoever goes on to a later term without the entry is R7's.

Where the answer of a voter is missing, because its trace begins later, it may have been yes.

Source: etcd's CommittedIsDurable; Raft 5.3, 5.4.2; the run format's rule for R9.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from verify.checks.finding import findings
from verify.frames import Frames

__all__ = ["undurable_commits"]

_NODE = ("broker_group", "node")
_COMMIT = ("incarnation", "seq", "t", "term", "index", "entry_term")


def undurable_commits(frames: Frames) -> DataFrame:
    """R9: a leader's commit that no quorum of its configuration had made durable."""
    commits = frames.trace.where((F.col("event") == "commit") & (F.col("role_now") == "leader"))
    judged = (
        _answers(frames, commits)
        .groupBy("broker_group", "leader", "commit.seq")
        .agg(
            F.first("commit").alias("commit"),
            F.count("*").alias("voters"),
            F.count_if("holds").alias("holders"),
            F.count_if(F.col("durable").isNull()).alias("silent"),
            F.collect_list(F.struct("node", "durable", "last_term")).alias("told"),
        )
    )
    quorum = F.floor(F.col("voters") / 2) + 1
    short = judged.where(F.col("holders") < quorum).select(
        "broker_group",
        F.col("leader").alias("node"),
        "commit.*",
        F.sort_array("told").alias("told"),
        F.when(F.col("holders") + F.col("silent") >= quorum, _unheard()).alias("doubt"),
    )
    lost = commits.where(F.coalesce(F.size("voters_now"), F.lit(0)) < 1).select(
        *_NODE,
        *_COMMIT,
        F.lit(None).cast(short.schema["told"].dataType).alias("told"),
        F.concat(F.lit("the configuration of "), "node", F.lit(" is not told")).alias("doubt"),
    )
    return findings(
        short.unionByName(lost),
        check="R9",
        order=(*_NODE, "seq"),
        witness=(*_NODE, *_COMMIT, F.col("told").alias("voters")),
        unknown=F.col("doubt"),
    )


def _unheard() -> Column:
    silent = F.filter("told", lambda voter: voter["durable"].isNull())
    names = F.concat_ws(" ", F.transform(silent, lambda voter: voter["node"]))
    return F.concat(F.lit("no fsync or start is told by then by "), names)


def _answers(frames: Frames, commits: DataFrame) -> DataFrame:
    """One row per commit and voter: how far it was `durable`, and whether it `holds` the entry.

    All that a node tells and all that it is asked stand in one order of time; a question comes
    after what was told at the same time.
    """
    questions = commits.select(
        "broker_group",
        F.explode("voters_now").alias("node"),
        F.col("t").alias("at"),
        F.lit(1).alias("turn"),
        F.lit(0).cast("long").alias("order"),
        F.col("node").alias("leader"),
        F.struct(*_COMMIT).alias("commit"),
    )
    told = _durability_told(frames).unionByName(_terms_told(frames), allowMissingColumns=True)
    so_far = Window.partitionBy(*_NODE).orderBy("at", "turn", "order")
    numbered = told.unionByName(questions, allowMissingColumns=True).select(
        "*",
        F.count("synced").over(so_far).alias("syncs"),
        F.count(F.when(F.col("anew"), 1)).over(so_far).alias("epoch"),
        F.max("entry_term").over(so_far).alias("last_term"),
    )
    # Counts that rise along the way stand first in the pairs, so that the extreme of all pairs is
    # that of the newest epoch, or of what followed the newest fsync: one sort serves both.
    in_epoch = F.when(F.col("synced").isNotNull(), F.struct("epoch", "synced"))
    since_sync = F.struct(
        (-F.col("syncs")).alias("turned"), F.coalesce("synced", "cut").alias("left")
    )
    left = F.when(F.col("syncs") > 0, F.col("least.left"))
    most = F.when(F.col("best.epoch") == F.col("epoch"), F.col("best.synced"))
    durable = F.greatest(left, most)
    holds = (durable >= F.col("commit.index")) & (
        F.col("last_term") >= F.coalesce("commit.entry_term", F.lit(0))
    )
    return (
        numbered.select(
            *_NODE,
            "leader",
            "commit",
            "last_term",
            "syncs",
            "epoch",
            F.max(in_epoch).over(so_far).alias("best"),
            F.min(F.when(since_sync["left"].isNotNull(), since_sync)).over(so_far).alias("least"),
        )
        .where(F.col("leader").isNotNull())
        .select(
            *_NODE, "leader", "commit", "last_term", durable.alias("durable"), holds.alias("holds")
        )
    )


def _durability_told(frames: Frames) -> DataFrame:
    """What changes how far a node's log is durable: `synced` up to, or `cut` down to, an index.

    `anew`: what was told before counts no more by itself. A group that tells of no fsync at all
    does not trace them, so that its starts prove nothing either.
    """
    event, index = F.col("event"), F.col("index")
    tracing = frames.raft.where(event == "fsync").select("broker_group").distinct()
    told = frames.raft.where(event.isin("fsync", "start", "truncate")).select(
        *_NODE, "t", "seq", "event", "index"
    )
    rows = told.unionByName(_replacing_installs(frames)).join(
        F.broadcast(tracing), "broker_group", how="left_semi"
    )
    cuts = event.isin("truncate", "install")
    return rows.select(
        *_NODE,
        F.col("t").alias("at"),
        F.lit(0).alias("turn"),
        F.col("seq").alias("order"),
        F.when(~cuts, index).alias("synced"),
        F.when(cuts, index - 1).alias("cut"),
        (event != "fsync").alias("anew"),
    )


def _replacing_installs(frames: Frames) -> DataFrame:
    """Installs on a node that held another entry at their index: they end its whole log."""
    columns = (*_NODE, "t", "seq", "event", "index")
    installs = frames.raft.where((F.col("event") == "install") & F.col("chain").isNotNull())
    of_install = installs.select(
        *columns, F.col("chain").alias("new_chain"), F.col("seq").alias("seq_install")
    )
    before = frames.raft.where(
        F.col("event").isin("append", "start") & F.col("chain").isNotNull()
    ).select(*_NODE, "index", F.struct("seq", "chain").alias("held"))
    return (
        before.join(F.broadcast(of_install), [*_NODE, "index"], how="inner")
        .where(F.col("held.seq") < F.col("seq_install"))
        .groupBy(*columns, "new_chain")
        .agg(F.max("held").alias("held"))
        .where(F.col("held.chain") != F.col("new_chain"))
        .select(*columns)
    )


def _terms_told(frames: Frames) -> DataFrame:
    """When a node first told of an entry of a term."""
    return (
        frames.raft.where(F.col("entry_term").isNotNull())
        .groupBy(*_NODE, "entry_term")
        .agg(F.min("t").alias("at"))
        .select(
            *_NODE, "at", F.lit(0).alias("turn"), F.lit(0).cast("long").alias("order"), "entry_term"
        )
    )
