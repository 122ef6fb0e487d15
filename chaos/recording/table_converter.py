"""The tables `ops`, `faults` and `raft` of a run, made from its history and traces while these
grow.

Place in the data path: between `chaos.recording.history_rows` and `chaos.recording.trace_rows`,
which read, and `chaos.recording.run_tables`, which writes. `chaos.recording.live_tables` catches up
in a process of its own while a run goes on; `chaos.recording.run_export` requests the end.

Invariants: the tables are the same however often it caught up before; `op` numbers operations by
t_invoke over all processes, so that operations are held, as columns, until the end; events are
written as they come.

Source: the run format, version 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa

from chaos.recording.history_rows import HANDLE, HistoryRows, Row
from chaos.recording.run_manifest import TableFile
from chaos.recording.run_tables import FAULTS_SCHEMA, OPS_SCHEMA, RAFT_SCHEMA, TableWriter, table_of
from chaos.recording.trace_rows import TraceFolder, TraceRows

__all__ = ["HISTORY_FILE", "ConvertedTables", "RunSources", "TableConverter"]

HISTORY_FILE: Final = "history.msgpack"
_ROWS_PER_BATCH: Final = 8192
_HELD_SCHEMA: Final = OPS_SCHEMA.set(0, pa.field(HANDLE, pa.int64()))
assert OPS_SCHEMA.names[0] == "op"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSources:
    """The sources of a run's tables; `started_ns`: its start on CLOCK_MONOTONIC."""

    run: Path
    traces: tuple[TraceFolder, ...]
    started_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedTables:
    ops: TableFile
    faults: TableFile
    raft: TableFile


class TableConverter:
    """Converts the sources of one run.

    Methods raise HistoryError, TraceChangedError, OSError and pyarrow's errors: then its output is
    invalid, and a new converter may succeed.
    """

    def __init__(self, sources: RunSources) -> None:
        self._run = sources.run
        self._history = HistoryRows(sources.run / HISTORY_FILE)
        self._traces = [
            TraceRows(folder, started_ns=sources.started_ns) for folder in sources.traces
        ]
        self._ops: list[pa.Table] = []
        self._waiting: list[Row] = []  # less than a batch
        self._raft = TableWriter(sources.run / "raft" / "raft.parquet", RAFT_SCHEMA)

    def catch_up(self) -> None:
        """Convert what was written since the last call."""
        self._history.read()
        self._waiting += self._history.take_completed()
        if len(self._waiting) >= _ROWS_PER_BATCH:
            self._hold_waiting()
        for trace in self._traces:
            for rows in _batches(trace.read()):
                self._raft.write(table_of(rows, RAFT_SCHEMA))

    def finish(self) -> ConvertedTables:
        """Return the tables, once nothing more is written to their sources."""
        self.catch_up()
        self._waiting += self._history.take_open()
        self._hold_waiting()
        self._raft.close()
        return ConvertedTables(
            ops=self._written("history/ops.parquet", _numbered(self._ops)),
            faults=self._written(
                "faults/faults.parquet", table_of(self._history.faults, FAULTS_SCHEMA)
            ),
            raft=TableFile(path=self._raft.path, rows=self._raft.rows),
        )

    def _hold_waiting(self) -> None:
        for rows in _batches(self._waiting):
            self._ops.append(table_of(rows, _HELD_SCHEMA))
        self._waiting.clear()

    def _written(self, name: str, table: pa.Table) -> TableFile:
        with TableWriter(self._run / name, table.schema) as writer:
            writer.write(table)
        return TableFile(path=writer.path, rows=writer.rows)


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    left = iter(rows)
    while batch := list(islice(left, _ROWS_PER_BATCH)):
        yield batch


def _numbered(held: Sequence[pa.Table]) -> pa.Table:
    """Number all operations by t_invoke, and by the history's own number where that is the same."""
    table = pa.concat_tables([_HELD_SCHEMA.empty_table(), *held])
    table = table.sort_by([("t_invoke", "ascending"), (HANDLE, "ascending")])
    numbers = pa.array(range(table.num_rows), pa.int64())
    return table.set_column(0, OPS_SCHEMA.field("op"), numbers)
