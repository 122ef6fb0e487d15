"""The workload's model of SQL92 filters: its truth, and that the broker's filter agrees with it."""

from __future__ import annotations

import random

import pytest

from broker.queues.sql_expression import Expression
from broker.queues.sql_parser import parse_sql
from broker.queues.sql_values import EvaluationError
from chaos.workload.parts.consumers.sql_model import conditions, is_wanted, spelled
from chaos.workload.parts.consumers.sql_readers import KINDS

_KINDS = (
    {},
    {"p": "a", "n": "7"},
    {"p": "it's", "n": "-3", "b": "TRUE"},
    {"p": "größer", "n": "7.5"},
    {"n": "abc", "b": "false"},
    {"p": "c", "n": "1e1"},
    *KINDS,
)


@pytest.mark.parametrize("seed", range(5))
def test_the_broker_agrees_with_the_model(seed: int) -> None:
    wanted, rng = 0, random.Random(seed)
    for condition in conditions(rng, 40):
        tree = parse_sql(spelled(condition.text, rng))
        for kind in _KINDS:
            assert is_wanted(condition, kind) == _matches(tree, kind), (condition.text, kind)
            wanted += is_wanted(condition, kind)
    assert wanted


def test_what_is_quoted_keeps_its_case() -> None:
    texts = {spelled("p = 'NOT it''s AND' OR b", random.Random(seed)) for seed in range(9)}
    assert texts == {f"p = 'NOT it''s AND' {word} b" for word in ("OR", "or", "Or")}


def test_what_is_unknown_is_not_wanted() -> None:
    by_text = {condition.text: condition for condition in conditions(random.Random(1), 0)}
    for text in ("p NOT IN ('a', 'b')", "p <> 'it''s'", "n NOT BETWEEN -3 AND 7", "p = 'a'"):
        assert not is_wanted(by_text[text], {})
    assert is_wanted(by_text["p NOT IN ('a', 'b')"], {"p": "c"})
    assert is_wanted(by_text["p IS NULL"], {})


def test_text_that_is_no_number_ends_a_comparison() -> None:
    by_text = {condition.text: condition for condition in conditions(random.Random(1), 0)}
    assert not is_wanted(by_text["n <> 7.5"], {"n": "abc"})
    assert is_wanted(by_text["n <> 7.5"], {"n": "7"})


def _matches(tree: Expression, properties: dict[str, str]) -> bool:
    try:
        return tree.evaluate(properties) is True
    except EvaluationError:
        return False
