"""R1 to R8, R10 to R12: what the replicas' traces must never show.

Place in the data path: over the table raft, and the logs where both tell of entries. What a node
knew at an event (its role, its last entry, what it had committed and applied) is derived once, by
one window over its events in the order of their `seq`.

Source: Raft, figure 3 and 5.2-5.4; Ongaro's dissertation 3 and 6.4; the run format, table raft.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from verify.checks.finding import findings
from verify.frames import Frames

__all__ = [
    "applied_in_order",
    "chains_differ",
    "commit_index_errors",
    "committed_twice",
    "incomplete_leaders",
    "leader_overwrites",
    "stale_reads",
    "term_decreases",
    "two_leaders",
    "two_votes",
    "votes_for_old_logs",
]

_NODE = ("broker_group", "node")


def two_leaders(frames: Frames) -> DataFrame:
    """R1: two nodes of a group that became leader in one term."""
    leader = F.struct("node", "incarnation", "seq", "t")
    violations = (
        frames.raft.where((F.col("event") == "role") & (F.col("role") == "leader"))
        .groupBy("broker_group", "term")
        .agg(F.min(leader).alias("one"), F.max(leader).alias("other"))
        .where(F.col("one.node") != F.col("other.node"))
    )
    order = ("broker_group", "term")
    return findings(violations, check="R1", order=order, witness=(*order, "one", "other"))


def two_votes(frames: Frames) -> DataFrame:
    """R2: a node that voted for two candidates in one term, restarts or not."""
    vote = F.struct("peer", "incarnation", "seq", "t")
    violations = (
        frames.raft.where((F.col("event") == "vote") & F.col("peer").isNotNull())
        .groupBy(*_NODE, "term")
        .agg(F.min(vote).alias("one"), F.max(vote).alias("other"))
        .where(F.col("one.peer") != F.col("other.peer"))
    )
    order = (*_NODE, "term")
    return findings(violations, check="R2", order=order, witness=(*order, "one", "other"))


def term_decreases(frames: Frames) -> DataFrame:
    """R3: a node whose term is lower than it was, restarts or not."""
    violations = frames.trace.where(F.col("term") < F.col("term_before"))
    return findings(
        violations,
        check="R3",
        order=(*_NODE, "seq"),
        witness=(*_NODE, "incarnation", "seq", "t", "event", "term", "term_before"),
    )


def leader_overwrites(frames: Frames) -> DataFrame:
    """R4: a leader that drops or replaces an entry of its own log."""
    replaces = (F.col("event") == "append") & (F.col("index") <= F.col("last_index_least_before"))
    violations = frames.trace.where(
        (F.col("role_now") == "leader") & ((F.col("event") == "truncate") | replaces)
    )
    return findings(
        violations,
        check="R4",
        order=(*_NODE, "seq"),
        witness=(*_NODE, "incarnation", "seq", "t", "event", "term", "index"),
    )


def chains_differ(frames: Frames) -> DataFrame:
    """R5: log matching; one index and term, two chains."""
    seen = F.struct("chain", "node", "source", "seq")
    violations = (
        frames.entries.groupBy("broker_group", "index", "entry_term")
        .agg(F.min(seen).alias("one"), F.max(seen).alias("other"))
        .where(F.col("one.chain") != F.col("other.chain"))
    )
    order = ("broker_group", "index", "entry_term")
    return findings(violations, check="R5", order=order, witness=(*order, "one", "other"))


def committed_twice(frames: Frames) -> DataFrame:
    """R6: state machine safety; two entries committed at one index, anywhere, ever."""
    seen = F.struct("entry_term", "chain", "node", "source", "seq")
    one, other = (F.struct(f"{end}.entry_term", f"{end}.chain") for end in ("one", "other"))
    violations = (
        frames.entries.where("is_committed")
        .groupBy("broker_group", "index")
        .agg(F.min(seen).alias("one"), F.max(seen).alias("other"))
        .where(one != other)
    )
    order = ("broker_group", "index")
    return findings(violations, check="R6", order=order, witness=(*order, "one", "other"))


def incomplete_leaders(frames: Frames) -> DataFrame:
    """R7: leader completeness; a leader that lacks what was committed in terms before its own.

    Chains make the last of those entries stand for all before it. What the node last told of that
    index in this incarnation is what it holds, unless an install has covered it; what it told
    before a kill may have been replaced by what the kill kept it from telling.
    """
    leaders = frames.trace.where((F.col("event") == "role") & (F.col("role") == "leader")).select(
        *_NODE, "incarnation", "seq", "t", "term", F.col("last_index_most").alias("last_index")
    )
    commits = (
        frames.raft.where(F.col("event").isin("commit", "install"))
        .groupBy("broker_group", F.col("term").alias("earlier_term"))
        .agg(F.max(F.struct("index", "entry_term", "chain", "node", "seq", "t")).alias("committed"))
    )
    owed = (
        leaders.join(F.broadcast(commits), "broker_group", how="inner")
        .where(F.col("earlier_term") < F.col("term"))
        .groupBy(*leaders.columns)
        .agg(F.max("committed").alias("committed"))
    )
    told = frames.raft.where(
        F.col("event").isin("append", "start", "install") & (F.col("index") > 0)
    ).select(
        *_NODE,
        F.col("incarnation").alias("incarnation_told"),
        F.col("seq").alias("seq_told"),
        F.col("event").alias("event_told"),
        F.struct("seq", "entry_term", "chain").alias("entry"),
        F.col("index").alias("index_told"),
    )
    at_index = (F.col("index_told") == F.col("committed.index")) & (
        F.col("incarnation_told") == F.col("incarnation")
    )
    covers = (F.col("event_told") == "install") & (F.col("index_told") >= F.col("committed.index"))
    held = (
        told.join(F.broadcast(owed), list(_NODE), how="inner")
        .where((F.col("seq_told") < F.col("seq")) & (at_index | covers))
        .groupBy(*_NODE, "seq")
        .agg(
            F.max(F.when(at_index, F.col("entry"))).alias("held"),
            F.bool_or(covers).alias("covered"),
        )
    )
    too_short = F.col("last_index") < F.col("committed.index")
    another = F.col("held.chain") != F.col("committed.chain")
    violations = owed.join(F.broadcast(held), [*_NODE, "seq"], how="left").where(
        ~F.coalesce("covered", F.lit(False)) & (too_short | F.coalesce(another, F.lit(False)))
    )
    return findings(
        violations,
        check="R7",
        order=("broker_group", "term", "node"),
        witness=(*leaders.columns, "committed", "held"),
    )


def commit_index_errors(frames: Frames) -> DataFrame:
    """R8: a commit index that falls, or is beyond the log, or a leader's on an older term's entry.

    It falls only within an incarnation: a restart may forget it. It is beyond the log also where a
    truncation takes what it had reached.
    """
    is_commit = F.col("event") == "commit"
    problems = {
        "below what it was": is_commit & (F.col("index") < F.col("committed_before")),
        "beyond the log": is_commit & (F.col("index") > F.col("last_index_most")),
        "the log is cut below it": ~is_commit & (F.col("index") <= F.col("committed_before")),
        "a leader counted for an entry of another term": (
            is_commit & (F.col("role_now") == "leader") & (F.col("entry_term") != F.col("term"))
        ),
    }
    told = F.filter(
        F.array(*(F.when(is_so, F.lit(text)) for text, is_so in problems.items())),
        lambda text: text.isNotNull(),
    )
    violations = (
        frames.trace.where(F.col("event").isin("commit", "truncate"))
        .withColumn("problems", told)
        .where(F.size("problems") > 0)
    )
    return findings(
        violations,
        check="R8",
        order=(*_NODE, "seq"),
        witness=(
            *_NODE, "incarnation", "seq", "t", "event", "term", "index", "entry_term", "problems",
            "committed_before", F.col("last_index_most").alias("last_index"),
        ),
    )  # fmt: skip


def applied_in_order(frames: Frames) -> DataFrame:
    """R10: within an incarnation, each range applied begins where the one before ended."""
    violations = frames.trace.where(
        (F.col("event") == "apply") & (F.col("first") != F.col("applied_before") + 1)
    )
    return findings(
        violations,
        check="R10",
        order=(*_NODE, "seq"),
        witness=(*_NODE, "incarnation", "seq", "t", "first", "index", "applied_before"),
    )


def votes_for_old_logs(frames: Frames) -> DataFrame:
    """R11: a vote for a candidate whose log is behind the voter's own.

    Only the first time that a vote is told: when it is sent again the voter's log may have grown.
    A vote is told once it is durable, which may be after entries of its own term have come from the
    leader that others elected meanwhile: those say nothing about the log that was voted on.
    """
    first = (
        frames.trace.where((F.col("event") == "vote") & (F.col("peer") != F.col("node")))
        .groupBy(*_NODE, "term", "peer")
        .agg(F.min(F.struct("seq", "t", "last_term", "last_index", "own_last")).alias("vote"))
        .select(*_NODE, "term", "peer", "vote.*")
    )
    candidate = F.struct(F.col("last_term").alias("term"), F.col("last_index").alias("index"))
    voted_on = (F.col("own_last.term") < F.col("term")) & F.col("last_term").isNotNull()
    violations = first.where(voted_on & (candidate < F.col("own_last")))
    return findings(
        violations,
        check="R11",
        order=(*_NODE, "seq"),
        witness=(*_NODE, "seq", "t", "term", "peer", "last_term", "last_index", "own_last"),
    )


def stale_reads(frames: Frames) -> DataFrame:
    """R12: a read answered by an older term, below what a newer one had committed before it began.

    Reads that began after a newer term's first commit are few, so only those meet the commits.
    """
    commits = frames.raft.where(F.col("event") == "commit").select(
        "broker_group",
        F.col("term").alias("newer_term"),
        F.col("t").alias("t_commit"),
        F.struct("index", "node", "term", "seq", "t").alias("commit"),
    )
    begins = commits.groupBy("broker_group", "newer_term").agg(F.min("t_commit").alias("t_commit"))
    later = (F.col("newer_term") > F.col("term")) & (F.col("t_commit") < F.col("t_begin"))
    reads = frames.raft.where(F.col("event") == "read")
    suspects = (
        reads.join(F.broadcast(begins), "broker_group", how="inner")
        .where(later)
        .select(*reads.columns)
        .distinct()
    )
    violations = (
        suspects.join(commits, "broker_group", how="inner")
        .where(later & (F.col("commit.index") > F.col("index")))
        .groupBy(*_NODE, "incarnation", "seq", "term", "t_begin", "t", "index")
        .agg(F.min("commit").alias("commit"))
    )
    return findings(
        violations,
        check="R12",
        order=(*_NODE, "seq"),
        witness=(*_NODE, "incarnation", "seq", "term", "t_begin", "t", "index", "commit"),
    )
