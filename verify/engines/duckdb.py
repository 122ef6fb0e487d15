"""DuckDB, embedded: the engine that gives the first verdict, within seconds.

Place in the data path: one of the two engines under `verify.judge`. Reads the Parquet files itself;
each stage to be stored is a table in memory, which spills to a given folder. A large table of the
run is a view of its files, and queries read only the columns that they need. If a column has to be
cast, which may fail, the table is copied once instead. A query divides the rows that it scans by
the 122,880, so that those of a small run take one thread each: several run at a time then.

Invariants: no extension is installed or loaded, nothing comes from the network; once the tables are
loaded, queries read no file except those of the views, and write only in the spill folder. A viewed
file must not change meanwhile: its digest was compared before.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from verify.catalogue.dialect import duckdb_text
from verify.catalogue.rule_files import Rule, Stage
from verify.engines.engine import (
    FINDINGS_MAX,
    NOTHING_FOUND,
    EngineError,
    Findings,
    TableFiles,
    found_by,
)
from verify.engines.machine import memory_bytes
from verify.engines.shapes import has_declared_types, select_list
from verify.engines.side_by_side import find_side_by_side, make_side_by_side

__all__ = ["DuckDBEngine"]

_SETTINGS: Final = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "preserve_insertion_order": "false",
    "default_null_order": "nulls_first",
}
_FOUND: Final = "found"
_VIEWED_ROWS_MIN: Final = 1_000_000
_SMALL_ROWS_MAX: Final = 1_500_000  # of all tables together
_AT_A_TIME: Final = 2
_ROWS_PER_PART: Final = 60_000_000  # of all tables together
_SMALL_PARTS: Final = 4  # of a part
_HASHES: Final = 1 << 64
_MEMORY_SHARE: Final = 4  # a quarter of the machine's memory
_MEMORY_BYTES_MIN: Final = 2 * 1024**3  # or three quarters of it, where that is less


class DuckDBEngine:
    """A DuckDB database in memory. `spill` is a folder; `memory_limit_bytes` bounds the memory, by
    default to a quarter of the machine's; a table of `viewed_rows_min` rows or more is not copied.
    Of a run of at most `small_rows_max` rows all stages are held, and queries run side by side; of
    one of more than `rows_per_part` rows large stages are made in parts, one behind the other, each
    in memory: groups that don't fit are spilled and read again, many times over.
    `forgets`: whether stages are to be dropped, since those of the loaded run may not fit together.
    """

    name = "duckdb"
    forgets = True

    def __init__(
        self,
        spill: Path,
        *,
        memory_limit_bytes: int | None = None,
        threads: int | None = None,
        viewed_rows_min: int = _VIEWED_ROWS_MIN,
        small_rows_max: int = _SMALL_ROWS_MAX,
        rows_per_part: int = _ROWS_PER_PART,
    ) -> None:
        settings: dict[str, str | bool | int | float | list[str]] = {
            **_SETTINGS,
            "temp_directory": str(spill),
            "memory_limit": f"{memory_limit_bytes or _memory_bytes()}B",
        }
        self._viewed_rows_min = viewed_rows_min
        self._small_rows_max = small_rows_max
        self._rows_per_part = rows_per_part
        self._parts = 1
        self._kinds: dict[str, str] = {}  # view or table, by stage
        if threads is not None:
            settings["threads"] = threads
        self._database = duckdb.connect(":memory:", config=settings)
        self._of_thread = threading.local()
        self._of_thread.connection = self._database

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        """The calling thread's own connection to the database."""
        if not hasattr(self._of_thread, "connection"):
            self._of_thread.connection = self._database.cursor()
        connection: duckdb.DuckDBPyConnection = self._of_thread.connection
        return connection

    def close(self) -> None:
        self._database.close()

    def load(self, tables: Mapping[str, TableFiles], relations: Mapping[str, pa.Table]) -> None:
        rows = sum(map(_rows, tables.values()))
        self.forgets = rows > self._small_rows_max
        self._parts = max(1, -(-rows // self._rows_per_part))
        viewed = [
            name for name, table in tables.items() if _is_viewable(table, self._viewed_rows_min)
        ]
        for name, table in tables.items():
            kind = "view" if name in viewed else "table"
            self._run(f'create {kind} "{name}" as {_union(table)}', name)
        for name, relation in relations.items():
            self._connection.register("arriving", relation)
            self._run(f'create table "{name}" as from arriving', name)
            self._connection.unregister("arriving")
        # Others may write rules: from here on they can read these tables, and no other file.
        files = ", ".join(_quoted(path) for name in viewed for path in _paths(tables[name]))
        self._run(f"set allowed_paths = [{files}]", "settings")
        self._run("set parquet_metadata_cache = true", "settings")
        self._run("set enable_external_access = false", "settings")
        self._run("set lock_configuration = true", "settings")

    def make(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            self._make(stage)

    def _make(self, stage: Stage) -> None:
        text = duckdb_text(stage.text, name=stage.name)
        is_stored = stage.is_stored_large if self.forgets else stage.is_stored
        kind = "table" if is_stored else "view"
        if stage.parted_by is None or self._parts == 1:
            self._run(f'create {kind} "{stage.name}" as {text}', stage.name)
        else:
            parts = self._parts * (_SMALL_PARTS if stage.has_small_parts else 1)
            self._make_parted(stage.name, text, stage.parted_by, parts=parts)
        self._kinds[stage.name] = kind

    def _make_parted(self, name: str, text: str, column: str, *, parts: int) -> None:
        """Store the rows of `text`, those of one range of hashes of `column` at a time."""
        self._run(f'create table "{name}" as from ({text}) limit 0', name)
        bounds = [number * _HASHES // parts for number in range(parts + 1)]
        try:
            for first, end in itertools.pairwise(bounds):
                # A comparison passes through a GROUP BY that has the column; a remainder does not.
                part = f'from ({text}) where hash("{column}") between {first} and {end - 1}'
                self._run(f'insert into "{name}" {part}', name)
        except EngineError:
            self._run(f'drop table "{name}"', name)
            raise

    def make_each(self, stages: Sequence[Stage]) -> Mapping[str, EngineError]:
        """Make the stages of a large run one after the other: each uses all threads by itself."""
        if not self.forgets:
            return make_side_by_side(self._make, stages, at_a_time=_AT_A_TIME)
        failed: dict[str, EngineError] = {}
        for stage in stages:
            try:
                self.make([stage])
            except EngineError as error:
                failed[stage.name] = error
        return failed

    def drop(self, names: Sequence[str]) -> None:
        for name in names:
            self._run(f'drop {self._kinds.pop(name)} "{name}"', name)

    def table(self, name: str) -> list[dict[str, object]]:
        return self._fetch(f'from "{name}"', name)

    def query(self, text: str) -> list[dict[str, object]]:
        """Run a query in DuckDB's own SQL and return its rows.

        Raises:
            EngineError: it fails, or is not one SELECT: the run's files stay readable, and another
                statement could write them too.
        """
        try:
            statements = self._connection.extract_statements(text)
        except duckdb.Error as error:
            raise EngineError(f"query: {_first_line(error)}") from error
        if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
            raise EngineError("query: it is not one SELECT")
        return self._fetch(text, "query")

    def findings(self, rule: Rule) -> Findings:
        text = duckdb_text(rule.text, name=rule.id)
        # A thread's own, and most often empty.
        stored = self._fetch(f"create or replace temp table {_FOUND} as {text}", rule.id)
        if not stored[0]["Count"]:
            return NOTHING_FOUND
        described = self._connection.execute(f"from {_FOUND} limit 0").description or []
        names = [str(column[0]) for column in described]
        kinds = {str(column[0]): str(column[1]) for column in described}
        ranked = ", ".join(
            f'"{name}" nulls first' for name in names if name != "reason" and _is_plain(kinds[name])
        )
        doubtful = "reason is not null" if "reason" in names else "false"
        counted = self._fetch(
            f"from {_FOUND} select count(*) filter (where not ({doubtful})) as violations, "
            f"count(*) filter (where {doubtful}) as doubts",
            rule.id,
        )[0]
        order = f"order by {ranked} limit {FINDINGS_MAX}" if ranked else f"limit {FINDINGS_MAX}"
        violations, doubts = int(str(counted["violations"])), int(str(counted["doubts"]))
        return Findings(
            violations=violations,
            doubts=doubts,
            smallest_violations=self._fetch(
                f"from {_FOUND} where not ({doubtful}) {order}", rule.id
            )
            if violations
            else (),
            smallest_doubts=self._fetch(f"from {_FOUND} where {doubtful} {order}", rule.id)
            if doubts
            else (),
        )

    def findings_of(self, rules: Sequence[Rule]) -> Mapping[str, Findings | EngineError]:
        """Run the rules on a large run one after the other: each uses all threads by itself."""
        if not self.forgets:
            return find_side_by_side(self.findings, rules, at_a_time=_AT_A_TIME)
        return {rule.id: found_by(self.findings, rule) for rule in rules}

    def _run(self, text: str, name: str) -> None:
        try:
            self._connection.execute(text)
        except duckdb.Error as error:
            raise EngineError(f"{name}: {_first_line(error)}") from error

    def _fetch(self, text: str, name: str) -> list[dict[str, object]]:
        try:
            answer = self._connection.execute(text)
            names = [str(column[0]) for column in answer.description or []]
            return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
        except duckdb.Error as error:
            raise EngineError(f"{name}: {_first_line(error)}") from error


def _is_plain(kind: str) -> bool:
    """Return whether values are ordered alike on both engines; structs and lists are not."""
    return not kind.upper().startswith(("STRUCT", "MAP", "UNION")) and not kind.endswith("]")


def _memory_bytes() -> int:
    memory = memory_bytes()
    return max(memory // _MEMORY_SHARE, min(_MEMORY_BYTES_MIN, memory * 3 // 4))


def _rows(table: TableFiles) -> int:
    return sum(pq.read_metadata(path).num_rows for path in _paths(table))


def _is_viewable(table: TableFiles, rows_min: int) -> bool:
    if _rows(table) < max(rows_min, 1):
        return False
    return all(has_declared_types(path, table.schema) for path in _paths(table))


def _paths(table: TableFiles) -> list[Path]:
    paths = [file.path for file in table.files if file.path is not None]
    assert len(paths) == len(table.files), "DuckDB reads what lies on this machine"
    return paths


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def _union(table: TableFiles) -> str:
    alike: dict[tuple[str, str], list[str]] = {}
    for path in _paths(table):
        shape = select_list(path, table.schema), str(pq.read_schema(path).remove_metadata())
        alike.setdefault(shape, []).append(_quoted(path))
    parts = [
        f"from read_parquet([{', '.join(paths)}], hive_partitioning = false) select {columns}"
        for (columns, _), paths in alike.items()
    ]
    if not parts:
        columns = select_list(None, table.schema)
        parts.append(f"select {columns} where false")
    return " union all ".join(parts)


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
