"""The index page of a campaign: one HTML file on what its runs were, broke and cost.

Place in the data path: `ledgermq chaos campaign` has it made of index.json whenever that is new; it
reads that file and checks which reports are there, nothing else.

Invariants: the page makes no network request and needs no script; every text is escaped, by the
template or where it is drawn;
lists are bounded, and where something was left out the page says how much.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jinja2

from verify.report.heat_map import heat_map
from verify.report.wording import clipped, number

__all__ = ["PAGE_FILE", "build_campaign_page"]

PAGE_FILE: Final = "index.html"
_ROWS_MAX: Final = 500
_TEXT_MAX: Final = 400
_SYSTEMS_COMPARED_MIN: Final = 2
_SYSTEMS_DRAWN_MAX: Final = 12
_SCENARIOS_DRAWN_MAX: Final = 40
_MS_PER_S: Final = 1_000
_SENTENCES: Final = {
    "pass": "Every run passed.",
    "fail": "At least one run broke a promise.",
    "unknown": "Nothing was seen to be broken, but not every run could be judged.",
}


def build_campaign_page(folder: Path) -> Path:
    """Write the page of the campaign in `folder`; return its path.

    Raises OSError where a file can't be read or written, ValueError where index.json is torn.
    """
    index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("verify.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("campaign.html.j2").render(**_values(index, folder))
    page = folder / PAGE_FILE
    draft = page.with_name(f"{page.name}.{os.getpid()}.tmp")
    draft.write_text(text, encoding="utf-8")
    draft.replace(page)
    return page


def _values(index: Mapping[str, Any], folder: Path) -> dict[str, object]:
    runs: Sequence[Mapping[str, Any]] = index["runs"]
    failing = [run for run in runs if run["verdict"] == "fail"]
    unknown = [run for run in runs if run["verdict"] == "unknown"]
    others = [run for run in runs if run["verdict"] == "pass"]
    verdict = index["verdict"]
    return {
        "campaign": index["campaign"],
        "verdict": verdict,
        "sentence": _SENTENCES[verdict],
        "done": index["done"],
        "planned": index["planned"],
        "judging": index["judging"],
        "cards": _cards(index),
        "systems": index["systems"],
        "heat_map": _heat_map(index),
        "matrices": [
            ("Faults", "fault", _rows(index["faults"], index["systems"])),
            ("Scenarios", "scenario", _rows(index["scenarios"], index["systems"])),
        ],
        "failing": [_run(run, folder) for run in failing[:_ROWS_MAX]],
        "failing_left": max(0, len(failing) - _ROWS_MAX),
        "unknown": [_run(run, folder) for run in unknown[:_ROWS_MAX]],
        "unknown_left": max(0, len(unknown) - _ROWS_MAX),
        "passing": [_run(run, folder) for run in others[:_ROWS_MAX]],
        "passing_left": max(0, len(others) - _ROWS_MAX),
        "minimised": [_minimised(each) for each in index["minimised"][:_ROWS_MAX]],
    }


def _cards(index: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    verdicts, counts = index["verdicts"], index["counts"]
    return [
        (number(verdicts["pass"]), "runs passed", f"of {number(index['done'])}"),
        (number(verdicts["fail"]), "runs failed", f"{number(verdicts['unknown'])} unknown"),
        (number(counts["lost"]), "messages lost", "acknowledged, and not there"),
        (number(counts["doubled"]), "stored twice", "A2 and T4"),
        (
            number(counts["hidden"] + counts["gone"]),
            "hidden or gone",
            f"{number(counts['hidden'])} unread, {number(counts['gone'])} read and gone or stale",
        ),
        (
            number(index["judged_by_two"]),
            "runs judged by two",
            f"{_seconds(index['took_s'])} in all",
        ),
    ]


def _heat_map(index: Mapping[str, Any]) -> str | None:
    """Return the drawing; None where there is nothing to compare."""
    if len(index["systems"]) < _SYSTEMS_COMPARED_MIN or not index["scenarios"]:
        return None
    systems = index["systems"][:_SYSTEMS_DRAWN_MAX]
    return heat_map(index["scenarios"][:_SCENARIOS_DRAWN_MAX], systems)


def _rows(matrix: Sequence[Mapping[str, Any]], systems: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"name": row["name"], "cells": [_cell(row["cells"].get(place)) for place in systems]}
        for row in matrix
    ]


def _cell(cell: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if cell is None:
        return None
    verdicts = cell["verdicts"]
    lines = []
    if cell["runs"]:
        lines.append(
            f"{number(cell['runs'])} runs: {verdicts['pass']} pass, {verdicts['fail']} fail,"
            f" {verdicts['unknown']} unknown"
        )
        lines.append(
            f"lost {number(cell['lost'])}, doubled {number(cell['doubled'])},"
            f" hidden {number(cell['hidden'])}, gone {number(cell['gone'])},"
            f" offsets rewound {number(cell['rewound'])};"
            f" {number(cell['acknowledged'])} acknowledged"
        )
    if cell["measured"]:
        p50, p95 = cell["unavailable_p50_ms"], cell["unavailable_p95_ms"]
        lines.append(f"unavailable p50 {_ms(p50)}, p95 {_ms(p95)}")
    if cell["unread_p50_ms"] is not None:
        p50, p95 = cell["unread_p50_ms"], cell["unread_p95_ms"]
        lines.append(f"no answered read p50 {_ms(p50)}, p95 {_ms(p95)}")
    if cell["before_per_second"] is not None:
        lines.append(
            f"before {number(round(cell['before_per_second']))} sends/s,"
            f" p50 {_ms(cell['before_p50_ms'])}, p99 {_ms(cell['before_p99_ms'])}"
        )
    effects = cell["effects"]
    if effects:
        words = {"taken": "taken", "not_taken": "not taken", "unknown": "effect unknown"}
        counted = [f"{words.get(name, name)} {number(count)}" for name, count in effects.items()]
        lines.append(", ".join(counted))
    return {"verdict": cell["verdict"], "lines": lines}


def _run(run: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    name = run["run"]
    report = f"runs/{name}/report.html"
    return {
        "name": name,
        "place": run["place"],
        "scenario": run["scenario"],
        "seed": run["seed"],
        "verdict": run["verdict"],
        "report": report if (folder / report).is_file() else None,
        "whole": run["whole"],
        "judges": " and ".join(run["engines"]) or "nobody",
        "took": _seconds(run["took_s"]),
        "reason": clipped(run["reason"], _TEXT_MAX),
        "checks": [
            {
                "id": check["id"],
                "name": check["name"],
                "violations": number(check["violations"]),
                "witness": clipped(json.dumps(check["witness"]), _TEXT_MAX),
            }
            for check in run["failed"]
        ],
    }


def _minimised(each: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **each,
        "took": _seconds(each["took_s"]),
        "steps": [step for step in each["steps"] if step["accepted"]],
        "refused": sum(1 for step in each["steps"] if not step["accepted"]),
        "folder": f"minimised/{each['run']}",
    }


def _ms(value: float) -> str:
    return f"{value:.0f} ms" if value < _MS_PER_S else f"{value / _MS_PER_S:.1f} s"


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value < 600 else f"{value / 60:.0f} min"
