"""Experiments on brokers with a planted bug: each must end in `fail` and name what was lost.

    python tests/mutants/planted_experiments.py [--runs N] [--output FILE]

Not part of `make test` (a run takes about a minute); `make planted` runs it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MUTANT = ROOT / "tests" / "mutants" / "early_ack"
SCENARIO = ROOT / "scenarios" / "smoke.toml"
LOSS_CHECKS = ("A1", "A4", "A5")


def run_planted(run: Path, seed: int) -> dict[str, object]:
    """One experiment on mutant brokers: its exit code and the losses that it names."""
    environment = os.environ | {"PYTHONPATH": str(MUTANT)}
    command = [sys.executable, "-m", "ledgermq", "chaos", "run", str(SCENARIO)]
    done = subprocess.run(
        [*command, "--seed", str(seed), "--out", str(run)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    if not (run / "verdict.json").exists():
        return {"seed": seed, "exit_code": done.returncode, "said": done.stderr[-2000:]}
    verdict = json.loads((run / "verdict.json").read_text())
    lost = {
        witness["value"]
        for check in verdict["checks"]
        if check["id"] in LOSS_CHECKS and check["verdict"] == "fail"
        for witness in check["witnesses"]
        if "value" in witness
    }
    failed = [check["id"] for check in verdict["checks"] if check["verdict"] == "fail"]
    return {
        "seed": seed,
        "exit_code": done.returncode,
        "verdict": verdict["verdict"],
        "failed_checks": failed,
        "lost_named": len(lost),
        "example": min(lost, default=None),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    rows = []
    for seed in range(1, arguments.runs + 1):
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="planted-") as directory:
            row = run_planted(Path(directory) / "run", seed)
        row["took_s"] = round(time.monotonic() - began, 1)
        rows.append(row)
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
    caught = sum(1 for row in rows if row["exit_code"] == 1 and row.get("lost_named"))
    figures = {"runs": len(rows), "caught": caught, "rows": rows}
    sys.stdout.write(f"caught {caught} of {len(rows)}\n")
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
