"""Parser of SQL92 filter expressions: grammar, and the trees that it builds.

Place in the data path: `broker.queues.sql` compiles an expression once. Pure.

Words may be written in any case, names of properties may not. NOT binds tighter than comparisons
(`NOT a = 1` compares `NOT a`), as in RocketMQ. Every operand is checked when the tree is built:
`<` and its like take numbers and properties, `=` takes no NULL, IN takes a property. A size and a
depth are the most that an expression may have. Unlike RocketMQ, which silently leaves it out, text
behind a whole expression is an error.

Source: RocketMQ SelectorParser.jj, ComparisonExpression, ConstantExpression.
"""

from __future__ import annotations

import math
import sys
from typing import Final, TypeAlias, cast

from lark import Lark, Token, Transformer
from lark.exceptions import LarkError, UnexpectedInput, UnexpectedToken

from broker.queues.message_filter import FilterError
from broker.queues.sql_expression import (
    And,
    BooleanCast,
    Compare,
    Constant,
    Equal,
    Expression,
    In,
    IsNull,
    Negate,
    Not,
    Or,
    Property,
    TextTest,
)
from broker.queues.sql_values import EvaluationError, Long, Value, compare

__all__ = ["DEPTH_MAX", "SIZE_MAX", "parse_sql"]

SIZE_MAX: Final = 8_192  # characters
DEPTH_MAX: Final = 64
_INT_END: Final = 1 << 31
_LONG_END: Final = 1 << 63

_GRAMMAR: Final = r"""
start: or_expression

?or_expression: and_expression (_OR and_expression)*
?and_expression: equality (_AND equality)*
?equality: comparison
    | equality "=" comparison                       -> equal
    | equality "<>" comparison                      -> not_equal
    | equality _IS _NULL_WORD                       -> is_null
    | equality _IS _NOT _NULL_WORD                  -> is_not_null
?comparison: unary
    | comparison ORDER unary                        -> ordered
    | comparison TEXT_TEST STRING                   -> text_test
    | comparison _NOT TEXT_TEST STRING              -> not_text_test
    | comparison _BETWEEN unary _AND unary          -> between
    | comparison _NOT _BETWEEN unary _AND unary     -> not_between
    | comparison _IN "(" STRING ("," STRING)* ")"   -> in_
    | comparison _NOT _IN "(" STRING ("," STRING)* ")" -> not_in
?unary: primary
    | "+" unary
    | "-" unary                                     -> negate
    | _NOT unary                                    -> not_
?primary: STRING                                    -> text
    | DECIMAL                                       -> decimal
    | FLOATING                                      -> floating
    | BOOLEAN                                       -> boolean
    | _NULL_WORD                                    -> null
    | NAME                                          -> name
    | "(" or_expression ")"

_NOT.3: /NOT(?![a-z0-9_$])/i
_AND.3: /AND(?![a-z0-9_$])/i
_OR.3: /OR(?![a-z0-9_$])/i
_BETWEEN.3: /BETWEEN(?![a-z0-9_$])/i
_IN.3: /IN(?![a-z0-9_$])/i
_IS.3: /IS(?![a-z0-9_$])/i
_NULL_WORD.3: /NULL(?![a-z0-9_$])/i
BOOLEAN.3: /(?:TRUE|FALSE)(?![a-z0-9_$])/i
TEXT_TEST.3: /(?:CONTAINS|STARTSWITH|ENDSWITH)(?![a-z0-9_$])/i
ORDER.1: /<=|>=|<(?!>)|>/
FLOATING.2: /[0-9]+\.[0-9]*(?:E[+-]?[0-9]+)?|\.[0-9]+(?:E[+-]?[0-9]+)?|[0-9]+E[+-]?[0-9]+/i
DECIMAL.1: /0|[1-9][0-9]*L?/i
STRING: /'(?:''|[^'])*'/
NAME: /[a-z_$][a-z0-9_$]*/i

SPACE: /[ \t\n\r\f]+/
LINE_COMMENT.4: /--[^\r\n]*/
BLOCK_COMMENT.4: /\/\*(?:.|\n)*?\*\//
%ignore SPACE
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""

_Children: TypeAlias = list[Expression | Token]
_BOOLEANS: Final = (And, BooleanCast, Compare, Equal, In, IsNull, Not, Or, TextTest)


def parse_sql(text: str) -> Expression:
    """Return the tree of an expression with a truth value. Raises FilterError."""
    if len(text) > SIZE_MAX:
        raise FilterError(f"an expression of {len(text)} characters; at most {SIZE_MAX}")
    try:
        tree: object = _PARSER.parse(text)
    except UnexpectedInput as error:
        is_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
        at = cast("int | None", error.pos_in_stream) or 0  # lark's own type says None alone
        found = "its end" if is_end else repr(text[at : at + 20])
        raise FilterError(f"the expression can't go on with {found}: {text[:200]!r}") from error
    except LarkError as error:
        raise FilterError(f"no expression: {text[:200]!r}: {error}") from error
    return cast("Expression", tree)  # what `start` returns


class _Builder(Transformer[Token, Expression]):
    """Builder that the parser calls from the leaves up, with each rule's parts."""

    def start(self, parts: _Children) -> Expression:
        return _truth(parts[0])

    def or_expression(self, parts: _Children) -> Expression:
        operands = tuple(map(_truth, parts))
        return Or(operands, _above(*operands))

    def and_expression(self, parts: _Children) -> Expression:
        operands = tuple(map(_truth, parts))
        return And(operands, _above(*operands))

    def equal(self, parts: _Children) -> Expression:
        left, right = map(_operand, parts)
        for side in (left, right):
            if isinstance(side, Constant) and side.value is None:
                raise FilterError("NULL can't be compared: use IS NULL")
        if _is_boolean(left) and isinstance(right, Constant) and not _is_boolean(right):
            raise FilterError(f"TRUE and FALSE can't be compared with {right.value!r:.80}")
        return Equal(left, right, _above(left, right))

    def not_equal(self, parts: _Children) -> Expression:
        equal = self.equal(parts)
        return Not(equal, _above(equal))

    def is_null(self, parts: _Children) -> Expression:
        operand = _operand(parts[0])
        return IsNull(operand, _above(operand))

    def is_not_null(self, parts: _Children) -> Expression:
        is_null = self.is_null(parts)
        return Not(is_null, _above(is_null))

    def ordered(self, parts: _Children) -> Expression:
        return _ordered(_operand(parts[0]), str(parts[1]), _operand(parts[2]))

    def between(self, parts: _Children) -> Expression:
        value, low, high = map(_operand, parts)
        if isinstance(low, Constant) and isinstance(high, Constant):
            if low.value is None or high.value is None:
                raise FilterError("BETWEEN takes no NULL")
            if _is_above(low.value, high.value):
                raise FilterError(f"BETWEEN {low.value!r} AND {high.value!r}: the first is larger")
        operands = (_ordered(value, ">=", low), _ordered(value, "<=", high))
        return And(operands, _above(*operands))

    def not_between(self, parts: _Children) -> Expression:
        value, low, high = map(_operand, parts)
        operands = (_ordered(value, "<", low), _ordered(value, ">", high))
        return Or(operands, _above(*operands))

    def in_(self, parts: _Children) -> Expression:
        return _among(parts, negated=False)

    def not_in(self, parts: _Children) -> Expression:
        return _among(parts, negated=True)

    def text_test(self, parts: _Children) -> Expression:
        return _text_test(parts, negated=False)

    def not_text_test(self, parts: _Children) -> Expression:
        return _text_test(parts, negated=True)

    def negate(self, parts: _Children) -> Expression:
        operand = _operand(parts[0])
        return Negate(operand, _above(operand))

    def not_(self, parts: _Children) -> Expression:
        operand = _truth(parts[0])
        return Not(operand, _above(operand))

    def text(self, parts: _Children) -> Expression:
        return Constant(_unquoted(parts[0]))

    def decimal(self, parts: _Children) -> Expression:
        number = int(str(parts[0]).rstrip("lL"))
        if number >= _LONG_END:
            raise FilterError(f"{parts[0]} has more than 64 bits")
        return Constant(number if number < _INT_END else Long(number))

    def floating(self, parts: _Children) -> Expression:
        number = float(str(parts[0]))
        if not 0 < number < math.inf:
            raise FilterError(f"{parts[0]} is not between {_DOUBLE_MIN} and {sys.float_info.max}")
        return Constant(number)

    def boolean(self, parts: _Children) -> Expression:
        return Constant(str(parts[0]).upper() == "TRUE")

    def null(self, parts: _Children) -> Expression:
        return Constant(None)

    def name(self, parts: _Children) -> Expression:
        return Property(str(parts[0]))


_DOUBLE_MIN: Final = 4.9e-324
_PARSER: Final = Lark(
    _GRAMMAR, parser="lalr", lexer="basic", transformer=_Builder(), maybe_placeholders=False
)


def _operand(part: Expression | Token) -> Expression:
    assert not isinstance(part, Token), f"the token {part!r} stands for an expression"
    return part


def _truth(part: Expression | Token) -> Expression:
    """Return the part as a truth value. Raises FilterError if it has none."""
    expression = _operand(part)
    if isinstance(expression, Property):
        return BooleanCast(expression)
    if isinstance(expression, _BOOLEANS):
        return expression
    if isinstance(expression, Constant) and isinstance(expression.value, bool | None):
        return expression
    raise FilterError("a number or a text stands where a condition should")


def _ordered(left: Expression, symbol: str, right: Expression) -> Expression:
    for side in (left, right):
        is_number = (
            not isinstance(side.value, str | bool | None)
            if isinstance(side, Constant)
            else not isinstance(side, _BOOLEANS)
        )
        if not is_number:
            raise FilterError(f"{symbol} compares numbers and properties only")
    return Compare(left, symbol, right, _above(left, right))


def _is_above(low: Value, high: Value) -> bool:
    """Whether `low` is above `high`. RocketMQ compares the second with the first, so values of
    types that don't mix count as above. Raises FilterError."""
    try:
        return compare(high, low) < 0
    except EvaluationError as error:
        raise FilterError(f"BETWEEN: {error}") from error


def _is_boolean(expression: Expression) -> bool:
    """Whether an expression is TRUE or FALSE."""
    return isinstance(expression, Constant) and isinstance(expression.value, bool)


def _among(parts: _Children, *, negated: bool) -> Expression:
    operand = _operand(parts[0])
    if not isinstance(operand, Property):
        raise FilterError("IN takes a property on its left")
    return In(operand, frozenset(map(_unquoted, parts[1:])), negated)


def _text_test(parts: _Children, *, negated: bool) -> Expression:
    operand = _operand(parts[0])
    return TextTest(operand, str(parts[1]).upper(), _unquoted(parts[2]), negated, _above(operand))


def _unquoted(part: Expression | Token) -> str:
    return str(part)[1:-1].replace("''", "'")


def _above(*operands: Expression) -> int:
    """Return the depth of an expression above these. Raises FilterError above the limit."""
    depth = 1 + max(operand.depth for operand in operands)
    if depth > DEPTH_MAX:
        raise FilterError(f"expressions stand in each other more than {DEPTH_MAX} deep")
    return depth
