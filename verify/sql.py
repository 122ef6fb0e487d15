"""`ledgermq sql RUN QUERY`: queries a run's tables and stages in DuckDB's SQL.

Place in the data path: beside the verification, for people who want to see for themselves. The
tables of the format, those of the manifest (`run_...`) and every stage of `verify/stages` are
available by name; a stage is made when a query reads it.

Invariants: one query, which changes nothing and reads no other file. The run is not judged, so a
damaged one can be queried too: only the tables that a query reads are loaded.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pyarrow as pa
import sqlglot
from rich.console import Console
from rich.table import Table
from sqlglot import exp
from sqlglot.errors import SqlglotError

from verify.catalogue.dialect import tables_of
from verify.catalogue.rule_files import BUILT_IN_STAGES, read_stages
from verify.catalogue.stage_order import stages_behind
from verify.engines.duckdb import DuckDBEngine
from verify.engines.engine import EngineError, TableFiles
from verify.export.stand_in import with_exports
from verify.export.tables import EXPORTED, ExportError
from verify.sources.format_tables import TABLES, TableError
from verify.sources.manifest import ManifestError, load_manifest
from verify.sources.manifest_tables import MANIFEST_TABLES, manifest_tables
from verify.sources.run_files import LocalFiles

__all__ = ["QueryError", "main", "query_run"]

_UNANSWERED: Final = (
    *(ManifestError, ExportError, TableError, EngineError),
    *(pa.ArrowException, OSError),  # a damaged file
)

_ROWS_SHOWN_MAX: Final = 1_000

Row = Mapping[str, object]


class QueryError(Exception):
    """The query can't be answered; the message says why."""


def query_run(run: Path, query: str) -> list[dict[str, object]]:
    """Run `query` and return its rows.

    Raises:
        QueryError: it is not a single query, names an unknown table, or fails; or the run's
            manifest, tables or stores can't be read.
    """
    stages = read_stages(BUILT_IN_STAGES)
    named = _tables_named(query)
    unknown = sorted(named - {*TABLES, *MANIFEST_TABLES, *stages})
    if unknown:
        known = ", ".join(sorted({*TABLES, *MANIFEST_TABLES, *stages}))
        raise QueryError(f"there is no table {unknown[0]}; there are {known}")
    needed = [stages[name] for name in stages_behind(named & set(stages), stages)]
    read = named.union(*(tables_of(stage.text, name=stage.name) for stage in needed))
    files = LocalFiles(run)
    try:
        with ExitStack() as stack:
            manifest = load_manifest(files)
            if read & set(EXPORTED):
                manifest = stack.enter_context(
                    with_exports(run, manifest, beside=None, report=lambda text: None)
                )
            spill = stack.enter_context(tempfile.TemporaryDirectory(prefix="ledgermq-sql-"))
            engine = DuckDBEngine(Path(spill))
            stack.callback(engine.close)
            listed = frozenset(TABLES) & frozenset(manifest.tables)
            engine.load(
                {
                    name: TableFiles(
                        files=tuple(
                            files.table_file(file.name) for file in manifest.tables.get(name, ())
                        )
                        if name in read
                        else (),
                        schema=schema,
                    )
                    for name, schema in TABLES.items()
                },
                manifest_tables(manifest, listed),
            )
            engine.make(needed)
            return engine.query(query)
    except _UNANSWERED as error:
        raise QueryError(str(error)) from error


def main(run: Path, query: str, *, as_json: bool) -> None:
    """Print the answer: a table, or one JSON object per row.

    Raises:
        QueryError: as `query_run`.
    """
    rows = query_run(run, query)
    if as_json:
        for row in rows:
            sys.stdout.write(json.dumps(row) + "\n")
        return
    _show(rows)


def _show(rows: Sequence[Row]) -> None:
    table = Table(*(rows[0] if rows else ()))
    for row in rows[:_ROWS_SHOWN_MAX]:
        table.add_row(*(_cell(value) for value in row.values()))
    console = Console()
    if rows:
        console.print(table)
    left_out = len(rows) - min(len(rows), _ROWS_SHOWN_MAX)
    console.print(f"{len(rows)} rows" + (f", {left_out} not shown" if left_out else ""))


def _cell(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _tables_named(query: str) -> frozenset[str]:
    try:
        trees = [tree for tree in sqlglot.parse(query, read="duckdb") if tree is not None]
    except SqlglotError as error:
        raise QueryError(f"that is no query: {str(error).splitlines()[0]}") from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise QueryError("that is not one query: a single select is answered")
    own = {cte.alias_or_name for cte in trees[0].find_all(exp.CTE)}
    return frozenset(table.name for table in trees[0].find_all(exp.Table) if table.name) - own
