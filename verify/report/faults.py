"""The faults of a run, as rows for the report.

Place in the data path: reads the table faults. A fault counts only with its effect: a probe saw
`taken`; `not_taken` and `unknown` prove nothing about surviving the fault.

Invariants: at most 500 faults are kept, the first by start; a window never ends before it begins.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

__all__ = ["FAULTS_COLUMNS", "Fault", "read_faults"]

FAULTS_COLUMNS = pa.schema(
    [
        ("fault", pa.int64()),
        ("name", pa.string()),
        ("targets", pa.list_(pa.string())),
        ("params", pa.string()),
        ("t_start", pa.int64()),
        ("t_effect", pa.int64()),
        ("t_heal", pa.int64()),
        ("t_healed", pa.int64()),
        ("effect", pa.string()),
        ("evidence", pa.string()),
    ]
)

FAULTS_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault; times in nanoseconds since the run's start, None if not observed."""

    number: int
    name: str
    targets: tuple[str, ...]
    params: str
    t_start: int
    t_effect: int | None
    t_heal: int | None
    t_healed: int | None
    effect: str
    evidence: str

    def window(self, end_ns: int) -> tuple[int, int]:
        """Return the time from the effect (the start, if no effect was seen) until the healing."""
        begin = self.t_start if self.t_effect is None else self.t_effect
        ends = [time for time in (self.t_healed, self.t_heal) if time is not None]
        return begin, max(begin, ends[0] if ends else end_ns)


def read_faults(batches: Iterable[pa.RecordBatch]) -> list[Fault]:
    """Read the faults of the batches, of FAULTS_COLUMNS, by start."""
    faults: list[Fault] = []
    for batch in batches:
        faults += [_fault(row) for row in batch.to_pylist()]
        faults = sorted(faults, key=lambda fault: (fault.t_start, fault.number))[:FAULTS_MAX]
    return faults


def _fault(row: dict[str, object]) -> Fault:
    targets = row["targets"]
    return Fault(
        number=_time(row["fault"]) or 0,
        name=str(row["name"] or ""),
        targets=tuple(str(target) for target in targets) if isinstance(targets, list) else (),
        params=str(row["params"] or ""),
        t_start=_time(row["t_start"]) or 0,
        t_effect=_time(row["t_effect"]),
        t_heal=_time(row["t_heal"]),
        t_healed=_time(row["t_healed"]),
        effect=str(row["effect"] or "unknown"),
        evidence=str(row["evidence"] or ""),
    )


def _time(value: object) -> int | None:
    return value if isinstance(value, int) else None
