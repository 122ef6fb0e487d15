"""What Spark's plans know of what a run holds: empty tables, the manifest's rows, small stages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from verify.catalogue.rule_files import BUILT_IN_RULES, Rule, Stage, read_rules
from verify.engines.engine import TableFiles
from verify.sources.format_tables import TABLES
from verify.sources.run_files import LocalFiles
from verify.spark.engine import SparkEngine

pytestmark = pytest.mark.spark


def stage(name: str, text: str) -> Stage:
    return Stage(name=name, about="", text=text, path=Path(f"{name}.sql"))


def rule(id_: str, text: str) -> Rule:
    return replace(read_rules(BUILT_IN_RULES)[0], id=id_, text=text)


def table_of(run: Path, name: str, rows: list[dict[str, object]]) -> TableFiles:
    schema = TABLES[name]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), run / f"{name}.parquet")
    return TableFiles(files=(LocalFiles(run).table_file(f"{name}.parquet"),), schema=schema)


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def optimized(spark: SparkSession, text: str) -> str:
    return str(spark.sql(text)._jdf.queryExecution().optimizedPlan().toString())


def test_of_an_empty_table_spark_knows_that_it_is_empty(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine = SparkEngine(spark)
    try:
        engine.load({"raft": table_of(tmp_path, "raft", [])}, {})
        assert optimized(spark, "select node from raft").startswith("LocalRelation <empty>")
    finally:
        engine.close()


def test_no_python_process_is_asked_for_the_manifests_rows(spark: SparkSession) -> None:
    engine = SparkEngine(spark)
    groups = pa.table({"client_group": ["a", None], "of_all_topics": [True, None]})
    try:
        engine.load({}, {"run_groups": groups})
        assert engine.table("run_groups") == groups.to_pylist()
        assert "ExistingRDD" not in plan_of(spark.table("run_groups"))
    finally:
        engine.close()


def test_the_rows_of_a_small_stage_are_part_of_the_plans_that_read_it(spark: SparkSession) -> None:
    engine = SparkEngine(spark)
    row = "named_struct('b', cast(id as string)) as a, cast(id as decimal(19,0)) as d"
    try:
        engine.make(
            [
                stage("few", f"select id, {row}, array(id, null) as xs from range(3)"),
                stage("many", "select id from range(1000)"),
            ]
        )
        assert engine.table("few")[2] == {"id": 2, "a": {"b": "2"}, "d": 2, "xs": [2, None]}
        assert len(engine.table("many")) == 1000
        # The optimizer knows no row beyond 2 in it, so it leaves out the join.
        beyond = "select * from many left semi join (select id from few where id > 2) f using (id)"
        assert optimized(spark, beyond).startswith("LocalRelation <empty>")
        assert spark.sql("select * from many left semi join few using (id)").count() == 3
        assert "LogicalRDD" in optimized(spark, "select * from many where id > 1000")
    finally:
        engine.close()


def test_what_is_suspected_has_the_same_findings(spark: SparkSession) -> None:
    """A suspect is not probed: it is queried at once, also where nothing is found."""
    nothing = rule("X1", "select id as x, string(null) as reason from range(3) where id > 2")
    something = rule(
        "X2",
        "select id as x, if(id % 2 = 0, 'who knows', null) as reason from range(100)",
    )
    probing = SparkEngine(spark)
    trusting = SparkEngine(spark, suspects=["X1", "X2"])
    for each in (nothing, something):
        assert trusting.findings(each) == probing.findings(each)
    found = trusting.findings(something)
    assert (found.violations, found.doubts) == (50, 50)
    assert (len(found.smallest_violations), len(found.smallest_doubts)) == (32, 32)
