"""The verdict does not depend on where Spark runs: a standalone cluster says what DuckDB says."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tests.verify.clean_runs import clean_runs
from tests.verify.plants import PLANTS
from tests.verify.synthetic import merge
from verify.run import verify_run
from verify.spark_cluster import ClusterError, spark_cluster


@pytest.mark.spark
@pytest.mark.timeout(900)  # every rule is planned and run
def test_cluster_says_what_one_process_says(tmp_path: Path) -> None:
    planted = merge([*clean_runs(), *(planted.run() for planted in PLANTS)])
    planted.manifest["phases"]["load"] = [0, 60_000_000_000]
    run = planted.write(tmp_path, files=3)
    first = verify_run(run, engine="duckdb")
    with spark_cluster() as master:
        second = verify_run(run, engine="spark", master=master)
    assert len(first.checks) > 40
    assert {check.verdict.value for check in first.checks} >= {"fail"}
    assert second.engines == ("spark",)
    as_first = dataclasses.replace(second, engines=first.engines)
    assert json.dumps(as_first.as_json()) == json.dumps(first.as_json())


@pytest.mark.spark
def test_a_process_that_ends_is_told_with_its_words(tmp_path: Path) -> None:
    with (
        pytest.raises(ClusterError, match=r"worker-0 of the Spark cluster ended: .*memory"),
        spark_cluster(memory="much"),
    ):
        pass
