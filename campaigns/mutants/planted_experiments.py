"""Experiments on real processes with planted bugs: what does their verdict say of each?

    python -m campaigns.mutants.planted_experiments [--only TEXT] [--output FILE] [--under COMMAND]

Each bug of `campaigns.mutants.live` has a run of its own, of some twenty seconds, judged by DuckDB in
a process without it; then comes one run with many of them at once. Exit code 0: every run ended as
its bug says. Not part of `make test`; `make planted` runs it.

Invariants: a bug that never acted counts as not seen, whatever the verdict; so does a verdict for
other reasons than the rules that the bug names; A5 calls lost what A4 calls so.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from campaigns.mutants.live.catalogue import AT_ONCE, LIVE_AREAS, LIVE_MUTANTS
from campaigns.mutants.live.live_mutant import LiveMutant
from campaigns.mutants.live.planting import acted, armed_environment

__all__ = ["AT_ONCE_RULES_MIN", "judged_row", "run_planted"]

ROOT: Final = Path(__file__).resolve().parents[2]
SCENARIO: Final = ROOT / "campaigns" / "mutants" / "live" / "scenario.toml"
LIMITS: Final = """
[limits]
rto_ms = 5000
gap_ms = 6000
lag_ms = 5000
acked_share_min = 0.9
"""
TRANSACTION_CLIENTS: Final = "transaction_clients = 2\n"  # of the scenario
RUN_S_MAX: Final = 150
VERIFY_S_MAX: Final = 300
AT_ONCE_NAME: Final = "many at once"
AT_ONCE_RULES_MIN: Final = 12


def run_planted(
    mutants: Sequence[LiveMutant], directory: Path, *, seed: int, under: Sequence[str] = ()
) -> dict[str, Any]:
    """One experiment with these bugs: its verdict, and which of them acted. What it left stays in
    `directory`, which must not exist."""
    marks = directory / "marks"
    marks.mkdir(parents=True)
    scenario = directory / "scenario.toml"
    has_limits = all(mutant.has_limits for mutant in mutants)
    text = SCENARIO.read_text(encoding="utf-8") + (LIMITS if has_limits else "")
    if not all(mutant.has_transactions for mutant in mutants):
        assert TRANSACTION_CLIENTS in text
        text = text.replace(TRANSACTION_CLIENTS, TRANSACTION_CLIENTS.replace("2", "0"))
    scenario.write_text(text)
    run = directory / "run"
    ledgermq = [sys.executable, "-m", "ledgermq"]
    words = ["chaos", "run", str(scenario), "--seed", str(seed), "--out", str(run), "--no-verify"]
    # Brokers and laboratory have the bugs; whoever judges has none.
    environment = armed_environment(os.environ, mutants, marks)
    seconds_max = None if under else RUN_S_MAX  # that command may have to wait
    done = _output([*under, *ledgermq, *words], seconds_max, environment)
    if done.returncode == 0:
        done = _output([*ledgermq, "verify", str(run), "--engine", "duckdb"], VERIFY_S_MAX)
    row: dict[str, Any] = {
        "seed": seed,
        "exit_code": done.returncode,
        "acted": acted(mutants, marks),
    }
    verdict = run / "verdict.json"
    if not verdict.exists():
        return {**row, "verdict": "none", "said": (done.stderr or done.stdout)[-2_000:]}
    return {**row, **_of_verdict(json.loads(verdict.read_text(encoding="utf-8")))}


def judged_row(mutant: LiveMutant, row: dict[str, Any]) -> dict[str, Any]:
    """The row, and whether the run ended as the bug says."""
    rules = row.get("failed" if mutant.verdict == "fail" else "unknown", [])
    seen_by = [rule for rule in mutant.expected if rule in rules]
    is_seen = bool(
        row["acted"] and row["verdict"] == mutant.verdict and seen_by and not row.get("a5_hides")
    )
    witness = next((row["witnesses"][rule] for rule in seen_by if rule in row["witnesses"]), None)
    return {
        "name": mutant.name,
        **{key: value for key, value in row.items() if key != "witnesses"},
        "seen_by": seen_by,
        "witness": witness,
        "as_expected": is_seen,
    }


def _of_verdict(verdict: dict[str, Any]) -> dict[str, Any]:
    checks = {check["id"]: check for check in verdict["checks"]}
    failed = [name for name, check in checks.items() if check["verdict"] == "fail"]
    # Lost for one rule, and for the other read by all, or at least by some.
    seen = checks.get("A5", {"verdict": "pass", "witnesses": []})
    lost = {witness["value"] for witness in checks["A4"]["witnesses"]} if "A4" in failed else set()
    hides = bool(lost) and (
        seen["verdict"] == "pass"
        or any(each["value"] in lost and not each["lost"] for each in seen["witnesses"])
    )
    return {
        "verdict": verdict["verdict"],
        "failed": failed,
        "unknown": [name for name, check in checks.items() if check["verdict"] == "unknown"],
        "witnesses": {
            name: checks[name]["witnesses"][0] for name in failed if checks[name]["witnesses"]
        },
        "a5_hides": hides,
    }


def _output(
    command: Sequence[str], seconds_max: float | None, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What it printed; a process that does not end is killed, and its cluster with it."""
    try:
        return subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds_max,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, -1, "", f"killed: {error}")


def _experiments(only: str, under: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows as they come."""
    for area, mutants in LIVE_AREAS.items():
        for mutant in mutants:
            if only not in f"{area}: {mutant.name}":
                continue
            for seed in range(1, mutant.seeds + 1):
                row = judged_row(mutant, _timed([mutant], seed, under))
                yield {"area": area, "expected": list(mutant.expected), **row}
    if only in AT_ONCE_NAME:
        mutants = tuple(LIVE_MUTANTS[name] for name in AT_ONCE)
        row = _timed(mutants, 1, under)
        is_seen = row["verdict"] == "fail" and len(row["failed"]) >= AT_ONCE_RULES_MIN
        row.pop("witnesses", None)
        yield {"area": AT_ONCE_NAME, "name": AT_ONCE_NAME, **row, "as_expected": is_seen}


def _timed(mutants: Sequence[LiveMutant], seed: int, under: Sequence[str]) -> dict[str, Any]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as directory:
        row = run_planted(mutants, Path(directory) / "experiment", seed=seed, under=under)
    return {**row, "took_s": round(time.monotonic() - began, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="those whose area or name contains this")
    parser.add_argument("--output", type=Path, help="where the figures go")
    parser.add_argument("--under", default="", help="a command to run each cluster under")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for row in _experiments(arguments.only, shlex.split(arguments.under)):
        rows.append(row)
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
        if arguments.output is not None:
            _write(arguments.output, rows)
    missed = [row["name"] for row in rows if not row["as_expected"] and not _survives(row)]
    sys.stdout.write(f"{len(rows) - len(missed)} of {len(rows)} runs ended as expected\n")
    for name in missed:
        sys.stdout.write(f"not seen as expected: {name}\n")
    if not rows:
        sys.stdout.write(f"no planted bug is named like {arguments.only!r}\n")
    return 1 if missed or not rows else 0


def _survives(row: dict[str, Any]) -> bool:
    mutant = LIVE_MUTANTS.get(row["name"])
    return mutant is not None and bool(mutant.survives)


def _write(output: Path, rows: list[dict[str, Any]]) -> None:
    seen = sum(1 for row in rows if row["as_expected"])
    figures = {"runs": len(rows), "as_expected": seen, "rows": rows}
    output.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
