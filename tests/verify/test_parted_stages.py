"""Stages of large runs that are made in parts: the same rows as at once, whatever the parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.scale.tables import write_run
from campaigns.outside.model_cluster import model_run
from campaigns.outside.planting import TWO
from tests.verify.clean_runs import clean_runs
from verify.catalogue.rule_files import (
    BUILT_IN_RULES,
    BUILT_IN_STAGES,
    Stage,
    read_rules,
    read_stages,
)
from verify.engines.duckdb import DuckDBEngine
from verify.judge import Judged, judge_run
from verify.sources.manifest import load_manifest
from verify.sources.run_files import LocalFiles
from verify.verdict import Outcome

STAGES = read_stages(BUILT_IN_STAGES)
RULES = read_rules(BUILT_IN_RULES)
PARTED = [name for name, stage in STAGES.items() if stage.parted_by is not None]
PARTS = 7
LARGE = 1 << 40


class _Noting(DuckDBEngine):
    """Notes the rows of each stage that may be made in parts. Stages are dropped, as on a large
    run."""

    def __init__(self, spill: Path, *, rows_per_part: int) -> None:
        super().__init__(spill, small_rows_max=0, rows_per_part=rows_per_part)
        self.noted: dict[str, Counter[str]] = {}

    def _make(self, stage: Stage) -> None:
        super()._make(stage)
        if stage.name in PARTED:
            self.noted[stage.name] = Counter(map(str, self.table(stage.name)))


def _judge(
    run: Path, spill: Path, *, rows_per_part: int, stages: Mapping[str, Stage] = STAGES
) -> tuple[Judged, dict[str, Counter[str]]]:
    engine = _Noting(spill, rows_per_part=rows_per_part)
    manifest = load_manifest(LocalFiles(run))
    try:
        judged = judge_run(
            engine,
            LocalFiles(run),
            manifest,
            rules=RULES,
            stages=stages,
            report=lambda text: None,
        )
    finally:
        engine.close()
    return judged, engine.noted


def _compare(run: Path, tmp_path: Path) -> None:
    size = max(1, load_manifest(LocalFiles(run)).rows() // PARTS)
    whole, at_once = _judge(run, tmp_path / "spill", rows_per_part=LARGE)
    parted, in_parts = _judge(run, tmp_path / "spill", rows_per_part=size)
    assert at_once.keys() >= {"stored", "values_told", "unit_places", "entries"}
    for name, noted in at_once.items():
        assert in_parts[name] == noted, name
    assert parted.results == whole.results


def test_parts_of_a_run_that_broke_no_rule(tmp_path: Path) -> None:
    _compare(clean_runs()[0].write(tmp_path / "run"), tmp_path)


def test_parts_of_an_outsiders_run_of_two_groups(tmp_path: Path) -> None:
    model_run(TWO).write(tmp_path / "run", files_per_table=1)
    _compare(tmp_path / "run", tmp_path)


def test_parts_of_a_run_with_a_lost_message(tmp_path: Path) -> None:
    assert write_run(tmp_path / "run", 1_000, loss=True) is not None
    _compare(tmp_path / "run", tmp_path)


def test_a_part_that_fails_leaves_no_table(tmp_path: Path) -> None:
    run = clean_runs()[0].write(tmp_path / "run")
    text = "select value, cast(value as bigint) as index from values_sent"  # no value is a number
    stages = {**STAGES, "values_logged": replace(STAGES["values_logged"], text=text)}
    judged, noted = _judge(run, tmp_path / "spill", rows_per_part=1, stages=stages)
    assert "values_logged" not in noted
    unknown = {result.id for result in judged.results if result.verdict is Outcome.UNKNOWN}
    assert "A4" in unknown
    assert all("values_logged" in str(each.reason) for each in judged.results if each.id == "A4")
