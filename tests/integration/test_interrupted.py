"""Ctrl-C and SIGTERM: each command that takes long says what it leaves, and leaves no process."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from campaigns.rig.processes import running
from campaigns.rig.waiting import await_until
from chaos.cluster.processes import ProcessTable
from ledgermq.interrupts import stop_signals_interrupt
from tests.verify.synthetic import SyntheticRun

SCENARIOS = Path(__file__).parents[2] / "scenarios"
IGNORED = pytest.mark.parametrize(
    "ignoring", [(), (signal.SIGINT,)], ids=["as started by a person", "as by a script's &"]
)


def children_of(pid: int) -> set[int]:
    """Every process below `pid`."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            below = {int(word) for word in (task / "children").read_text().split()}
        except FileNotFoundError:  # the thread has ended meanwhile
            continue
        found |= below.union(
            *(children_of(each) for each in below if Path(f"/proc/{each}").exists())
        )
    return found


def await_line(process: subprocess.Popen[str], part: str) -> str:
    """Read its stderr up to a line that says so; pytest's own limit ends a wait for ever."""
    assert process.stderr is not None
    for line in process.stderr:
        if part in line:
            return line
    raise AssertionError(f"it ended before it said {part!r}")


@IGNORED
@pytest.mark.cluster
def test_an_experiment(tmp_path: Path, ignoring: tuple[signal.Signals, ...]) -> None:
    run = tmp_path / "run"
    scenario = SCENARIOS / "pause-leader.toml"
    with running(
        "chaos", "run", scenario, "--seed", "1", "--out", run, ignoring=ignoring
    ) as process:
        await_until((run / "history.msgpack").exists, "the load has begun", 60)
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=60)[1]
        assert process.returncode == 130, err
    last = err.splitlines()[-1]
    assert f"interrupted: no process is left; {run} holds" in last
    assert f"`ledgermq verify {run}` can only answer unknown" in last
    assert "Traceback" not in err
    assert ProcessTable(run).names() == []
    assert json.loads((run / "run.json").read_text())["complete"] is False


@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_verification(tmp_path: Path, number: signal.Signals) -> None:
    run = SyntheticRun().write(tmp_path / "run")
    with running("verify", run, ignoring=[signal.SIGINT]) as process:
        await_line(process, "spark: reading the tables")
        below = children_of(process.pid)
        assert below, "Spark's JVM runs"
        process.send_signal(number)
        err = process.communicate(timeout=60)[1]
        assert process.returncode == 130, err
    last = err.splitlines()[-1]
    assert "interrupted: no process is left, verdict.json is of the first engine alone" in last
    assert f"again: ledgermq verify {run}" in last
    verdict = json.loads((run / "verdict.json").read_text(encoding="utf-8"))
    assert (verdict["engines"], verdict["verdict"]) == (["duckdb"], "unknown")
    await_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), "they have ended")


def test_an_interrupt_in_a_finaliser_is_not_lost() -> None:
    class Finalised:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)
            threading.Event().wait(0)  # here the handler runs, and Python discards its exception

    def work() -> None:
        with stop_signals_interrupt():
            Finalised()
            threading.Event().wait(20)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        signal.signal(signal.SIGINT, before)


@IGNORED
def test_a_campaign_of_the_simulator(ignoring: tuple[signal.Signals, ...]) -> None:
    with running("sim", "--seeds", "1..100000", "--kind", "core", ignoring=ignoring) as process:
        await_until(lambda: len(children_of(process.pid)) >= 2, "two workers work")
        below = children_of(process.pid)
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=60)[1]
        assert process.returncode == 130, err
    assert "of 100000 seeds, 0 of them failed" in err.splitlines()[-1]
    assert "Traceback" not in err
    await_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), "they have ended")


def test_a_killed_campaign_leaves_no_worker() -> None:
    with running("sim", "--seeds", "1..100000", "--kind", "core") as process:
        await_until(lambda: len(children_of(process.pid)) >= 2, "two workers work")
        time.sleep(0)  # whatever they are at
        below = children_of(process.pid)
        process.kill()
        process.wait(timeout=20)
    await_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below), "they have ended")
