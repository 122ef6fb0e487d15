"""Ends what a test run has started and could not end itself, because the run was killed.

Place: `tests/conftest.py` calls `begin` once per run. It marks the run's environment, which every
process inherits, detached ones too, and starts a watcher in a session of its own: this module as a
program. When the run is gone, for whatever reason, the watcher kills all that bear its mark.

Invariant: a process is killed only where its environment, as it was when it began, bears the mark
of exactly this run; it is held by a file descriptor from before that look to the signal, so that
nobody else with the same pid is met.

Source: proc(5), /proc/<pid>/environ; pidfd_open(2).
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["begin"]

_MARK = "LEDGERMQ_TEST_RUN"
_POLL_S = 0.2
_SWEEPS_MAX = 20  # while one is being killed, it may start another


def begin() -> None:
    """Mark this process's environment, and watch it until it ends."""
    mark = secrets.token_hex(16)
    os.environ[_MARK] = mark
    subprocess.Popen(
        [sys.executable, "-S", __file__, str(os.getpid()), mark],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def _sweep(mark: str) -> int:
    """Kill all that bear the mark; how many."""
    wanted = f"{_MARK}={mark}".encode()
    killed = 0
    for path in Path("/proc").iterdir():
        if not path.name.isdecimal() or int(path.name) == os.getpid():
            continue
        try:
            process = os.pidfd_open(int(path.name))
        except OSError:  # it has ended meanwhile, or is a thread
            continue
        try:
            if wanted in (path / "environ").read_bytes().split(b"\0"):
                signal.pidfd_send_signal(process, signal.SIGKILL)
                killed += 1
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue  # gone, or somebody else's
        finally:
            os.close(process)
    return killed


def _watch(run: int, mark: str) -> None:
    while os.getppid() == run:
        time.sleep(_POLL_S)
    for _ in range(_SWEEPS_MAX):
        if not _sweep(mark):
            return
        time.sleep(_POLL_S)


if __name__ == "__main__":
    _watch(int(sys.argv[1]), sys.argv[2])
