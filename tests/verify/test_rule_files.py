"""Files of rules: what is refused by name, and that every rule and stage of ours can be used."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from campaigns.known_bugs import RULES as PUBLISHED_BUGS
from verify.catalogue.dialect import DialectError, duckdb_text, tables_of
from verify.catalogue.rule_files import (
    BUILT_IN_RULES,
    BUILT_IN_STAGES,
    Rule,
    RuleFileError,
    Stage,
    read_rules,
    read_stages,
)
from verify.catalogue.stage_order import stages_behind, stages_read
from verify.catalogue.tallies import TALLIES
from verify.engines.duckdb import DuckDBEngine
from verify.engines.engine import TableFiles
from verify.sources.format_tables import TABLES
from verify.sources.manifest_tables import MANIFEST_TABLES
from verify.spark.engine import SparkEngine

RULES = read_rules(BUILT_IN_RULES, PUBLISHED_BUGS)
STAGES = read_stages(BUILT_IN_STAGES)
RULE = """-- A1: a name
-- promise: G3
-- needs: ops
-- examined: select 1
-- nothing: nothing was done
-- holds: Something is so.
-- rule: A sentence
--   that goes on.
-- source: somewhere
select op from ops
"""


def written(folder: Path, text: str, name: str = "A1.sql") -> Path:
    (folder / name).write_text(text)
    return folder


def test_a_rule_is_read_whole(tmp_path: Path) -> None:
    (rule,) = read_rules(written(tmp_path, RULE))
    assert (rule.id, rule.name, rule.promise) == ("A1", "a name", "G3")
    assert rule.rule == "A sentence that goes on."
    assert rule.needs == ("ops",)
    assert rule.wants == ()
    assert rule.text == "select op from ops"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("-- A1: a name", "-- a name", "does not begin with"),
        ("-- A1:", "-- A2:", "not named after its rule"),
        ("G3", "G9", "promise 'G9'"),
        ("needs: ops", "needs: opps", "'opps' is no table"),
        ("-- nothing: nothing was done\n", "", "lacks nothing"),
        ("-- source:", "-- sauce:", "the key 'sauce'"),
        ("-- source: somewhere", "-- source: a\n-- source: b", "'source' twice"),
        ("-- source: somewhere", "-- source: a\n--odd", "the line '--odd'"),
        ("select op from ops", "", "has no query"),
    ],
)
def test_a_file_that_is_no_rule_is_named(
    tmp_path: Path, before: str, after: str, told: str
) -> None:
    with pytest.raises(RuleFileError, match=told) as caught:
        read_rules(written(tmp_path, RULE.replace(before, after)))
    assert "A1.sql" in str(caught.value)


def test_two_rules_of_one_id_are_refused(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
        written(folder, RULE)
    with pytest.raises(RuleFileError, match="has the id of"):
        read_rules(ours, theirs)


@pytest.mark.parametrize(
    "text",
    [
        "select exists(xs, x -> x > 1) from t",
        "select xxhash64(a) from t",
        "select floor(a / 2) from t",
        "select first(a) from t group by b",
        "select a from t; select b from t",
        "delete from t",
        "select from where",
    ],
)
def test_what_the_subset_leaves_out_is_refused(text: str) -> None:
    with pytest.raises(DialectError, match=r"rule\.sql"):
        duckdb_text(text, name="rule.sql")


def test_conditions_that_are_all_null_count_as_none() -> None:
    text = "select count_if(x) as n, count_if(x) filter (where not x) as m from t"
    table = pa.table({"x": pa.array([None, None], pa.bool_())})
    connection = duckdb.connect()
    connection.register("t", table)
    assert connection.execute(duckdb_text(text, name="q")).fetchall() == [(0, 0)]


def test_a_query_names_its_tables_but_not_its_own() -> None:
    text = "with own as (select * from ops) select * from own join raft on own.op = raft.seq"
    assert tables_of(text, name="q") == {"ops", "raft"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_header_reads_counts_alone(rule: Rule) -> None:
    for query in (rule.applies, rule.listed, rule.examined):
        assert tables_of(query, name=rule.id) <= {*TALLIES, *MANIFEST_TABLES}


def test_every_file_reads_tables_that_there_are() -> None:
    known = {*TABLES, *MANIFEST_TABLES, *STAGES}
    texts = {rule.id: rule.text for rule in RULES} | {
        name: stage.text for name, stage in STAGES.items()
    }
    assert {name: tables_of(text, name=name) - known for name, text in texts.items()} == {
        name: frozenset() for name in texts
    }


def _empty() -> tuple[dict[str, TableFiles], dict[str, pa.Table]]:
    tables = {name: TableFiles(files=(), schema=schema) for name, schema in TABLES.items()}
    return tables, {name: schema.empty_table() for name, schema in MANIFEST_TABLES.items()}


def in_order() -> list[Stage]:
    """Each behind those that it reads."""
    return [STAGES[name] for name in stages_behind(STAGES, STAGES)]


def test_a_stage_stands_behind_what_it_reads_and_never_reads_itself(tmp_path: Path) -> None:
    (tmp_path / "a.sql").write_text("-- About.\nselect * from b join c using (x)")
    (tmp_path / "b.sql").write_text("-- About.\nselect * from c")
    (tmp_path / "c.sql").write_text("-- About.\nselect op as x from ops")
    stages = read_stages(tmp_path)
    assert stages_read("select * from a", name="q", stages=stages) == ("c", "b", "a")
    assert stages_read("select * from ops", name="q", stages=stages) == ()
    (tmp_path / "c.sql").write_text("-- About.\nselect * from a")
    with pytest.raises(DialectError, match="stage a reads itself, by way of a b c"):
        stages_read("select * from a", name="q", stages=read_stages(tmp_path))


def test_every_column_is_known_to_duckdb(tmp_path: Path) -> None:
    """All of them on tables without a row: no rule finds anything, and none is refused."""
    engine = DuckDBEngine(tmp_path)
    engine.load(*_empty())
    engine.make(in_order())
    for rule in RULES:
        found = engine.findings(rule)
        assert (found.violations, found.doubts) == (0, 0), rule.id


@pytest.mark.spark
def test_every_column_is_known_to_spark(spark: SparkSession) -> None:
    """Analysed only: no job runs."""
    engine = SparkEngine(spark)
    engine.load(*_empty())
    try:
        engine.make(in_order())
        for rule in RULES:
            assert spark.sql(rule.text).columns
        for name, schema in TALLIES.items():
            assert spark.table(name).columns == schema.names
    except AnalysisException as error:
        pytest.fail(str(error))
    finally:
        engine.close()
