"""SQL92 expressions as trees, and their evaluation for a message.

Place in the data path: `broker.queues.sql_parser` builds a tree once per expression; a pull calls
`evaluate` with each message's properties. Pure.

Three truth values: True, False and None (unknown, from a property that is missing). RocketMQ's
rules, which are not symmetric: `a = 'x'` is unknown where `a` is missing, `'x' = a` is False, and
`a = b` is True where both are. Evaluation goes from left to right and stops where the answer is
clear; what can't be compared on the way there ends it (EvaluationError).

Invariant: a tree's depth is bounded when it is built, so evaluation can't exhaust the stack.
Source: RocketMQ filter.expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from broker.queues.sql_values import Long, Value, equals, order

__all__ = [
    "And",
    "BooleanCast",
    "Compare",
    "Constant",
    "Equal",
    "Expression",
    "In",
    "IsNull",
    "Negate",
    "Not",
    "Or",
    "Property",
    "TextTest",
]

Properties = Mapping[str, str]


class Expression(Protocol):
    @property
    def depth(self) -> int:
        """Return how deeply expressions are nested here, this one included."""

    def evaluate(self, properties: Properties) -> Value | None:
        """Return the value for a message's properties. Raises EvaluationError."""


@dataclass(frozen=True, slots=True)
class Constant:
    """Literal; None is NULL."""

    value: Value | None
    depth: int = 1

    def evaluate(self, properties: Properties) -> Value | None:
        return self.value


@dataclass(frozen=True, slots=True)
class Property:
    """Message property: text, or None if the message has none of that name."""

    name: str
    depth: int = 1

    def evaluate(self, properties: Properties) -> Value | None:
        return properties.get(self.name)


@dataclass(frozen=True, slots=True)
class Negate:
    """Unary `-` of a number; text has no negative."""

    operand: Expression
    depth: int

    def evaluate(self, properties: Properties) -> Value | None:
        value = self.operand.evaluate(properties)
        if value is None or isinstance(value, str | bool):
            return None
        return Long(-value) if isinstance(value, Long) else -value


@dataclass(frozen=True, slots=True)
class BooleanCast:
    """Property where a truth value is expected: text is none, so never True."""

    operand: Property
    depth: int = 2

    def evaluate(self, properties: Properties) -> bool | None:
        return None if self.operand.evaluate(properties) is None else False


@dataclass(frozen=True, slots=True)
class Not:
    operand: Expression
    depth: int

    def evaluate(self, properties: Properties) -> bool | None:
        value = self.operand.evaluate(properties)
        return None if value is None else not value


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple[Expression, ...]
    depth: int

    def evaluate(self, properties: Properties) -> bool | None:
        answer: bool | None = True
        for operand in self.operands:
            value = operand.evaluate(properties)
            if value is None:
                answer = None
            elif not value:
                return False
        return answer


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple[Expression, ...]
    depth: int

    def evaluate(self, properties: Properties) -> bool | None:
        answer: bool | None = False
        for operand in self.operands:
            value = operand.evaluate(properties)
            if value is None:
                answer = None
            elif value:
                return True
        return answer


@dataclass(frozen=True, slots=True)
class Equal:
    left: Expression
    right: Expression
    depth: int

    def evaluate(self, properties: Properties) -> bool | None:
        left = self.left.evaluate(properties)
        right = self.right.evaluate(properties)
        if left is None:
            return True if right is None else None
        return False if right is None else equals(left, right)


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Expression
    depth: int

    def evaluate(self, properties: Properties) -> bool:
        return self.operand.evaluate(properties) is None


@dataclass(frozen=True, slots=True)
class Compare:
    """Comparison by `<`, `<=`, `>` or `>=`."""

    left: Expression
    symbol: str
    right: Expression
    depth: int

    def evaluate(self, properties: Properties) -> bool | None:
        left = self.left.evaluate(properties)
        if left is None:
            return None
        right = self.right.evaluate(properties)
        return None if right is None else _ORDERS[self.symbol](order(left, right))


_ORDERS: Final[dict[str, Callable[[int], bool]]] = {
    "<": lambda answer: answer < 0,
    "<=": lambda answer: answer <= 0,
    ">": lambda answer: answer > 0,
    ">=": lambda answer: answer >= 0,
}


@dataclass(frozen=True, slots=True)
class In:
    """Membership of text in a list; unknown if the property is missing, with NOT too."""

    operand: Property
    texts: frozenset[str]
    negated: bool
    depth: int = 2

    def evaluate(self, properties: Properties) -> bool | None:
        value = self.operand.evaluate(properties)
        return None if value is None else (value in self.texts) != self.negated


@dataclass(frozen=True, slots=True)
class TextTest:
    """CONTAINS, STARTSWITH or ENDSWITH: False for a missing value or no text, with NOT too."""

    operand: Expression
    test: str
    text: str
    negated: bool
    depth: int

    def evaluate(self, properties: Properties) -> bool:
        value = self.operand.evaluate(properties)
        if not self.text or not isinstance(value, str):
            return False
        return _TESTS[self.test](value, self.text) != self.negated


_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": lambda value, text: text in value,
    "STARTSWITH": lambda value, text: value.startswith(text),
    "ENDSWITH": lambda value, text: value.endswith(text),
}
