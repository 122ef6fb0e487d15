"""What an engine does: holds tables, makes stages, answers rules.

Place in the data path: between `verify.judge`, which knows rules, and DuckDB or Spark, which know
rows.

Invariants: a finding's columns, their order and their values are the same whatever the engine:
structs are dicts, lists are lists, integers are ints. Findings are ordered by their plain columns
from left to right, null before everything, strings by their UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import pyarrow as pa

from verify.catalogue.rule_files import Rule, Stage
from verify.sources.run_files import TableFile

__all__ = [
    "FINDINGS_MAX",
    "Engine",
    "EngineError",
    "Findings",
    "Forgetful",
    "TableFiles",
    "found_by",
]

FINDINGS_MAX: Final = 32
"""How many violations, and how many doubts, of a rule are fetched."""


class EngineError(Exception):
    """A query failed; the text is the engine's first line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFiles:
    """Where a table of the format lies: Parquet files, whose rows are those of all of them."""

    files: tuple[TableFile, ...]
    schema: pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What one rule found: how many violations and doubts, and the smallest of each."""

    violations: int
    doubts: int
    smallest_violations: Sequence[Mapping[str, object]]
    smallest_doubts: Sequence[Mapping[str, object]]


def found_by(find: Callable[[Rule], Findings], rule: Rule) -> Findings | EngineError:
    """What `find` answers of `rule`, or why it can't."""
    try:
        return find(rule)
    except EngineError as error:
        return error


class Engine(Protocol):
    """One engine over the tables of one run. Methods raise EngineError."""

    @property
    def name(self) -> str: ...

    def load(self, tables: Mapping[str, TableFiles], relations: Mapping[str, pa.Table]) -> None:
        """Makes the run's tables, and small ones that are in memory, known by their names."""

    def make(self, stages: Sequence[Stage]) -> None:
        """Makes and keeps each stage; each may read those before it."""

    def make_each(self, stages: Sequence[Stage]) -> Mapping[str, EngineError]:
        """The same; an error, by the stage's name, is that of the stage and of those that read
        it."""

    def table(self, name: str) -> list[dict[str, object]]:
        """The rows of a small table or stage."""

    def findings(self, rule: Rule) -> Findings:
        """What `rule` finds."""

    def findings_of(self, rules: Sequence[Rule]) -> Mapping[str, Findings | EngineError]:
        """What each of `rules` finds, by id; an error is that of its rule alone."""


@runtime_checkable
class Forgetful(Protocol):
    """An engine that makes a stage at once, and so gains by dropping it when it is not read any
    more."""

    def drop(self, names: Sequence[str]) -> None:
        """Drops stages."""
