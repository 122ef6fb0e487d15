"""The command `ledgermq sim` and its output.

Place in the data path: the command line parses options and calls `sim_command`; progress goes to
stderr, results to stdout. Exit codes: 0 every seed passed, 1 a rule was broken, 2 every seed passed
but a large campaign never reached something it should have, 64 wrong options, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from chaos.sim.campaign.campaign import (
    CampaignResult,
    Replay,
    SeedFailure,
    replay,
    run_campaign,
    run_schedule,
    shrink_failure,
)
from chaos.sim.campaign.record import RecordError, SeedRecord
from chaos.sim.campaign.seeds import KINDS, kind_of_seed
from chaos.sim.seed.coverage import Coverage
from chaos.sim.seed.schedule import ScheduleError, load_schedule

__all__ = ["LARGE_CAMPAIGN_SEEDS_MIN", "parse_seeds", "sim_command"]

LARGE_CAMPAIGN_SEEDS_MIN = 2_000
"""From so many seeds on, a counter that stays 0 fails the campaign."""

_NODES_MAX = 7
_SHRUNK_MAX = 3  # failing seeds of a campaign that are shrunk


def parse_seeds(text: str) -> range:
    """Parse `A..B` as A to B, B included; a single number is that seed. Raises ValueError."""
    first, separator, last = text.partition("..")
    if not first.isdecimal() or (separator and not last.isdecimal()):
        raise ValueError(f"seeds: {text!r} is not A..B")
    low, high = int(first), int(last) if separator else int(first)
    if high < low:
        raise ValueError(f"seeds: {high} comes before {low}")
    return range(low, high + 1)


def sim_command(
    *,
    seeds: str = "0..1999",
    nodes: int | None = None,
    kind: str | None = None,
    replay_seed: int | None = None,
    schedule: Path | None = None,
    jobs: int = 2,
    keep: Path | None = None,
    record: Path | None = None,
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> int:
    """Run a campaign, or replay one seed or schedule with its whole trace; return the exit code.

    `keep`: directory for the shrunk schedules of failing seeds; None shrinks nothing. `record`: a
    file of the seeds that have passed with these sources; they are skipped.
    """
    out, err = out or sys.stdout, err or sys.stderr
    problem = _problem(nodes, kind)
    if problem is not None:
        err.write(f"ledgermq: {problem}\n")
        return 64
    try:
        if schedule is not None:
            return _print_replay(run_schedule(load_schedule(schedule)), f"{schedule}", out)
        wanted = parse_seeds(seeds)
        seed_record = None if record is None else SeedRecord(record, nodes=nodes, kind=kind)
    except (ScheduleError, RecordError, OSError, ValueError) as error:
        err.write(f"ledgermq: {error}\n")
        return 64
    if replay_seed is not None:
        return _print_replay(replay(replay_seed, nodes, kind=kind), f"SEED={replay_seed}", out)
    result = _campaign(wanted, nodes, kind, jobs=jobs, seed_record=seed_record, out=out, err=err)
    if result is None:
        return 130
    for failure in result.failures[: _SHRUNK_MAX if keep is not None else 0]:
        assert keep is not None
        _shrink(failure, keep, out, err)
    return _report(result, wanted, seed_record, out)


def _problem(nodes: int | None, kind: str | None) -> str | None:
    if nodes is not None and not 1 <= nodes <= _NODES_MAX:
        return f"nodes: {nodes} is not 1 to {_NODES_MAX}"
    if kind is not None and kind not in KINDS:
        return f"kind: {kind!r} is not one of {', '.join(KINDS)}"
    return None


def _campaign(
    wanted: range,
    nodes: int | None,
    kind: str | None,
    *,
    jobs: int,
    seed_record: SeedRecord | None,
    out: TextIO,
    err: TextIO,
) -> CampaignResult | None:
    """Run the campaign; return None if interrupted, after printing what was found until then."""
    shown = done = 0
    missing: Sequence[int] = wanted if seed_record is None else seed_record.missing(wanted)
    if seed_record is not None:
        anew = "; what it had is of other sources, nodes or kinds" if seed_record.begun_anew else ""
        err.write(
            f"ledgermq: the record has {len(wanted) - len(missing)} of {len(wanted)} seeds{anew}\n"
        )

    def show(result: CampaignResult) -> None:
        nonlocal shown, done
        done = result.seeds_run
        for failure in result.failures[shown:]:
            out.write(f"{failure}\n")
            out.flush()
        shown = len(result.failures)
        rate = result.seeds_run / max(result.elapsed_s, 1e-9)
        err.write(f"\r{result.seeds_run}/{len(missing)} seeds, {rate:.1f}/s, {shown} failed ")
        err.flush()

    try:
        result = run_campaign(missing, nodes, jobs, show, kind=kind, record=seed_record)
    except KeyboardInterrupt:
        err.write(
            f"\nledgermq: interrupted after {done} of {len(missing)} seeds, {shown} of them failed;"
            f" nothing is left running{' or written' if seed_record is None else ''}\n"
        )
        return None
    err.write("\n")
    return result


def _print_replay(result: Replay, what: str, out: TextIO) -> int:
    out.write(result.schedule.to_text())
    for line in (*result.options, *result.trace):
        out.write(f"{line}\n")
    out.write(f"trace digest {result.digest}\n")
    if result.failure is None:
        out.write(f"{what} passed\n")
        return 0
    out.write(f"{result.failure}\n")
    return 1


def _shrink(failure: SeedFailure, keep: Path, out: TextIO, err: TextIO) -> None:
    err.write(f"shrinking SEED={failure.seed}\n")
    schedule = shrink_failure(failure)
    keep.mkdir(parents=True, exist_ok=True)
    path = keep / f"{failure.kind}-{failure.seed}-{failure.node_count}.json"
    path.write_text(schedule.to_text(), encoding="utf-8")
    names = ", ".join(f"{fault.name} at {fault.at_us / 1e6:.3f} s" for fault in schedule.faults)
    out.write(
        f"SEED={failure.seed} {failure.rule} needs {len(schedule.faults)} faults: "
        f"{names or 'none'}; not needed: {', '.join(schedule.calmed) or 'nothing'}\n"
        f"  replay: ledgermq sim --schedule {path}\n"
    )


def _report(
    result: CampaignResult, wanted: range, seed_record: SeedRecord | None, out: TextIO
) -> int:
    """Print the result, with the counters of the recorded seeds that this campaign skipped."""
    coverage = result.coverage if seed_record is None else seed_record.coverage
    for name, count in coverage.items():
        if count:
            out.write(f"{name:34} {count:>12,}\n")
    kinds = result.kinds
    if seed_record is not None:  # counters of earlier calls add up, so a zero among them counts too
        kinds = tuple({kind_of_seed(seed, seed_record.kind): None for seed in wanted})
    zeros = Coverage.zeros(coverage, kinds)
    if zeros:
        out.write(f"never came up: {', '.join(zeros)}\n")
    if result.seeds_run:
        out.write(
            f"{result.seeds_run} seeds in {result.elapsed_s:.1f} s, {result.cpu_s:.1f} s of "
            f"processor: {result.virtual_s:,.0f} virtual seconds, {result.times_real_time:.0f} "
            "times real time on one core\n"
        )
    passed = result.seeds_run - len(result.failures)
    if seed_record is not None:
        passed = seed_record.passed(wanted)
        out.write(
            f"the record has {passed} of {len(wanted)} seeds,"
            f" of sources {seed_record.sources[:12]}\n"
        )
    if result.failures:
        out.write(f"{len(result.failures)} FAILED\n")
        return 1
    if zeros and passed >= LARGE_CAMPAIGN_SEEDS_MIN:
        out.write("no rule broken, but not everything came up\n")
        return 2
    out.write("passed\n")
    return 0
