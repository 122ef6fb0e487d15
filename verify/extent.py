"""The extent of a verification: what it examined, and what it does not show.

Place in the data path: fills `coverage` and `not_shown` of the verdict, for people who have to
decide how much a `pass` proves. Computed by each engine, after its rules; both must agree.

Source: docs/RUN_FORMAT.md, verdict.json.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from verify.catalogue.rule_files import Rule, Stage
from verify.catalogue.stage_order import stages_behind
from verify.engines.engine import Engine
from verify.judge import Judged
from verify.promised import left_out_by_engine
from verify.sources.manifest import Manifest

__all__ = ["COVERAGE", "Extent", "extent", "make_missing"]

_IN_WINDOWS: Final = "coverage_in_windows"
_NOT_DRAINED: Final = "coverage_not_drained"
_AVAILABILITY: Final = "coverage_availability"
_BEFORE: Final = "coverage_before"
COVERAGE: Final = (_IN_WINDOWS, _NOT_DRAINED, _AVAILABILITY, _BEFORE)
"""The stages that the coverage is computed from."""

_NS_PER_MS: Final = 1_000_000

Rows = Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The fields `coverage` and `not_shown` of verdict.json."""

    coverage: Mapping[str, object]
    not_shown: Sequence[str]


def extent(
    engine: Engine,
    judged: Judged,
    manifest: Manifest,
    *,
    stages: Mapping[str, Stage],
    listed: Collection[str],
) -> Extent:
    """Compute the extent. Raises EngineError if the engine can't read a stage."""
    make_missing(engine, judged, COVERAGE, stages)
    rows: dict[str, Rows] = {name: engine.table(name) for name in COVERAGE}
    counts = judged.counts
    total = sum(_number(row["ops"]) for row in counts["op_counts"])
    unknown = sum(_number(row["ops"]) for row in counts["op_counts"] if row["type"] == "info")
    coverage: dict[str, object] = {
        "operations": _by_two(counts["op_counts"], "f", "type", "ops"),
        "faults": _by_two(counts["fault_counts"], "name", "effect", "faults"),
        "operations_in_fault_windows": _number(rows[_IN_WINDOWS][0]["ops"]),
        "queues_not_drained": sorted(
            map(dict, rows[_NOT_DRAINED]),
            key=lambda row: (row["broker_group"], row["topic"], row["queue"]),
        ),
        "availability": [
            {
                "measure": row["measure"],
                "name": row["name"],
                "took_ms": _number(row["took_ns"]) / _NS_PER_MS,
                "t_from": row["t_from"],
                "t_to": row["t_to"],
            }
            for row in sorted(rows[_AVAILABILITY], key=_longest_recovery_first)
        ],
        "before_faults": _before(rows[_BEFORE]),
        "info_share": unknown / total if total else 0.0,
    }
    return Extent(
        coverage=coverage,
        not_shown=_not_shown(manifest, listed, judged, unknown=unknown),
    )


def make_missing(
    engine: Engine, judged: Judged, names: Collection[str], stages: Mapping[str, Stage]
) -> None:
    """Make those of the stages that no rule has needed. Raises EngineError."""
    missing = [name for name in names if name not in judged.made]
    for name in stages_behind(missing, stages):
        if name not in judged.made:  # it was made for a rule already
            engine.make([stages[name]])
            judged.made.add(name)


def _by_two(rows: Rows, one: str, other: str, number: str) -> dict[str, dict[str, int]]:
    """Sum `number` by the value of column `one`, then by that of `other`."""
    sums: dict[str, dict[str, int]] = {}
    for row in sorted(rows, key=lambda row: (str(row[one] or ""), str(row[other] or ""))):
        inner = sums.setdefault(str(row[one] or ""), {})
        name = str(row[other] or "")
        inner[name] = inner.get(name, 0) + _number(row[number])
    return sums


def _before(rows: Rows) -> dict[str, object] | None:
    """Return the sends before the first fault; None without a fault, or where no load is known."""
    if not rows or rows[0]["sends"] is None:
        return None
    row = rows[0]
    span_ms = _number(row["span_ns"]) / _NS_PER_MS
    return {
        "sends": row["sends"],
        "per_second": 1000 * _number(row["sends"]) / span_ms if span_ms else 0.0,
        "p50_ms": _number(row["p50_ns"]) / _NS_PER_MS,
        "p99_ms": _number(row["p99_ns"]) / _NS_PER_MS,
    }


def _longest_recovery_first(row: Mapping[str, object]) -> tuple[bool, int, str]:
    return row["measure"] != "recovery", -_number(row["took_ns"]), str(row["name"])


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _not_shown(
    manifest: Manifest, listed: Collection[str], judged: Judged, *, unknown: int
) -> list[str]:
    """Return plain sentences: what a reader might think was checked, and was not."""
    sentences = [
        "Only what this run did is judged: other timings, faults and loads are not.",
        "Faults that were not seen to take effect prove nothing about surviving them.",
    ]
    sentences.extend(
        f"The run lists no table {table}; what it would prove is not shown."
        for table in ("log", "cq", "raft", "faults")
        if table not in listed
    )
    if manifest.is_master_slave:
        sentences.extend(_of_master_and_slaves(manifest, judged.not_about))
    elif manifest.engine != "raft":
        sentences.append(
            f"The engine {manifest.engine} tells its roles and what was applied, but nothing of "
            "its own log: that entries were durable on a majority before they were acknowledged, "
            "and that votes were given to the right logs, is not shown."
        )
    if judged.left_out:
        names = _named(judged.left_out)
        sentences.append(f"These checks did not apply to the run and were left out: {names}.")
    if manifest.limits is None:
        sentences.append("The run sets no limits: how long it was unavailable is not judged.")
    if not any(group.at_least_once for group in manifest.consumer_groups):
        sentences.append(
            "No consumer group was to read everything: that all that was acknowledged could be "
            "read back is not shown."
        )
    if unknown:
        sentences.append(f"{unknown} operations ended unknown; either outcome of them is legal.")
    return sentences


def _of_master_and_slaves(manifest: Manifest, rules: Sequence[Rule]) -> Iterator[str]:
    """Yield, by reason, the rules that say nothing of such an engine."""
    reasons = left_out_by_engine(manifest)
    for reason in dict.fromkeys(reasons.values()):
        of_reason = [rule for rule in rules if reasons[rule.id] == reason]
        yield (
            f"Nothing is asked of the engine {manifest.engine} by {_named(of_reason)}: {reason}."
        )


def _named(rules: Sequence[Rule]) -> str:
    return ", ".join(f"{rule.id} ({rule.name})" for rule in rules)
