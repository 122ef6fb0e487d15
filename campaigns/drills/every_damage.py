"""Damages every place of a replica's store in turn, and looks whether its group heals.

`python -m campaigns.drills.every_damage --output figures/damage.json`; pytest runs a part of it
(`tests/sim/test_every_damage.py`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import sys
from collections import Counter
from pathlib import Path

from chaos.sim.campaign.rotten_group import Plan, cases, make_history, run_case
from chaos.sim.machine.violation import Violation


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--page-size", type=int, default=64)
    parser.add_argument("--part", type=int, default=0, help="with --of: every OF-th case only")
    parser.add_argument("--of", type=int, default=1)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # each case damages something, and each node says so
    counts: Counter[str] = Counter()
    failures: list[str] = []
    tails = ((False, False), (True, False), (True, True))
    for snapshots, (tail, more) in itertools.product((False, True), tails):
        plan = Plan(snapshots=snapshots, tail=tail, more_after_tail=more)
        history = make_history(plan)
        for number, case in enumerate(cases(history, page_size=arguments.page_size)):
            if number % arguments.of != arguments.part:
                continue
            try:
                counts["healed" if run_case(history, case) else "changed nothing"] += 1
            except Violation as violation:
                counts["failed"] += 1
                failures.append(f"{plan} {case}: {violation}")
                print(failures[-1], flush=True)  # a program
        print(plan, dict(counts), flush=True)  # a program
    if arguments.output is not None:
        report = {"page_size": arguments.page_size, "cases": counts, "failures": failures}
        arguments.output.write_text(json.dumps(report, indent=2) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
