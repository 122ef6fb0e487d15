"""What a killed command leaves behind: nothing that belonged to it, and all that was detached."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from campaigns.rig.waiting import await_until
from chaos.cluster import cluster
from chaos.cluster.parent_death import VARIABLE, die_with_parent, environment_of
from chaos.cluster.processes import ProcessTable

SCENARIOS = Path(__file__).parents[2] / "scenarios"
ROOT = Path(__file__).parents[2]

# Starts one process of ours in the directory argv[1] and goes on; argv[2]: whether it ends with us.
STARTER = (
    "import sys, time; from pathlib import Path; from chaos.cluster.processes import *;"
    "table = ProcessTable(Path(sys.argv[1]), ends_with_us=sys.argv[2] == 'tied');"
    "table.start('toxiproxy', ledgermq_argv('toxiproxy', '--port', '0'));"
    "print('started', flush=True); time.sleep(60)"
)


# The same with a program that is not ours, which heeds no mark.
OTHER_STARTER = STARTER.replace(
    "table.start('toxiproxy', ledgermq_argv('toxiproxy', '--port', '0'))",
    "table.start('sleep', [sys.executable, '-m', 'chaos.cluster.parent_death', 'sleep', '60'])",
)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[ProcessTable]:
    yield (table := ProcessTable(tmp_path))
    table.stop(table.names(), timeout_s=1)


def _start_and_kill(
    tmp_path: Path,
    how: str,
    before_kill: Callable[[], None] = lambda: None,
    program: str = STARTER,
) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path), how], stdout=subprocess.PIPE, cwd=ROOT
    )
    with starter:
        try:
            assert starter.stdout is not None
            assert starter.stdout.readline() == b"started\n"
            before_kill()
        finally:
            starter.kill()


def _serves(table: ProcessTable) -> bool:
    return "listening" in table.output_tail("toxiproxy")


def test_what_is_tied_ends_with_its_starter(table: ProcessTable, tmp_path: Path) -> None:
    _start_and_kill(tmp_path, "tied", lambda: await_until(lambda: _serves(table), "it serves"))
    await_until(lambda: table.find("toxiproxy") is None, "killed by the kernel")


def test_a_program_that_is_not_ours_ends_with_its_starter(
    table: ProcessTable, tmp_path: Path
) -> None:
    def name() -> str:
        process = table.find("sleep")
        return "" if process is None else Path(f"/proc/{process.pid}/comm").read_text()

    def await_the_program() -> None:
        await_until(lambda: name() == "sleep\n", "it has become the program")

    _start_and_kill(tmp_path, "tied", await_the_program, OTHER_STARTER)
    await_until(lambda: table.find("sleep") is None, "killed by the kernel")


def test_killed_before_the_child_has_begun(table: ProcessTable, tmp_path: Path) -> None:
    _start_and_kill(tmp_path, "tied")
    await_until(lambda: table.find("toxiproxy") is None, "it sees that its parent is another")


def test_what_is_paused_ends_too(table: ProcessTable, tmp_path: Path) -> None:
    def pause() -> None:
        await_until(lambda: _serves(table), "it serves")
        table.signal("toxiproxy", signal.SIGSTOP)
        await_until(lambda: table.state("toxiproxy") == "T", "it is paused")

    _start_and_kill(tmp_path, "tied", pause)
    await_until(lambda: table.find("toxiproxy") is None, "killed although it is stopped")


def test_what_is_not_tied_lives_on(table: ProcessTable, tmp_path: Path) -> None:
    _start_and_kill(tmp_path, "free", lambda: await_until(lambda: _serves(table), "it serves"))
    found = table.find("toxiproxy")
    assert found is not None
    mark = f"{VARIABLE}=".encode()
    assert mark not in Path(f"/proc/{found.pid}/environ").read_bytes()


def test_the_mark_is_for_one_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    marked = environment_of({"A": "1"}, parent=7)
    assert marked == {"A": "1", VARIABLE: "7"}
    assert environment_of(marked, parent=None) == {"A": "1"}
    monkeypatch.delenv(VARIABLE, raising=False)
    die_with_parent()  # not marked: nothing happens


@pytest.mark.cluster
@pytest.mark.parametrize(
    "seen", ["pids/toxiproxy.json", "pids/broker-a-n1.json", "history.msgpack"]
)
def test_a_killed_experiment_leaves_no_process(tmp_path: Path, seen: str) -> None:
    """Killed at any time: while it starts its processes, and in the middle of its load."""
    run = tmp_path / "run"
    words = ["chaos", "run", str(SCENARIOS / "smoke.toml"), "--out", str(run), "--no-verify"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ledgermq", *words], stderr=subprocess.DEVNULL
    )
    with process:
        try:
            await_until((run / seen).exists, f"the run is at {seen}", 60)
        finally:
            process.kill()
    table = ProcessTable(run)
    assert table.names()
    await_until(lambda: all(table.find(name) is None for name in table.names()), "all have ended")


@pytest.mark.cluster
def test_a_killed_foreground_cluster_leaves_no_process(tmp_path: Path) -> None:
    arguments = ["cluster", "up", str(tmp_path), "--namesrv-port", "0", "--base-port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "ledgermq", *arguments, "--replicas", "1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert "name servers" in process.stdout.readline()
            os.kill(process.pid, signal.SIGKILL)
        finally:
            process.kill()
    table = ProcessTable(tmp_path)
    assert len(table.names()) == 3
    await_until(lambda: all(table.find(name) is None for name in table.names()), "all have ended")
    again = cluster.up(
        tmp_path, replicas=1, namesrv_port=0, base_port=0, detach=True, report=lambda _: None
    )
    assert [node.role for node in again.nodes] == ["leader"]
    cluster.down(tmp_path)
