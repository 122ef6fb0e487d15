"""Processes of a campaign: bounded in time, and gone with whoever is interrupted."""

from __future__ import annotations

import asyncio
import os
import textwrap
from pathlib import Path

import pytest

from campaigns.rig.waiting import until
from chaos.campaign.commands import CommandRunner
from chaos.campaign.plan import Experiment


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package `ledgermq` that writes its pid and sleeps, or fails."""
    package = tmp_path / "ledgermq"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        textwrap.dedent(
            """
            import os, pathlib, subprocess, sys, time  # a program of its own
            if sys.argv[1] == "chaos":
                pathlib.Path(sys.argv[sys.argv.index("--out") + 1]).write_text(str(os.getpid()))
                subprocess.Popen(["sleep", "4"])  # it holds what it inherits
                time.sleep(600)
            sys.exit("one line\\nno Java here")
            """
        )
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def experiment(folder: Path) -> Experiment:
    return Experiment(world="sim", engine="raft", seed=1, scenario_file=folder / "s.toml")


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_run_that_takes_too_long_is_killed(stand_in: Path) -> None:
    runner = CommandRunner(seconds_max=3)
    told = asyncio.run(runner.experiment(experiment(stand_in), stand_in / "pid"))
    assert "killed after 3 s" in told
    assert is_gone(int((stand_in / "pid").read_text()))


def test_an_interrupted_run_is_stopped(stand_in: Path) -> None:
    pid = stand_in / "pid"

    async def main() -> None:
        runner = CommandRunner(seconds_max=600)
        task = asyncio.create_task(runner.experiment(experiment(stand_in), pid))
        await until(lambda: pid.is_file() and pid.read_text(), "the run begins")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert is_gone(int(pid.read_text()))

    asyncio.run(main())


def test_what_a_command_said_last_is_told(stand_in: Path) -> None:
    told = asyncio.run(CommandRunner(seconds_max=60).confirm(stand_in))
    # 1 is a verdict for `verify`; `report` has none.
    assert told == "no Java here"


def test_an_error_of_ours_is_told_by_its_name(stand_in: Path) -> None:
    """Its traceback lies in no file of the run, so that the reason is all that is left of it."""
    (stand_in / "ledgermq" / "__main__.py").write_text(
        "import sys, traceback\n"
        "try:\n    {}['commitlog']\nexcept KeyError:\n    traceback.print_exc()\n"
        "sys.stderr.write('an error of ledgermq itself\\n')\nsys.exit(70)\n"
    )
    runner = CommandRunner(seconds_max=60)
    told = asyncio.run(runner.experiment(experiment(stand_in), stand_in / "pid"))
    assert told == "exit code 70: KeyError: 'commitlog'; an error of ledgermq itself"
