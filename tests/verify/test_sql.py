"""`ledgermq sql`: the tables and stages of a run by name, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.verify.synthetic import TOPIC, SyntheticRun
from verify.sql import QueryError, main, query_run


@pytest.fixture(scope="module")
def synthetic() -> SyntheticRun:
    return SyntheticRun("a")


@pytest.fixture(scope="module")
def run(synthetic: SyntheticRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("run"))


def test_tables_stages_and_the_manifest_are_there(synthetic: SyntheticRun, run: Path) -> None:
    (counted,) = query_run(run, "select count(*) as ops from ops")
    assert counted == {"ops": len(synthetic.ops)}
    leaders = query_run(run, "select node, term from raft where role = 'leader' order by term")
    assert leaders == [{"node": "n0", "term": 1}, {"node": "n1", "term": 2}]
    places = query_run(
        run,
        f"select distinct p.offset from places p join run_queues q using (broker_group, topic, "
        f"queue) where p.topic = '{TOPIC}' and p.queue = 0 order by all",
    )
    assert [row["offset"] for row in places] == list(range(len(synthetic.stored(0))))


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("select 1; select 2", "not one query"),
        ("drop table ops", "not one query"),
        ("select from where", "no query"),
        ("select * from oops", "there is no table oops; there are"),
        ("select oops from ops", "oops"),
        ("select * from read_text('/etc/hostname')", "disabled"),
    ],
)
def test_what_can_not_be_answered_is_named(run: Path, query: str, told: str) -> None:
    with pytest.raises(QueryError, match=told):
        query_run(run, query)


def test_a_directory_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=r"no run\.json"):
        query_run(tmp_path, "select 1")


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    run = SyntheticRun("a").write(tmp_path)
    (file,) = (run / "history").iterdir()
    file.write_bytes(b"not it.")
    with pytest.raises(QueryError, match="Parquet"):
        query_run(run, "select count(*) from ops")
    assert query_run(run, "select count(*) > 0 as there from raft") == [{"there": True}]


def test_rows_as_json_and_as_a_table(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = "select node, voters from raft where event = 'start' order by node"
    main(run, query, as_json=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == {"node": "n0", "voters": ["n0", "n1", "n2"]}
    main(run, query, as_json=False)
    assert "3 rows" in capsys.readouterr().out


def test_the_ten_questions_of_the_page_are_answered(run: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "SQL.md"
    queries = re.findall(r"```sql\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    assert len(queries) == 10
    unread = [query for query in queries if "values_told" in query]
    for query in queries:
        assert query_run(run, query) or query in unread, query
