"""Stages and rules several at a time: the order that they need, and whose error is whose."""

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from verify.catalogue.rule_files import Stage
from verify.engines.engine import EngineError
from verify.engines.side_by_side import make_side_by_side
from verify.spark.engine import SparkEngine


def stage(name: str, text: str) -> Stage:
    return Stage(name=name, about="", text=text, path=Path(f"{name}.sql"))


LOW, HIGH = stage("low", "select 1 as x"), stage("high", "select x from low")
BESIDE = stage("beside", "select 2 as x")


def test_a_stage_is_begun_when_what_it_reads_is_made_and_others_run_beside() -> None:
    beside_has_begun, made = threading.Event(), list[str]()

    def make(each: Stage) -> None:
        if each is BESIDE:
            beside_has_begun.set()
        elif each is LOW:
            assert beside_has_begun.wait(timeout=30), "nothing ran beside it"
        made.append(each.name)

    assert make_side_by_side(make, [LOW, HIGH, BESIDE], at_a_time=3) == {}
    assert made.index("low") < made.index("high")
    assert sorted(made) == ["beside", "high", "low"]


def test_an_error_is_that_of_all_that_read_the_stage_and_of_no_other() -> None:
    begun = list[str]()

    def make(each: Stage) -> None:
        begun.append(each.name)
        if each is LOW:
            raise EngineError("low: no memory")

    failed = make_side_by_side(make, [LOW, HIGH, BESIDE], at_a_time=2)
    assert sorted(failed) == ["high", "low"]
    assert str(failed["high"]) == "low: no memory"
    assert sorted(begun) == ["beside", "low"]


def test_another_error_than_an_engines_is_raised() -> None:
    def make(each: Stage) -> None:
        raise ZeroDivisionError(each.name)

    with pytest.raises(ZeroDivisionError):
        make_side_by_side(make, [LOW], at_a_time=2)


@pytest.mark.spark
def test_what_is_joined_to_a_stage_without_rows_is_not_planned(spark: SparkSession) -> None:
    engine = SparkEngine(spark)
    engine.make(
        [
            stage("nobody", "select x from (values (1), (2)) as told(x) where x > 2"),
            stage("somebody", "select x from (values (1), (2)) as told(x) where x > 1"),
        ]
    )
    try:
        assert engine.table("nobody") == []
        assert engine.table("somebody") == [{"x": 2}]
        joined = spark.sql("select * from somebody join nobody using (x)")
        assert (
            joined._jdf.queryExecution()
            .optimizedPlan()
            .toString()
            .startswith("LocalRelation <empty>")
        )
    finally:
        engine.close()
