"""Each check catches its planted violations, with the right witness, and nothing else.

All plants stand side by side in one run, each in a broker group of its own, beside clean ones; a
single verification judges them all. A witness names the plant by the group, value or process.
"""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from tests.verify.clean_runs import CLEAN, clean_runs
from tests.verify.plants import PLANTS, Planted
from tests.verify.synthetic import merge
from verify.catalogue import CHECKS
from verify.run import verify_in
from verify.verdict import CheckResult, Outcome

pytestmark = pytest.mark.spark

IDS = frozenset(check.id for check in CHECKS)
SEEN = [plant for plant in PLANTS if plant.check in IDS and not plant.sql_only]


@pytest.fixture(scope="session")
def clean(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, CheckResult]:
    run = merge(clean_runs()).write(tmp_path_factory.mktemp("clean"), files=3)
    return {check.id: check for check in verify_in(spark, run).checks}


@pytest.fixture(scope="session")
def planted(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, CheckResult]:
    runs = [*clean_runs(), *(planted.run() for planted in PLANTS)]
    whole = merge(runs)
    whole.manifest["phases"]["load"] = [0, 60_000_000_000]
    run = whole.write(tmp_path_factory.mktemp("planted"))
    return {check.id: check for check in verify_in(spark, run).checks}


def test_every_check_has_a_plant() -> None:
    assert {planted.check for planted in SEEN} == IDS


@pytest.mark.parametrize("check", [check.id for check in CHECKS if check.id != "R12"])
def test_clean_run_passes(check: str, clean: dict[str, CheckResult]) -> None:
    result = clean[check]
    assert result.verdict is Outcome.PASS, (result.reason, result.witnesses)
    assert result.examined > 0
    assert result.violations == 0


@pytest.mark.parametrize("plant", SEEN, ids=lambda plant: f"{plant.check}-{plant.name}")
def test_plant_is_caught(plant: Planted, planted: dict[str, CheckResult]) -> None:
    result = planted[plant.check]
    assert result.verdict is Outcome.FAIL
    told = [json.dumps(witness) for witness in result.witnesses]
    assert any(plant.name in text and plant.witness in text for text in told), told


@pytest.mark.parametrize("check", [check.id for check in CHECKS])
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
