"""The rules as SQL: each catches its planted violations, accuses nothing else, on both engines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.verify import plants_answers, plants_management  # noqa: F401 - they register plants
from tests.verify.clean_runs import CLEAN, clean_runs
from tests.verify.consumer_plants import CONSUMER_PLANTS
from tests.verify.consumer_runs import consumer_run
from tests.verify.plants import PLANTS as PLAIN_PLANTS
from tests.verify.plants import Planted
from tests.verify.pop_plants import POP_PLANTS
from tests.verify.synthetic import SyntheticRun, merge
from verify.catalogue.rule_files import (
    BUILT_IN_RULES,
    BUILT_IN_STAGES,
    Rule,
    read_rules,
    read_stages,
)
from verify.engines.duckdb import DuckDBEngine
from verify.engines.engine import Engine, EngineError
from verify.judge import Judged, judge_run
from verify.sources.manifest import load_manifest
from verify.sources.run_files import LocalFiles
from verify.spark.engine import SparkEngine
from verify.verdict import CheckResult, Outcome

RULES = read_rules(BUILT_IN_RULES)
# Those of masters and slaves have runs of their own.
IDS = frozenset(rule.id for rule in RULES if not rule.engines)
PLANTS = [*PLAIN_PLANTS, *POP_PLANTS, *CONSUMER_PLANTS]
OURS = [plant for plant in PLANTS if plant.check in IDS]


def judged(engine: Engine, run: Path, rules: Sequence[Rule] = RULES) -> Judged:
    return judge_run(
        engine,
        LocalFiles(run),
        load_manifest(LocalFiles(run)),
        rules=rules,
        stages=read_stages(BUILT_IN_STAGES),
        report=lambda text: None,
    )


@pytest.fixture(scope="module")
def clean_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    whole = merge([*clean_runs(), consumer_run("consumers")])
    return whole.write(tmp_path_factory.mktemp("clean"), files=3)


@pytest.fixture(scope="module")
def planted_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    clean = [*clean_runs(), consumer_run("consumers")]
    whole = merge([*clean, *(planted.run() for planted in PLANTS)])
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
    innocent = {*CLEAN, "consumers"} | {
        plant.name for plant in PLANTS if check != plant.check and check not in plant.also
    }
    accused = {
        name for name in innocent if any(f'-{name}"' in text or f"{name}." in text for text in told)
    }
    assert not accused, told
    assert planted[check].violations == len(told)  # few enough that all are shown


def test_nobody_is_late_by_less_than_the_clocks_may_differ(tmp_path: Path) -> None:
    """Each of these is late by a nanosecond, which is told where there is one clock."""
    late = {
        "send-answered-before-its-commit": "A20",
        "half-answered-before-its-commit": "A20",
        "decision-answered-before-its-commit": "A20",
        "read-before-its-commit": "A21",
        "max-offset-of-an-uncommitted-end": "A21",
        "read-just-after-a-newer-commit": "R12",
    }
    runs = [planted.run() for planted in PLANTS if planted.name in late]
    assert len(runs) == len(late)
    whole = merge(runs)
    whole.manifest["clock_error_ns"] = 1
    engine = DuckDBEngine(tmp_path / "spill")
    results = {result.id: result for result in judged(engine, whole.write(tmp_path)).results}
    for check in late.values():
        assert results[check].verdict is Outcome.PASS, results[check]


def test_what_a_trace_does_not_reach_is_unknown(tmp_path: Path) -> None:
    """An entry of a log that its node's trace never told: no violation is proven beside it."""
    run = SyntheticRun()
    (told,) = (row for row in run.events("n2", "append") if row["index"] == 9)
    run.raft.remove(told)
    run.events("n1", "append")[7]["chain"] += 1
    engine = DuckDBEngine(tmp_path / "spill")
    results = {result.id: result for result in judged(engine, run.write(tmp_path)).results}
    for rule in RULES:
        if rule.reaches and rule.id in results:  # P8 is left out where nobody pops
            assert results[rule.id].verdict is Outcome.UNKNOWN, rule.id
            assert "n2 does not tell of 1 entries" in str(results[rule.id].reason)
            assert [witness["index"] for witness in results[rule.id].witnesses] == [9]
    assert {rule.id for rule in RULES if rule.reaches} & set(results) >= {"R5", "R7"}
    assert results["R2"].verdict is Outcome.PASS


def test_a_start_reaches_what_it_found(tmp_path: Path) -> None:
    """The trace of n2 begins late, with a start that found nine entries."""
    run = SyntheticRun()
    start = run.events("n2", "start")[0]
    found = next(row for row in run.events("n2", "append") if row["index"] == 9)
    start |= {name: found[name] for name in ("index", "entry_term", "chain")}
    run.raft = [
        row for row in run.raft if row is start or row["node"] != "n2" or row.get("index", 10) > 9
    ]
    engine = DuckDBEngine(tmp_path / "spill")
    results = {result.id: result for result in judged(engine, run.write(tmp_path)).results}
    for rule in RULES:
        if rule.reaches and rule.id in results:
            assert results[rule.id].verdict is Outcome.PASS, results[rule.id]


def test_tables_that_stay_in_their_files_and_stages_that_are_dropped_are_judged_alike(
    planted_run: Path, planted: dict[str, CheckResult], tmp_path: Path
) -> None:
    engine = DuckDBEngine(tmp_path / "spill", viewed_rows_min=1, small_rows_max=0)
    results = judged(engine, planted_run).results
    assert engine.forgets
    assert [result.as_json() for result in results] == [
        result.as_json() for result in planted.values()
    ]
    (listed, *_) = (planted_run / "raft").iterdir()
    assert engine.query(f"select count(*) as rows from read_parquet('{listed}')")
    other = tmp_path / "other.parquet"
    other.write_bytes(listed.read_bytes())
    for file in (other, planted_run / "run.json"):
        with pytest.raises(EngineError, match="disabled"):
            engine.query(f"from read_text('{file}')")
    before = listed.read_bytes()
    for statement in (
        f"copy (select 1) to '{listed}' (format parquet, use_tmp_file false)",
        f"select 1; copy (select 1) to '{listed}' (format parquet, use_tmp_file false)",
    ):
        with pytest.raises(EngineError, match="not one SELECT"):
            engine.query(statement)
    assert listed.read_bytes() == before


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(RULES[::8], id="an eighth of them"),
        pytest.param(RULES, id="every rule", marks=pytest.mark.nightly),  # minutes
    ],
)
def test_spark_says_the_same(
    rules: Sequence[Rule], spark: SparkSession, planted_run: Path, tmp_path: Path
) -> None:
    """Check by check, count by count, witness by witness."""
    ours = judged(DuckDBEngine(tmp_path), planted_run, rules).results
    engine = SparkEngine(spark, suspects=[result.id for result in ours if result.violations])
    try:
        theirs = judged(engine, planted_run, rules).results
    finally:
        engine.close()
    assert len(ours) > 10
    assert [result.as_json() for result in ours] == [result.as_json() for result in theirs]
