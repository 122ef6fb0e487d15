"""A verdict for which two engines were asked, with a stand-in for the second one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.verify.synthetic import SyntheticRun
from verify import run as verification
from verify.run import verify_run
from verify.verdict import Outcome, Verdict


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return SyntheticRun("a").write(tmp_path / "run")


@pytest.fixture
def duckdbs(run: Path) -> Verdict:
    verdict = verify_run(run, engine="duckdb")
    assert verdict.outcome is Outcome.PASS
    return verdict


def _stand_in(monkeypatch: pytest.MonkeyPatch, verdict: Verdict) -> None:
    monkeypatch.setattr(verification, "_by_spark", lambda _: replace(verdict, engines=("spark",)))


def test_until_the_second_has_judged_nothing_passes(
    run: Path, duckdbs: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: object) -> Verdict:
        raise KeyboardInterrupt

    monkeypatch.setattr(verification, "_by_spark", killed)
    told: list[Outcome] = []
    with pytest.raises(KeyboardInterrupt):
        verify_run(run, on_first=lambda first: told.append(first.outcome))
    assert told == [duckdbs.outcome], "the person is told what the first engine says"
    left = json.loads((run / "verdict.json").read_text())
    assert (left["verdict"], left["engines"]) == ("unknown", ["duckdb"])
    assert {check["reason"] for check in left["checks"]} == {
        "spark is to judge it too and has not yet"
    }
    assert "pass" not in left["promises"].values()


def test_what_both_say_passes(run: Path, duckdbs: Verdict, monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_in(monkeypatch, duckdbs)
    verdict = verify_run(run)
    assert (verdict.outcome, verdict.engines) == (Outcome.PASS, ("duckdb", "spark"))
    assert verdict.checks == duckdbs.checks


def test_another_coverage_lets_nothing_pass(
    run: Path, duckdbs: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stand_in(monkeypatch, replace(duckdbs, coverage={**duckdbs.coverage, "info_share": 0.5}))
    verdict = verify_run(run)
    assert verdict.outcome is Outcome.UNKNOWN
    assert all("differ in the coverage" in str(check.reason) for check in verdict.checks)
    assert any("info_share" in sentence for sentence in verdict.not_shown)
