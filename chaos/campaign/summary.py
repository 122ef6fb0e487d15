"""All runs of a campaign in one value: what index.json holds and the index page shows.

Place in the data path: `chaos.campaign.campaign` writes it as index.json, now and then and at the
end; `verify.report.campaign_page` and `chaos.campaign.junit` report it to people and to CI. Pure.

Invariants: a run counts in the row of each fault that took effect in it, or may have; a fault that
was not seen to take effect (a world that can't have it, no target) counts as not taken, and proves
nothing there; a scenario's row counts each of its runs, whatever it is named; the worst of a cell's
runs is its verdict, and a cell without runs has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from chaos.campaign.minimise import Minimised
from chaos.campaign.outcome import COUNTS, VERDICTS, RunOutcome

__all__ = ["FORMAT", "summary", "worst"]

FORMAT: Final = 1
_NO_FAULT: Final = "no fault"
_NOT_JUDGED: Final = "not judged"  # which faults there were is not known


def summary(
    name: str,
    runs: Sequence[RunOutcome],
    minimised: Mapping[str, Minimised],
    *,
    planned: int,
    engines_requested: str,
) -> dict[str, Any]:
    """Return the content of index.json. `planned`: how many runs there are to be."""
    return {
        "format": FORMAT,
        "campaign": name,
        "verdict": worst(runs) if len(runs) == planned else _unless_failed(runs),
        "planned": planned,
        "done": len(runs),
        "verdicts": _verdicts(runs),
        "counts": _counts(runs),
        "judging": engines_requested,
        "judged_by_two": sum(1 for run in runs if len(run.engines) > 1),
        "took_s": round(sum(run.took_s for run in runs), 1),
        "systems": sorted({run.place for run in runs}),
        "faults": _matrix(runs, _faults_of, of_faults=True),
        "scenarios": _matrix(runs, lambda run: [run.scenario], of_faults=False),
        "runs": [msgspec.to_builtins(run) | {"place": run.place} for run in runs],
        "minimised": [msgspec.to_builtins(each) for each in minimised.values()],
    }


def worst(runs: Iterable[RunOutcome]) -> str:
    """Return the worst verdict; unknown where there is no run, since nothing was proven."""
    return max((run.verdict for run in runs), key=VERDICTS.index, default="unknown")


def _unless_failed(runs: Iterable[RunOutcome]) -> str:
    """The verdict of a campaign that goes on: what is still to come may be anything."""
    return "fail" if worst(runs) == "fail" else "unknown"


def _verdicts(runs: Iterable[RunOutcome]) -> dict[str, int]:
    verdicts = [run.verdict for run in runs]
    return {word: verdicts.count(word) for word in VERDICTS}


def _counts(runs: Sequence[RunOutcome]) -> dict[str, int]:
    return {name: sum(run.counts.get(name, 0) for run in runs) for name in COUNTS}


def _faults_of(run: RunOutcome) -> Iterable[str]:
    return run.faults or [_NO_FAULT if run.engines else _NOT_JUDGED]


def _matrix(
    runs: Sequence[RunOutcome],
    rows_of: Callable[[RunOutcome], Iterable[str]],
    *,
    of_faults: bool,
) -> list[dict[str, Any]]:
    """Return rows with a cell per system; `rows_of` a run: the names of its rows."""
    cells: dict[str, dict[str, list[RunOutcome]]] = {}
    for run in runs:
        for name in rows_of(run):
            cells.setdefault(name, {}).setdefault(run.place, []).append(run)
    return [
        {
            "name": name,
            "cells": {
                place: _cell(name if of_faults else "", inside)
                for place, inside in sorted(places.items())
            },
        }
        for name, places in sorted(cells.items())
    ]


def _cell(fault: str, inside: Sequence[RunOutcome]) -> dict[str, Any]:
    """Return the cell of a fault's row, or, for "", of another one, which has all their faults."""
    effects: dict[str, int] = {}
    for run in inside:
        for effect, count in run.faults.get(fault, {}).items():
            effects[effect] = effects.get(effect, 0) + count
    counted = [run for run in inside if _may_have_acted(run.faults.get(fault))]
    is_fault = any(fault in run.faults for run in inside)

    def around(rows: Iterable[tuple[str, float]]) -> list[float]:
        return [took_ms for name, took_ms in rows if name == fault or not is_fault]

    took = [took_ms for run in counted for took_ms in around(run.recoveries)]
    reads = [took_ms for run in counted for took_ms in around(run.reads)]
    before = [run.before for run in counted if run.before is not None]
    return {
        "runs": len(counted),
        "verdict": worst(counted) if counted else None,
        "verdicts": _verdicts(counted),
        "effects": effects,
        **_counts(counted),
        "unavailable_p50_ms": _percentile(took, 0.5),
        "unavailable_p95_ms": _percentile(took, 0.95),
        "measured": len(took),
        "unread_p50_ms": _percentile(reads, 0.5),
        "unread_p95_ms": _percentile(reads, 0.95),
        "acknowledged": sum(run.acknowledged for run in counted),
        "before_per_second": _percentile([each.per_second for each in before], 0.5),
        "before_p50_ms": _percentile([each.p50_ms for each in before], 0.5),
        "before_p99_ms": _percentile([each.p99_ms for each in before], 0.5),
    }


def _may_have_acted(effects: Mapping[str, int] | None) -> bool:
    """Return whether a run counts; None: a row that is no fault's."""
    return effects is None or any(count for name, count in effects.items() if name != "not_taken")


def _percentile(values: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank percentile; None of nothing."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
