"""A model of SQL92 filters: conditions on a message's properties, as text and as truth.

Place in the data path: `sql_readers` subscribes by the text, and tells the manifest which messages
the truth wants. The broker's parser and evaluator are not used, so that an error there is none of
the model's. Pure.

A property is text or missing; a condition is True, False or None (unknown), and only what is True
is wanted. Text that is compared with a number and is none ends the evaluation, and the message is
not wanted, whatever stands behind it; what stands behind a clear answer is not evaluated.

Source: RocketMQ filter.expression (LogicExpression, ComparisonExpression, UnaryExpression).
"""

from __future__ import annotations

import math
import operator
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

__all__ = ["Condition", "conditions", "is_wanted", "spelled"]

Properties = Mapping[str, str]
Literal = str | int | float | bool


class _NoValueError(Exception):
    """Text that is no number stood where one was needed."""


class Condition(Protocol):
    @property
    def text(self) -> str:
        """Return the condition as SQL92."""

    def truth(self, properties: Properties) -> bool | None:
        """Return the truth for a message's properties; None is unknown. Raises _NoValueError."""


def is_wanted(condition: Condition, properties: Properties) -> bool:
    """Return whether a message with these properties is to be delivered."""
    try:
        return condition.truth(properties) is True
    except _NoValueError:
        return False


_ORDERS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TEXT_TESTS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "CONTAINS": lambda value, text: text in value,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


@dataclass(frozen=True, slots=True)
class _Equal:
    name: str
    literal: Literal
    negated: bool = False

    @property
    def text(self) -> str:
        return f"{self.name} {'<>' if self.negated else '='} {_quoted(self.literal)}"

    def truth(self, properties: Properties) -> bool | None:
        value = properties.get(self.name)
        if value is None:
            return None
        if isinstance(self.literal, str):
            is_equal = value == self.literal
        elif isinstance(self.literal, bool):
            is_equal = (value.lower() == "true") == self.literal
        else:
            is_equal = _number(value, self.literal) == self.literal
        return is_equal != self.negated


@dataclass(frozen=True, slots=True)
class _Ordered:
    name: str
    symbol: str
    literal: int | float

    @property
    def text(self) -> str:
        return f"{self.name} {self.symbol} {_quoted(self.literal)}"

    def truth(self, properties: Properties) -> bool | None:
        value = properties.get(self.name)
        if value is None:
            return None
        return _ORDERS[self.symbol](_number(value, self.literal), self.literal)


@dataclass(frozen=True, slots=True)
class _Compared:
    """Two properties: as texts by `=` and `<>`, as numbers by all else."""

    name: str
    symbol: str
    other: str

    @property
    def text(self) -> str:
        return f"{self.name} {self.symbol} {self.other}"

    def truth(self, properties: Properties) -> bool | None:
        left, right = properties.get(self.name), properties.get(self.other)
        if self.symbol in _ORDERS:
            if left is None or right is None:
                return None
            return _ORDERS[self.symbol](_double(left), _double(right))
        if left is None and right is not None:
            return None
        return (left == right) == (self.symbol == "=")


@dataclass(frozen=True, slots=True)
class _Reversed:
    """A literal before the property: what is missing is not equal to it, which is no unknown."""

    literal: Literal
    symbol: str
    name: str

    @property
    def text(self) -> str:
        return f"{_quoted(self.literal)} {self.symbol} {self.name}"

    def truth(self, properties: Properties) -> bool | None:
        value = properties.get(self.name)
        if isinstance(self.literal, str):
            return value == self.literal
        if value is None:
            return None if self.symbol in _ORDERS else False
        number = _number(value, self.literal)
        if self.symbol in _ORDERS:
            return _ORDERS[self.symbol](self.literal, number)
        return number == self.literal


@dataclass(frozen=True, slots=True)
class _BetweenOthers:
    """BETWEEN whose ends are properties, too."""

    name: str
    low: str
    high: str
    negated: bool = False

    def _parts(self) -> Condition:
        symbols = ("<", ">") if self.negated else (">=", "<=")
        ends = [
            _Compared(self.name, symbol, end)
            for symbol, end in zip(symbols, (self.low, self.high), strict=True)
        ]
        return _Joined("OR" if self.negated else "AND", *ends)

    @property
    def text(self) -> str:
        word = "NOT BETWEEN" if self.negated else "BETWEEN"
        return f"{self.name} {word} {self.low} AND {self.high}"

    def truth(self, properties: Properties) -> bool | None:
        return self._parts().truth(properties)


@dataclass(frozen=True, slots=True)
class _Bare:
    """A property where a condition should be: text is none, and never true."""

    name: str

    @property
    def text(self) -> str:
        return self.name

    def truth(self, properties: Properties) -> bool | None:
        return None if self.name not in properties else False


@dataclass(frozen=True, slots=True)
class _Unknown:
    """Whether a condition is unknown."""

    operand: Condition

    @property
    def text(self) -> str:
        return f"({self.operand.text}) IS NULL"

    def truth(self, properties: Properties) -> bool | None:
        return self.operand.truth(properties) is None


@dataclass(frozen=True, slots=True)
class _Between:
    name: str
    low: int | float
    high: int | float
    negated: bool = False

    @property
    def text(self) -> str:
        word = "NOT BETWEEN" if self.negated else "BETWEEN"
        return f"{self.name} {word} {_quoted(self.low)} AND {_quoted(self.high)}"

    def truth(self, properties: Properties) -> bool | None:
        value = properties.get(self.name)
        if value is None:
            return None
        if _number(value, self.low) < self.low:
            return self.negated
        return (_number(value, self.high) <= self.high) != self.negated


@dataclass(frozen=True, slots=True)
class _Among:
    name: str
    texts: tuple[str, ...]
    negated: bool = False

    @property
    def text(self) -> str:
        word = "NOT IN" if self.negated else "IN"
        return f"{self.name} {word} ({', '.join(map(_quoted, self.texts))})"

    def truth(self, properties: Properties) -> bool | None:
        value = properties.get(self.name)
        return None if value is None else (value in self.texts) != self.negated


@dataclass(frozen=True, slots=True)
class _Missing:
    name: str
    negated: bool = False

    @property
    def text(self) -> str:
        return f"{self.name} {'IS NOT NULL' if self.negated else 'IS NULL'}"

    def truth(self, properties: Properties) -> bool | None:
        return (self.name not in properties) != self.negated


@dataclass(frozen=True, slots=True)
class _TextTest:
    name: str
    test: str
    part: str
    negated: bool = False

    @property
    def text(self) -> str:
        return f"{self.name} {'NOT ' if self.negated else ''}{self.test} {_quoted(self.part)}"

    def truth(self, properties: Properties) -> bool | None:
        value = properties.get(self.name)
        if value is None:  # RocketMQ: false, and with NOT too, where other tests are unknown
            return False
        return _TEXT_TESTS[self.test](value, self.part) != self.negated


@dataclass(frozen=True, slots=True)
class _Not:
    operand: Condition

    @property
    def text(self) -> str:
        return f"NOT ({self.operand.text})"

    def truth(self, properties: Properties) -> bool | None:
        value = self.operand.truth(properties)
        return None if value is None else not value


@dataclass(frozen=True, slots=True)
class _Joined:
    """AND, or OR: `decisive` is the truth of one operand that settles the whole."""

    word: str
    left: Condition
    right: Condition

    @property
    def text(self) -> str:
        return f"({self.left.text}) {self.word} ({self.right.text})"

    def truth(self, properties: Properties) -> bool | None:
        decisive = self.word == "OR"
        left = self.left.truth(properties)
        if left is decisive:
            return decisive
        right = self.right.truth(properties)
        if right is decisive:
            return decisive
        return None if left is None or right is None else not decisive


@dataclass(frozen=True, slots=True)
class _Flat:
    """Conditions in a row without parentheses: AND goes before OR. Words in any case."""

    operands: tuple[Condition, ...]
    words: tuple[str, ...]  # between them

    @property
    def text(self) -> str:
        text = self.operands[0].text
        for word, operand in zip(self.words, self.operands[1:], strict=True):
            text += f" {word} {operand.text}"
        return text

    def truth(self, properties: Properties) -> bool | None:
        groups: list[Condition] = [self.operands[0]]
        for word, operand in zip(self.words, self.operands[1:], strict=True):
            if word.upper() == "AND":
                groups[-1] = _Joined("AND", groups[-1], operand)
            else:
                groups.append(operand)
        whole = groups[0]
        for group in groups[1:]:
            whole = _Joined("OR", whole, group)
        return whole.truth(properties)


def conditions(rng: random.Random, count: int) -> Sequence[Condition]:
    """Return one condition of each operator, and `count` drawn compositions of them."""
    simple: list[Condition] = [
        _Equal("p", "a"),
        _Equal("p", "it's", negated=True),
        _Equal("n", 7),
        _Equal("n", -3),
        _Ordered("n", "<", 0),
        _Equal("n", 7.5, negated=True),
        _Equal("b", True),
        *(_Ordered("n", symbol, 7) for symbol in _ORDERS),
        _Ordered("n", ">", 7.25),
        _Between("n", -3, 7),
        _Between("n", -3, 7, negated=True),
        _Between("n", 7.5, 10.0),
        _Among("p", ("a", "b")),
        _Among("p", ("a", "b"), negated=True),
        _Among("n", ("7", "10"), negated=True),
        _Missing("p"),
        _Missing("p", negated=True),
        *(_TextTest("p", test, part) for test, part in _PARTS),
        *(_TextTest("p", test, part, negated=True) for test, part in _PARTS),
        *(_Compared("n", symbol, "m") for symbol in (*_ORDERS, "=", "<>")),
        _Compared("p", "=", "q"),
        _Compared("p", "<>", "q"),
        _Reversed(7, "<", "n"),
        _Reversed(7.5, ">=", "n"),
        _Reversed(7, "=", "n"),
        _Reversed("a", "=", "p"),
        # Literals within 32 bits read a property as such a number, larger ones as one of 64.
        _Ordered("n", "<=", _INT_MAX),
        _Ordered("n", ">", _INT_MAX + 1),
        _Equal("n", _INT_MAX + 1),
        _Equal("n", 1 << 32, negated=True),
        _Between("n", -(1 << 33), 1_900_000_000_000),
        _Between("n", 7, 1 << 40),
        _Ordered("n", "<", (1 << 63) - 1),
        _Reversed(1 << 32, "=", "n"),
        _BetweenOthers("n", "m", "k"),
        _BetweenOthers("m", "k", "n", negated=True),
    ]
    bare: list[Condition] = [_Bare("b"), _Not(_Bare("b")), _Unknown(_Equal("p", "a"))]
    flat = [_row(simple, rng) for _ in range(count // 2)]
    return [*simple, *bare, *flat, *(_composition(simple, rng) for _ in range(count))]


_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
_WORD: Final = re.compile(
    r"\b(AND|OR|NOT|IN|IS|NULL|BETWEEN|TRUE|FALSE|CONTAINS|STARTSWITH|ENDSWITH)\b"
)
_PARTS: Final = (("CONTAINS", "ö"), ("STARTSWITH", "a"), ("ENDSWITH", "'s"))


def _row(simple: Sequence[Condition], rng: random.Random) -> Condition:
    operands = tuple(rng.choice(simple) for _ in range(rng.randint(3, 5)))
    words = (rng.choice(("AND", "OR", "and", "Or")) for _ in operands[1:])
    return _Flat(operands, tuple(words))


def _composition(simple: Sequence[Condition], rng: random.Random) -> Condition:
    composed = rng.choice(simple)
    for _ in range(rng.randint(1, 3)):
        other = rng.choice(simple)
        if rng.random() < 0.4:
            other = _Not(other)
        left, right = rng.sample((composed, other), 2)
        composed = _Joined(rng.choice(("AND", "OR")), left, right)
    return _Not(composed) if rng.random() < 0.3 else composed


def spelled(text: str, rng: random.Random) -> str:
    """Return the condition's text with its words in any case, which means the same."""
    cases = (str.upper, str.upper, str.lower, str.capitalize)
    parts = re.split("('(?:[^']|'')*')", text)  # every second one is quoted
    for at in range(0, len(parts), 2):
        parts[at] = _WORD.sub(lambda found: rng.choice(cases)(found[0]), parts[at])
    return "".join(parts)


def _quoted(literal: Literal) -> str:
    if isinstance(literal, str):
        return "'" + literal.replace("'", "''") + "'"
    if isinstance(literal, bool):
        return "TRUE" if literal else "FALSE"
    return f"-{abs(literal)}" if literal < 0 else str(literal)


def _double(text: str) -> float:
    """Read text as Java's Double.valueOf does, as far as messages here have any."""
    try:
        number = float(text[:-1] if text[-1:] in "dDfF" else text)
    except ValueError as error:
        raise _NoValueError(text) from error
    assert math.isfinite(number), "no message has another one"
    return number


def _number(text: str, like: float) -> float:
    """Read text as a number of the kind of `like`: whole numbers have no point and no exponent, and
    no more bits than Java's type of the literal."""
    try:
        number = int(text) if isinstance(like, int) else float(text)
    except ValueError as error:
        raise _NoValueError(text) from error
    bound = _INT_MAX if abs(like) <= _INT_MAX else _LONG_MAX
    if isinstance(like, int) and not -bound - 1 <= number <= bound:
        raise _NoValueError(text)
    return number
