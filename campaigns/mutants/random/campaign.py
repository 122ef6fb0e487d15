"""Random mistakes in the product, one by one: which does the laboratory's verdict see?

    python -m campaigns.mutants.random.campaign [--count N] [--seed S] [--scenario FILE]
        [--only TEXT] [--jobs N] [--output FILE]

Place in the data path: `edits` lists every small mistake that can be made in broker, client, name
server and wire; a seed draws some of them. Each has a run of the simulated world of its own, which is
then judged by DuckDB in a process without it.

    seen      the verdict is fail
    broken    the run ended by itself, or proved nothing
    stuck     it did not end within two minutes of processor time
    survived  the edited code ran, and the verdict is pass: nothing that is judged depends on it
    idle      the edited code did not run: the workload does not do what needs it

A mistake that changes nothing which anybody could notice survives rightly; of the others each is
something that no rule judges. Exit code 0: the run without any edit passed.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from campaigns.mutants.random.arming import ROOT, armed_environment
from campaigns.mutants.random.edits import Edit, edits_of

__all__ = ["OUTCOMES", "drawn_edits", "outcome_of"]

SCENARIO: Final = ROOT / "campaigns" / "planted" / "short.toml"
OUTCOMES: Final = ("seen", "broken", "stuck", "survived", "idle")
_PRODUCT: Final = ("broker", "client", "namesrv", "remoting")
_UNJUDGED: Final = ("broker.failpoints",)  # the laboratory's own way in
_WALL_S_MAX: Final = 1_800  # of a machine that has much else to do


def drawn_edits(seed: int, count: int, *, only: str = "") -> list[tuple[str, Edit]]:
    """Draw module names and edits; `only` is a text that the module's name has."""
    found = []
    for path in sorted(path for top in _PRODUCT for path in (ROOT / top).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if only in module and not module.startswith(_UNJUDGED):
            found += [(module, edit) for edit in edits_of(path.read_text(encoding="utf-8"))]
    return random.Random(seed).sample(found, min(count, len(found)))


def outcome_of(*, was_executed: bool, run_code: int | None, verdict: str | None) -> str:
    """Name what became of a run: exit code (None or a signal's: killed for its time) and verdict."""
    if not was_executed:
        return "idle"
    if run_code in {None, -signal.SIGXCPU}:
        return "stuck"
    if verdict == "fail":
        return "seen"
    return "survived" if verdict == "pass" else "broken"


def _run(
    scenario: Path, seed: int, folder: Path, environment: Mapping[str, str]
) -> tuple[int | None, str | None, list[str]]:
    """Run and judge; the exit code of the run, the verdict, and the rules that failed."""
    ledgermq, run = [sys.executable, "-m", "ledgermq"], folder / "run"
    words = [*("chaos", "run", str(scenario), "--world", "sim", "--seed", str(seed)), "--no-verify"]
    code = _exit_code([*ledgermq, *words, "--out", str(run)], environment, folder)
    if code in {None, -signal.SIGXCPU}:
        return code, None, []
    _exit_code([*ledgermq, "verify", str(run), "--engine", "duckdb"], _plain(), folder)
    try:
        document = json.loads((run / "verdict.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return code, None, []
    failed = [check["id"] for check in document["checks"] if check["verdict"] == "fail"]
    return code, document["verdict"], failed


def _exit_code(words: Sequence[str], environment: Mapping[str, str], folder: Path) -> int | None:
    with (folder / "said.txt").open("ab") as output:
        try:
            return subprocess.run(
                words,
                env=environment,
                stdout=output,
                stderr=output,
                timeout=_WALL_S_MAX,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return None


def _plain() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _row(number: int, drawn: tuple[str, Edit], options: argparse.Namespace) -> dict[str, Any]:
    module, edit = drawn
    with tempfile.TemporaryDirectory(prefix="random-mutant-") as name:
        folder = Path(name)
        executed = folder / "executed"
        environment = armed_environment(os.environ, module, edit, executed=executed)
        code, verdict, failed = _run(options.scenario, options.run_seed, folder, environment)
        outcome = outcome_of(
            was_executed=executed.exists(), run_code=code, verdict=verdict if code == 0 else None
        )
    row = {
        "number": number,
        "outcome": outcome,
        "rules": failed,
        "module": module,
        "function": edit.function,
        "line": edit.line,
        "kind": edit.kind,
        "before": edit.before,
        "after": edit.after,
    }
    before = " ".join(edit.before.split())
    sys.stderr.write(
        f"{number:4} {outcome:8} {module}:{edit.line} {edit.kind}: {before:.70}"
        f"{' (' + ' '.join(failed) + ')' if failed else ''}\n"
    )
    sys.stderr.flush()
    return row


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1, help="of the draw")
    parser.add_argument("--run-seed", type=int, default=1, help="of the runs")
    parser.add_argument("--scenario", type=Path, default=SCENARIO)
    parser.add_argument("--only", default="", help="a text in the modules' names")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    drawn = drawn_edits(options.seed, options.count, only=options.only)
    with tempfile.TemporaryDirectory(prefix="random-mutant-") as name:
        code, verdict, failed = _run(options.scenario, options.run_seed, Path(name), _plain())
    sys.stderr.write(f"without any edit: {verdict} {' '.join(failed)}\n")
    if (code, verdict) != (0, "pass"):
        return 1
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda at: _row(at[0], at[1], options), enumerate(drawn, start=1)))
    counts = collections.Counter(row["outcome"] for row in rows)
    print(", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        figures = {"seed": options.seed, "scenario": str(options.scenario), "counts": counts}
        options.output.write_text(json.dumps({**figures, "mutants": rows}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
