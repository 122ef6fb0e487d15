"""The list of known bugs: what is accepted, and that only a verdict makes a row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaigns.known_bugs import (
    HERE,
    LIST,
    RULES,
    Bug,
    KnownBugsError,
    parse_bugs,
    table,
    try_bug,
)
from chaos.scenario.scenario import load_scenario
from verify.catalogue.rule_files import BUILT_IN_RULES, read_rules

GOOD = LIST.read_text(encoding="utf-8")


def verdict_of(directory: Path, verdict: str, violations: int = 0) -> Path:
    directory.mkdir()
    check = {
        "id": "P3",
        "verdict": verdict,
        "violations": violations,
        "witnesses": [{"value": "v"}] * violations,
    }
    (directory / "verdict.json").write_text(json.dumps({"checks": [check]}))
    return directory


def bug() -> Bug:
    return parse_bugs(GOOD, HERE)[0]


def test_each_bug_of_the_list_names_a_scenario_that_can_be_read() -> None:
    for each in parse_bugs(GOOD, HERE):
        load_scenario(each.scenario)
        assert each.rule in {rule.id for rule in read_rules(BUILT_IN_RULES, RULES)}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('rule = "P3"', "", "'rule'"),
        ('"1..3"', '"1..300"', "seeds"),
        ('"1..3"', '"3"', "FIRST..LAST"),
        ("issue = 7914", 'issue = "7914"', "issue"),
        ("unacknowledged.toml", "none.toml", "no scenario"),
        ("[[bugs]]", "[[bug]]", "bugs"),
    ],
)
def test_an_invalid_list_is_refused_by_name(old: str, new: str, told: str) -> None:
    assert old in GOOD
    with pytest.raises(KnownBugsError, match=told):
        parse_bugs(GOOD.replace(old, new), HERE)


def test_seeds_are_tried_until_the_bug_shows(tmp_path: Path) -> None:
    ran: list[tuple[str, int]] = []

    def run(_: Bug, place: str, seed: int) -> Path:
        ran.append((place, seed))
        shows = place == "has" and seed == 2
        directory = tmp_path / f"{place}-{seed}"
        return verdict_of(directory, "fail" if shows else "pass", violations=int(shows))

    rows = try_bug(bug(), ["has", "mended", "ours"], run)
    assert ran == [("has", 1), ("has", 2), ("mended", 1), ("ours", 1)]
    assert all(row.is_right for row in rows)
    assert "| 7914 |" in table(rows)


@pytest.mark.parametrize(("place", "verdict"), [("mended", "fail"), ("ours", "unknown")])
def test_what_does_not_pass_is_not_right(tmp_path: Path, place: str, verdict: str) -> None:
    (row,) = try_bug(bug(), [place], lambda *_: verdict_of(tmp_path / "run", verdict))
    assert not row.is_right


def test_a_run_without_a_verdict_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KnownBugsError, match="no verdict"):
        try_bug(bug(), ["has"], lambda *_: tmp_path)
