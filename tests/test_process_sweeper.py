"""A test run that is killed takes what it has started with it, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from campaigns.rig.waiting import await_until

# A run that starts a process of its own session, as brokers are, which starts another one.
RUN = """
import subprocess, sys, time
from tests import process_sweeper
process_sweeper.begin()
broker = "import subprocess, sys, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True);"
broker += "time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", broker], stdout=subprocess.PIPE, text=True,
                         start_new_session=True)
print(child.pid, child.stdout.readline().strip(), flush=True)
{end}
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """Of another run: this one."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, None])
def test_what_a_run_has_started_ends_with_it(
    number: signal.Signals | None, bystander: subprocess.Popen[bytes]
) -> None:
    end = "" if number is None else "time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", RUN.format(end=end)], stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None
        started = [int(word) for word in run.stdout.readline().split()]
        assert len(started) == 2
        if number is not None:
            time.sleep(0.5)
            assert all(map(is_alive, started)), "not before the run has ended"
            run.send_signal(number)
        run.wait(30)
        await_until(lambda: not any(map(is_alive, started)), f"{started} have ended")
        assert bystander.poll() is None
