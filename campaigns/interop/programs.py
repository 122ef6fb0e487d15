"""A client's program run against a target: its lines become outcomes.

A program reports each case's end in a line, requests midpoints, and is ended when it has said
nothing for too long. What it prints is kept beside the target's own output.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from campaigns.interop.engine_limits import judged
from campaigns.interop.matrix import MidpointReached, Outcome, RequestedAction, parse_line
from campaigns.interop.targets import Target

__all__ = ["java_command", "run_program", "suite_command"]

SILENCE_S_MAX = 240.0
HEAP = "256m"
SUITE_HEAP = "768m"


def suite_command(java: str, built: Path, home: Path) -> list[str]:
    """The program with RocketMQ's integration tests, up to its own arguments."""
    *command, _ = java_command(java, built, home)
    command[1:2] = [f"-Xmx{SUITE_HEAP}", f"-Djava.io.tmpdir={home}"]
    return [*command, "interop.Suite"]


def java_command(java: str, built: Path, home: Path) -> list[str]:
    """Up to the program's own arguments."""
    home.mkdir(parents=True, exist_ok=True)
    return [
        java,
        f"-Xmx{HEAP}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Duser.home={home}",  # logs, and the offsets of broadcasting
        "-cp",
        f"{built / 'classes'}:{built / 'lib'}/*",
        "interop.Main",
    ]


def run_program(
    command: Sequence[str],
    *,
    client: str,
    target: Target,
    cases: Sequence[str],
    log: Path,
    report: Callable[[str], None],
    carry_out: Callable[[str], str] | None = None,
) -> list[Outcome]:
    """Every case's outcome, "none" for those that the program did not report. `carry_out` does
    what a case requests, and returns what it is answered."""
    found: dict[str, Outcome] = {}
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        try:
            for line in _lines(process):
                output.write(line)
                output.flush()
                parsed = parse_line(line, client, target.name)
                if isinstance(parsed, MidpointReached):
                    target.break_something()
                    _reply(process, "broken")
                elif isinstance(parsed, RequestedAction):
                    assert carry_out is not None, parsed
                    _reply(process, carry_out(parsed.what))
                elif parsed is not None:
                    parsed = found[parsed.case] = judged(parsed)
                    report(
                        f"{parsed.outcome:4} {parsed.took_ms / 1000:6.1f} s "
                        f" {parsed.case}  {parsed.detail}"
                    )
        finally:
            process.kill()
            process.wait()
    missing = [case for case in cases if case not in found]
    for case in missing:
        found[case] = Outcome(
            case=case,
            client=client,
            target=target.name,
            outcome="none",
            took_ms=0,
            detail=f"the program ended with {process.returncode} before; see {log.name}",
        )
    return [found[case] for case in cases]


def _reply(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """The program's lines until it ends or is silent for too long."""
    assert process.stdout is not None
    stream = process.stdout
    read: queue.Queue[str | None] = queue.Queue()

    def pump() -> None:
        with contextlib.suppress(ValueError):  # closed under us when the program is ended
            for line in stream:
                read.put(line)
        read.put(None)

    threading.Thread(target=pump, daemon=True).start()
    last = time.monotonic()
    while (left := last + SILENCE_S_MAX - time.monotonic()) > 0:
        try:
            line = read.get(timeout=left)
        except queue.Empty:
            break
        if line is None:
            break
        last = time.monotonic()
        yield line
