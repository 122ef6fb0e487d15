"""Rows of the tables `ops` and `faults`, joined from a history's records while it grows.

Place in the data path: reads the file that `chaos.recording.history` writes;
`chaos.recording.table_converter` takes the rows.

Invariants: a row is returned once, when its operation has completed, or at the end; an operation
without completion is `info` with t_complete null; times are nanoseconds since the run's start.

Source: the run format, version 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeAlias, cast

from chaos.recording.history import COMPLETE, FAULT, INVOKE, NOTE, HistoryError, HistoryReader
from chaos.recording.run_tables import MESSAGE_TYPE, OPS_SCHEMA, QUEUE_TYPE

__all__ = ["HANDLE", "HistoryRows", "Row"]

Row: TypeAlias = dict[str, object]

HANDLE: Final = "handle"
"""Key in a row of `ops`, in place of `op`: the history's own number of the operation."""

_COLUMNS: Final = frozenset(OPS_SCHEMA.names)
_MESSAGE_FIELDS: Final = tuple(field.name for field in MESSAGE_TYPE)
_QUEUE_FIELDS: Final = tuple(field.name for field in QUEUE_TYPE)


class HistoryRows:
    """The rows of one file, which may not exist yet and may still grow."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reader = HistoryReader(path)
        self._open: dict[int, Row] = {}
        self._completed: list[Row] = []
        self._highest = -1  # highest handle so far
        self._faults: dict[int, Row] = {}
        self.notes: dict[str, object] = {}
        """The last value of each note."""

    @property
    def faults(self) -> list[Row]:
        return [row for _, row in sorted(self._faults.items())]

    @property
    def dropped_bytes(self) -> int:
        """Size of an incomplete last record."""
        return self._reader.dropped_bytes

    def read(self) -> None:
        """Read everything that was written since the last call.

        Raises:
            HistoryError: a record contradicts another or names an unknown column.
        """
        for record in self._reader:
            kind = record[0]
            if kind == INVOKE:
                self._on_invoke(record)
            elif kind == COMPLETE:
                self._on_complete(record)
            elif kind == FAULT:
                fault = cast(int, record[1])
                self._faults[fault] = {"fault": fault, **cast(Row, record[2])}
            else:
                assert kind == NOTE
                self.notes[cast(str, record[1])] = record[2]

    def take_completed(self) -> list[Row]:
        """Return operations that have completed since the last call."""
        completed, self._completed = self._completed, []
        return completed

    def take_open(self) -> list[Row]:
        """Return operations without completion, once the history has ended."""
        rows = [self._row(handle, row) for handle, row in self._open.items()]
        self._open = {}
        return rows

    def _on_invoke(self, record: list[object]) -> None:
        handle, t_invoke, columns = cast(int, record[1]), record[2], cast(Row, record[3])
        if handle <= self._highest:
            raise HistoryError(f"{self._path}: operation {handle} is invoked twice")
        self._highest = handle
        self._open[handle] = {"type": "info", "t_invoke": t_invoke, "t_complete": None, **columns}

    def _on_complete(self, record: list[object]) -> None:
        handle, columns = cast(int, record[1]), cast(Row, record[4])
        row = self._open.pop(handle, None)
        if row is None:
            raise HistoryError(f"{self._path}: operation {handle} completes but was not open")
        row.update(columns)
        row["type"] = record[3]
        row["t_complete"] = record[2]
        self._completed.append(self._row(handle, row))

    def _row(self, handle: int, row: Row) -> Row:
        unknown = set(row) - _COLUMNS
        if unknown:
            raise HistoryError(
                f"{self._path}: operation {handle} has unknown column {min(unknown)}"
            )
        row[HANDLE] = handle
        for name, fields in (("messages", _MESSAGE_FIELDS), ("assigned", _QUEUE_FIELDS)):
            items = cast("list[list[object]] | None", row.get(name))
            if items is not None:
                row[name] = [dict(zip(fields, item, strict=True)) for item in items]
        return row
