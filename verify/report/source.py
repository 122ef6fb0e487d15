"""A run directory for the report: everything readable, and notes on what is missing.

Place in the data path: under every other module of the report. The verifier proves nothing of a
damaged run, but a report is made of any run: its reader wants to see why it is damaged.

Invariants: every problem is noted once in `notes` and shown to the reader; memory is bounded by one
batch of rows; nothing outside the run directory is read, whatever run.json names.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["RunSource"]

_BATCH_ROWS = 65_536
_JSON_SIZE_MAX = 64 * 1024 * 1024
_FOLDERS = {"ops": "history", "faults": "faults", "raft": "raft"}


class RunSource:
    """Reads `run`; `manifest` and `verdict` are empty if their files can't be used."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.notes: list[str] = []
        self.manifest: Mapping[str, object] = self._json("run.json")
        self.verdict: Mapping[str, object] = self._json("verdict.json")

    def batches(self, table: str, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the readable rows of a table, with exactly these columns.

        A file that can't be read, lacks a column, or has one of another type is noted and left out.
        """
        for path in self._files(table):
            try:
                with pq.ParquetFile(path) as file:
                    missing = [
                        name for name in columns.names if name not in file.schema_arrow.names
                    ]
                    if missing:
                        self._note(f"{self._name(path)} lacks the column {missing[0]}.")
                        continue
                    for batch in file.iter_batches(_BATCH_ROWS, columns=columns.names):
                        yield batch.select(columns.names).cast(columns)
            except (OSError, pa.ArrowException) as error:
                self._note(f"{self._name(path)} can't be read: {str(error).splitlines()[0]}")

    def _files(self, table: str) -> list[Path]:
        """Return the files that run.json lists for a table; without a list, those in its folder."""
        tables = self.manifest.get("tables")
        if not isinstance(tables, dict):
            return sorted((self.run / _FOLDERS[table]).glob("*.parquet"))
        listed = tables.get(table)
        entries = listed.get("files") if isinstance(listed, dict) else None
        if not isinstance(entries, list):
            self._note(f"run.json lists no files of the table {table}.")
            return []
        files: list[Path] = []
        for entry in entries:
            name = entry.get("name") if isinstance(entry, dict) else None
            path = self.run / name if isinstance(name, str) else None
            if path is None or not self._is_within(path):
                self._note(
                    f"run.json lists a file of the table {table} outside the run, or no plain file."
                )
            else:
                files.append(path)
        return files

    def _is_within(self, path: Path) -> bool:
        """Return whether a path leads to a place in the run, and not to a pipe or the like."""
        try:
            if not path.resolve().is_relative_to(self.run.resolve()):
                return False
        except (OSError, RuntimeError, ValueError):  # a circle of links; an invalid name
            return False
        return path.is_file() or not path.exists()

    def _json(self, name: str) -> Mapping[str, object]:
        path = self.run / name
        try:
            if path.exists() and not path.is_file():
                self._note(f"{name} is no plain file.")
                return {}
            if path.stat().st_size > _JSON_SIZE_MAX:
                self._note(f"{name} is longer than {_JSON_SIZE_MAX} bytes.")
                return {}
            value = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self._note(f"There is no {name}.")
            return {}
        except (OSError, ValueError, RecursionError) as error:
            self._note(f"{name} can't be read: {error}")
            return {}
        if not isinstance(value, dict):
            self._note(f"{name} is not a JSON object.")
            return {}
        return value

    def _name(self, path: Path) -> str:
        return path.relative_to(self.run).as_posix()

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
