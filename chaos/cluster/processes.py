"""Processes of a cluster on this host: started, signalled, watched, and stopped by name.

Place in the data path: `chaos.cluster.cluster`, `chaos.systems.ledgermq` and `chaos.links.proxies`
start brokers, name servers and proxies with it. Standard output and error of a process go to
`ROOT/output/<name>.log`, appended over restarts; its pid file `ROOT/pids/<name>.json` holds the pid
and the kernel's start time.

Invariants: a process is signalled only where pid and start time both match the pid file, so a pid
that the kernel has re-used is never touched. A program begins only once a pid file names its
process: whenever this one ends, `cluster down` finds all that goes on. Each process leads a session
of its own: Ctrl-C at the terminal reaches the harness alone, and killing one process touches no
other. Where the table `ends_with_us`, its processes end with this one, however this one ends.

Source: proc(5), fields 3 (state) and 22 (starttime) of /proc/<pid>/stat.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.cluster.parent_death import environment_of

__all__ = [
    "PortInUseError",
    "ProcessError",
    "ProcessTable",
    "RunningProcess",
    "check_ports_free",
    "free_ports",
    "ledgermq_argv",
    "process_state",
]

STOP_POLL_S = 0.02
KILL_WAIT_S = 5.0
OUTPUT_TAIL_BYTES = 2000
# Becomes the program once a line comes, and ends where none can come any more.
_GATE = ("/bin/sh", "-c", 'read -r go && exec "$@" </dev/null', "gate")
FREE_PORTS = (15000, 32000)  # Linux hands out 32768..60999 by itself


class ProcessError(Exception):
    """A process could not be started, found or stopped; the text names it."""


class PortInUseError(ProcessError):
    """A port that the cluster needs is in use by another process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProcess:
    """One process. `start_ticks`: field 22 of /proc/<pid>/stat, which tells a re-used pid apart."""

    name: str
    pid: int
    start_ticks: int

    @property
    def alive(self) -> bool:
        return process_state(self.pid, self.start_ticks) not in {"gone", "Z", "X"}


class ProcessTable:
    """The processes of one directory. Not safe for use by two threads at once.

    `ends_with_us`: the kernel kills the processes when the thread that started them ends. Without
    it they live on.
    """

    def __init__(self, root: Path, *, ends_with_us: bool = False) -> None:
        self._root = root
        self._parent = os.getpid() if ends_with_us else None
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        (root / "pids").mkdir(parents=True, exist_ok=True)
        (root / "output").mkdir(parents=True, exist_ok=True)

    def output_file(self, name: str) -> Path:
        return self._root / "output" / f"{name}.log"

    def names(self) -> list[str]:
        return sorted(path.stem for path in (self._root / "pids").glob("*.json"))

    def start(self, name: str, argv: Sequence[str]) -> RunningProcess:
        """Start a process.

        Raises ProcessError where it already runs or the program can't be started.
        """
        running = self.find(name)
        if running is not None:
            raise ProcessError(f"{name} already runs as pid {running.pid}")
        if shutil.which(argv[0]) is None:
            raise ProcessError(f"{name}: can't start {argv[0]}: there is no such program")
        with self.output_file(name).open("ab") as output:
            try:
                child = subprocess.Popen(
                    [*_GATE, *argv],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=environment_of(os.environ, parent=self._parent),
                )
            except OSError as error:
                raise ProcessError(f"{name}: can't start {argv[0]}: {error}") from error
        self._children[name] = child
        assert child.stdin is not None
        try:
            with child.stdin as gate:
                process = self._write_pid_file(name, child.pid, argv)
                gate.write(b"go\n")
        except OSError as error:
            child.wait()  # the gate is closed
            raise ProcessError(f"{name}: can't start {argv[0]}: {error}") from error
        return process

    def _write_pid_file(self, name: str, pid: int, argv: Sequence[str]) -> RunningProcess:
        """Name the process, which stays the same one when it becomes the program."""
        ticks = _start_ticks(pid)
        record = self._pid_file(name)
        draft = record.with_suffix(".tmp")
        draft.write_text(json.dumps({"pid": pid, "start_ticks": ticks, "argv": list(argv)}))
        draft.rename(record)
        return RunningProcess(name=name, pid=pid, start_ticks=ticks)

    def find(self, name: str) -> RunningProcess | None:
        """Return the process of that name where it is alive; reap it where it is our dead child."""
        process = self._read_pid_file(name)
        alive = process is not None and process.alive
        # Reaped behind the question, so that a child that was seen dead is not left a zombie.
        # Another command may have started one of that name since.
        self.exit_code(name)
        return process if alive else None

    def state(self, name: str) -> str:
        """Return the state letter of proc(5) ("S" sleeping, "T" stopped...), or "gone"."""
        process = self.find(name)
        return "gone" if process is None else process_state(process.pid, process.start_ticks)

    def signal(self, name: str, number: signal.Signals) -> RunningProcess:
        """Send the signal. Raises ProcessError where no such process is alive."""
        process = self.find(name)
        if process is None:
            raise ProcessError(f"{name} is not running")
        try:
            os.kill(process.pid, number)
        except ProcessLookupError as error:
            raise ProcessError(f"{name} is not running") from error
        return process

    def exit_code(self, name: str) -> int | None:
        """Return the exit code of our ended child (negative: killed by that signal)."""
        child = self._children.get(name)
        return None if child is None else child.poll()

    def output_tail(self, name: str) -> str:
        """Return the last lines that it printed, for an error's text."""
        try:
            data = self.output_file(name).read_bytes()
        except FileNotFoundError:
            return ""
        return data[-OUTPUT_TAIL_BYTES:].decode("utf-8", "replace").strip()

    def stop(self, names: Sequence[str], *, timeout_s: float = 10.0) -> list[str]:
        """Send SIGTERM to all of them at once (SIGCONT first), SIGKILL to those that outlive it.

        Returns the names that had to be killed. Blocks: call it from a thread in a loop.
        """
        waiting = [process for name in names if (process := self.find(name)) is not None]
        for process in waiting:
            # A paused process handles SIGTERM only once it goes on.
            _signal_quietly(process, signal.SIGCONT)
            _signal_quietly(process, signal.SIGTERM)
        waiting = self._await_end(waiting, timeout_s)
        killed = [process.name for process in waiting]
        for process in waiting:
            _signal_quietly(process, signal.SIGKILL)
        left = self._await_end(waiting, KILL_WAIT_S)
        if left:
            raise ProcessError(f"{left[0].name} (pid {left[0].pid}) outlives SIGKILL")
        for name in names:
            self._pid_file(name).unlink(missing_ok=True)
        return killed

    def _await_end(self, processes: list[RunningProcess], timeout_s: float) -> list[RunningProcess]:
        deadline = time.monotonic() + timeout_s
        waiting = processes
        while True:
            waiting = [process for process in waiting if self.find(process.name) is not None]
            if not waiting or time.monotonic() >= deadline:
                return waiting
            time.sleep(STOP_POLL_S)

    def _read_pid_file(self, name: str) -> RunningProcess | None:
        try:
            record = json.loads(self._pid_file(name).read_text())
            return RunningProcess(
                name=name, pid=int(record["pid"]), start_ticks=int(record["start_ticks"])
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ProcessError(f"pid file of {name} is damaged: {error!r}") from error

    def _pid_file(self, name: str) -> Path:
        return self._root / "pids" / f"{name}.json"


def ledgermq_argv(*arguments: str) -> list[str]:
    """Return the command line of one of our own programs, run by this interpreter."""
    return [sys.executable, "-m", "ledgermq", *arguments]


def process_state(pid: int, start_ticks: int) -> str:
    """Return the state letter of proc(5), or "gone" where the pid is free or re-used; "D" for one
    that was killed and has a thread left."""
    fields = _stat_fields(pid)
    # The list starts at field 3, so starttime (field 22) is at 19.
    if fields is None or int(fields[19]) != start_ticks:
        return "gone"
    # A thread's fsync has not returned: files, locks and ports are still the process's own. The
    # number of threads is field 20.
    return "D" if fields[0] == "Z" and int(fields[17]) > 1 else fields[0]


def check_ports_free(owners: dict[int, str], host: str = "127.0.0.1") -> None:
    """Raise PortInUseError naming the first port that can't be bound and its intended user."""
    for port, owner in owners.items():
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # Connections in TIME_WAIT, of a cluster stopped just before, take no port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                raise PortInUseError(
                    f"port {port} on {host}, needed by {owner}, can't be used: {error.strerror}"
                ) from error


def free_ports(count: int, rng: random.Random, host: str = "127.0.0.1") -> list[int]:
    """Return free ports, below those that the kernel hands out by itself.

    A killed broker leaves its port free for seconds; were it one of the kernel's ephemeral ports,
    any outgoing connection could take it, and the broker could not come back. Raises PortInUseError
    where there are too few.
    """
    low, high = FREE_PORTS
    candidates = rng.sample(range(low, high), high - low)
    found: list[int] = []
    for port in candidates:
        if len(found) == count:
            return found
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((host, port))
            except OSError:
                continue  # in use: no candidate
        found.append(port)
    raise PortInUseError(f"no {count} free ports between {low} and {high} on {host}")


def _stat_fields(pid: int) -> list[str] | None:
    """Return the fields of /proc/<pid>/stat from the state (field 3) on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()  # the command name may hold spaces and brackets


def _start_ticks(pid: int) -> int:
    fields = _stat_fields(pid)
    assert fields is not None, "a child that was not waited for keeps its /proc entry"
    return int(fields[19])


def _signal_quietly(process: RunningProcess, number: signal.Signals) -> None:
    """Send the signal, unless the process has ended by itself meanwhile, which is no error."""
    if process.alive:
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return
