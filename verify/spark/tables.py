"""The Parquet tables of a run, with the columns and types that the format names.

Place in the data path: between the listed files and `verify.spark.engine`. Columns that a run added
are not read. A column that is missing or of another kind makes the table unreadable; the same kind
in another width (as pandas may write it) is cast, and a column without any value may have Arrow's
null type.

Invariants: the result has exactly the format's columns, in its order; the number of files and the
order of their rows change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from verify.sources.format_tables import ADDED, TableError
from verify.sources.run_files import TableFile

__all__ = ["read_table"]

_IGNORED: Final = re.compile(r"\.|_(?!.*=)|.*\._COPYING_$")
"""Names that Spark silently ignores (InMemoryFileIndex.shouldFilterOutPathName)."""
_OF_PATTERNS: Final = re.compile(r"[*?\[\]{}\\]")

_PLAIN_TYPES: Final[tuple[tuple[Callable[[pa.DataType], bool], DataType], ...]] = (
    (pa.types.is_string, StringType()),
    (pa.types.is_large_string, StringType()),
    (pa.types.is_boolean, BooleanType()),
    (pa.types.is_int8, ByteType()),
    (pa.types.is_int16, ShortType()),
    (pa.types.is_int32, IntegerType()),
    (pa.types.is_int64, LongType()),
)
_INTEGERS: Final[set[type[DataType]]] = {IntegerType, LongType}
_FAMILY: Final[Mapping[type[DataType], set[type[DataType]]]] = {
    StringType: {StringType},
    BooleanType: {BooleanType},
    ByteType: _INTEGERS,
    ShortType: _INTEGERS,
    IntegerType: _INTEGERS,
    LongType: _INTEGERS,
}


def read_table(session: SparkSession, files: Sequence[TableFile], schema: StructType) -> DataFrame:
    """Read the rows of all `files` with the columns of `schema`.

    Raises:
        TableError: a file lacks a column, has one of another kind, or a name that Spark hides.
    """
    by_shape: dict[str, tuple[StructType, list[str]]] = {}
    for file in files:
        footer = file.footer()
        if footer.num_rows == 0:
            continue  # the file is empty, so its columns don't matter
        if _IGNORED.match(file.name):
            raise TableError(f"{file.name} has a name that Spark reads nothing of")
        shape = _shape_on_disk(file.name, footer.schema.to_arrow_schema(), schema)
        by_shape.setdefault(shape.json(), (shape, []))[1].append(_literal(file.uri))
    tables = [
        session.read.schema(shape).parquet(*names).select(*_members(F.col, shape, schema))
        for shape, names in by_shape.values()
    ]
    if not tables:
        return session.createDataFrame([], schema).where("false")  # so that plans leave it out
    result = tables[0]
    for table in tables[1:]:
        result = result.unionByName(table)
    return result


def _as_declared(column: Column, found: DataType, declared: DataType) -> Column:
    """Cast `column`, which the file has as `found`, to the type in the format, `declared`."""
    if found == declared:
        return column
    if isinstance(found, ArrayType) and isinstance(declared, ArrayType):
        inner, outer = found.elementType, declared.elementType
        return F.transform(column, lambda item: _as_declared(item, inner, outer))
    if isinstance(found, StructType) and isinstance(declared, StructType):
        members = _members(column.getField, found, declared)
        return F.when(column.isNotNull(), F.struct(*members))
    return column.cast(declared)


def _members(
    member: Callable[[str], Column], found: StructType, declared: StructType
) -> list[Column]:
    return [
        (
            _as_declared(member(field.name), found[field.name].dataType, field.dataType)
            if field.name in found.names
            else F.lit(None).cast(field.dataType)
        ).alias(field.name)
        for field in declared.fields
    ]


def _literal(uri: str) -> str:
    """Escape `uri`, since Spark takes it for a pattern, so that it matches itself only."""
    return _OF_PATTERNS.sub(r"\\\g<0>", uri)


def _shape_on_disk(file: str, found: pa.Schema, schema: StructType) -> StructType:
    """Return the columns to read from `file`: the format's, in the widths that the file has."""
    columns = {field.name: field.type for field in found}
    return _struct_on_disk(file, "", columns, schema)


def _struct_on_disk(
    file: str, path: str, columns: Mapping[str, pa.DataType], declared: StructType
) -> StructType:
    fields: list[StructField] = []
    for field in declared.fields:
        name = f"{path}{field.name}"
        if field.name not in columns and field.name in ADDED:
            continue
        if field.name not in columns:
            raise TableError(f"{file} lacks the column {name}")
        if not pa.types.is_null(columns[field.name]):
            found = _type_on_disk(file, name, columns[field.name], field.dataType)
            fields.append(StructField(field.name, found))
    return StructType(fields)


def _type_on_disk(file: str, path: str, kind: pa.DataType, declared: DataType) -> DataType:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type  # Arrow's encoding, which Parquet does not distinguish
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if isinstance(declared, ArrayType):
            if pa.types.is_null(kind.value_type):
                return ArrayType(IntegerType())  # how Parquet stores a list without any value
            return ArrayType(
                _type_on_disk(file, f"{path}[]", kind.value_type, declared.elementType)
            )
    elif pa.types.is_struct(kind):
        if isinstance(declared, StructType):
            members = {field.name: field.type for field in kind}
            return _struct_on_disk(file, f"{path}.", members, declared)
    else:
        for belongs, spark_type in _PLAIN_TYPES:
            if belongs(kind) and type(declared) in _FAMILY[type(spark_type)]:
                return spark_type
    raise TableError(
        f"{file} has the column {path} as {kind}, the format says {declared.simpleString()}"
    )
