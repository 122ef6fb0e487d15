"""The interface of an engine: load tables, make stages, answer rules.

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
    "NOTHING_FOUND",
    "Engine",
    "EngineError",
    "Findings",
    "Forgetful",
    "TableFiles",
    "found_by",
]

FINDINGS_MAX: Final = 32
"""The maximum number of violations, and of doubts, that are fetched per rule."""


class EngineError(Exception):
    """A query failed; the message is the first line of the engine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFiles:
    """The Parquet files of a table of the format; its rows are those of all files together."""

    files: tuple[TableFile, ...]
    schema: pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The findings of one rule: the numbers of violations and doubts, and the smallest of each."""

    violations: int
    doubts: int
    smallest_violations: Sequence[Mapping[str, object]]
    smallest_doubts: Sequence[Mapping[str, object]]


NOTHING_FOUND: Final = Findings(violations=0, doubts=0, smallest_violations=(), smallest_doubts=())


def found_by(find: Callable[[Rule], Findings], rule: Rule) -> Findings | EngineError:
    """Return the findings that `find` returns for `rule`, or the EngineError that it raises."""
    try:
        return find(rule)
    except EngineError as error:
        return error


class Engine(Protocol):
    """One engine over the tables of one run. Methods raise EngineError."""

    @property
    def name(self) -> str: ...

    def load(self, tables: Mapping[str, TableFiles], relations: Mapping[str, pa.Table]) -> None:
        """Load the run's tables, and small ones that are in memory, under their names."""

    def make(self, stages: Sequence[Stage]) -> None:
        """Make and keep each stage; each may read those before it."""

    def make_each(self, stages: Sequence[Stage]) -> Mapping[str, EngineError]:
        """Make the stages like `make`, and return errors by stage name. A stage's error is also
        that of the stages that read it."""

    def table(self, name: str) -> list[dict[str, object]]:
        """Return the rows of a small table or stage."""

    def findings(self, rule: Rule) -> Findings:
        """Return the findings of `rule`."""

    def findings_of(self, rules: Sequence[Rule]) -> Mapping[str, Findings | EngineError]:
        """Return the findings of each of `rules`, by id; an error is that of its rule alone."""


@runtime_checkable
class Forgetful(Protocol):
    """An engine that computes stages at once, and frees memory by dropping those no longer read, if
    it `forgets` those of the run that it has loaded."""

    forgets: bool

    def drop(self, names: Sequence[str]) -> None:
        """Drop stages."""
