"""The WITH tables that a query reads more than once, separated so that each is computed once.

Place in the data path: between a file of SQL and `verify.spark.engine`. Spark would otherwise
inline such a table's query at each place that reads it, and run it as often. Pure.

Invariants: the resulting texts are pieces of the input; run in order, each with those before it
stored under their names, they give the same answer as the whole query. A query that gains nothing,
or whose WITH is not a plain list, is returned unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark

__all__ = ["DividedQuery", "SharedTable", "divided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTable:
    """A WITH table to store: its name in the rewritten queries, and the query that computes it."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DividedQuery:
    """The tables to compute first, each after those that it reads, and the query over them."""

    shared: Sequence[SharedTable]
    text: str


@dataclass(frozen=True, slots=True)
class _Definition:
    """One table of a WITH: its name, its whole text, its query alone, and that query's tokens."""

    name: str
    whole: str
    query: str
    tokens: Sequence[Token]


@lru_cache(maxsize=1024)
def divided(text: str, *, prefix: str) -> DividedQuery:
    """Divide `text`, a query that parses as Spark's SQL; shared names begin with `prefix`."""
    tokens = Spark().tokenize(text)
    definitions, rest = _definitions(text, tokens)
    names = [definition.name for definition in definitions]
    body = tokens[rest:]
    reads = Counter(_tables_read(body))
    for definition in definitions:
        reads.update(_tables_read(definition.tokens))
    shared = {name: f"{prefix}__{name}" for name in names if reads[name] > 1}
    if not shared or len(set(names)) < len(names):
        return DividedQuery(shared=(), text=text)
    return DividedQuery(
        shared=tuple(
            SharedTable(
                name=shared[definition.name],
                text=_with(definitions[:at], shared, definition.tokens) + definition.query,
            )
            for at, definition in enumerate(definitions)
            if definition.name in shared
        ),
        text=_with(definitions, shared, body) + text[body[0].start :],
    )


def _definitions(text: str, tokens: Sequence[Token]) -> tuple[list[_Definition], int]:
    """Return the WITH tables and the index of the first token after them.

    It is `([], 0)` if the WITH is not a plain list.
    """
    definitions: list[_Definition] = []
    at = 1
    while tokens[0].token_type is TokenType.WITH and _begins_definition(tokens, at):
        end = _closing(tokens, at + 2)
        definitions.append(
            _Definition(
                tokens[at].text.lower(),
                text[tokens[at].start : tokens[end].end + 1],
                text[tokens[at + 3].start : tokens[end].start],
                tokens[at + 3 : end],
            )
        )
        if tokens[end + 1].token_type is not TokenType.COMMA:
            return definitions, end + 1
        at = end + 2
    return [], 0


def _begins_definition(tokens: Sequence[Token], at: int) -> bool:
    """Return whether a name (which may be a word of SQL), AS and an opening bracket follow."""
    kinds = [token.token_type for token in tokens[at + 1 : at + 3]]
    return kinds == [TokenType.ALIAS, TokenType.L_PAREN]


def _closing(tokens: Sequence[Token], opening: int) -> int:
    depth = 0
    for at in range(opening, len(tokens)):
        kind = tokens[at].token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if not depth:
            return at
    raise AssertionError("a query that parses closes what it opens")


def _tables_read(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the name of each table after FROM or JOIN, once for each place that reads it."""
    for before, token in pairwise(tokens):
        if before.token_type in {TokenType.FROM, TokenType.JOIN}:
            yield token.text.lower()


def _with(
    definitions: Sequence[_Definition], shared: Mapping[str, str], tokens: Sequence[Token]
) -> str:
    """Build the WITH clause for the query of `tokens`: what it needs of `definitions` before it."""
    wanted = _words(tokens)
    needed: list[str] = []
    # Backwards: a needed definition adds the names that it reads, and those stand before it.
    for definition in reversed(definitions):
        if definition.name not in wanted:
            continue
        if definition.name in shared:
            made = shared[definition.name]
            needed.append(f"{definition.name} as (from {made} select *)")
        else:
            needed.append(definition.whole)
            wanted |= _words(definition.tokens)
    return f"with {', '.join(reversed(needed))} " if needed else ""


def _words(tokens: Sequence[Token]) -> set[str]:
    """Return all words that may name a table. It may be too many: a superfluous one is harmless."""
    return {token.text.lower() for token in tokens}
