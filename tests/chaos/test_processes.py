"""Processes are started, found again, signalled and stopped by name, and no other is touched."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from campaigns.rig.waiting import await_until, turns, until
from chaos.cluster.layout import fixed_ports, lay_out
from chaos.cluster.processes import (
    PortInUseError,
    ProcessError,
    ProcessTable,
    check_ports_free,
    free_ports,
    process_state,
)
from chaos.systems.ledgermq import LedgermqProcesses

ROOT = Path(__file__).parents[2]
SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('up', flush=True); time.sleep(60)",
]


@pytest.fixture
def table(tmp_path: Path):
    table = ProcessTable(tmp_path)
    yield table
    table.stop(table.names(), timeout_s=0.2)


def test_start_find_kill(table: ProcessTable, tmp_path: Path) -> None:
    started = table.start("a", SLEEPER)
    other = table.start("b", SLEEPER)
    assert table.find("a") == started
    await_until(lambda: "up" in table.output_tail("a"), "it prints")
    table.signal("a", signal.SIGKILL)
    await_until(lambda: table.state("a") == "gone", "killed")
    assert table.exit_code("a") == -signal.SIGKILL
    assert table.find("b") == other
    assert ProcessTable(tmp_path).find("b") == other, "another program finds it by its pid file"


def test_a_process_lives_until_its_last_thread_has_ended(table: ProcessTable) -> None:
    """As one that was killed while a thread waits for the disk: it still has files and ports."""
    script = (
        "import ctypes, sys, threading;"
        "threading.Thread(target=sys.stdin.readline, daemon=True).start();"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    try:
        stat = Path(f"/proc/{child.pid}/stat")

        def letter() -> str:
            return stat.read_text().rpartition(")")[2].split()[0]

        ticks = int(stat.read_text().rpartition(")")[2].split()[19])
        await_until(lambda: letter() == "Z", "its first thread has ended")
        assert process_state(child.pid, ticks) == "D"
    finally:
        child.kill()
        child.communicate()
    assert process_state(child.pid, ticks) == "gone"


def test_pause_and_resume_show_in_the_state(table: ProcessTable) -> None:
    table.start("a", SLEEPER)
    table.signal("a", signal.SIGSTOP)
    await_until(lambda: table.state("a") == "T", "stopped")
    table.signal("a", signal.SIGCONT)
    await_until(lambda: table.state("a") in {"S", "R"}, "goes on")


def test_stop_kills_what_ignores_sigterm(table: ProcessTable) -> None:
    table.start("a", STUBBORN)
    await_until(lambda: "up" in table.output_tail("a"), "handler is set")
    assert table.stop(["a"], timeout_s=0.2) == ["a"]
    assert table.find("a") is None
    assert table.names() == []


def test_a_reused_pid_is_not_ours(table: ProcessTable, tmp_path: Path) -> None:
    record = {"pid": os.getpid(), "start_ticks": 1, "argv": []}
    (tmp_path / "pids" / "ghost.json").write_text(json.dumps(record))
    assert table.find("ghost") is None
    with pytest.raises(ProcessError, match="ghost is not running"):
        table.signal("ghost", signal.SIGTERM)
    assert process_state(os.getpid(), 1) == "gone"


def test_second_start_is_refused(table: ProcessTable) -> None:
    table.start("a", SLEEPER)
    with pytest.raises(ProcessError, match="already runs"):
        table.start("a", SLEEPER)


def test_missing_program_is_named(table: ProcessTable) -> None:
    with pytest.raises(ProcessError, match="no-such-program"):
        table.start("a", ["/no-such-program"])


# Dies where it would give the pid file its name; says before which process it has started.
DYING = (
    "import os, sys; from pathlib import Path; from chaos.cluster.processes import ProcessTable\n"
    "def die(*_):\n"
    "    print(table._children['a'].pid, flush=True)\n"
    "    os._exit(9)\n"
    "Path.rename = die\n"
    "table = ProcessTable(Path(sys.argv[1]))\n"
    "table.start('a', ['sleep', '60'])\n"
)


def test_what_no_pid_file_names_does_not_live_on(tmp_path: Path) -> None:
    starter = subprocess.run(
        [sys.executable, "-c", DYING, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT, check=False
    )
    assert starter.returncode == 9
    pid = int(starter.stdout)

    def has_ended() -> bool:
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"

    try:
        await_until(has_ended, "it ends with its starter, since nobody could find it")
    finally:
        if not has_ended():
            os.kill(pid, signal.SIGKILL)


def test_without_a_pid_file_nothing_is_started(table: ProcessTable, tmp_path: Path) -> None:
    (tmp_path / "pids" / "a.tmp").mkdir()
    with pytest.raises(ProcessError, match=r"a: can't start .*Is a directory"):
        table.start("a", SLEEPER)
    assert table.exit_code("a") is not None
    assert table.output_tail("a") == ""
    assert table.find("a") is None


def test_the_program_has_its_own_arguments_and_no_input(table: ProcessTable) -> None:
    said = "import sys; print(sys.argv[1:], sys.stdin.read() == '')"
    table.start("a", [sys.executable, "-c", said, "a b", "$c"])
    await_until(lambda: table.output_tail("a") == "['a b', '$c'] True", "it prints")


def test_port_in_use_is_named() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(PortInUseError, match=rf"{port}.*needed by broker-a-n0"):
            check_ports_free({port: "broker-a-n0"})


def test_free_ports_are_free_and_distinct() -> None:
    ports = free_ports(20, random.Random(1))
    assert len(set(ports)) == 20
    check_ports_free(dict.fromkeys(ports, "somebody"))


class _Stubborn(LedgermqProcesses):
    def argv(self, node: str) -> list[str]:
        return STUBBORN


async def test_a_terminated_process_is_gone_though_nobody_waits_any_more(tmp_path: Path) -> None:
    node = "broker-a-n0"
    ports = fixed_ports(groups=1, replicas=1, name_servers=1, name_server_port=1, base_port=2)
    processes = _Stubborn(tmp_path, lay_out(groups=1, replicas=1, name_servers=1, ports=ports))
    await processes.restart(node)
    await until(lambda: "up" in processes.table.output_tail(node), "it prints")
    terminating = asyncio.create_task(processes.terminate(node, timeout_s=0.5))
    await turns()
    terminating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await terminating
    # A heal looks next: what still runs, and ends a moment later, would stay down.
    assert processes.state(node) == "gone"
