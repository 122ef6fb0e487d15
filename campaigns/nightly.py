"""All long campaigns, one after the other, and a table of what became of them.

    python -m campaigns.nightly [--only NAME ...] [--hours-each H] [--output DIR] [--logs DIR]

Each is a target of the Makefile, which says how it is run; `make nightly` runs this. One that fails
ends nothing: the next is run. DIR/nightly.md and DIR/nightly.json are written anew after each, so
that a night that was cut short has its rows; what a campaign printed is in LOGS/NAME.log. Exit code
0: all ended with 0; 1 else. One that takes more than H hours is killed, with what it has started,
and counts as ended with 124, as `timeout` has it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

__all__ = ["JOBS", "Row", "run_all"]

ROOT: Final = Path(__file__).resolve().parent.parent
JOBS: Final[Mapping[str, tuple[str, ...]]] = {
    "tests": ("make", "nightly-tests"),
    "sim": ("make", "sim", "SEEDS=1..2000"),
    "mutants": ("make", "mutants"),
    "planted": ("make", "planted"),
    "interop": ("make", "interop"),
    "fuzz": ("make", "fuzz"),
    "drills": ("make", "drills"),
}
_TOO_LONG: Final = 124


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of one campaign; `exit_code` is negative where a signal ended it."""

    name: str
    command: str
    exit_code: int
    seconds: float
    log: str


def run_all(
    jobs: Mapping[str, Sequence[str]], output: Path, logs: Path, seconds_each: float
) -> list[Row]:
    """Run them in their order; the tables in `output` are whole after each."""
    output.mkdir(parents=True, exist_ok=True)
    logs.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for name, command in jobs.items():
        log = logs / f"{name}.log"
        began_s = time.monotonic()
        exit_code = _run(command, log, seconds_each)
        seconds = round(time.monotonic() - began_s, 1)
        rows.append(
            Row(
                name=name,
                command=" ".join(command),
                exit_code=exit_code,
                seconds=seconds,
                log=str(log),
            )
        )
        sys.stdout.write(f"{name}: exit code {exit_code} after {seconds:g} s\n")
        sys.stdout.flush()
        _write(output, rows, [name for name in jobs if name not in {row.name for row in rows}])
    return rows


def _run(command: Sequence[str], log: Path, seconds: float) -> int:
    """The exit code. What it has started ends with it, or with us."""
    with log.open("wb") as file:
        try:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            file.write(f"{error}\n".encode())
            return 127
        try:
            return process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return _TOO_LONG
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _write(output: Path, rows: Sequence[Row], not_run: Sequence[str]) -> None:
    figures = {"rows": [asdict(row) for row in rows], "not_run": list(not_run)}
    (output / "nightly.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    lines = ["| campaign | exit code | seconds |", "|---|---|---|"]
    lines += [f"| {row.name} | {row.exit_code} | {row.seconds:g} |" for row in rows]
    lines += [f"| {name} | not run yet | |" for name in not_run]
    (output / "nightly.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--hours-each", type=float, default=6.0)
    parser.add_argument("--output", type=Path, default=ROOT / "figures")
    parser.add_argument("--logs", type=Path, default=ROOT / "runs" / "nightly")
    arguments = parser.parse_args()
    jobs = {name: command for name, command in JOBS.items() if name in arguments.only}
    rows = run_all(jobs, arguments.output, arguments.logs, arguments.hours_each * 3_600)
    sys.stdout.write((arguments.output / "nightly.md").read_text(encoding="utf-8"))
    return 1 if any(row.exit_code for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
