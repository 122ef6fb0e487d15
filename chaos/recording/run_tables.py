"""The columns of the run format's tables, and the files that hold them.

Place in the data path: `chaos.recording.table_converter` writes its rows with it. `verify` reads
the files and shares no code with this.

Invariant: column types are those of the run format, whatever the rows hold: a row that does not fit
is an error, never a silent cast.

Source: the run format, version 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["FAULTS_SCHEMA", "OPS_SCHEMA", "RAFT_SCHEMA", "TableWriter", "table_of"]

ROWS_PER_GROUP: Final = 1 << 16

MESSAGE_TYPE: Final = pa.struct(
    [
        pa.field("value", pa.string()),
        pa.field("uniq_key", pa.string()),
        pa.field("keys", pa.list_(pa.string())),
        pa.field("broker_group", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("queue", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("digest", pa.int64()),
        pa.field("shard", pa.string()),
        pa.field("seq", pa.int64()),
        pa.field("tx", pa.string()),
        pa.field("reconsume", pa.int32()),
        pa.field("origin", pa.string()),
    ]
)
QUEUE_TYPE: Final = pa.struct(
    [
        pa.field("broker_group", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("queue", pa.int32()),
    ]
)
OPS_SCHEMA: Final = pa.schema(
    [
        pa.field("op", pa.int64()),
        pa.field("process", pa.string()),
        pa.field("client", pa.string()),
        pa.field("client_group", pa.string()),
        pa.field("f", pa.string()),
        pa.field("type", pa.string()),
        pa.field("t_invoke", pa.int64()),
        pa.field("t_complete", pa.int64()),
        pa.field("broker_group", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("queue", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("messages", pa.list_(MESSAGE_TYPE)),
        pa.field("assigned", pa.list_(QUEUE_TYPE)),
        pa.field("key", pa.string()),
        pa.field("tx", pa.string()),
        pa.field("decision", pa.string()),
        pa.field("final", pa.bool_()),
        pa.field("node", pa.string()),
        pa.field("term", pa.int64()),
        pa.field("status", pa.string()),
        pa.field("error", pa.string()),
        pa.field("due", pa.int64()),
        pa.field("ref", pa.string()),
        pa.field("from_ms", pa.int64()),
        pa.field("to_ms", pa.int64()),
        pa.field("commit_offset", pa.int64()),
    ]
)
FAULTS_SCHEMA: Final = pa.schema(
    [
        pa.field("fault", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("targets", pa.list_(pa.string())),
        pa.field("params", pa.string()),
        pa.field("t_start", pa.int64()),
        pa.field("t_effect", pa.int64()),
        pa.field("t_heal", pa.int64()),
        pa.field("t_healed", pa.int64()),
        pa.field("effect", pa.string()),
        pa.field("evidence", pa.string()),
    ]
)
RAFT_SCHEMA: Final = pa.schema(
    [
        pa.field("broker_group", pa.string()),
        pa.field("node", pa.string()),
        pa.field("incarnation", pa.int32()),
        pa.field("seq", pa.int64()),
        pa.field("t", pa.int64()),
        pa.field("event", pa.string()),
        pa.field("term", pa.int64()),
        pa.field("index", pa.int64()),
        pa.field("first", pa.int64()),
        pa.field("entry_term", pa.int64()),
        pa.field("chain", pa.int64()),
        pa.field("last_index", pa.int64()),
        pa.field("last_term", pa.int64()),
        pa.field("t_begin", pa.int64()),
        pa.field("role", pa.string()),
        pa.field("peer", pa.string()),
        pa.field("voters", pa.list_(pa.string())),
    ]
)


def table_of(rows: Sequence[Mapping[str, object]], schema: pa.Schema) -> pa.Table:
    """Make a table of rows; missing columns are null, those not in `schema` are left out.

    Raises:
        pa.ArrowInvalid, pa.ArrowTypeError: a value is not of its column's type.
    """
    return pa.Table.from_pylist(list(rows), schema=schema)


class TableWriter:
    """One Parquet file that grows by tables of `schema`; whole once it is closed."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        """Create the file; an existing one is overwritten. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.rows = 0
        self._schema = schema
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")
        self._waiting: list[pa.Table] = []  # less than a row group together

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def write(self, table: pa.Table) -> None:
        self.rows += table.num_rows
        self._waiting.append(table)
        if sum(waiting.num_rows for waiting in self._waiting) >= ROWS_PER_GROUP:
            self._write_waiting()

    def close(self) -> None:
        if self._writer.is_open:
            self._write_waiting()
            self._writer.close()

    def _write_waiting(self) -> None:
        waiting = pa.concat_tables([self._schema.empty_table(), *self._waiting])
        self._waiting.clear()
        self._writer.write_table(waiting, row_group_size=ROWS_PER_GROUP)
