"""SQL92 subscriptions as message filters.

Place in the data path: heartbeats, pulls and CHECK_CLIENT_CONFIG compile an expression, once: the
last few hundred stay compiled. A record's properties are read only by pulls of such a filter.
Source: RocketMQ SqlFilter, ExpressionMessageFilter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from broker.queues.message_filter import TAG, FilterError, MessageFilter, parse_tags
from broker.queues.sql_expression import Expression
from broker.queues.sql_parser import parse_sql
from broker.queues.sql_values import EvaluationError

__all__ = ["SQL92", "SqlFilter", "filter_of"]

SQL92: Final = "SQL92"
_COMPILED_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Filter by an SQL92 expression; it needs a record's properties, which units don't contain."""

    expression: Expression
    size: int

    @property
    def codes(self) -> frozenset[int] | None:
        return None

    @property
    def reads_properties(self) -> bool:
        return True

    def wants(self, properties: Mapping[str, str]) -> bool:
        try:
            return self.expression.evaluate(properties) is True
        except EvaluationError:
            return False


def filter_of(kind: str | None, expression: str | None) -> MessageFilter:
    """Return a subscription's filter; `kind` is RocketMQ's expression type. Raises FilterError."""
    if kind in {None, "", TAG}:
        return parse_tags(expression)
    if kind != SQL92:
        raise FilterError(f"expressions are {TAG} or {SQL92}, not {kind!r:.60}")
    if not expression:
        raise FilterError("the expression is empty")
    return _compiled(expression)


@lru_cache(maxsize=_COMPILED_MAX)
def _compiled(expression: str) -> SqlFilter:
    return SqlFilter(parse_sql(expression), size=16 * len(expression))
