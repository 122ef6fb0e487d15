"""Runs and judges one experiment by the command line, in a process of its own.

Of the simulated world, whose runs are short, the process is a fork of one that has imported all
that such a run needs (`chaos.campaign.fork_server`): half of a run's processor time. Spark confirms
runs in a process that stays, with one session for all.

Place in the data path: what `chaos.campaign.campaign` and `chaos.campaign.minimise` call a Runner.
The verdict is read from the run directory, not from what is printed, so that this package knows
nothing of the verifier.

Invariants: a process of a run ends with this one, even with a killed one, and takes the processes
that it started with it; one that takes longer than the bound is stopped and then killed; what it
prints is bounded by that, and only its end is reported.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from chaos.campaign.fork_server import ForkServer, ForkServerError
from chaos.campaign.plan import SIMULATED, Experiment
from chaos.cluster.parent_death import environment_of

__all__ = ["CommandRunner"]

STOP_SECONDS_MAX: Final = 60.0
_FINISHED: Final = frozenset({0, 1, 2})  # the exit codes of verdicts
_KILLED: Final = -1
_REPORTED_MAX: Final = 500
_TAIL: Final = 4_096


class CommandRunner:
    """A Runner whose experiments are `ledgermq chaos run`. Enter it in the main thread.

    The kernel ends the processes when the thread that started them does. `fork_server`: the
    command whose forks run the experiments of the simulated world; `judge_server`: the one that
    confirms runs; None: those start anew, too.
    """

    def __init__(
        self,
        *,
        seconds_max: float,
        fork_server: Sequence[str] | None = None,
        judge_server: Sequence[str] | None = None,
    ) -> None:
        self._seconds_max = seconds_max
        self._fork_server = fork_server
        self._judge_server = judge_server
        self._idle: dict[tuple[str, ...], list[ForkServer]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for servers in self._idle.values():
            while servers:
                await servers.pop().close()

    async def experiment(self, of: Experiment, out: Path) -> str:
        words = [*of.words, "--out", str(out), "--judge", "duckdb"]
        code, output = await self._run(words, self._fork_server if of.world == SIMULATED else None)
        return output if code else ""

    async def confirm(self, out: Path) -> str:
        words = ["verify", str(out), "--engine", "both"]
        code, output = await self._run(words, self._judge_server)
        trouble = "" if code in _FINISHED else output
        code, output = await self._run(["report", str(out)], self._judge_server)
        return trouble or (output if code else "")

    async def _run(self, words: list[str], argv: Sequence[str] | None) -> tuple[int, str]:
        return await (self._command(words) if argv is None else self._served(words, tuple(argv)))

    async def _served(self, words: list[str], argv: tuple[str, ...]) -> tuple[int, str]:
        """Like `_command`, by a server, which is idle again once its command has ended."""
        idle = self._idle.setdefault(argv, [])
        server = idle.pop() if idle else ForkServer(argv)
        code: int | None = None
        try:
            with tempfile.NamedTemporaryFile() as stderr:
                starting = asyncio.ensure_future(server.start(words, stderr=Path(stderr.name)))
                try:
                    # Shielded: whoever is interrupted here has to know whom to stop.
                    await asyncio.shield(starting)
                    async with asyncio.timeout(self._seconds_max):
                        code = await server.wait()
                except TimeoutError:
                    return _KILLED, self._too_long(words)
                finally:
                    if code is None:
                        await asyncio.shield(_stop_fork(starting, server))
                end = _end_of(stderr.file)
        except ForkServerError as error:
            return _KILLED, str(error)
        finally:
            if code is None:  # it may have half an answer to give
                await asyncio.shield(server.close())
            else:
                idle.append(server)
        return code, end if code in _FINISHED else f"exit code {code}: {end}"

    async def _command(self, words: list[str]) -> tuple[int, str]:
        """Return the exit code, and the end of what it printed or why it was killed."""
        # A file, and no pipe: whoever it started may hold that open for longer than it lives.
        with tempfile.TemporaryFile() as stderr:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "ledgermq", *words),
                env=environment_of(os.environ, parent=os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C reaches the campaign, which stops it
            )
            try:
                async with asyncio.timeout(self._seconds_max):
                    code = await process.wait()
            except TimeoutError:
                return _KILLED, self._too_long(words)
            finally:
                await asyncio.shield(_stop(process))
            end = _end_of(stderr)
        return code, end if code in _FINISHED else f"exit code {code}: {end}"

    def _too_long(self, words: list[str]) -> str:
        return f"`{words[0]}` was killed after {self._seconds_max:g} s, the bound"


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Have a process that still runs clean up and end, or kill it and what it has started."""
    with contextlib.suppress(ProcessLookupError):
        if process.returncode is None:
            process.send_signal(signal.SIGINT)  # which every command heeds
            await _ended(process)
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await _ended(process)


async def _stop_fork(starting: asyncio.Future[int], server: ForkServer) -> None:
    """Have a fork that still runs clean up and end, or kill it and what it has started."""
    try:
        async with asyncio.timeout(STOP_SECONDS_MAX):
            pid = await starting
    except (ForkServerError, TimeoutError):
        return  # none has begun
    with contextlib.suppress(ForkServerError, TimeoutError):
        os.kill(pid, signal.SIGINT)  # the server has not reaped it, so the id is its own
        async with asyncio.timeout(STOP_SECONDS_MAX):
            await server.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


async def _ended(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(STOP_SECONDS_MAX):
            await process.wait()


def _end_of(stderr: IO[bytes]) -> str:
    """Return the last line of a file, as far as reports go; after a traceback its error, too."""
    size = stderr.seek(0, os.SEEK_END)
    stderr.seek(max(0, size - _TAIL))
    lines = stderr.read().decode(errors="replace").strip().splitlines()
    if not lines:
        return "it printed nothing"
    is_error = any(line.startswith('  File "') for line in lines[:-1])
    return "; ".join(lines[-2:] if is_error else lines[-1:])[-_REPORTED_MAX:]
