"""What Spark holds of a small run: tables that are read again, and the manifest's rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from verify.engines.engine import TableFiles
from verify.sources.format_tables import TABLES
from verify.sources.run_files import LocalFiles
from verify.spark.engine import SparkEngine

pytestmark = pytest.mark.spark


def table_of(run: Path, name: str, rows: list[dict[str, object]]) -> TableFiles:
    schema = TABLES[name]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), run / f"{name}.parquet")
    return TableFiles(files=(LocalFiles(run).table_file(f"{name}.parquet"),), schema=schema)


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_of_an_empty_table_spark_knows_that_it_is_empty(
    spark: SparkSession, tmp_path: Path
) -> None:
    engine = SparkEngine(spark)
    try:
        engine.load({"raft": table_of(tmp_path, "raft", [])}, {})
        plan = spark.sql("select node from raft")._jdf.queryExecution().optimizedPlan()
        assert plan.toString().startswith("LocalRelation <empty>")
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
