"""Run directories that can't be judged: 2 or 70, never 1, no traceback with 2, and nobody waits."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from campaigns.rig.processes import ledgermq
from tests.verify.stored_run import segments, stored_run
from tests.verify.synthetic import SyntheticRun, write_manifest

OPS = "history/part-0.parquet"


def _rename(run: Path, name: str) -> None:
    manifest = json.loads((run / "run.json").read_text())
    manifest["tables"]["ops"]["files"][0]["name"] = name
    write_manifest(run, manifest)


def _link_in_a_circle(run: Path) -> None:
    (run / OPS).unlink()
    (run / OPS).symlink_to((run / OPS).name)


def _pipe(run: Path, name: str) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)


def _forget_segment(run: Path) -> None:
    manifest = json.loads((run / "run.json").read_text())
    files = manifest["tables"]["nodes"]["files"]
    gone = segments(run, "n1")[0].relative_to(run).as_posix()
    files.remove(next(file for file in files if file["name"] == gone))
    write_manifest(run, manifest)


CASES: dict[str, Callable[[Path], object]] = {
    "a folder in the place of verdict.json": lambda run: (run / "verdict.json").mkdir(),
    "NUL in a listed name": lambda run: _rename(run, "history/\0"),
    "a listed name that is its own link": _link_in_a_circle,
    "a listed pipe": lambda run: _pipe(run, OPS),
    "a pipe for a manifest": lambda run: _pipe(run, "run.json"),
    "an unlisted segment of a store": _forget_segment,
}


def _run(directory: Path, case: str) -> Path:
    if "store" in case:
        stored_run(directory)
    else:
        SyntheticRun().write(directory)
    CASES[case](directory)
    return directory


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_judged_is_never_a_finding(case: str, tmp_path: Path) -> None:
    done = ledgermq("verify", _run(tmp_path, case), "--engine", "duckdb")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "verdict: unknown" in done.stdout


@pytest.mark.parametrize("case", CASES)
def test_its_report_waits_for_nobody(case: str, tmp_path: Path) -> None:
    done = ledgermq("report", _run(tmp_path, case))
    assert done.returncode in {0, 2, 70}, done.stderr
    assert (done.returncode == 70) or "Traceback" not in done.stderr
