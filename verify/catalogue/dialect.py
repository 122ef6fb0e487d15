"""The translation of rules and stages, which are written in Spark's SQL, into DuckDB's SQL.

Place in the data path: between a file of SQL and `verify.engines.duckdb`. Spark gets the text
unchanged.

Invariants: a function on which the engines would answer differently is refused by name, not
translated: the subset that rules may use is what `_REFUSED` leaves. A failing cast is an error on
both engines.

Source: docs/RULE_SQL.md, the subset.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

__all__ = ["TEXTS_MAX", "DialectError", "Translation", "duckdb_text", "held", "hold", "tables_of"]

_REFUSED: Final[dict[str, str]] = {
    "exists": "any match of a lambda differs: write size(filter(xs, x -> ...)) > 0",
    "xxhash64": "its value differs: compare the columns",
    "hash": "its value differs: compare the columns",
    "first": "which row is first is not told: write min_by",
    "last": "which row is last is not told: write max_by, or last_value with an order",
    "any_value": "which row is any is not told: write min or max",
    "rand": "its value differs with each call",
    "monotonically_increasing_id": "its value differs with each call",
    "floor": "a quotient is a float on one engine only: write div",
    "to_json": "JSON is made in one place, in Python",
    "approx_count_distinct": "an estimate is no finding",
}

# More than all rules, stages and headers. Parsing them costs seconds, more than judging a short
# run: a process that judges many does it once.
TEXTS_MAX: Final = 4096


class DialectError(Exception):
    """A text is not in the subset of SQL that the engines share; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Translation:
    """DuckDB's text of a query, and the tables and stages that the query reads."""

    duckdb: str
    tables: frozenset[str]


_held: Final[dict[str, Translation]] = {}
"""The translations that this process has made or been given, by the digest of their text."""


def hold(translations: Mapping[str, Translation]) -> None:
    """Use `translations`, which this dialect made, by the digest of their text."""
    if len(_held) + len(translations) > TEXTS_MAX:
        _held.clear()
    _held.update(translations)


def held() -> dict[str, Translation]:
    """Return all translations that this process has, by the digest of their text."""
    return dict(_held)


def duckdb_text(text: str, *, name: str) -> str:
    """Translate `text` into DuckDB's SQL.

    `name` is the file's name, used in errors.

    Raises:
        DialectError: the text is not one query, or uses something outside the subset.
    """
    return _translation(text, name).duckdb


def tables_of(text: str, *, name: str) -> frozenset[str]:
    """Return the tables and stages that a query reads, without its own WITH tables.

    Raises:
        DialectError: as `duckdb_text`.
    """
    return _translation(text, name).tables


def _translation(text: str, name: str) -> Translation:
    digest = hashlib.sha256(text.encode()).hexdigest()
    found = _held.get(digest)
    if found is None:
        found = _translate(text, name)
        if len(_held) >= TEXTS_MAX:
            _held.clear()
        _held[digest] = found
    return found


def _translate(text: str, name: str) -> Translation:
    tree = _parsed(text, name)
    own = {cte.alias_or_name for cte in tree.find_all(exp.CTE)}
    tables = frozenset(table.name for table in tree.find_all(exp.Table) if table.name) - own
    for node in list(tree.find_all(exp.TryCast)):
        # Spark's cast raises if a value does not fit, like DuckDB's CAST, not its TRY_CAST.
        node.replace(exp.Cast(this=node.this, to=node.args["to"]))
    for counted in list(tree.find_all(exp.CountIf)):
        # If all conditions are null, DuckDB's own COUNT_IF returns null, Spark's returns 0.
        counted.replace(exp.Count(this=exp.If(this=counted.this, true=exp.Literal.number(1))))
    for hint in list(tree.find_all(exp.Hint)):
        hint.pop()
    return Translation(tree.sql(dialect="duckdb", identify=True, copy=False), tables)


def _parsed(text: str, name: str) -> exp.Query:
    try:
        trees = [tree for tree in sqlglot.parse(text, read="spark") if tree is not None]
    except SqlglotError as error:
        raise DialectError(f"{name}: {str(error).splitlines()[0]}") from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise DialectError(f"{name} is not one query")
    for function in _functions(trees[0]):
        if function in _REFUSED:
            raise DialectError(f"{name}: {function} is not in the subset; {_REFUSED[function]}")
    return trees[0]


def _functions(tree: exp.Query) -> Iterator[str]:
    for node in tree.find_all(exp.Func):
        yield (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()
