"""Exit codes: 1 is a finding and nothing else; what nobody foresaw is 70, with its traceback."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.main import get_command

from campaigns.rig.processes import ledgermq, ledgermq_here, one_line
from ledgermq.cli import app

SCENARIO = (Path(__file__).parents[2] / "scenarios" / "smoke.toml").read_bytes()
UNFORESEEN = [
    RuntimeError("x"),
    AssertionError("x"),
    KeyError("x"),
    OSError(5, "x"),
    BrokenPipeError(32, "of a socket, not of our output"),
    MemoryError(),
    RecursionError(),
    UnicodeDecodeError("utf-8", b"x", 0, 1, "x"),
    asyncio.CancelledError(),
    ExceptionGroup("x", [ValueError("y")]),
    BaseExceptionGroup("x", [GeneratorExit()]),
    SystemExit("a text, which Python would end with code 1 for"),
]


def commands(node: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that there is, as its words."""
    below = getattr(node, "commands", None)
    if below is None:
        yield path
        return
    for name, command in below.items():
        yield from commands(command, (*path, name))


COMMANDS = list(commands(get_command(app)))
ARGUMENTS = {"DIR": "d", "NODE": "n", "SCENARIO.toml": "s", "RUN": "r", "TOPIC": "t"}


def command_line(path: tuple[str, ...]) -> list[str]:
    """The shortest command line that the parser takes."""
    node = get_command(app)
    for name in path:
        node = node.commands[name]  # type: ignore[attr-defined]
    words = list(path)
    for parameter in node.params:
        if parameter.required and parameter.param_type_name == "argument":
            words.append("x")
        elif parameter.required:
            words += [parameter.opts[0], "x"]
    return words


def test_every_command_is_found() -> None:
    assert ("cluster", "member", "add") in COMMANDS
    assert ("chaos", "run") in COMMANDS
    assert len(COMMANDS) > 20


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_what_nobody_foresaw_is_70_in_every_command(path: tuple[str, ...]) -> None:
    with mock.patch("typer.core.TyperCommand.invoke", side_effect=RuntimeError("unforeseen")):
        done = ledgermq_here(*command_line(path))
    assert done.returncode == 70, done.stderr
    assert "RuntimeError: unforeseen" in done.stderr


@pytest.mark.parametrize("error", UNFORESEEN, ids=lambda error: type(error).__name__)
def test_whatever_it_is_it_is_70(error: BaseException) -> None:
    with mock.patch("ledgermq.doctor.examine", side_effect=error):
        done = ledgermq_here("doctor")
    assert done.returncode == 70, done.stderr
    assert type(error).__name__ in done.stderr
    assert done.stderr.endswith("nothing is proven by it\n")


def test_an_interrupt_is_130() -> None:
    with mock.patch("ledgermq.doctor.examine", side_effect=KeyboardInterrupt()):
        assert ledgermq_here("doctor").returncode == 130


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_whatever_the_file_the_command_line_is_wrong(data: st.DataObject) -> None:
    """A scenario with bytes changed, cut out or put in, run in a world that there isn't."""
    text = bytearray(SCENARIO)
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(text)))
        text[at : at + data.draw(st.integers(0, 20))] = data.draw(st.binary(max_size=8))
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(text)
        file.flush()
        line = one_line(ledgermq_here("chaos", "run", file.name, "--world", "moon"), 64)
    assert file.name in line or "'moon'" in line


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--toxiproxy", "http://["), "no URL"),
        (("--toxiproxy", "localhost:8474"), "no URL"),
        (("--toxiproxy", "http://127.0.0.1:nought"), "no URL"),
        (("--toxiproxy", ""), "no URL"),
        (("--engine", "paxos"), "paxos"),
        (("--seed", "x"), "--seed"),
        (("--out", "/dev/null/x"), "/dev/null/x"),
    ],
)
def test_options_of_an_experiment(tmp_path: Path, options: tuple[str, ...], named: str) -> None:
    path = tmp_path / "s.toml"
    path.write_bytes(SCENARIO)
    assert named in one_line(ledgermq_here("chaos", "run", path, *options), 64)


def test_a_scenario_of_no_bytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_bytes(b"")
    assert "it is empty" in one_line(ledgermq_here("chaos", "run", path), 64)


def test_a_reader_that_goes_away_is_no_error() -> None:
    """`ledgermq chaos faults | head -0`"""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "ledgermq", "chaos", "faults"],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_real_process_ends_so_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import typer.core\n"
        "def broken(*_): raise ZeroDivisionError('planted')\n"
        "typer.core.TyperCommand.invoke = broken\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = ledgermq("doctor", environment=environment)
    assert done.returncode == 70, done.stderr
    assert "ZeroDivisionError: planted" in done.stderr


def test_a_judge_that_nobody_knows_is_told_before_the_experiment(tmp_path: Path) -> None:
    scenario = tmp_path / "smoke.toml"
    scenario.write_bytes(SCENARIO)
    out = tmp_path / "run"
    words = ["chaos", "run", str(scenario), "--world", "sim", "--judge", "nobody"]
    said = one_line(ledgermq(*words, "--out", str(out)), 64)
    assert "'nobody' is none of both, duckdb, spark" in said
    assert not out.exists(), "nothing has run"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[1]", None])
def test_a_directory_that_is_none_of_a_cluster_is_told_so(
    tmp_path: Path, content: bytes | None
) -> None:
    directory = tmp_path / "cluster"
    if content is None:
        directory.write_bytes(b"a file")
    else:
        directory.mkdir()
        (directory / "cluster.json").write_bytes(content)
    for words in (["cluster", "status"], ["cluster", "down"], ["chaos", "status"]):
        assert "cluster" in one_line(ledgermq(*words, str(directory)), 2)


def test_a_host_that_is_no_name_is_told_in_one_line() -> None:
    assert "can't listen" in one_line(ledgermq("toxiproxy", "--host", "a" * 70, "--port", "0"), 2)


def test_a_host_without_an_address_is_told_in_one_line() -> None:
    nowhere = "::1%nowhere"  # which is asked of no resolver
    for words in (
        ("toxiproxy", "--host", nowhere, "--port", "0"),
        ("namesrv", "--listen", f"[{nowhere}]:0"),
    ):
        line = one_line(ledgermq(*words), 2)
        assert nowhere in line
        assert line.endswith(": Name or service not known")
