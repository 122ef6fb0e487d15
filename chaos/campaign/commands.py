"""Runs and judges one experiment by the command line, in a process of its own.

Place in the data path: what `chaos.campaign.campaign` and `chaos.campaign.minimise` call a Runner.
The verdict is read from the run directory, not from what is printed, so that this package knows
nothing of the verifier.

Invariants: a process of a run ends with this one, even with a killed one, and takes the processes
that it started with it; one that takes longer than the bound is stopped and then killed; what it
prints is bounded by that, and only its end is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import IO, Final

from chaos.campaign.plan import Experiment
from chaos.cluster.parent_death import environment_of

__all__ = ["CommandRunner"]

STOP_SECONDS_MAX: Final = 60.0
_FINISHED: Final = frozenset({0, 1, 2})  # the exit codes of verdicts
_KILLED: Final = -1
_TOLD_MAX: Final = 500
_TAIL: Final = 4_096


class CommandRunner:
    """A Runner whose experiments are `ledgermq chaos run`. Call it in the main thread.

    The kernel ends the processes when the thread that started them does.
    """

    def __init__(self, *, seconds_max: float) -> None:
        self._seconds_max = seconds_max

    async def experiment(self, of: Experiment, out: Path) -> str:
        code, told = await self._command([*of.words, "--out", str(out), "--judge", "duckdb"])
        return told if code else ""

    async def confirm(self, out: Path) -> str:
        code, told = await self._command(["verify", str(out), "--engine", "both"])
        trouble = "" if code in _FINISHED else told
        code, told = await self._command(["report", str(out)])
        return trouble or (told if code else "")

    async def _command(self, words: list[str]) -> tuple[int, str]:
        """Return the exit code, and the end of what it said or why it was killed."""
        # A file, and no pipe: whoever it started may hold that open for longer than it lives.
        with tempfile.TemporaryFile() as said:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "ledgermq", *words),
                env=environment_of(os.environ, parent=os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,  # Ctrl-C reaches the campaign, which stops it
            )
            try:
                async with asyncio.timeout(self._seconds_max):
                    code = await process.wait()
            except TimeoutError:
                return _KILLED, f"`{words[0]}` was killed after {self._seconds_max:g} s, the bound"
            finally:
                await asyncio.shield(_stop(process))
            end = _end_of(said)
        return code, end if code in _FINISHED else f"exit code {code}: {end}"


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Have a process that still runs clean up and end, or kill it and what it has started."""
    with contextlib.suppress(ProcessLookupError):
        if process.returncode is None:
            process.send_signal(signal.SIGINT)  # which every command heeds
            await _ended(process)
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await _ended(process)


async def _ended(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS_MAX):
            await process.wait()


def _end_of(said: IO[bytes]) -> str:
    """Return the last line of a file, as far as it is told."""
    size = said.seek(0, os.SEEK_END)
    said.seek(max(0, size - _TAIL))
    lines = said.read().decode(errors="replace").strip().splitlines()
    return lines[-1][-_TOLD_MAX:] if lines else "it printed nothing"
