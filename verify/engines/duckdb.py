"""DuckDB, embedded: the first verdict, in seconds.

Place in the data path: one of the two engines under `verify.judge`. Reads the Parquet files by
itself, each stage is a table in memory, which spills to the folder it is given.

Invariants: nothing is installed or loaded, nothing comes from the network; once the tables are
loaded no query reads or writes a file, but for the folder that a large one spills to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from verify.dialect import duckdb_text
from verify.engines.engine import FINDINGS_MAX, EngineError, Findings, TableFiles, found_by
from verify.engines.shapes import select_list
from verify.rule_files import Rule, Stage

__all__ = ["DuckDBEngine"]

_SETTINGS: Final = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "preserve_insertion_order": "false",
    "default_null_order": "nulls_first",
}
_FOUND: Final = "found"


class DuckDBEngine:
    """One database in memory. `spill` is a folder; `memory_bytes` bounds what is held in memory."""

    name = "duckdb"

    def __init__(
        self, spill: Path, *, memory_bytes: int | None = None, threads: int | None = None
    ) -> None:
        settings: dict[str, str | bool | int | float | list[str]] = {
            **_SETTINGS,
            "temp_directory": str(spill),
        }
        if memory_bytes is not None:
            settings["memory_limit"] = f"{memory_bytes}B"
        if threads is not None:
            settings["threads"] = threads
        self._connection = duckdb.connect(":memory:", config=settings)

    def close(self) -> None:
        self._connection.close()

    def load(self, tables: Mapping[str, TableFiles], relations: Mapping[str, pa.Table]) -> None:
        for name, table in tables.items():
            self._run(f'create table "{name}" as {_union(table)}', name)
        for name, relation in relations.items():
            self._connection.register("arriving", relation)
            self._run(f'create table "{name}" as from arriving', name)
            self._connection.unregister("arriving")
        # Rules may come from elsewhere: from here on they see these tables and no file.
        self._run("set enable_external_access = false", "settings")
        self._run("set lock_configuration = true", "settings")

    def make(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            text = duckdb_text(stage.text, name=stage.name)
            self._run(f'create table "{stage.name}" as {text}', stage.name)

    def table(self, name: str) -> list[dict[str, object]]:
        return self._fetch(f'from "{name}"', name)

    def ask(self, query: str) -> list[dict[str, object]]:
        """The rows that a query in DuckDB's own SQL has."""
        return self._fetch(query, "query")

    def findings(self, rule: Rule) -> Findings:
        text = duckdb_text(rule.text, name=rule.id)
        self._run(f"create or replace temp table {_FOUND} as {text}", rule.id)
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
        """One after the other: each uses all threads by itself."""
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
    """Structs and lists have no order that both engines share."""
    return not kind.upper().startswith(("STRUCT", "MAP", "UNION")) and not kind.endswith("]")


def _union(table: TableFiles) -> str:
    parts = []
    for path in table.files:
        columns = select_list(path, table.schema)
        quoted = str(path).replace("'", "''")
        parts.append(f"from read_parquet('{quoted}', hive_partitioning = false) select {columns}")
    if not parts:
        columns = select_list(None, table.schema)
        parts.append(f"select {columns} where false")
    return " union all ".join(parts)


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
