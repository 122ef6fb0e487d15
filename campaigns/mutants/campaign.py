"""The mutation score: every planted bug over many seeds, and the clean system over some.

    python -m campaigns.mutants.campaign [--seeds A..B] [--clean A..B] [--only TEXT] [--output FILE]

Place in the data path: `make mutants`. One process per mutant (`worker`), as many at a time as
there are cores; a mutant is killed by the first seed that fails. Exit code 0: the clean seeds gave
no alarm, and every mutant that is to be killed was; 1 else; 2 where not all were run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from campaigns.mutants.catalogue import AREAS, MUTANTS
from campaigns.mutants.mutant import Mutant

__all__ = ["Row", "exit_code", "run_campaign", "table"]

ROOT = Path(__file__).resolve().parent.parent.parent
_WORKER_S_MAX = 6 * 3_600  # 2,000 seeds of whole groups take up to two hours of one processor
_NAME_WIDTH = 56


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of one mutant. `rule` is the check that saw it, or "survived"."""

    name: str
    area: str
    rule: str
    detail: str
    seeds: int
    took_s: float

    @property
    def killed(self) -> bool:
        return self.rule not in {"survived", "not run"}

    @property
    def as_expected(self) -> bool:
        mutant = MUTANTS[self.name]
        return self.rule in mutant.expected if self.killed else bool(mutant.survives)


def run_campaign(names: list[str], seeds: str, jobs: int) -> Iterator[Row]:
    """Rows in the order in which the mutants end."""
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        futures = [pool.submit(_run_worker, name, seeds) for name in names]
        for future in as_completed(futures):
            yield future.result()


def table(rows: list[Row]) -> str:
    """For a person, in the order of the catalogue."""
    lines = [f"{'mutant':{_NAME_WIDTH}} {'killed by':28} {'seeds':>6} {'s':>7}"]
    order = {name: place for place, name in enumerate(MUTANTS)}
    area = ""
    for row in sorted(rows, key=lambda row: order[row.name]):
        if row.area != area:
            area = row.area
            lines.append(f"-- {area}")
        mark = "" if row.as_expected else " (!)"
        lines.append(
            f"{row.name:{_NAME_WIDTH}} {row.rule + mark:28} {row.seeds:>6} {row.took_s:>7.1f}"
        )
    return "\n".join(lines)


def exit_code(rows: list[Row], *, clean_passed: bool) -> int:
    if any(row.rule == "not run" for row in rows):
        return 2
    survived = [row for row in rows if not row.killed and not MUTANTS[row.name].survives]
    return 0 if clean_passed and not survived else 1


def _run_worker(name: str, seeds: str) -> Row:
    area = next(area for area, mutants in AREAS.items() if MUTANTS[name] in mutants)
    command = [sys.executable, "-m", "campaigns.mutants.worker", name, "--seeds", seeds]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=_WORKER_S_MAX, check=False
        )
    except subprocess.TimeoutExpired as expired:
        return _not_run(name, area, f"ended after {expired.timeout:.0f} s")
    if done.returncode:
        return _not_run(name, area, (done.stderr.strip().splitlines() or ["no word"])[-1])
    outcome = json.loads(done.stdout)
    return Row(
        name=name,
        area=area,
        rule=outcome.get("rule", "survived"),
        detail=outcome.get("detail", MUTANTS[name].survives),
        seeds=outcome["seeds"],
        took_s=outcome["took_s"],
    )


def _not_run(name: str, area: str, detail: str) -> Row:
    return Row(name=name, area=area, rule="not run", detail=detail, seeds=0, took_s=0.0)


def _run_clean(seeds: str, jobs: int) -> tuple[bool, str]:
    """Whether the system as it is passes, and the last line of what was printed."""
    command = [sys.executable, "-m", "ledgermq", "sim", "--seeds", seeds, "--jobs", str(jobs)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=_WORKER_S_MAX, check=False
    )
    last_line = (done.stdout.strip().splitlines() or [done.stderr.strip()])[-1]
    return done.returncode != 1, last_line


def _figures(rows: list[Row], mutants: dict[str, Mutant], **more: object) -> dict[str, object]:
    return {
        "mutants": len(rows),
        "killed": sum(row.killed for row in rows),
        **more,
        "rows": [
            {
                "name": row.name,
                "area": row.area,
                "kind": mutants[row.name].kind,
                "breaks": mutants[row.name].breaks,
                "published": mutants[row.name].published,
                "killed_by": row.rule if row.killed else None,
                "expected": list(mutants[row.name].expected),
                "detail": row.detail,
                "seeds": row.seeds,
                "took_s": row.took_s,
            }
            for row in rows
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1..2000")
    parser.add_argument("--clean", default="1..1000", help="empty: no clean seeds")
    parser.add_argument("--only", default="", help="mutants, or areas, whose names contain this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    names = [
        mutant.name
        for area, mutants in AREAS.items()
        for mutant in mutants
        if arguments.only in mutant.name or arguments.only in area
    ]
    began_s = time.monotonic()
    clean_passed, clean_line = True, "not run"
    if arguments.clean:
        clean_passed, clean_line = _run_clean(arguments.clean, arguments.jobs)
        sys.stdout.write(f"clean seeds {arguments.clean}: {clean_line}\n")
    rows: list[Row] = []
    for row in run_campaign(names, arguments.seeds, arguments.jobs):
        rows.append(row)
        sys.stderr.write(f"{len(rows)}/{len(names)} {row.name}: {row.rule} ({row.seeds})\n")
    rows.sort(key=lambda row: names.index(row.name))
    sys.stdout.write(table(rows) + "\n")
    for row in rows:
        if not row.killed:
            sys.stdout.write(f"{row.name}: {row.rule}: {row.detail}\n")
    killed = sum(row.killed for row in rows)
    took_s = round(time.monotonic() - began_s, 1)
    sys.stdout.write(f"killed {killed} of {len(rows)} in {took_s} s\n")
    if arguments.output is not None:
        figures = _figures(
            rows,
            MUTANTS,
            seeds=arguments.seeds,
            clean_seeds=arguments.clean,
            clean=clean_line,
            clean_passed=clean_passed,
            took_s=took_s,
        )
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n")
    sys.exit(exit_code(rows, clean_passed=clean_passed))


if __name__ == "__main__":
    main()
