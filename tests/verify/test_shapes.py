"""Which tables DuckDB reads where they lie, those without a cast that could fail, and which not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from verify.engines.duckdb import DuckDBEngine
from verify.engines.engine import TableFiles
from verify.engines.shapes import select_list
from verify.sources.format_tables import ADDED, TABLES, TableError
from verify.sources.run_files import LocalFiles


def _of_other_writers(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(field.name, _otherwise(field.type)) for field in schema])


def _otherwise(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _otherwise(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([(m.name, _otherwise(m.type)) for m in kind if m.name not in ADDED])
    return kind


@pytest.mark.parametrize(
    ("change", "is_viewed"),
    [
        (lambda table: table, True),
        (lambda table: table.drop_columns(sorted(ADDED & set(table.column_names))), True),
        (lambda table: table.cast(_of_other_writers(table.schema)), True),
        (lambda table: table.set_column(0, table.schema.names[0], pa.nulls(1)), False),
    ],
    ids=[
        "as the format says",
        "before columns were added",
        "before members were added, lists' elements called otherwise",
        "without a type",
    ],
)
@pytest.mark.parametrize("name", ["ops", "log"])
def test_a_large_table_is_read_where_it_lies(name, change, is_viewed, tmp_path: Path) -> None:
    schema = TABLES[name]
    table = change(pa.Table.from_pylist([{"node": "n0"}], schema=schema))
    (tmp_path / name).mkdir()
    pq.write_table(table, tmp_path / name / "part.parquet")
    file = LocalFiles(tmp_path).table_file(f"{name}/part.parquet")
    engine = DuckDBEngine(tmp_path / "spill", viewed_rows_min=1)
    engine.load({name: TableFiles(files=(file,), schema=schema)}, {})
    views = engine.query("select view_name from duckdb_views() where not internal")
    rows = engine.table(name)
    engine.close()
    assert [view["view_name"] for view in views] == ([name] if is_viewed else [])
    assert rows == [dict.fromkeys(schema.names) | {"node": "n0"}]


@pytest.mark.parametrize(
    ("kind", "is_refused"),
    [(pa.int64(), True), (pa.int32(), True), (pa.null(), False), (pa.large_string(), False)],
)
def test_lists_of_another_kind_are_refused(kind: pa.DataType, is_refused: bool, tmp_path) -> None:
    schema = TABLES["raft"]
    table = pa.Table.from_pylist([{"node": "n0"}], schema=schema)
    place = schema.get_field_index("voters")
    table = table.set_column(place, "voters", pa.nulls(1, pa.list_(kind)))
    pq.write_table(table, tmp_path / "part.parquet")
    if not is_refused:
        assert select_list(tmp_path / "part.parquet", schema)
        return
    with pytest.raises(TableError, match=r"voters\[\] as int"):
        select_list(tmp_path / "part.parquet", schema)
