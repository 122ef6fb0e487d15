"""The outsider's campaign: clean seeds, plants, near misses; what the verifier makes of them.

    python -m campaigns.outside.campaign --seeds 60 --output figures/outside.json

Prints what is not as it should be and a score; exit code 1 where anything is not. Place in the data
path: above the model cluster and the catalogues; `make outside` runs it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from campaigns.outside.catalogue import PLANTS, Found, batches, judged
from campaigns.outside.judging import accused, judge, undecided
from campaigns.outside.model_cluster import model_run, options_of
from campaigns.outside.near_misses import NEAR_MISSES
from campaigns.outside.planting import NearMiss, planted_run

__all__ = ["clean_alarms", "main", "near_miss_alarms"]

# Seeds 1 to this have been looked at; what a seed makes may only change with the model.
_SEEDS: Final = 60


def clean_alarms(seed: int) -> list[str]:
    """What the verifier has against a clean seed."""
    assert not options_of(seed).defects
    verdict = judge(model_run(seed), files_per_table=1 + seed % 3)
    checks = {**accused(verdict), **undecided(verdict)}
    return [
        f"{rule} {check.verdict.value}: {check.reason or dict(check.witnesses[0])}"
        for rule, check in checks.items()
    ]


def near_miss_alarms(near: NearMiss) -> list[str]:
    """Who is accused of what is legal; what is undecided and should not be, or the reverse."""
    run, _ = planted_run(near)
    verdict = judge(run, files_per_table=3)
    doubts = frozenset(undecided(verdict))
    alarms = [
        f"{rule} fails: {dict(check.witnesses[0])}" for rule, check in accused(verdict).items()
    ]
    if "*" in near.unknown:  # nothing is reported of such a run
        return alarms + ([] if len(doubts) == len(verdict.checks) else ["something was judged"])
    if doubts != near.unknown:
        alarms.append(f"unknown: {sorted(doubts)}, expected {sorted(near.unknown)}")
    return alarms


def _print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _plants() -> list[Found]:
    found = []
    for batch in batches(PLANTS):
        for one in judged(batch):
            found.append(one)
            if one.outcome != "named":
                _print_line(
                    f"{one.outcome}: {one.plant.rule} {one.plant.name} (others {one.others})"
                )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=_SEEDS)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    figures: dict[str, Any] = {"clean": {}, "near_misses": {}}
    for seed in range(1, options.seeds + 1):
        if alarms := clean_alarms(seed):
            figures["clean"][seed] = alarms
            _print_line(f"clean seed {seed}: {alarms}")
    for near in NEAR_MISSES:
        if alarms := near_miss_alarms(near):
            figures["near_misses"][near.name] = alarms
            _print_line(f"{near.name}: {alarms}")
    found = _plants()
    outcomes = Counter(one.outcome for one in found)
    figures["plants"] = dict(outcomes)
    figures["not_named"] = [
        [one.plant.rule, one.plant.name, one.outcome] for one in found if one.outcome != "named"
    ]
    _print_line(
        f"{options.seeds} clean seeds, {len(figures['clean'])} with an alarm; "
        f"{len(NEAR_MISSES)} near misses, {len(figures['near_misses'])} with an alarm; "
        f"{len(found)} plants for {len({one.plant.rule for one in found})} rules: {dict(outcomes)}"
    )
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(figures, indent=1) + "\n")
    is_sound = not figures["clean"] and not figures["near_misses"] and set(outcomes) == {"named"}
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
