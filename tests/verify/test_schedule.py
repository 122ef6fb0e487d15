"""The order of rules: each stage is there whenever it is read, and gone when nothing reads it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from verify.catalogue.dialect import tables_of
from verify.catalogue.rule_files import (
    BUILT_IN_RULES,
    BUILT_IN_STAGES,
    Rule,
    read_rules,
    read_stages,
)
from verify.catalogue.schedule import scheduled
from verify.catalogue.tallies import TALLIES
from verify.extent import COVERAGE

RULES = read_rules(BUILT_IN_RULES)
STAGES = read_stages(BUILT_IN_STAGES)


def reads(text: str, there: set[str]) -> set[str]:
    """The stages that a query reads, and what those that are not stored read in their turn."""
    found = set(tables_of(text, name="text") & set(STAGES))
    for name in list(found):
        assert name in there, name
        if not STAGES[name].is_stored_large:
            found |= reads(STAGES[name].text, there)
    return found


@pytest.mark.parametrize("rules", [RULES, RULES[:7], RULES[40:], ()])
@pytest.mark.parametrize("keep", [(), COVERAGE])
def test_a_stage_is_there_when_it_is_read(rules: Sequence[Rule], keep: Sequence[str]) -> None:
    there = set(TALLIES)
    asked: list[str] = []
    for step in scheduled(rules, STAGES, made=TALLIES, retain=keep):
        for name in step.make:
            assert name not in there
            reads(STAGES[name].text, there)
            there.add(name)
        for rule in step.query:
            reads(rule.text, there)
            asked.append(rule.id)
        there -= set(step.drop)
    assert sorted(asked) == sorted(rule.id for rule in rules)
    assert there == {*TALLIES, *keep}


def test_few_stages_are_held_at_a_time() -> None:
    held, most = 0, 0
    for step in scheduled(RULES, STAGES, made=TALLIES, retain=()):
        held += len(step.make)
        most = max(most, held)
        held -= len(step.drop)
    assert held == 0
    assert most < len(STAGES) - len(TALLIES)
