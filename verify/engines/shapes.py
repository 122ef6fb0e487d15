"""The columns of a Parquet file, read as the columns that the format names.

Place in the data path: under `verify.engines.duckdb`, which casts each column to its type. A column
of another kind is refused here, by name, before anything is read.

Invariants: the same kind in another width (as pandas may write it) is cast, and a column without
any value may have Arrow's null type. Text is never cast to a number, nor a number to text.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from verify.sources.format_tables import ADDED, TableError

__all__ = ["has_declared_types", "select_list"]


_FAMILIES: Final[tuple[tuple[Callable[[pa.DataType], bool], str], ...]] = (
    (pa.types.is_string, "text"),
    (pa.types.is_large_string, "text"),
    (pa.types.is_boolean, "truth"),
    (pa.types.is_signed_integer, "integer"),
    (pa.types.is_null, "nothing"),
)


def select_list(path: Path | None, schema: pa.Schema) -> str:
    """Build DuckDB's list of columns that reads `path` as `schema`; None: those of an empty table.

    Raises:
        TableError: a column is missing or of another kind.
    """
    if path is not None and pq.read_metadata(path).num_rows == 0:
        path = None  # the file is empty, so the types of its columns don't matter
    found = None if path is None else pa.struct(pq.read_schema(path))
    columns = []
    for field in schema:
        kind = _duckdb_type(field.type)
        if found is None or path is None:
            columns.append(f'cast(null as {kind}) as "{field.name}"')
            continue
        place = found.get_field_index(field.name)
        if place < 0 and field.name in ADDED:
            columns.append(f'cast(null as {kind}) as "{field.name}"')
            continue
        if place < 0:
            raise TableError(f"{path.name} lacks the column {field.name}")
        _refuse_another_kind(path.name, field.name, found.field(place).type, field.type)
        columns.append(f'cast("{field.name}" as {kind}) as "{field.name}"')
    return ", ".join(columns)


def has_declared_types(path: Path, schema: pa.Schema) -> bool:
    """Return whether each column of `path` has exactly its type in `schema`: no cast can fail.

    A column or member that the format added later may be missing: it is read as null.
    """
    return _is_declared(pa.struct(pq.read_schema(path)), pa.struct(schema))


def _is_declared(found: pa.DataType, declared: pa.DataType) -> bool:
    """Compare types but for how a list's element is called, which each writer decides."""
    if pa.types.is_list(declared):
        return pa.types.is_list(found) and _is_declared(found.value_type, declared.value_type)
    if not pa.types.is_struct(declared):
        return bool(found == declared)
    return pa.types.is_struct(found) and all(
        _is_declared(found.field(place).type, field.type)
        if (place := found.get_field_index(field.name)) >= 0
        else field.name in ADDED
        for field in declared
    )


def _refuse_another_kind(file: str, path: str, found: pa.DataType, declared: pa.DataType) -> None:
    if pa.types.is_dictionary(found):
        found = found.value_type  # Arrow's encoding, which Parquet does not distinguish
    if pa.types.is_null(found):
        return
    if pa.types.is_list(declared):
        if pa.types.is_list(found) or pa.types.is_large_list(found):
            _refuse_another_kind(file, f"{path}[]", found.value_type, declared.value_type)
            return
    elif pa.types.is_struct(declared):
        if pa.types.is_struct(found):
            for field in declared:
                place = found.get_field_index(field.name)
                if place >= 0:
                    _refuse_another_kind(
                        file, f"{path}.{field.name}", found.field(place).type, field.type
                    )
                elif field.name not in ADDED:
                    raise TableError(f"{file} lacks the column {path}.{field.name}")
            return
    elif _family(found) == _family(declared) != "":
        return
    raise TableError(f"{file} has the column {path} as {found}, the format says {declared}")


def _family(kind: pa.DataType) -> str:
    return next((family for is_one, family in _FAMILIES if is_one(kind)), "")


def _duckdb_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"{_duckdb_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        members = ", ".join(f'"{field.name}" {_duckdb_type(field.type)}' for field in kind)
        return f"struct({members})"
    return {"text": "varchar", "truth": "boolean"}.get(_family(kind)) or (
        "integer" if pa.types.is_int32(kind) else "bigint"
    )
