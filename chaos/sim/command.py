"""What `ledgermq sim` prints.

Place in the data path: the command line parses options and calls `sim_command`; progress goes to
stderr, results to stdout. Exit codes: 0 every seed passed, 1 a rule was broken, 64 wrong options.
"""

from __future__ import annotations

import sys
from typing import TextIO

from chaos.sim.campaign import CampaignResult, replay, run_campaign

__all__ = ["parse_seeds", "sim_command"]

_NODES_MAX = 7


def parse_seeds(text: str) -> range:
    """`A..B` is A to B, B included; a single number is that seed. Raises ValueError."""
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
    replay_seed: int | None = None,
    jobs: int = 2,
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> int:
    """Run a campaign, or replay one seed with its whole trace; returns the exit code."""
    out, err = out or sys.stdout, err or sys.stderr
    if nodes is not None and not 1 <= nodes <= _NODES_MAX:
        err.write(f"ledgermq: nodes: {nodes} is not 1 to {_NODES_MAX}\n")
        return 64
    if replay_seed is not None:
        return _replay(replay_seed, nodes, out)
    try:
        wanted = parse_seeds(seeds)
    except ValueError as error:
        err.write(f"ledgermq: {error}\n")
        return 64
    shown = 0

    def show(result: CampaignResult) -> None:
        nonlocal shown
        for failure in result.failures[shown:]:
            out.write(f"{failure}\n")
        shown = len(result.failures)
        rate = result.seeds_run / max(result.elapsed_s, 1e-9)
        err.write(f"\r{result.seeds_run}/{len(wanted)} seeds, {rate:.1f}/s, {shown} failed ")
        err.flush()

    result = run_campaign(wanted, nodes, jobs, show)
    err.write("\n")
    _report(result, out)
    return 0 if result.passed else 1


def _replay(seed: int, nodes: int | None, out: TextIO) -> int:
    outcome = replay(seed, nodes)
    for line in (*outcome.options, *outcome.trace):
        out.write(f"{line}\n")
    out.write(f"trace digest {outcome.digest}\n")
    if outcome.failure is None:
        out.write(f"SEED={seed} passed\n")
        return 0
    out.write(f"{outcome.failure}\n")
    return 1


def _report(result: CampaignResult, out: TextIO) -> None:
    for name, count in result.coverage.items():
        out.write(f"{name:34} {count:>12,}\n")
    zeros = result.zero_counters()
    if zeros:
        out.write(f"never came up: {', '.join(zeros)}\n")
    verdict = "passed" if result.passed else f"{len(result.failures)} FAILED"
    out.write(
        f"{result.seeds_run} seeds in {result.elapsed_s:.1f} s "
        f"({result.times_real_time:.0f} times real time): {verdict}\n"
    )
