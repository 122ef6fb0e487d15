"""The clients' view of a run, per second: throughput, latency, and times of acknowledgements.

Place in the data path: reduces the table ops, batch by batch, to arrays whose size depends only on
the length of the run. Latencies go into a histogram of 3 % steps per bucket of time, so a
percentile is right to 1.5 % however many operations there were; acknowledgements of each group set
one byte per millisecond, from which `unavailability` reads the pauses.

Invariants: an `info` without completion counts at its invoke; a run longer than an hour gets wider
buckets, at most 3,600 of them.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["OPS_COLUMNS", "Activity", "measure_activity"]

OPS_COLUMNS = pa.schema(
    [
        ("f", pa.string()),
        ("type", pa.string()),
        ("t_invoke", pa.int64()),
        ("t_complete", pa.int64()),
        ("broker_group", pa.string()),
        ("decision", pa.string()),
    ]
)

_BUCKETS_MAX = 3600
_BINS = 640
_STEP = math.log(1.03)
_TICKS_MAX = 20_000_000
_GROUPS_MAX = 64
_NS = 1_000_000_000

Ints = npt.NDArray[np.int64]
_WRITES = pa.array(["send", "half"])
_READS = pa.array(["poll", "deliver", "pop"])


@dataclass(slots=True)
class Activity:
    """Counts per bucket of `bucket_s` seconds; `acks` by broker group, one cell per `tick_ns`."""

    bucket_s: int
    tick_ns: int
    writes: Ints
    reads: Ints
    refused: Ints
    unknown: Ints
    latencies: npt.NDArray[np.int32]
    acks: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    @property
    def times_s(self) -> list[float]:
        """Return the middle of each bucket."""
        return [(place + 0.5) * self.bucket_s for place in range(len(self.writes))]

    def rate(self, counts: Ints) -> list[float]:
        """Divide counts per bucket into a rate per second."""
        return [round(float(count) / self.bucket_s, 2) for count in counts]

    def percentile_ms(self, share: float) -> list[float | None]:
        """Return a percentile of the write latency per bucket; None where nothing was written."""
        answers: list[float | None] = []
        totals = self.latencies.sum(axis=1)
        for total, row in zip(totals, self.latencies, strict=True):
            if total == 0:
                answers.append(None)
                continue
            place = int(np.searchsorted(np.cumsum(row), math.ceil(share * int(total))))
            answers.append(round(math.exp((place + 0.5) * _STEP) / 1000, 3))
        return answers

    def overall_percentile_ms(self, share: float) -> float | None:
        """Return a percentile of the write latency over the whole run."""
        whole = Activity(
            bucket_s=self.bucket_s,
            tick_ns=self.tick_ns,
            writes=self.writes,
            reads=self.reads,
            refused=self.refused,
            unknown=self.unknown,
            latencies=self.latencies.sum(axis=0, keepdims=True),
        )
        return whole.percentile_ms(share)[0] if len(self.latencies) else None

    def count(self, f: str, outcome: str, decision: str | None = None) -> int:
        """Count operations of a kind and outcome; of one decision, or of all."""
        return sum(
            number
            for (kind, kind_outcome, kind_decision), number in self.counts.items()
            if kind == f and kind_outcome == outcome and decision in {None, kind_decision}
        )

    @property
    def operations(self) -> int:
        """The number of all operations."""
        return sum(self.counts.values())


def measure_activity(batches: Iterable[pa.RecordBatch], *, end_ns: int) -> Activity:
    """Reduce the batches, of OPS_COLUMNS, of a run that lasts until `end_ns`.

    Operations beyond either end of the run are counted in its first or last bucket.
    """
    seconds = max(1, math.ceil(end_ns / _NS))
    bucket_s = math.ceil(seconds / _BUCKETS_MAX)
    buckets = math.ceil(seconds / bucket_s)
    activity = Activity(
        bucket_s=bucket_s,
        tick_ns=max(1_000_000, math.ceil(end_ns / _TICKS_MAX)),
        writes=np.zeros(buckets, dtype=np.int64),
        reads=np.zeros(buckets, dtype=np.int64),
        refused=np.zeros(buckets, dtype=np.int64),
        unknown=np.zeros(buckets, dtype=np.int64),
        latencies=np.zeros((buckets, _BINS), dtype=np.int32),
    )
    for batch in batches:
        _add(activity, batch)
    return activity


def _add(activity: Activity, batch: pa.RecordBatch) -> None:
    f, outcome = batch.column("f"), batch.column("type")
    invoked = _numbers(batch.column("t_invoke"))
    completed = _numbers(batch.column("t_complete"))
    done = np.where(completed >= 0, completed, invoked)
    last = len(activity.writes) - 1
    bucket = np.clip(done // (activity.bucket_s * _NS), 0, last)
    writes = _mask(pc.is_in(f, value_set=_WRITES))
    reads = _mask(pc.is_in(f, value_set=_READS))
    ok = _mask(pc.equal(outcome, "ok"))
    for series, chosen in (
        (activity.writes, writes & ok),
        (activity.reads, reads & ok),
        (activity.refused, _mask(pc.equal(outcome, "fail"))),
        (activity.unknown, _mask(pc.equal(outcome, "info"))),
    ):
        np.add.at(series, bucket[chosen], 1)
    acked = writes & ok & (completed >= 0)
    spent_us = np.maximum(1, (completed - invoked)[acked] // 1000)
    bins = np.clip((np.log(spent_us) / _STEP).astype(np.int64), 0, _BINS - 1)
    np.add.at(activity.latencies, (bucket[acked], bins), 1)
    _note_acks(activity, batch.column("broker_group"), acked, completed)
    kinds = pa.table({"f": f, "type": outcome, "decision": batch.column("decision")})
    for row in kinds.group_by(["f", "type", "decision"]).aggregate([([], "count_all")]).to_pylist():
        key = (str(row["f"]), str(row["type"]), str(row["decision"] or ""))
        activity.counts[key] += int(row["count_all"])


def _note_acks(
    activity: Activity, groups: pa.Array, acked: npt.NDArray[np.bool_], completed: Ints
) -> None:
    ticks = math.ceil(len(activity.writes) * activity.bucket_s * _NS / activity.tick_ns)
    for name in pc.unique(groups).to_pylist():
        if name is None or (name not in activity.acks and len(activity.acks) >= _GROUPS_MAX):
            continue
        cells = activity.acks.setdefault(name, np.zeros(ticks, dtype=np.bool_))
        chosen = acked & _mask(pc.equal(groups, name))
        cells[np.clip(completed[chosen] // activity.tick_ns, 0, ticks - 1)] = True


def _numbers(column: pa.Array) -> Ints:
    """Convert a column of times; null becomes -1."""
    filled: Ints = pc.fill_null(column, -1).to_numpy(zero_copy_only=False)
    return filled


def _mask(column: pa.Array) -> npt.NDArray[np.bool_]:
    filled: npt.NDArray[np.bool_] = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return filled
