"""SQL92 expressions: what parses, and what they say, against a second, dumb evaluator."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.queues.message_filter import EVERYTHING, FilterError, TagFilter
from broker.queues.sql import filter_of
from broker.queues.sql_parser import SIZE_MAX
from remoting.records.message import tags_code


def matches(expression: str, **properties: str) -> bool:
    return filter_of("SQL92", expression).wants(properties)


@pytest.mark.parametrize(
    ("expression", "properties", "answer"),
    [
        ("a = 1", {"a": "1"}, True),
        ("a = 1", {"a": "+01"}, True),
        ("a = 1", {"a": "1.0"}, False),  # no Integer: the message does not match, whatever else
        ("a <> 1", {"a": "1.0"}, False),
        ("a <> 1 OR TRUE", {"a": "x"}, False),
        ("TRUE OR a <> 1", {"a": "x"}, True),
        ("a > 5", {"a": "2147483647"}, True),
        ("a > 5", {"a": "2147483648"}, False),
        ("a > 5.0", {"a": "2147483648"}, True),
        ("a > 2147483648", {"a": "2147483649"}, True),
        ("a = 1.5", {"a": " 1.5d "}, True),
        ("a < 1.5", {"a": "-Infinity"}, True),
        ("a > 1.5", {"a": "NaN"}, True),
        ("a = 16.0", {"a": "0x1p4"}, True),
        ("a < b", {"a": "9", "b": "10"}, True),  # two texts: as doubles
        ("a < b", {"a": "9", "b": "x"}, False),
        ("a = b", {"a": "1", "b": "1.0"}, False),  # two texts: as texts
        ("a = b", {}, True),
        ("a = b", {"a": "1"}, False),
        ("NOT (a = b)", {"a": "1"}, True),
        ("NOT (a = b)", {"b": "1"}, False),
        ("NOT (a = 'x')", {}, False),
        ("NOT ('x' = a)", {}, True),
        ("a IS NULL", {}, True),
        ("a IS NOT NULL", {"a": "x"}, True),
        ("NULL IS NULL", {}, True),
        ("a = TRUE", {"a": "tRuE"}, True),
        ("TRUE = a", {"a": "true"}, False),
        ("1 = TRUE", {}, False),
        ("a", {"a": "true"}, False),
        ("NOT a", {"a": "true"}, True),
        ("NOT a = 1", {"a": "2"}, False),  # (NOT a) = 1
        ("a BETWEEN 1 AND 10", {"a": "10"}, True),
        ("a NOT BETWEEN 1 AND 10", {"a": "11"}, True),
        ("a NOT BETWEEN 1 AND 10", {}, False),
        ("a BETWEEN -5 AND -1", {"a": "-3"}, True),
        ("a IN ('x', 'it''s')", {"a": "it's"}, True),
        ("a NOT IN ('x')", {"a": "y"}, True),
        ("a NOT IN ('x')", {}, False),
        ("NOT (a IN ('x'))", {}, False),
        ("a CONTAINS 'b'", {"a": "abc"}, True),
        ("a NOT CONTAINS 'b'", {"a": "xyz"}, True),
        ("a NOT CONTAINS 'b'", {}, False),
        ("NOT (a CONTAINS 'b')", {}, True),
        ("a CONTAINS ''", {"a": "abc"}, False),
        ("a NOT CONTAINS ''", {"a": "abc"}, False),
        ("a STARTSWITH 'ab' AND a ENDSWITH 'bc'", {"a": "abc"}, True),
        ("a not startswith 'b' And a nOT endswith 'b'", {"a": "abc"}, True),
        ("-a = 1", {"a": "-1"}, False),  # text has no opposite
        ("-1 = a", {"a": "-1"}, True),
        ("+a > +1", {"a": "2"}, True),
        ("a = 1 -- and the rest", {"a": "1"}, True),
        ("a /* why * not */ = 1", {"a": "1"}, True),
        ("a = 1\n\tOR\fb = 2\r", {"b": "2"}, True),  # unknown OR true is true
        ("inner = 1 AND $nota_ = 2", {"inner": "1", "$nota_": "2"}, True),
        ("A = 1", {"a": "1"}, False),
    ],
)
def test_what_an_expression_says(expression, properties, answer):
    assert matches(expression, **properties) is answer


@pytest.mark.parametrize(
    "expression",
    [
        "",
        None,
        "a",  # with the kind below
        "a =",
        "a = 1 b",
        "a = 5abc",
        "a = 007",
        "5",
        "'x'",
        "-a",
        "NOT 5",
        "a AND 5",
        "a = NULL",
        "NULL <> a",
        "TRUE = 1",
        "a > 'x'",
        "a > TRUE",
        "a > NULL",
        "a > 1 > 2",
        "NOT a > 1",
        "a BETWEEN 2 AND 1",
        "a BETWEEN 'a' AND 'b'",
        "a BETWEEN 1 AND 'b'",
        "a BETWEEN NULL AND 1",
        "a IN (1)",
        "a IN ()",
        "'a' IN ('a')",
        "a CONTAINS b",
        "a = 'open",
        "a = 9223372036854775808",
        "a = 0.0",
        "a = 1e999",
        "a ; b",
        "a = 1)",
        "NOT " * 100 + "a",
        "a = " + "x" * SIZE_MAX,
    ],
)
def test_what_is_no_expression_is_refused_by_name(expression):
    kind = "CLASS" if expression == "a" else "SQL92"
    with pytest.raises(FilterError) as raised:
        filter_of(kind, expression)
    assert str(raised.value)


def test_a_refusal_says_where_it_stopped():
    with pytest.raises(FilterError, match="with its end"):
        filter_of("SQL92", "age >")
    with pytest.raises(FilterError, match="with 'b'"):
        filter_of("SQL92", "a = 1 b")


def test_long_chains_are_no_deep_ones():
    expression = " OR ".join(f"a = {number}" for number in range(600))
    assert matches(expression, a="599")
    assert not matches(expression, a="600")


def test_tags_are_the_default_kind():
    assert filter_of(None, "*") is EVERYTHING
    assert filter_of("TAG", "a||b") == TagFilter(codes=frozenset({tags_code("a"), tags_code("b")}))
    assert filter_of("TAG", "a").wants({"TAGS": "a"})
    assert not filter_of("TAG", "a").wants({"TAGS": "b"})


# A second evaluator -------------------------------------------------------------------------------
#
# Expressions are drawn as nested tuples, written out as text, and evaluated here by rules of thumb:
# a truth value is "T", "F" or "U", what can't be compared raises _Stop.


class _Stop(Exception):
    pass


NAMES = ("a", "b", "c")
TEXTS = ("", "x", "xy", "1", "2", "10", "1.5", "-3", "it's", "true", "99999999999")
NUMBERS = ("1", "2", "10", "1.5", "99999999999")

operands = st.one_of(
    st.tuples(st.just("name"), st.sampled_from(NAMES)),
    st.tuples(st.just("number"), st.sampled_from(NUMBERS)),
)
quoted = st.sampled_from(TEXTS)
leaves = st.one_of(
    st.tuples(st.sampled_from(("<", "<=", ">", ">=", "=", "<>")), operands, operands),
    st.tuples(
        st.sampled_from(("=", "<>")),
        st.tuples(st.just("name"), st.sampled_from(NAMES)),
        st.tuples(st.just("text"), quoted),
    ),
    st.tuples(st.just("in"), st.sampled_from(NAMES), st.lists(quoted, min_size=1, max_size=6)),
    st.tuples(st.just("null"), st.sampled_from(NAMES)),
    st.tuples(
        st.sampled_from(("CONTAINS", "STARTSWITH", "ENDSWITH")), st.sampled_from(NAMES), quoted
    ),
    st.tuples(
        st.just("between"), st.sampled_from(NAMES), st.sampled_from((("1", "2"), ("2", "10")))
    ),
)
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(("and", "or")), inner, inner),
    ),
    max_leaves=12,
)
messages = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS).filter(bool))


def written(e: tuple) -> str:
    kind, *rest = e
    if kind in {"name", "number"}:
        return rest[0]
    if kind == "text":
        return "'" + rest[0].replace("'", "''") + "'"
    if kind == "in":
        return f"{rest[0]} in ({', '.join(written(('text', text)) for text in rest[1])})"
    if kind == "null":
        return f"{rest[0]} is null"
    if kind == "between":
        return f"{rest[0]} BETWEEN {rest[1][0]} and {rest[1][1]}"
    if kind == "not":
        return f"not ({written(rest[0])})"
    if kind in {"and", "or"}:
        return f"({written(rest[0])}) {kind} ({written(rest[1])})"
    if kind in {"CONTAINS", "STARTSWITH", "ENDSWITH"}:
        return f"{rest[0]} {kind} {written(('text', rest[1]))}"
    return f"{written(rest[0])} {kind} {written(rest[1])}"


def number_of(text: str, model: str) -> float:
    """`text` as the type that the literal `model` has."""
    if "." in model:
        pattern, low, high = r"-?\d+(\.\d+)?", -1e300, 1e300
    elif int(model) < 2**31:
        pattern, low, high = r"-?\d+", -(2**31), 2**31 - 1
    else:
        pattern, low, high = r"-?\d+", -(2**63), 2**63 - 1
    if not re.fullmatch(pattern, text) or not low <= float(text) <= high:
        raise _Stop
    return float(text)


def compared(symbol: str, left: tuple, right: tuple, message: dict[str, str]) -> str:
    values = [message.get(side[1]) if side[0] == "name" else side[1] for side in (left, right)]
    texts = [side[0] != "number" for side in (left, right)]
    if symbol == "<>":
        return {"T": "F", "F": "T", "U": "U"}[compared("=", left, right, message)]
    if None in values:
        if symbol != "=":
            return "U"
        if values == [None, None]:
            return "T"
        return "U" if values[0] is None else "F"
    if texts == [True, True]:
        if symbol == "=":
            return "T" if values[0] == values[1] else "F"
        one, two = (number_of(value, "1.5") for value in values)
    else:
        model = values[texts.index(False)]
        one, two = (
            number_of(value, model) if is_text else float(value)
            for value, is_text in zip(values, texts, strict=True)
        )
    answers = {"=": one == two, "<": one < two, "<=": one <= two, ">": one > two, ">=": one >= two}
    return "T" if answers[symbol] else "F"


def said(e: tuple, message: dict[str, str]) -> str:
    kind, *rest = e
    if kind == "not":
        return {"T": "F", "F": "T", "U": "U"}[said(rest[0], message)]
    if kind in {"and", "or"}:
        ends, goes_on = ("F", "T") if kind == "and" else ("T", "F")
        first = said(rest[0], message)
        if first == ends:
            return ends
        second = said(rest[1], message)
        if second == ends:
            return ends
        return "U" if "U" in (first, second) else goes_on
    if kind == "between":
        at = ("name", rest[0])
        low, high = (("number", number) for number in rest[1])
        return said(("and", (">=", at, low), ("<=", at, high)), message)
    if kind in {"in", "null", "CONTAINS", "STARTSWITH", "ENDSWITH"}:
        value = message.get(rest[0])
        if kind == "null":
            return "T" if value is None else "F"
        if kind == "in":
            return "U" if value is None else "T" if value in rest[1] else "F"
        if value is None or not rest[1]:
            return "F"
        tests = {"CONTAINS": str.__contains__, "STARTSWITH": str.startswith}
        return "T" if tests.get(kind, str.endswith)(value, rest[1]) else "F"
    return compared(kind, rest[0], rest[1], message)


@settings(max_examples=400, deadline=None)
@given(expressions, messages)
def test_expressions_say_what_the_dumb_evaluator_says(expression, message):
    try:
        answer = said(expression, message) == "T"
    except _Stop:
        answer = False
    assert filter_of("SQL92", written(expression)).wants(message) is answer


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab1.eE+-*/<>=()'$ ,ANDORTIS\n", max_size=60))
def test_any_text_is_an_expression_or_refused(text):
    try:
        found = filter_of("SQL92", text)
    except FilterError:
        return
    assert found.wants({"a": "1", "b": "x"}) in {True, False}
