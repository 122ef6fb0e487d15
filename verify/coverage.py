"""What a verification looked at, and what it does not show.

Place in the data path: fills `coverage` and `not_shown` of the verdict, for people who have to
decide how far a `pass` carries.

Source: the run format, verdict.json.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import functions as F

from verify.checks.availability import client_gaps, recovery_times
from verify.checks.finding import Check
from verify.counts import Counts
from verify.frames import Frames, is_user_topic

__all__ = ["coverage", "not_shown"]

_MEASURES_MAX = 64


def coverage(frames: Frames, counts: Counts) -> dict[str, object]:
    """Operations by f and type, faults by name and effect, and what lies in fault windows."""
    operations: dict[str, dict[str, int]] = {}
    for (f, outcome), number in sorted(counts.operations.items()):
        operations.setdefault(f, {})[outcome] = number
    faults: dict[str, dict[str, int]] = {}
    in_windows = 0
    if frames.has("faults"):
        for row in frames.faults.groupBy("name", "effect").count().collect():
            faults.setdefault(row["name"] or "", {})[row["effect"] or ""] = row["count"]
        if faults and frames.has("ops"):
            in_windows = _operations_in_fault_windows(frames)
    total = counts.ops()
    return {
        "operations": operations,
        "faults": faults,
        "operations_in_fault_windows": in_windows,
        "queues_not_drained": _queues_not_drained(frames),
        "availability": _availability(frames) if frames.has("ops") else [],
        "info_share": counts.ops(type="info") / total if total else 0.0,
    }


def _operations_in_fault_windows(frames: Frames) -> int:
    """Operations that overlap a fault that took effect, from its effect until it was healed."""
    windows = frames.faults.where(F.col("effect") == "taken").select(
        F.coalesce("t_effect", "t_start").alias("t_from"),
        F.coalesce("t_healed", "t_heal").alias("t_to"),
    )
    begins_before = F.col("t_to").isNull() | (F.col("t_invoke") <= F.col("t_to"))
    ends_after = F.col("t_complete").isNull() | (F.col("t_complete") >= F.col("t_from"))
    overlapping = frames.ops.join(F.broadcast(windows), begins_before & ends_after, how="left_semi")
    return overlapping.count()


def _availability(frames: Frames) -> list[dict[str, object]]:
    """How long recovery took per fault, and each client's longest gap: measured in every run."""
    gaps = (
        client_gaps(frames)
        .groupBy("measure", "name")
        .agg(F.max(F.struct("took_ms", "t_from", "t_to")).alias("longest"))
        .select("measure", "name", "longest.*")
    )
    recoveries = recovery_times(frames).select(*gaps.columns)
    longest = recoveries.union(gaps).orderBy(F.desc("measure"), F.desc("took_ms"), "name")
    return [row.asDict() for row in longest.limit(_MEASURES_MAX).collect()]


def _queues_not_drained(frames: Frames) -> list[dict[str, object]]:
    rows = frames.queues.where(~F.col("was_drained") & is_user_topic(F.col("topic")))
    return [
        {"broker_group": row["broker_group"], "topic": row["topic"], "queue": row["queue"]}
        for row in rows.orderBy("broker_group", "topic", "queue").collect()
    ]


def not_shown(frames: Frames, counts: Counts, *, left_out: Sequence[Check]) -> list[str]:
    """Plain sentences: what a reader might think was checked, and was not."""
    manifest = frames.manifest
    sentences = [
        "Only what this run did is judged: other timings, faults and loads are not.",
        "Faults that were not seen to take effect prove nothing about surviving them.",
    ]
    sentences.extend(
        f"The run lists no table {table}; what it would prove is not shown."
        for table in ("log", "cq", "raft", "faults")
        if not frames.has(table)
    )
    if manifest.engine != "raft":
        sentences.append(
            f"The engine {manifest.engine} tells its roles and what was applied, but nothing of "
            "its own log: that entries were durable on a majority before they were acknowledged, "
            "and that votes were given to the right logs, is not shown."
        )
    if left_out:
        names = ", ".join(f"{check.id} ({check.name})" for check in left_out)
        sentences.append(f"These checks did not apply to the run and were left out: {names}.")
    if manifest.limits is None:
        sentences.append("The run sets no limits: how long it was unavailable is not judged.")
    if not any(group.at_least_once for group in manifest.consumer_groups):
        sentences.append(
            "No consumer group was to read everything: that all that was acknowledged could be "
            "read back is not shown."
        )
    if counts.ops(type="info"):
        sentences.append(
            f"{counts.ops(type='info')} operations ended unknown; either outcome of them is legal."
        )
    return sentences
