"""What of the product a scenario never executes: what no check of its run can have seen.

    python -m campaigns.reach campaigns/planted/short.toml --seed 1 --show broker/access

Place: beside planted bugs. A bug in a line that no run executes is seen by nobody, whatever the
checks are; those in lines that are executed need a check as well. The scenario runs in the
simulated world, in this process, traced line by line, which takes three times as long.

Invariants: only lines within functions count, since those of modules and classes are executed by
the import alone. A line counts as executed wherever its code object ran it, in any thread.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from chaos.experiment.experiment import run_experiment
from chaos.scenario.scenario import load_scenario

__all__ = ["LineTracer", "main", "unreached"]

ROOT: Final = Path(__file__).resolve().parents[1]
ROOMS: Final = ("broker", "client", "namesrv", "raft", "remoting")


class LineTracer:
    """Notes which lines of functions in `folders` are executed, while it is set as the tracer."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._prefixes = tuple(f"{folder}/" for folder in folders)
        self._left: dict[CodeType, set[int]] = {}
        self.executed: dict[str, set[int]] = {}  # by file

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        """Trace a call, as `sys.settrace` has it; a function all of whose lines ran costs one call
        from then on."""
        code = frame.f_code
        if not code.co_filename.startswith(self._prefixes):
            return None
        left = self._left.get(code)
        if left is None:
            left = self._left[code] = _lines_of(code)
        if not left:
            return None
        executed = self.executed.setdefault(code.co_filename, set())

        def trace_line(frame: FrameType, event: str, argument: object) -> Any:
            if frame.f_lineno in left:
                left.discard(frame.f_lineno)
                executed.add(frame.f_lineno)
            return trace_line

        return trace_line


def unreached(file: Path, executed: set[int]) -> tuple[list[int], int]:
    """Return the lines within functions of a file that were not executed, and how many it has."""
    module = compile(file.read_text(encoding="utf-8"), str(file), "exec")
    lines = {line for code in _functions_in(module) for line in _lines_of(code)}
    return sorted(lines - executed), len(lines)


def _functions_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 0x2:  # CO_NEWLOCALS: a function's, no class body's
                yield constant
            yield from _functions_in(constant)


def _lines_of(code: CodeType) -> set[int]:
    """Return the lines of a function's body; its first line is that of `def`."""
    lines = {line for _, _, line in code.co_lines() if line is not None}
    return lines - {code.co_firstlineno} if len(lines) > 1 else lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scenario, and print the share of each room's lines that it executed."""
    parser = argparse.ArgumentParser(prog="reach", description=__doc__.partition("\n")[0])
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", default="", help="a folder or file whose lines are shown")
    chosen = parser.parse_args(arguments)
    tracer = LineTracer([ROOT / room for room in ROOMS])
    threading.settrace(tracer)
    sys.settrace(tracer)
    try:
        _run(chosen.scenario, chosen.seed)
    finally:
        sys.settrace(None)
        threading.settrace(None)
    for room in ROOMS:
        files = sorted((ROOT / room).rglob("*.py"))
        found = {file: unreached(file, tracer.executed.get(str(file), set())) for file in files}
        total = sum(count for _, count in found.values())
        missing = sum(len(lines) for lines, _ in found.values())
        sys.stdout.write(f"{room}: {total - missing} of {total} lines of functions executed\n")
        for file, (lines, _) in found.items():
            path = file.relative_to(ROOT).as_posix()
            if chosen.show and path.startswith(chosen.show):
                texts = file.read_text(encoding="utf-8").splitlines()
                sys.stdout.writelines(f"  {path}:{at}: {texts[at - 1].strip()}\n" for at in lines)
    return 0


def _run(scenario: Path, seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="reach-") as folder:
        run_experiment(load_scenario(scenario), world="sim", seed=seed, out=Path(folder) / "run")


if __name__ == "__main__":
    sys.exit(main())
