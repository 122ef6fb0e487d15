"""The rules as SQL: each catches its planted violations, accuses nothing else, on both engines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.verify.clean_runs import CLEAN, clean_runs
from tests.verify.plants import PLANTS, Planted
from tests.verify.synthetic import merge
from verify.engines.duckdb import DuckDBEngine
from verify.engines.engine import Engine
from verify.engines.spark import SparkEngine
from verify.judge import Judged, judge_run
from verify.manifest import load_manifest
from verify.rule_files import BUILT_IN_RULES, BUILT_IN_STAGES, read_rules, read_stages
from verify.verdict import CheckResult, Outcome

RULES = read_rules(BUILT_IN_RULES)
IDS = frozenset(rule.id for rule in RULES)
OURS = [plant for plant in PLANTS if plant.check in IDS]


def judged(engine: Engine, run: Path) -> Judged:
    return judge_run(
        engine,
        run,
        load_manifest(run),
        rules=RULES,
        stages=read_stages(BUILT_IN_STAGES),
        say=lambda text: None,
    )


@pytest.fixture(scope="module")
def clean_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return merge(clean_runs()).write(tmp_path_factory.mktemp("clean"), files=3)


@pytest.fixture(scope="module")
def planted_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    whole = merge([*clean_runs(), *(planted.run() for planted in PLANTS)])
    whole.manifest["phases"]["load"] = [0, 60_000_000_000]
    return whole.write(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def clean(clean_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, CheckResult]:
    engine = DuckDBEngine(tmp_path_factory.mktemp("spill"))
    return {result.id: result for result in judged(engine, clean_run).results}


@pytest.fixture(scope="module")
def planted(planted_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, CheckResult]:
    engine = DuckDBEngine(tmp_path_factory.mktemp("spill"))
    return {result.id: result for result in judged(engine, planted_run).results}


@pytest.mark.parametrize("check", sorted(IDS - {"R12"}))
def test_clean_run_passes(check: str, clean: dict[str, CheckResult]) -> None:
    result = clean[check]
    assert result.verdict is Outcome.PASS, (result.reason, result.witnesses)
    assert result.examined > 0


@pytest.mark.parametrize("plant", OURS, ids=lambda plant: f"{plant.check}-{plant.name}")
def test_plant_is_caught(plant: Planted, planted: dict[str, CheckResult]) -> None:
    result = planted[plant.check]
    assert result.verdict is Outcome.FAIL, result.reason
    told = [json.dumps(witness) for witness in result.witnesses]
    assert any(plant.name in text and plant.witness in text for text in told), told


@pytest.mark.parametrize("check", sorted(IDS))
def test_nothing_else_is_accused(check: str, planted: dict[str, CheckResult]) -> None:
    told = [json.dumps(witness) for witness in planted[check].witnesses]
    innocent = set(CLEAN) | {
        plant.name for plant in PLANTS if check != plant.check and check not in plant.also
    }
    accused = {
        name for name in innocent if any(f'-{name}"' in text or f"{name}." in text for text in told)
    }
    assert not accused, told
    assert planted[check].violations == len(told)  # few enough that all are shown


@pytest.mark.spark
def test_spark_says_the_same(spark: SparkSession, planted_run: Path, tmp_path: Path) -> None:
    """Check by check, count by count, witness by witness."""
    engine = SparkEngine(spark)
    try:
        theirs = judged(engine, planted_run).results
    finally:
        engine.close()
    ours = judged(DuckDBEngine(tmp_path), planted_run).results
    assert [result.as_json() for result in ours] == [result.as_json() for result in theirs]
