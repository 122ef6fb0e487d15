"""One scenario in all five worlds, and their verdicts beside one another.

    python -m campaigns.five_worlds [--only WORLD ...] [--seed 1] [--version 5.5.0] [--out DIR]

The world `external` gets a cluster of this project that `campaigns.brought_cluster` runs; Apache
RocketMQ runs as DLedger with three replicas. Runs stay in DIR, with a log each; one that has a
verdict already is not run again.

Exit code 0: every world gave a verdict, whatever it was; 1 else.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

__all__ = ["WORLDS", "Row", "row_of", "table"]

ROOT: Final = Path(__file__).resolve().parent.parent
SCENARIO: Final = ROOT / "scenarios" / "five-worlds.toml"
WORLDS: Final = ("local", "netns", "sim", "external", "rocketmq")
_RUN_S_MAX: Final = 1_800
_STOP_S_MAX: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one world gave. `faults`: name = effects; `failed`, `unknown`: ids of checks."""

    world: str
    system: str
    verdict: str
    passed: int
    failed: tuple[str, ...]
    unknown: tuple[str, ...]
    faults: Mapping[str, str]
    command: str


def words_of(world: str, seed: int, version: str, out: Path) -> list[str]:
    """Return the arguments of `ledgermq` that run the scenario in that world."""
    words = ["chaos", "run", str(SCENARIO.relative_to(ROOT)), "--world", world]
    if world == "external":
        words += ["--set", f"file={out / 'brought' / 'cluster.toml'}"]
    if world == "rocketmq":
        words += ["--set", f"version={version}", "--set", "links=netns", "--engine", "dledger"]
    return [*words, "--seed", str(seed), "--judge", "duckdb", "--out", str(out / world)]


def row_of(world: str, run: Path, command: str) -> Row:
    """Read what a run left. Raises OSError, ValueError where it has no verdict."""
    verdict: dict[str, Any] = json.loads((run / "verdict.json").read_text(encoding="utf-8"))
    manifest: dict[str, Any] = json.loads((run / "run.json").read_text(encoding="utf-8"))
    checks = verdict["checks"]

    def ids(word: str) -> tuple[str, ...]:
        return tuple(check["id"] for check in checks if check["verdict"] == word)

    return Row(
        world=world,
        system=f"{manifest['system']} {manifest['version']}, {manifest['engine']}",
        verdict=verdict["verdict"],
        passed=len(ids("pass")),
        failed=ids("fail"),
        unknown=ids("unknown"),
        faults={
            name: ", ".join(f"{count} {effect}" for effect, count in effects.items())
            for name, effects in verdict["coverage"].get("faults", {}).items()
        },
        command=command,
    )


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table, and the commands below it."""
    lines = [
        "| world | system | verdict | checks passed | failed | unknown | faults |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        faults = "; ".join(f"{name}: {effects}" for name, effects in row.faults.items())
        lines.append(
            f"| {row.world} | {row.system} | {row.verdict} | {row.passed} |"
            f" {' '.join(row.failed) or '-'} | {' '.join(row.unknown) or '-'} | {faults} |"
        )
    return "\n".join([*lines, "", "```", *(row.command for row in rows), "```"]) + "\n"


@contextmanager
def _brought(out: Path) -> Iterator[None]:
    """Run a cluster of this project for the world `external` while the context lasts."""
    words = [sys.executable, "-m", "campaigns.brought_cluster", str(out / "brought")]
    with (
        (out / "brought.log").open("wb") as log,
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        try:
            assert process.stdout is not None
            if not process.stdout.readline():  # it ended: nothing was brought
                raise OSError(f"no cluster was brought: see {log.name}")
            yield
        finally:
            process.terminate()
            process.wait(_STOP_S_MAX)


def _run(world: str, words: Sequence[str], out: Path) -> None:
    with (out / f"{world}.log").open("wb") as log:
        subprocess.run(
            [sys.executable, "-m", "ledgermq", *words],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            check=False,
            timeout=_RUN_S_MAX,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--version", default="5.5.0", help="of RocketMQ")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "five-worlds")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    rows, missing = [], False
    for world in arguments.only:
        words = words_of(world, arguments.seed, arguments.version, out)
        try:
            if not (out / world / "verdict.json").is_file():
                if world == "external":
                    with _brought(out):
                        _run(world, words, out)
                else:
                    _run(world, words, out)
            rows.append(row_of(world, out / world, shlex.join(["ledgermq", *words])))
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            sys.stderr.write(f"five_worlds: {world} gave no verdict: {error}\n")
            missing = True
    sys.stdout.write(table(rows))
    return int(missing)


if __name__ == "__main__":
    sys.exit(main())
