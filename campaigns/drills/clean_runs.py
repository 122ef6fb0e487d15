"""Fifty experiments on the product as it is: every verdict must be `pass`.

    python -m campaigns.drills.clean_runs [--seeds 1..50] [--output FILE] [--keep DIR]
        [--under COMMAND]

The scenario is that of the planted bugs (`campaigns/mutants/live`), so that what sees those is
known to be silent where there are none. A run that does not pass is kept in DIR. Exit code 0: all
passed. Not part of `make test`: it takes some twenty minutes; `make clean-runs` runs it.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from campaigns.mutants.planted_experiments import run_planted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1..50", help="first..last")
    parser.add_argument("--output", type=Path, help="where the figures go")
    parser.add_argument("--keep", type=Path, help="where runs go that did not pass")
    parser.add_argument("--under", default="", help="a command to run each cluster under")
    arguments = parser.parse_args()
    first, _, last = arguments.seeds.partition("..")
    rows: list[dict[str, Any]] = []
    for seed in range(int(first), int(last or first) + 1):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="clean-") as temporary:
            directory = Path(temporary) / f"seed-{seed}"
            row = run_planted([], directory, seed=seed, under=shlex.split(arguments.under))
            if row["verdict"] != "pass" and arguments.keep is not None:
                arguments.keep.mkdir(parents=True, exist_ok=True)
                shutil.copytree(directory, arguments.keep / directory.name, dirs_exist_ok=True)
        row.pop("acted")
        row["took_s"] = round(time.monotonic() - began, 1)
        rows.append(row)
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
        if arguments.output is not None:
            _write(arguments.output, rows)
    passed = sum(1 for row in rows if row["verdict"] == "pass")
    sys.stdout.write(f"{passed} of {len(rows)} clean runs passed\n")
    return 0 if rows and passed == len(rows) else 1


def _write(output: Path, rows: list[dict[str, Any]]) -> None:
    passed = sum(1 for row in rows if row["verdict"] == "pass")
    figures = {"runs": len(rows), "passed": passed, "rows": rows}
    output.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
