"""What became of one run: its verdict and counts, as read from the files that it left.

Place in the data path: `chaos.campaign.campaign` reads it once a run is over, and writes it to the
progress; `chaos.campaign.summary` adds them up.

Invariants: without a verdict that can be read the run is unknown, with the reason, never a pass; a
count comes from the check that it is named after, and from nothing else:

    lost      acknowledged, and in no replica's log, or read by nobody: `acknowledged_lost` where
              the verdict has it; else A4, or A5's `lost` witnesses, whichever tells more, and T3
    doubled   stored twice: A2, T4
    hidden    acknowledged, stored, and unread by a group that was to read all: the rest of A5 (of
              what is beyond its 32 witnesses too)
    gone      read or acknowledged, and not there when read again; stale offsets: A15
    rewound   offsets of consumers that went back behind what was acknowledged: S5

Source: docs/RUN_FORMAT.md, run.json and verdict.json; docs/RULES.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from chaos.campaign.plan import Experiment

__all__ = [
    "COUNTS",
    "VERDICTS",
    "Before",
    "FailedCheck",
    "RunOutcome",
    "failed_checks",
    "read_outcome",
]

VERDICTS: Final = ("pass", "unknown", "fail")
COUNTS: Final = ("lost", "doubled", "hidden", "gone", "rewound")
_REASON_MAX: Final = 500
_RECOVERY: Final = "recovery"
_READS: Final = "reads"


class FailedCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A check that failed, with its first witness."""

    id: str
    name: str
    promise: str | None
    violations: int
    witness: dict[str, Any]


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """Sends before the first fault: acknowledged per second, and how long each took."""

    per_second: float
    p50_ms: float
    p99_ms: float


class RunOutcome(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="run"):
    """One run that is over.

    `faults`: name = effect = how many; `recoveries`: fault and milliseconds without an acknowledged
    write around it; `reads`: without an answered read; `acknowledged`: sends and decisions;
    `before`: what was carried before the first fault; `engines`: who judged; `bytes`: what of it is
    left on disk; `whole`: all of it.
    """

    run: str
    world: str
    system: str
    engine: str
    scenario: str
    seed: int
    verdict: str
    reason: str = ""
    failed: list[FailedCheck] = []
    unknown: list[str] = []
    faults: dict[str, dict[str, int]] = {}
    recoveries: list[tuple[str, float]] = []
    reads: list[tuple[str, float]] = []
    acknowledged: int = 0
    before: Before | None = None
    counts: dict[str, int] = {}
    engines: list[str] = []
    took_s: float = 0.0
    bytes: int = 0
    whole: bool = False
    has_report: bool = False

    @property
    def place(self) -> str:
        """System, engine and world in one text: what results are compared by."""
        return f"{self.system} {self.engine}, {self.world}"

    @property
    def first_failed(self) -> FailedCheck | None:
        """The check that a smaller scenario has to fail, too: one with a promise, if any is."""
        return min(self.failed, key=lambda check: check.promise is None, default=None)


def read_outcome(
    folder: Path, *, name: str, scenario: str, of: Experiment, trouble: str, took_s: float
) -> RunOutcome:
    """Read what a run left in `folder`. `trouble`: what its command printed when it failed."""
    manifest, verdict = _json(folder / "run.json"), _json(folder / "verdict.json")
    known: dict[str, Any] = {
        "run": name,
        "world": of.world,
        "system": _text(manifest.get("system")) or "ledgermq",
        "engine": of.engine,
        "scenario": scenario,
        "seed": of.seed,
        "took_s": round(took_s, 1),
    }
    word = verdict.get("verdict")
    if word not in VERDICTS:
        why = _text(manifest.get("harness_error")) or trouble or "it left no verdict"
        return RunOutcome(verdict="unknown", reason=why[:_REASON_MAX], **known)
    checks = [check for check in _list(verdict.get("checks")) if isinstance(check, dict)]
    failed = failed_checks(verdict)
    unknown = [
        check for check in checks if check.get("verdict") == "unknown" and _is_promised(check)
    ]
    coverage = _table(verdict.get("coverage"))
    return RunOutcome(
        verdict=word,
        reason=_text(unknown[0].get("reason"))[:_REASON_MAX] if unknown else "",
        failed=failed,
        unknown=[_text(check.get("id")) for check in unknown],
        faults={name: dict(effects) for name, effects in _table(coverage.get("faults")).items()},
        recoveries=_around_faults(coverage, _RECOVERY),
        reads=_around_faults(coverage, _READS),
        acknowledged=_acknowledged(_table(coverage.get("operations"))),
        before=_before(_table(coverage.get("before_faults"))),
        counts=_counts(
            {_text(check.get("id")): check for check in checks}, verdict.get("acknowledged_lost")
        ),
        engines=[_text(name) for name in _list(verdict.get("engines"))],
        **known,
    )


def failed_checks(verdict: Mapping[str, Any]) -> list[FailedCheck]:
    """Return the checks of a verdict that failed, of those that the run's engine promises."""
    checks = [_table(check) for check in _list(verdict.get("checks"))]
    return [
        _failed(check) for check in checks if check.get("verdict") == "fail" and _is_promised(check)
    ]


def _is_promised(check: Mapping[str, Any]) -> bool:
    return check.get("promised") is not False


def _failed(check: Mapping[str, Any]) -> FailedCheck:
    witnesses = _list(check.get("witnesses"))
    promise = check.get("promise")
    return FailedCheck(
        id=_text(check.get("id")),
        name=_text(check.get("name")),
        promise=None if promise in {None, "none"} else _text(promise),
        violations=_violations(check),
        witness=_table(witnesses[0]) if witnesses else {},
    )


def _acknowledged(operations: Mapping[str, Any]) -> int:
    return sum(
        count
        for name in ("send", "decide")
        if isinstance(count := _table(operations.get(name)).get("ok", 0), int)
    )


def _before(fields: Mapping[str, Any]) -> Before | None:
    try:
        return msgspec.convert(fields, Before)
    except msgspec.ValidationError:  # nothing was sent before
        return None


def _around_faults(coverage: Mapping[str, Any], measure: str) -> list[tuple[str, float]]:
    """Return fault and milliseconds; a row is named "<number> <fault>"."""
    return [
        (_text(row["name"]).partition(" ")[2], float(row["took_ms"]))
        for row in _list(coverage.get("availability"))
        if row.get("measure") == measure
    ]


def _counts(checks: Mapping[str, Mapping[str, Any]], lost: object) -> dict[str, int]:
    """Return the counts. `lost`: all that was acknowledged and is in no log, if it is reported."""

    def violations(name: str) -> int:
        return _violations(checks[name]) if name in checks else 0

    unseen = checks.get("A5", {})
    certain = sum(1 for each in _list(unseen.get("witnesses")) if _table(each).get("lost"))
    return {
        "lost": lost
        if isinstance(lost, int)
        else max(violations("A4"), certain) + violations("T3"),
        "doubled": violations("A2") + violations("T4"),
        "hidden": max(0, _violations(unseen) - certain),
        "gone": violations("A15"),
        "rewound": violations("S5"),
    }


def _violations(check: Mapping[str, Any]) -> int:
    count = check.get("violations", 0)
    return count if isinstance(count, int) else 0


def _json(path: Path) -> dict[str, Any]:
    """Return the object in a file; empty where there is none, or it is torn."""
    try:
        return _table(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return {}


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
