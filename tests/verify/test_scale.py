"""Runs that are made for measuring the verifier: sound ones pass, one lost message is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.scale.tables import write_run
from verify.catalogue.rule_files import BUILT_IN_RULES, BUILT_IN_STAGES, read_rules, read_stages
from verify.engines.duckdb import DuckDBEngine
from verify.judge import judge_run
from verify.sources.manifest import damage, load_manifest
from verify.sources.run_files import LocalFiles
from verify.verdict import CheckResult, Outcome

RULES = read_rules(BUILT_IN_RULES)


def judged(run: Path, spill: Path) -> dict[str, CheckResult]:
    manifest = load_manifest(LocalFiles(run))
    assert damage(LocalFiles(run), manifest) is None
    stages = read_stages(BUILT_IN_STAGES)
    told = judge_run(
        DuckDBEngine(spill),
        LocalFiles(run),
        manifest,
        rules=RULES,
        stages=stages,
        report=lambda text: None,
    )
    return {result.id: result for result in told.results}


@pytest.mark.parametrize("skewed", [False, True])
def test_a_sound_run_passes_every_check(tmp_path: Path, *, skewed: bool) -> None:
    assert write_run(tmp_path, 2000, skewed=skewed) is None
    results = judged(tmp_path, tmp_path / "spill")
    # The model sends, reads and decides; rules of further features do not apply to it, and those of
    # several broker groups and of halves with an immunity time neither.
    assert {name for name in results if name[0] in "ASTR"} == {
        rule.id for rule in RULES if rule.id[0] in "ASTR" and not rule.engines
    } - {"A23", "T18"}
    for result in results.values():
        assert result.verdict is Outcome.PASS, result
        assert result.examined > 0, result


def test_one_lost_message_is_found(tmp_path: Path) -> None:
    value = write_run(tmp_path, 2000, loss=True)
    results = judged(tmp_path, tmp_path / "spill")
    accused = {name for name, result in results.items() if result.verdict is not Outcome.PASS}
    # It is unread, so that readers go over its place, and its place in every replica is empty.
    assert {"A4", "A5", "A15", "S1"} <= accused <= {"A4", "A5", "A6", "A7", "A15", "S1"}
    for name in ("A4", "A5", "A15"):
        assert f'"{value}"' in json.dumps(results[name].witnesses), results[name]
