"""Commands that begin with everything ready: as forks of a process that stays, or within it.

Place in the data path: `chaos.campaign.commands` starts a ForkServer for each run that is under
way at once; its other end, `serve`, is called by a program that has imported beforehand what its
commands need (`ledgermq.fork_server`), or `serve_here` by one whose commands share what can't be
forked (`ledgermq.judge_server`: a Java machine). A line of JSON goes each way:

    {"words": [...], "said": "/path"}   the command, and the file that gets its standard error
    {"pid": 17}                         it runs, as leader of a session and process group
    {"code": 0}                         it has ended; negative: the number of a signal

Invariants: one command at a time; its process is reaped only when the next one is requested, so
that its id stays its own for whoever signals it; it dies with the server, and that with its parent;
a fork shares nothing with its siblings but what was there before any of them. A command within the
server has the server's id: whoever stops it stops both.

Source: CPython's multiprocessing.forkserver, whose children run a function and no command.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from chaos.cluster.parent_death import die_with_parent, end_with_parent, environment_of

__all__ = ["ForkServer", "ForkServerError", "serve", "serve_here"]

_INTERNAL_ERROR: Final = 70  # sysexits(3), EX_SOFTWARE


class ForkServerError(Exception):
    """The server has ended, or can't be started; nothing is known of its command."""


class _Command(msgspec.Struct, forbid_unknown_fields=True):
    words: list[str]
    said: str


class ForkServer:
    """One server, `argv` and what it forks. Call it in a thread that lives as long as it shall."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = argv
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, words: Sequence[str], *, stderr: Path) -> int:
        """Start a command and return its process id. Raises ForkServerError."""
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                env=environment_of(os.environ, parent=os.getpid()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(msgspec.json.encode(_Command(words=list(words), said=str(stderr))) + b"\n")
        return await self._answer("pid")

    async def wait(self) -> int:
        """Return the exit code of the command that was started last. Raises ForkServerError."""
        return await self._answer("code")

    async def close(self) -> None:
        """End the server, and a command that still runs."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _answer(self, key: str) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        try:
            return msgspec.json.decode(line, type=dict[str, int])[key]
        except (msgspec.DecodeError, KeyError) as error:
            raise ForkServerError(f"the process that starts runs said {line!r}") from error


def serve(run_command: Callable[[], object]) -> None:
    """Serve until standard input ends.

    `run_command` is called in the process of each command, whose words are `sys.argv` from 1 on;
    its end is SystemExit. It must start no thread before it is called.
    """
    die_with_parent()
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    gc.collect()
    gc.freeze()  # what was imported is never garbage; looking for it would copy all of its pages
    pid = 0
    for line in requests:
        if pid:
            os.waitpid(pid, 0)
        command = msgspec.json.decode(line, type=_Command)
        server = os.getpid()
        pid = os.fork()
        if not pid:
            _become(command, server, run_command)
        _write(answers.fileno(), {"pid": pid})
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        was_killed = ended.si_code != os.CLD_EXITED
        _write(answers.fileno(), {"code": -ended.si_status if was_killed else ended.si_status})


def serve_here(run_command: Callable[[], int]) -> None:
    """Serve like `serve`, but call `run_command`, which returns the exit code, in this process.

    Its standard output is discarded. What it raises ends the server.
    """
    die_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    answers = os.dup(sys.stdout.fileno())
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, sys.stdout.fileno())
    for line in sys.stdin.buffer:
        command = msgspec.json.decode(line, type=_Command)
        stderr = os.open(command.said, os.O_WRONLY | os.O_APPEND)
        os.dup2(stderr, sys.stderr.fileno())
        os.close(stderr)
        sys.argv[1:] = command.words
        _write(answers, {"pid": os.getpid()})
        code = run_command()
        sys.stderr.flush()
        _write(answers, {"code": code})


def _write(number: int, answer: dict[str, int]) -> None:
    os.write(number, msgspec.json.encode(answer) + b"\n")


def _become(command: _Command, server: int, run_command: Callable[[], object]) -> NoReturn:
    """Run the command in this process, a fork, and end it: nothing of the server goes on here."""
    code = _INTERNAL_ERROR
    try:
        os.setsid()  # Ctrl-C reaches the campaign, which stops it
        end_with_parent(server)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stderr = os.open(command.said, os.O_WRONLY | os.O_APPEND)
        null = os.open(os.devnull, os.O_RDWR)
        for number, file in enumerate((null, null, stderr)):
            os.dup2(file, number)
        sys.argv[1:] = command.words
        run_command()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
