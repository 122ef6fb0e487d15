"""What people read of the rules is what their files say."""

from __future__ import annotations

import re
from pathlib import Path

from verify.catalogue.rule_files import BUILT_IN_RULES, read_rules
from verify.catalogue.rule_page import rule_page
from verify.verdict import PROMISES

README = Path(__file__).parents[2] / "README.md"
RULES = read_rules(BUILT_IN_RULES)


def test_readme_names_the_checks_of_each_promise() -> None:
    rows = re.findall(r"^\| (G\d) [^|]*\| ([^|]+?) \|$", README.read_text(encoding="utf-8"), re.M)
    told = {promise: checks.split(", ") for promise, checks in rows}
    held = {promise: [rule.id for rule in RULES if rule.promise == promise] for promise in PROMISES}
    assert told == held


def test_no_rule_of_the_project_is_without_a_promise() -> None:
    """Promises that are all green above a verdict that fails mislead whoever reads them first."""
    assert [rule.id for rule in RULES if rule.promise is None] == []


def test_each_says_what_holds_in_a_sentence() -> None:
    for rule in RULES:
        assert re.fullmatch(r"[A-Z].*\.", rule.holds), rule.id
        assert re.fullmatch(r"[A-Z].*\.", rule.rule), rule.id


def test_the_page_of_the_rules_is_theirs() -> None:
    """Made anew by `python -m verify.catalogue.rule_page > docs/RULES.md`."""
    assert (README.parent / "docs" / "RULES.md").read_text(encoding="utf-8") == rule_page()
