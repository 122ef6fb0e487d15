"""Two engines: what they agree on stands, and any difference is unknown by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from verify.agreement import agreed, coverage_difference, doubted
from verify.verdict import CheckResult, Outcome

NAMES = ("duckdb", "spark")
PASSED = CheckResult(id="A1", name="a", promise="G3", verdict=Outcome.PASS, examined=7)
FAILED = replace(
    PASSED, id="A2", verdict=Outcome.FAIL, violations=2, witnesses=[{"value": "v"}, {"value": "w"}]
)


def test_what_both_say_stands() -> None:
    assert agreed([PASSED, FAILED], [FAILED, PASSED], names=NAMES) == [PASSED, FAILED]


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        (replace(FAILED, verdict=Outcome.PASS, violations=0), "duckdb says fail, spark pass"),
        (replace(FAILED, violations=3), "duckdb counts 2 violations in 7 rows, spark 3 in 7"),
        (replace(FAILED, examined=8), "spark 2 in 8"),
        (replace(FAILED, witnesses=FAILED.witnesses[::-1]), "other witnesses"),
    ],
)
def test_a_difference_is_unknown_and_names_both(theirs: CheckResult, told: str) -> None:
    passed, failed = agreed([PASSED, FAILED], [PASSED, theirs], names=NAMES)
    assert passed is PASSED
    assert failed.verdict is Outcome.UNKNOWN
    assert told in (failed.reason or "")


def test_a_check_that_one_leaves_out_is_unknown() -> None:
    for one, other, told in (
        ([PASSED, FAILED], [PASSED], "duckdb judged it and spark left it out"),
        ([PASSED], [PASSED, FAILED], "spark judged it and duckdb left it out"),
    ):
        results = agreed(one, other, names=NAMES)
        assert [result.id for result in results] == ["A1", "A2"]
        assert results[1].verdict is Outcome.UNKNOWN
        assert told in (results[1].reason or "")


COVERAGE = {"operations": {"send": {"ok": 3}}, "info_share": 0.0}


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        (COVERAGE, None),
        (COVERAGE | {"operations": {"send": {"ok": 2}}}, "duckdb and spark differ in the coverage"),
        ({"operations": COVERAGE["operations"]}, "info_share"),
        (COVERAGE | {"queues": None}, "queues"),
    ],
)
def test_another_coverage_is_told(theirs: dict[str, object], told: str | None) -> None:
    reason = coverage_difference(COVERAGE, theirs, names=NAMES)
    assert (reason is None) if told is None else (told in str(reason))


def test_in_doubt_nothing_passes_and_what_failed_stays() -> None:
    unknown = replace(PASSED, id="A3", verdict=Outcome.UNKNOWN, reason="nothing to examine")
    passed, *others = doubted([PASSED, FAILED, unknown], "who knows")
    assert (passed.verdict, passed.reason) == (Outcome.UNKNOWN, "who knows")
    assert others == [FAILED, unknown]
