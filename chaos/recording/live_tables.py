"""A process beside an experiment that makes tables of its history and traces while they grow.

    python -m chaos.recording.live_tables SOURCES   (started by `LiveTables`, which sends the end
    on stdin)

Place in the data path: `chaos.experiment.experiment` starts one with its cluster,
`chaos.recording.run_export` gets the tables from it once the last process has stopped; then most of
the work is done. A process of its own, since the experiment's clients share one interpreter, and
with the lowest priority.

Invariants: it ends with its parent; it reads files that others write and nothing else; where it
fails, or a trace has changed, the tables are made again from what is there at the end, so that a
run never loses by it.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa

from chaos.cluster.parent_death import die_with_parent, environment_of
from chaos.recording.history import HistoryError
from chaos.recording.run_manifest import TableFile
from chaos.recording.table_converter import ConvertedTables, RunSources, TableConverter
from chaos.recording.trace_rows import TraceChangedError, TraceFolder

__all__ = ["LiveTables", "main"]

_ROUND_S: Final = 1.0
_LEAST_PRIORITY: Final = 19
_FINISH: Final = b"finish"
_FAILURES: Final = (HistoryError, TraceChangedError, OSError, pa.ArrowException)


class LiveTables:
    """The process, for as long as the block lasts."""

    def __init__(self, sources: RunSources) -> None:
        self._sources = sources
        self._process: subprocess.Popen[bytes] | None = None
        self._is_finished = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()
        if not self._is_finished:  # a file without its end is none
            shutil.rmtree(self._sources.run / "raft", ignore_errors=True)

    def start(self) -> None:
        """Start the process. The calling thread must live for as long as the process shall."""
        assert self._process is None
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "chaos.recording.live_tables",
                json.dumps(_as_json(self._sources)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C at the terminal reaches the experiment alone
            env=environment_of(os.environ, parent=os.getpid()),
        )

    def finish(self) -> ConvertedTables:
        """Return the tables, once nothing more is written to their sources.

        Raises:
            HistoryError, OSError, pa.ArrowException: the sources can't be made into tables.
        """
        made = self._finished()
        if made is None:
            made = TableConverter(self._sources).finish()
        self._is_finished = True
        return made

    def _finished(self) -> ConvertedTables | None:
        """Return what the process has made; None where it failed."""
        process = self._process
        if process is None:
            return None
        answer, _ = process.communicate(_FINISH)
        return _from_json(json.loads(answer)) if process.returncode == 0 else None

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            process.communicate()


def main() -> int:
    """Convert until stdin says that it is the end, and print the result; return the exit code."""
    die_with_parent()
    os.nice(_LEAST_PRIORITY)
    try:
        converter = TableConverter(_sources_from_json(json.loads(sys.argv[1])))
        while not _is_finished():
            converter.catch_up()
        made = converter.finish()
    except _FAILURES as error:
        # The parent tries again, and reports the error if it persists.
        sys.stderr.write(f"ledgermq: tables are made at the end of the run: {error}\n")
        return 1
    json.dump({name: _file_as_json(getattr(made, name)) for name in _TABLES}, sys.stdout)
    return 0


_TABLES: Final = ("ops", "faults", "raft")


def _is_finished() -> bool:
    """Return whether the end was received within a round."""
    stdin = sys.stdin.fileno()
    ready, _, _ = select.select([stdin], [], [], _ROUND_S)
    if ready and os.read(stdin, len(_FINISH)) != _FINISH:
        sys.exit(1)  # the parent has gone
    return bool(ready)


def _as_json(sources: RunSources) -> dict[str, object]:
    return {
        "run": str(sources.run),
        "started_ns": sources.started_ns,
        "traces": [[trace.group, trace.node, str(trace.path)] for trace in sources.traces],
    }


def _sources_from_json(fields: dict[str, Any]) -> RunSources:
    return RunSources(
        run=Path(fields["run"]),
        started_ns=fields["started_ns"],
        traces=tuple(
            TraceFolder(group=group, node=node, path=Path(path))
            for group, node, path in fields["traces"]
        ),
    )


def _file_as_json(file: TableFile) -> list[object]:
    return [str(file.path), file.rows]


def _from_json(fields: dict[str, Any]) -> ConvertedTables:
    return ConvertedTables(
        **{name: TableFile(path=Path(fields[name][0]), rows=fields[name][1]) for name in _TABLES}
    )


if __name__ == "__main__":
    sys.exit(main())
