"""Known bugs of RocketMQ: the laboratory has to see each where it is, and not where it is mended.

    python -m campaigns.known_bugs [--only ISSUE ...] [--on has mended ours] [--out DIR]

Place in the data path: `known-bugs.toml` beside this says which scenario shows a bug, and by which
rule; each is run by `ledgermq chaos run` on the release that has it, on the one that mended it, and
on ours in the simulated world; the runs' verdicts are read from DIR, where they stay. Bugs with one
scenario and one release share a run, and one that has a verdict is not run again. The rules are the
verifier's and those of `known-bugs/rules`, which ask for one bug's damage where other damage of the
same kind is what a system never promised to prevent.

Invariants: a row holds only what a verdict said; a run without a verdict is an error of its own,
never a pass. On a release that has the bug seeds are tried until its rule fails; on the others the
first seed is run, and the rule has to pass: one that was left out, or is unknown, shows nothing.

Exit code 0: all as it has to be; 1 else.

Source: etcd's robustness tests, which list the issues that they reproduce.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

__all__ = ["Bug", "KnownBugsError", "Outcome", "Row", "parse_bugs", "table", "try_bug"]

HERE: Final = Path(__file__).resolve().parent
LIST: Final = HERE / "known-bugs.toml"
RULES: Final = HERE / "known-bugs" / "rules"
PLACES: Final = ("has", "mended", "ours")
_SEEDS_MAX: Final = 20
_RUN_TIMEOUT_S: Final = 1_800
_WITNESS_SIZE_MAX: Final = 300
_TEXTS: Final = ("name", "kind", "has", "mended", "engine", "scenario", "rule", "seeds")


class KnownBugsError(Exception):
    """The list is invalid, or a run left no verdict; the text says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One published bug. `scenario` is absolute."""

    name: str
    kind: str
    issue: int
    has: str
    mended: str
    engine: str
    scenario: Path
    rule: str
    seeds: range


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one rule said of a run; `verdict` is "left out" where it did not apply."""

    verdict: str
    violations: int
    witness: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A bug on one system: the last seed that was run, and what its rule said."""

    bug: Bug
    place: str
    seed: int
    outcome: Outcome

    @property
    def is_right(self) -> bool:
        return self.outcome.verdict == ("fail" if self.place == "has" else "pass")


def parse_bugs(text: str, base: Path) -> list[Bug]:
    """Parse the list; scenarios are relative to `base`. Raises KnownBugsError."""
    try:
        entries = tomllib.loads(text)["bugs"]
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise KnownBugsError(f"the list has no [[bugs]]: {error}") from error
    return [_bug(entry, base) for entry in entries]


def try_bug(bug: Bug, places: Sequence[str], run: Callable[[Bug, str, int], Path]) -> list[Row]:
    """Return the bug's row of each of `places`. `run` makes a run and returns its directory."""
    rows = []
    for place in places:
        for seed in bug.seeds:
            outcome = _outcome(run(bug, place, seed), bug.rule)
            if place != "has" or outcome.verdict == "fail":
                break
        rows.append(Row(bug=bug, place=place, seed=seed, outcome=outcome))
    return rows


def table(rows: Sequence[Row]) -> str:
    lines = [
        "| issue | bug | on | seed | rule | verdict | violations | as it has to be |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        bug, outcome = row.bug, row.outcome
        on = "ours" if row.place == "ours" else f"RocketMQ {getattr(bug, row.place)}, {bug.engine}"
        right = "yes" if row.is_right else "no"
        lines.append(
            f"| {bug.issue} | {bug.name} | {on} | {row.seed} | {bug.rule} | {outcome.verdict} |"
            f" {outcome.violations} | {right} |"
        )
    lines += [f"\n{row.bug.issue}: {row.outcome.witness}" for row in rows if row.outcome.witness]
    return "\n".join(lines) + "\n"


def run_in(out: Path) -> Callable[[Bug, str, int], Path]:
    """Return how to run a bug's scenario: by the command line, into a directory of `out`."""

    def run(bug: Bug, place: str, seed: int) -> Path:
        system = "ours" if place == "ours" else f"{getattr(bug, place)}-{bug.engine}"
        directory = out / f"{bug.scenario.stem}-{system}-{seed}"
        if (directory / "verdict.json").is_file():
            return directory
        if directory.exists():  # it was cut off
            shutil.rmtree(directory)
        words = ["chaos", "run", str(bug.scenario), "--seed", str(seed), "--out", str(directory)]
        if place == "ours":
            words += ["--world", "sim"]
        else:
            words += ["--world", "rocketmq", "--engine", bug.engine]
            words += ["--set", f"version={getattr(bug, place)}"]
        judging = ["verify", str(directory), "--engine", "duckdb", "--rules", str(RULES)]
        with (out / f"{directory.name}.log").open("wb") as log:
            for each in ([*words, "--no-verify"], judging):
                _command(each, log)
        return directory

    return run


def _command(words: Sequence[str], log: BinaryIO) -> None:
    """Run the command line. Raises KnownBugsError where it takes too long."""
    command = [sys.executable, "-m", "ledgermq", *words]
    try:
        subprocess.run(command, stdout=log, stderr=log, check=False, timeout=_RUN_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise KnownBugsError(
            f"{words[0]} did not end in {_RUN_TIMEOUT_S} s; see {log.name}"
        ) from error


def _bug(entry: Mapping[str, object], base: Path) -> Bug:
    texts: dict[str, str] = {}
    for key in _TEXTS:
        value = entry.get(key)
        if not isinstance(value, str) or not value:
            raise KnownBugsError(f"a bug needs a text {key!r}, not {value!r}")
        texts[key] = value
    issue = entry.get("issue")
    unknown = sorted(set(entry) - {*_TEXTS, "issue"})
    if not isinstance(issue, int) or unknown:
        raise KnownBugsError(f"{texts['name']}: issue is {issue!r}, unknown keys {unknown}")
    scenario = (base / texts["scenario"]).resolve()
    if not scenario.is_file():
        raise KnownBugsError(f"{texts['name']}: there is no scenario {scenario}")
    return Bug(
        name=texts["name"],
        kind=texts["kind"],
        issue=issue,
        has=texts["has"],
        mended=texts["mended"],
        engine=texts["engine"],
        scenario=scenario,
        rule=texts["rule"],
        seeds=_seeds(texts["seeds"]),
    )


def _seeds(text: str) -> range:
    first, _, last = text.partition("..")
    if not (first.isdecimal() and last.isdecimal()):
        raise KnownBugsError(f"seeds are written FIRST..LAST, not {text!r}")
    seeds = range(int(first), int(last) + 1)
    if not 1 <= len(seeds) <= _SEEDS_MAX:
        raise KnownBugsError(f"seeds {text!r} are not 1 to {_SEEDS_MAX}")
    return seeds


def _outcome(directory: Path, rule: str) -> Outcome:
    try:
        verdict = json.loads((directory / "verdict.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise KnownBugsError(f"{directory} has no verdict: {error}") from error
    for check in verdict["checks"]:
        if check["id"] == rule:
            witnesses = check["witnesses"]
            witness = json.dumps(witnesses[0])[:_WITNESS_SIZE_MAX] if witnesses else ""
            return Outcome(
                verdict=check["verdict"], violations=check["violations"], witness=witness
            )
    return Outcome(verdict="left out", violations=0, witness="")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", type=int, help="numbers of issues")
    parser.add_argument("--on", nargs="+", choices=PLACES, default=list(PLACES))
    parser.add_argument("--out", type=Path, default=HERE.parent / "runs" / "known-bugs")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    try:
        bugs = parse_bugs(LIST.read_text(encoding="utf-8"), HERE)
        rows = [
            row
            for bug in bugs
            if arguments.only is None or bug.issue in arguments.only
            for row in try_bug(bug, arguments.on, run_in(arguments.out))
        ]
    except KnownBugsError as error:
        sys.stderr.write(f"known_bugs: {error}\n")
        return 1
    sys.stdout.write(table(rows))
    return 0 if rows and all(row.is_right for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
