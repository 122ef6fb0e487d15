"""WITH tables that are read more than once are made first, and nothing else changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import duckdb
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from verify.catalogue.common_tables import divided
from verify.run import load_rules


def _answer(text: str, tables: dict[str, str]) -> list[tuple[object, ...]]:
    """Of the divided query, its shared tables made one after the other."""
    with duckdb.connect() as connection:
        for name, query in tables.items():
            connection.execute(f"create table {name} as {query}")
        whole = connection.execute(text).fetchall()
        query = divided(text, prefix="r")
        for shared in query.shared:
            connection.execute(f"create table {shared.name} as {shared.text}")
        assert connection.execute(query.text).fetchall() == whole
        return whole


def _shared(text: str) -> list[str]:
    return [table.name for table in divided(text, prefix="r").shared]


def test_what_is_read_twice_is_made_first() -> None:
    text = """-- a header
    with one as (select x from t), -- ), (
    two as (select x + 1 as y, ')' as bracket from one),
    three as (select y from two where y in (select y from two))
    select y, (select count(*) from one) as ones from three join one on one.x < three.y"""
    assert _shared(text) == ["r__one", "r__two"]
    assert _answer(text, {"t": "select 1 as x"}) == [(2, 1)]


def test_a_query_that_reads_each_once_is_left_as_it_is() -> None:
    text = "with one as (select 1 as x) select * from one"
    assert (_shared(text), divided(text, prefix="r").text) == ([], text)


def test_a_table_of_the_run_that_a_with_table_hides() -> None:
    text = "with t as (select x + 1 as x from t) select a.x from t a join t b on a.x = b.x"
    assert _shared(text) == ["r__t"]
    assert _answer(text, {"t": "select 1 as x"}) == [(2,)]


def test_a_name_is_a_word_of_sql_or_a_column_or_in_capitals() -> None:
    text = """with next as (select x from t), x as (select x from NEXT),
    once as (select x from X) select next.x, once.x from Next join once on next.x = once.x"""
    assert _shared(text) == ["r__next"]
    assert _answer(text, {"t": "select 1 as x"}) == [(1, 1)]


@pytest.mark.parametrize(
    "text",
    [
        "select 1 as x",
        "with recursive r as (select 1 as x union all select x + 1 from r where x < 3)"
        " select * from r a join r b on a.x = b.x",
        "with a(x) as (select 1) select * from a join a b on a.x = b.x",
    ],
)
def test_what_has_no_plain_list_is_left_as_it_is(text: str) -> None:
    assert divided(text, prefix="r").text == text


def test_all_of_ours_are_divided() -> None:
    """A name that is read twice and not found would be a query answered twice."""
    known = load_rules()
    queries: list[tuple[str, str]] = [(rule.id, rule.text) for rule in known.rules]
    queries += [(stage.name, stage.text) for stage in known.stages.values()]
    for name, text in queries:
        tree = sqlglot.parse_one(text, read="spark")
        own = {cte.alias for cte in tree.find_all(exp.CTE)}
        read = Counter(table.name for table in tree.find_all(exp.Table))
        shared = {table.name for table in divided(text, prefix=name).shared}
        assert shared == {f"{name}__{table}" for table in own if read[table] > 1}, name


# Queries of a few WITH tables, each of which reads some of those before it: (read, how it reads).
READS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["join", "in", "union"])), max_size=3)
JOINED: dict[str, Callable[[str], str]] = {
    "join": lambda name: f" join {name} on {name}.x > 0",
    "in": lambda name: f" where exists (select 1 from {name} i where i.x >= a.x)",
    "union": lambda name: f" union all select x + 1 from {name}",
}


@given(tables=st.lists(READS, min_size=1, max_size=6))
def test_drawn_queries_answer_the_same(tables: list[list[tuple[int, str]]]) -> None:
    definitions: list[str] = []
    names = ["t"]
    for at, reads in enumerate(tables):
        ordered = sorted(reads, key=lambda read: ["join", "in", "union"].index(read[1]))
        text, used = "select a.x as x from t a", {"in": 0, "join": 0, "union": 0}
        for place, how in ordered:
            if how != "union" and used[how]:
                continue
            used[how] += 1
            text += JOINED[how](names[place % len(names)])
        definitions.append(f"w{at} as ({text})")
        names.append(f"w{at}")
    last = names[-1]
    text = f"with {', '.join(definitions)} select sum(x) from {last} union all select 7"
    _answer(text, {"t": "select unnest([1, 2]) as x"})
