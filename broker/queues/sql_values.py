"""Values of SQL92 expressions, and Java's comparisons of them.

Place in the data path: `broker.queues.sql_expression` evaluates to these. Properties are always
text; a literal's type decides what the text beside it is read as. Pure.

| Java    | here  | from                                      |
|---------|-------|-------------------------------------------|
| String  | str   | properties, 'literals'                    |
| Boolean | bool  | TRUE, FALSE, comparisons                  |
| Integer | int   | whole literals within 32 bits             |
| Long    | Long  | whole literals beyond                     |
| Double  | float | literals with a point or an exponent      |

Text that is no number of the type wanted ends the evaluation (`EvaluationError`), and the message
does not match, whatever the rest of the expression says. Values of types that don't mix compare as
"less". Source: RocketMQ ComparisonExpression.
"""

from __future__ import annotations

import math
import re
from typing import Final, TypeAlias

__all__ = ["EvaluationError", "Long", "Value", "compare", "equals", "order", "to_double"]

_WHOLE: Final = re.compile(r"([+-]?)(\d+)")
_DOUBLE: Final = re.compile(
    # Each text in one way: a message's property may have thousands of digits.
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEX_DOUBLE: Final = re.compile(
    r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[fFdD]?"
)
_TRIMMED: Final = "".join(map(chr, range(33)))  # what Java's String.trim takes off
_DIGITS_MAX: Final = 19
_SHORT_DIGITS: Final = 10
_INT_BITS: Final = 31
_LONG_BITS: Final = 63


class EvaluationError(Exception):
    """Error of an expression without a value for a message, which therefore doesn't match."""


class Long(int):
    """Whole number that Java holds in 64 bits."""

    __slots__ = ()


Value: TypeAlias = str | bool | int | float


def equals(left: Value, right: Value) -> bool:
    """Compare two values, neither of them missing, by `=`. Raises EvaluationError."""
    if type(left) is type(right) and isinstance(left, str | bool):
        return left == right
    return compare(left, right) == 0


def order(left: Value, right: Value) -> int:
    """Return a number below, at or above 0, for `<` and the like; compare two texts as doubles.

    Raises EvaluationError.
    """
    if isinstance(left, str) and isinstance(right, str):
        return _compare_doubles(to_double(left), to_double(right))
    return compare(left, right)


def compare(left: Value, right: Value) -> int:
    """Compare two values as Java does, the text of one parsed as the type of the other.

    Raises EvaluationError.
    """
    if isinstance(left, str) and not isinstance(right, str):
        left = _read_as(left, right)
    elif isinstance(right, str) and not isinstance(left, str):
        if isinstance(left, bool):
            raise EvaluationError("a boolean can't be compared with text behind it")
        right = _read_as(right, left)
    if isinstance(left, str) and isinstance(right, str):
        return (left > right) - (left < right)
    assert not isinstance(left, str)
    assert not isinstance(right, str)
    if isinstance(left, bool) != isinstance(right, bool):
        return -1
    if isinstance(left, float) or isinstance(right, float):
        return _compare_doubles(float(left), float(right))
    return (left > right) - (left < right)


def _read_as(text: str, model: Value) -> Value:
    if isinstance(model, bool):
        return text.lower() == "true"
    if isinstance(model, float):
        return to_double(text)
    if isinstance(model, Long):
        return Long(_whole(text, _LONG_BITS))
    return _whole(text, _INT_BITS)


def _whole(text: str, bits: int) -> int:
    """Parse text as Java's Integer.valueOf and Long.valueOf do. Raises EvaluationError."""
    if len(text) < _SHORT_DIGITS and text.isdecimal():  # the common case, within 32 bits
        return int(text)
    match = _WHOLE.fullmatch(text)
    if match is not None:
        digits = match[2].lstrip("0") or "0"
        if len(digits) <= _DIGITS_MAX:
            number = -int(digits) if match[1] == "-" else int(digits)
            if -(1 << bits) <= number < 1 << bits:
                return number
    raise EvaluationError(f"{text[:40]!r} is no whole number of {bits + 1} bits")


def to_double(text: str) -> float:
    """Parse text as Java's Double.valueOf does. Raises EvaluationError."""
    trimmed = text.strip(_TRIMMED)
    if _DOUBLE.fullmatch(trimmed) is not None:
        word = trimmed.lstrip("+-")
        return float(trimmed if word in {"NaN", "Infinity"} else trimmed.rstrip("fFdD"))
    if _HEX_DOUBLE.fullmatch(trimmed) is not None:
        mantissa, _, exponent = trimmed.lower().partition("p")
        try:
            return float.fromhex(f"{mantissa}p{exponent.rstrip('fd')}")
        except OverflowError:
            return -math.inf if trimmed.startswith("-") else math.inf
    raise EvaluationError(f"{text[:40]!r} is no number")


def _compare_doubles(left: float, right: float) -> int:
    """Compare as Java's Double.compare: NaN is above all and equals itself, -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right != 0:
        return 0
    return (_rank(left) > _rank(right)) - (_rank(left) < _rank(right))


def _rank(number: float) -> int:
    """Return the rank of what `<` doesn't order: -0.0, 0.0, any other number, NaN."""
    if math.isnan(number):
        return 2
    if number == 0:
        return -1 if math.copysign(1, number) < 0 else 0
    return 1
