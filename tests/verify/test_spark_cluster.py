"""The verdict does not depend on where Spark runs: a standalone cluster says what DuckDB says."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.verify.clean_runs import clean_runs
from tests.verify.plants import PLANTS
from tests.verify.synthetic import merge
from verify.run import load_rules, verify_run
from verify.spark.cluster import ClusterError, spark_cluster
from verify.verdict import Outcome

# One of each kind; all of them take minutes on a cluster of one machine.
ASKED = {"A4", "R9", "S8", "T6"}

JUDGE = """
import json, sys
from dataclasses import replace
from pathlib import Path
from verify.run import load_rules, verify_run
known = load_rules()
rules = replace(known, rules=[rule for rule in known.rules if rule.id in sys.argv[3:]])
verdict = verify_run(Path(sys.argv[1]), engine="spark", master=sys.argv[2], rules=rules)
print(json.dumps(verdict.as_json()))
"""


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_cluster_says_what_one_process_says(tmp_path: Path) -> None:
    plants = [planted for planted in PLANTS if planted.check in ASKED]
    planted = merge([*clean_runs(), *(planted.run() for planted in plants)])
    planted.manifest["phases"]["load"] = [0, 60_000_000_000]
    run = planted.write(tmp_path, files=3)
    known = load_rules()
    rules = replace(known, rules=[rule for rule in known.rules if rule.id in ASKED])
    first = verify_run(run, engine="duckdb", rules=rules)
    with spark_cluster() as master:
        # In a process of its own: this one may have a session already.
        second = subprocess.run(
            [sys.executable, "-c", JUDGE, str(run), master, *ASKED],
            stdout=subprocess.PIPE,
            check=True,
        )
    assert {check.id for check in first.checks} == ASKED
    assert {check.verdict for check in first.checks} == {Outcome.FAIL}
    as_second = replace(first, engines=("spark",)).as_json()
    assert json.loads(second.stdout) == json.loads(json.dumps(as_second))


@pytest.mark.spark
def test_a_process_that_ends_is_told_with_its_words(tmp_path: Path) -> None:
    with (
        pytest.raises(ClusterError, match=r"(?s)worker-\d of the Spark cluster ended: .*--memory"),
        spark_cluster(memory="much"),
    ):
        pass
