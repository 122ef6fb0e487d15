"""The tables of the run format, made from what a run left behind.

Place in the data path: `chaos.history` (operations, faults) and the replicas' `trace/` streams go
in, Parquet files with the exact columns of the run format come out; `chaos.run_manifest` lists
them. `verify` reads the files and shares no code with this.

Invariants: column types are those of the run format, whatever the rows hold (a row that does not
fit is an error, never a silent cast); `op` numbers operations by t_invoke over all processes;
an operation without completion becomes `info` with t_complete null; times are nanoseconds since
the run's start.

Source: the run format, version 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq

from chaos.history import COMPLETE, FAULT, INVOKE, NOTE, HistoryError, HistoryReader

__all__ = [
    "FAULTS_SCHEMA",
    "OPS_SCHEMA",
    "RAFT_SCHEMA",
    "HistoryTables",
    "read_history",
    "read_trace",
    "write_faults",
    "write_ops",
    "write_raft",
]

ROWS_PER_BATCH: Final = 8192
READ_SIZE: Final = 1 << 20
TRACE_RECORD_SIZE_MAX: Final = 1 << 20

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
_OPS_COLUMNS: Final = frozenset(OPS_SCHEMA.names)
_MESSAGE_FIELDS: Final = tuple(field.name for field in MESSAGE_TYPE)
_QUEUE_FIELDS: Final = tuple(field.name for field in QUEUE_TYPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryTables:
    """A history in rows. `notes`: the last value of each note; `dropped_bytes`: of a cut tail."""

    ops: list[dict[str, object]]
    faults: list[dict[str, object]]
    notes: dict[str, object]
    dropped_bytes: int


def read_history(path: Path) -> HistoryTables:
    """Join invokes and completions; memory grows with the history.

    Raises HistoryError where a record contradicts another or names an unknown column.
    """
    ops: dict[int, dict[str, object]] = {}
    faults: dict[int, dict[str, object]] = {}
    notes: dict[str, object] = {}
    reader = HistoryReader(path)
    for record in reader:
        kind = record[0]
        if kind == INVOKE:
            _, handle, t_invoke, columns = record
            if handle in ops:
                raise HistoryError(f"{path}: operation {handle} is invoked twice")
            ops[cast(int, handle)] = {
                "type": "info",
                "t_invoke": t_invoke,
                "t_complete": None,
                **cast(dict[str, object], columns),
            }
        elif kind == COMPLETE:
            _, handle, t_complete, outcome, columns = record
            row = ops.get(cast(int, handle))
            if row is None or row["t_complete"] is not None:
                raise HistoryError(f"{path}: operation {handle} completes but was not open")
            row.update(cast(dict[str, object], columns))
            row["type"] = outcome
            row["t_complete"] = t_complete
        elif kind == FAULT:
            faults[cast(int, record[1])] = {
                "fault": record[1],
                **cast(dict[str, object], record[2]),
            }
        else:
            assert kind == NOTE
            notes[cast(str, record[1])] = record[2]
    ordered = sorted(ops.items(), key=lambda item: (cast(int, item[1]["t_invoke"]), item[0]))
    return HistoryTables(
        ops=[_op_row(number, row, path) for number, (_, row) in enumerate(ordered)],
        faults=[row for _, row in sorted(faults.items())],
        notes=notes,
        dropped_bytes=reader.dropped_bytes,
    )


def write_ops(rows: list[dict[str, object]], path: Path) -> int:
    """Returns the number of rows. Raises pa.ArrowInvalid or pa.ArrowTypeError on a bad value."""
    return _write(rows, OPS_SCHEMA, path)


def write_faults(rows: list[dict[str, object]], path: Path) -> int:
    return _write(rows, FAULTS_SCHEMA, path)


def write_raft(traces: Iterable[tuple[str, str, Path]], path: Path, *, started_ns: int) -> int:
    """`traces`: (broker group, node, its trace directory). Returns the number of rows."""
    rows = (
        row
        for group, node, directory in traces
        for file in sorted(directory.glob("*"))
        for row in read_trace(file, group, node, started_ns=started_ns)
    )
    return _write(rows, RAFT_SCHEMA, path)


def read_trace(
    file: Path, group: str, node: str, *, started_ns: int
) -> Iterator[dict[str, object]]:
    """Rows of one trace stream; a last event that a kill cut short is left out."""
    unpacker = msgpack.Unpacker(raw=False, max_buffer_size=TRACE_RECORD_SIZE_MAX + READ_SIZE)
    with file.open("rb") as stream:
        while data := stream.read(READ_SIZE):
            unpacker.feed(data)
            for event in unpacker:
                if not isinstance(event, dict):
                    raise HistoryError(f"{file}: no event before byte {unpacker.tell()}")
                event["t"] = event["t"] - started_ns
                if event.get("t_begin") is not None:
                    event["t_begin"] = event["t_begin"] - started_ns
                yield {"broker_group": group, "node": node, **event}


def _op_row(number: int, row: dict[str, object], path: Path) -> dict[str, object]:
    unknown = set(row) - _OPS_COLUMNS
    if unknown:
        raise HistoryError(f"{path}: operation {number} has unknown column {sorted(unknown)[0]}")
    row["op"] = number
    for name, fields in (("messages", _MESSAGE_FIELDS), ("assigned", _QUEUE_FIELDS)):
        items = cast("list[list[object]] | None", row.get(name))
        if items is not None:
            row[name] = [dict(zip(fields, item, strict=True)) for item in items]
    return row


def _write(rows: Iterable[dict[str, object]], schema: pa.Schema, path: Path) -> int:
    """One Parquet file, written in batches; columns that a row does not name are null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    batch: list[dict[str, object]] = []
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for row in rows:
            batch.append(row)
            if len(batch) == ROWS_PER_BATCH:
                writer.write_table(pa.Table.from_pylist(batch, schema=schema))
                count += len(batch)
                batch = []
        writer.write_table(pa.Table.from_pylist(batch, schema=schema))
        count += len(batch)
    return count
