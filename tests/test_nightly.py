"""The night's campaigns: each is run whatever became of those before it, and the table says so."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from campaigns import nightly
from campaigns.nightly import JOBS, run_all
from campaigns.rig.waiting import await_until

ROOT = Path(__file__).resolve().parents[1]


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", code)


def test_one_that_fails_ends_nothing(tmp_path: Path) -> None:
    jobs = {
        "good": python("print('well')"),
        "bad": python("import sys; sys.exit('badly')"),
        "killed": python("import os; os.kill(os.getpid(), 9)"),
        "missing": (str(tmp_path / "nothing"),),
        "last": python(""),
    }
    rows = run_all(jobs, tmp_path / "figures", tmp_path / "logs", 60)
    assert [(row.name, row.exit_code) for row in rows] == [
        ("good", 0),
        ("bad", 1),
        ("killed", -9),
        ("missing", 127),
        ("last", 0),
    ]
    assert (tmp_path / "logs" / "good.log").read_text() == "well\n"
    assert (tmp_path / "logs" / "bad.log").read_text() == "badly\n"
    told = json.loads((tmp_path / "figures" / "nightly.json").read_text())
    assert [row["exit_code"] for row in told["rows"]] == [0, 1, -9, 127, 0]
    table = (tmp_path / "figures" / "nightly.md").read_text()
    assert re.findall(r"^\| (\w+) \| (-?\d+) \| [\d.]+ \|$", table, re.M) == [
        (row.name, str(row.exit_code)) for row in rows
    ]


def test_one_that_takes_too_long_is_killed_with_what_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    told, seconds = "", 0.5
    while not told:  # on a busy machine it is killed before it has started anything
        seconds *= 2
        (row,) = run_all({"long": python(code)}, tmp_path, tmp_path, seconds)
        assert row.exit_code == 124
        told = (tmp_path / "long.log").read_text()
    pid = int(told)

    def has_ended() -> bool:
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"

    await_until(has_ended, "it has ended too")


def test_a_night_that_is_cut_short_has_its_rows(tmp_path: Path, monkeypatch) -> None:
    run = nightly._run

    def interrupted(command: tuple[str, ...], log: Path, seconds: float) -> int:
        if command == ("never",):
            raise KeyboardInterrupt
        return run(command, log, seconds)

    monkeypatch.setattr(nightly, "_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_all({"a": python(""), "b": ("never",), "c": ("never",)}, tmp_path, tmp_path, 60)
    told = json.loads((tmp_path / "nightly.json").read_text())
    assert [row["name"] for row in told["rows"]] == ["a"]
    assert told["not_run"] == ["b", "c"]


@pytest.mark.parametrize("fails", [False, True])
def test_the_exit_code_says_whether_one_failed(tmp_path: Path, monkeypatch, fails: bool) -> None:
    jobs = {"a": python("import sys; sys.exit(2)" if fails else ""), "b": python("")}
    monkeypatch.setattr(nightly, "JOBS", jobs)
    monkeypatch.setattr(
        sys, "argv", ["nightly", "--output", str(tmp_path), "--logs", str(tmp_path / "logs")]
    )
    assert nightly.main() == int(fails)


def test_each_is_a_target_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert {command[1] for command in JOBS.values()} <= targets
    assert {command[0] for command in JOBS.values()} == {"make"}
