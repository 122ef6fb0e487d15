"""The tables of the run directory, format 1, column by column.

Place in the data path: what `verify.sources` reads must have these columns and what the checks see
has exactly them; columns that a run adds are dropped, one that is missing makes the run unknown.
Nothing is inferred from the data.

Source: the run format, version 1. Times are int64 nanoseconds since the run's start.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

__all__ = ["CQ", "FAULTS", "LOG", "MESSAGE", "OPS", "RAFT", "TABLES"]

_STRING: Final = StringType()
_LONG: Final = LongType()
_INT: Final = IntegerType()
_BOOL: Final = BooleanType()


def _struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


MESSAGE: Final = _struct(
    value=_STRING,
    uniq_key=_STRING,
    keys=ArrayType(_STRING),
    broker_group=_STRING,
    topic=_STRING,
    queue=_INT,
    offset=_LONG,
    shard=_STRING,
    seq=_LONG,
    tx=_STRING,
    reconsume=_INT,
)
"""One message of an operation."""

OPS: Final = _struct(
    op=_LONG,
    process=_STRING,
    client=_STRING,
    client_group=_STRING,
    f=_STRING,
    type=_STRING,
    t_invoke=_LONG,
    t_complete=_LONG,
    broker_group=_STRING,
    topic=_STRING,
    queue=_INT,
    offset=_LONG,
    messages=ArrayType(MESSAGE),
    assigned=ArrayType(_struct(broker_group=_STRING, topic=_STRING, queue=_INT)),
    key=_STRING,
    tx=_STRING,
    decision=_STRING,
    final=_BOOL,
    node=_STRING,
    term=_LONG,
    status=_STRING,
    error=_STRING,
)
"""One row per operation."""

FAULTS: Final = _struct(
    fault=_LONG,
    name=_STRING,
    targets=ArrayType(_STRING),
    params=_STRING,
    t_start=_LONG,
    t_effect=_LONG,
    t_heal=_LONG,
    t_healed=_LONG,
    effect=_STRING,
    evidence=_STRING,
)
"""One row per fault."""

LOG: Final = _struct(
    broker_group=_STRING,
    node=_STRING,
    index=_LONG,
    term=_LONG,
    slot=_INT,
    chain=_LONG,
    position=_LONG,
    size=_INT,
    tag_hash=_LONG,
    kind=_STRING,
    topic=_STRING,
    queue=_INT,
    queue_offset=_LONG,
    client_group=_STRING,
    value=_STRING,
    uniq_key=_STRING,
    keys=ArrayType(_STRING),
    tx=_STRING,
    decision=_STRING,
    committed=_BOOL,
    cq_ok=_BOOL,
    damage=_STRING,
)
"""One row per record per replica.

`damage`, which an export of stores sets, says why nothing could be read at `position`; such a row
has kind `damaged`, and `index` is that of the first entry that is missing.
"""

CQ: Final = _struct(
    broker_group=_STRING,
    node=_STRING,
    topic=_STRING,
    queue=_INT,
    queue_offset=_LONG,
    position=_LONG,
    size=_INT,
    tag_hash=_LONG,
)
"""One row per ConsumeQueue unit per replica."""

RAFT: Final = _struct(
    broker_group=_STRING,
    node=_STRING,
    incarnation=_INT,
    seq=_LONG,
    t=_LONG,
    event=_STRING,
    term=_LONG,
    index=_LONG,
    first=_LONG,
    entry_term=_LONG,
    chain=_LONG,
    last_index=_LONG,
    last_term=_LONG,
    t_begin=_LONG,
    role=_STRING,
    peer=_STRING,
    voters=ArrayType(_STRING),
)
"""One row per trace event per replica."""

TABLES: Final = {"ops": OPS, "faults": FAULTS, "raft": RAFT, "log": LOG, "cq": CQ}
