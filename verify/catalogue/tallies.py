"""How many rows a run has: the stages of counts, and the queries of rule headers over them.

Place in the data path: an engine makes the stages of counts and passes their few rows on; this
module answers the headers' `applies` and `examined`, for each engine from its own rows.

Invariants: a header sees counts and the manifest's tables only, so that its cost does not grow with
the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import duckdb
import pyarrow as pa

from verify.catalogue.dialect import duckdb_text
from verify.catalogue.rule_files import Rule, RuleFileError

__all__ = ["TALLIES", "Headers", "Tallies"]

_STRING, _LONG, _BOOL = pa.string(), pa.int64(), pa.bool_()

TALLIES: Final[Mapping[str, pa.Schema]] = {
    "op_counts": pa.schema(
        [
            ("f", _STRING),
            ("type", _STRING),
            ("final", _BOOL),
            ("ops", _LONG),
            ("messages", _LONG),
            ("sharded", _LONG),
            ("digests", _LONG),
            ("origins", _LONG),
            ("timed", _LONG),
            ("with_due", _LONG),
        ]
    ),
    "record_counts": pa.schema(
        [
            ("kind", _STRING),
            ("committed", _BOOL),
            ("records", _LONG),
            ("digests", _LONG),
            ("timed", _LONG),
        ]
    ),
    "unit_counts": pa.schema([("units", _LONG)]),
    "event_counts": pa.schema([("event", _STRING), ("role", _STRING), ("events", _LONG)]),
    "fault_counts": pa.schema([("name", _STRING), ("effect", _STRING), ("faults", _LONG)]),
}
"""The stages of counts, and their columns."""

_ROWS_OF: Final = {
    "ops": "select coalesce(sum(ops), 0) from op_counts",
    "log": "select coalesce(sum(records), 0) from record_counts",
    "cq": "select coalesce(sum(units), 0) from unit_counts",
    "raft": "select coalesce(sum(events), 0) from event_counts",
    "faults": "select coalesce(sum(faults), 0) from fault_counts",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    """The answers of a rule's header queries for this run."""

    applies: bool
    listed: bool
    examined: int


class Tallies:
    """The counts of one run, as one engine computed them."""

    def __init__(
        self,
        counts: Mapping[str, Sequence[Mapping[str, object]]],
        relations: Mapping[str, pa.Table],
    ) -> None:
        self._connection = duckdb.connect(":memory:")
        tables = {
            name: pa.Table.from_pylist([dict(row) for row in counts[name]], schema=schema)
            for name, schema in TALLIES.items()
        }
        for name, table in {**tables, **relations}.items():
            self._connection.register(name, table)
        self.counts = counts
        self._answers: dict[str, object] = {}  # many rules have the same query

    def close(self) -> None:
        self._connection.close()

    def headers(self, rule: Rule) -> Headers:
        """Answer the header queries of `rule`. Raises RuleFileError if one can't be answered."""
        return Headers(
            applies=bool(self._answer(rule, rule.applies)),
            listed=bool(self._answer(rule, rule.listed)),
            examined=int(str(self._answer(rule, rule.examined) or 0)),
        )

    def rows_of(self, table: str) -> int:
        """Return the number of rows of a table of the format."""
        answer = self._connection.execute(_ROWS_OF[table]).fetchone()
        return int(answer[0]) if answer is not None else 0

    def _answer(self, rule: Rule, query: str) -> object:
        if query not in self._answers:
            self._answers[query] = self._run_query(rule, query)
        return self._answers[query]

    def _run_query(self, rule: Rule, query: str) -> object:
        try:
            answer = self._connection.execute(duckdb_text(query, name=rule.id)).fetchone()
        except duckdb.Error as error:
            raise RuleFileError(f"{rule.path}: {str(error).splitlines()[0]}") from error
        return None if answer is None else answer[0]
