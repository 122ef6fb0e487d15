"""A run in the sight of one rule alone, judged by DuckDB."""

from __future__ import annotations

from pathlib import Path

from tests.verify.synthetic import SCHEMAS, SyntheticRun
from verify.catalogue.rule_files import BUILT_IN_RULES, BUILT_IN_STAGES, read_rules, read_stages
from verify.engines.duckdb import DuckDBEngine
from verify.judge import Judged, judge_run
from verify.sources.manifest import load_manifest
from verify.sources.run_files import LocalFiles
from verify.verdict import CheckResult

__all__ = ["judged", "result"]


def judged(rule_id: str, run: SyntheticRun, folder: Path, rules: Path = BUILT_IN_RULES) -> Judged:
    """`run` in the sight of one rule of `rules`; a table without a row is not listed."""
    path = run.write(folder, tables=[name for name in SCHEMAS if getattr(run, name)])
    return judge_run(
        DuckDBEngine(folder),
        LocalFiles(path),
        load_manifest(LocalFiles(path)),
        rules=[rule for rule in read_rules(rules) if rule.id == rule_id],
        stages=read_stages(BUILT_IN_STAGES),
        report=lambda text: None,
    )


def result(judged: Judged) -> CheckResult:
    (only,) = judged.results
    return only
