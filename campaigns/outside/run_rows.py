"""A run directory as rows in memory, and how it gets to disk.

Place in the data path: the model cluster fills a `Run`, plants change its rows, `write` makes the
directory that the verifier reads.

Written from docs/RUN_FORMAT.md alone: column names, types and the digest are this file's own
reading of that page, and nothing of `verify` is imported.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

__all__ = [
    "MS",
    "SECOND",
    "TABLE_FOLDERS",
    "TABLE_SCHEMAS",
    "Row",
    "Run",
    "content_digest",
    "signed_hash",
]

Row: TypeAlias = dict[str, Any]
MS: Final = 1_000_000
SECOND: Final = 1_000_000_000

_PLACE: Final = [("broker_group", pa.string()), ("topic", pa.string()), ("queue", pa.int32())]
_MESSAGE: Final = pa.struct(
    [
        ("value", pa.string()),
        ("uniq_key", pa.string()),
        ("keys", pa.list_(pa.string())),
        *_PLACE,
        ("offset", pa.int64()),
        ("digest", pa.int64()),
        ("shard", pa.string()),
        ("seq", pa.int64()),
        ("tx", pa.string()),
        ("reconsume", pa.int32()),
        ("origin", pa.string()),
    ]
)


def _schema(strings: str, longs: str, **others: pa.DataType) -> pa.Schema:
    fields = [(name, pa.string()) for name in strings.split()]
    fields += [(name, pa.int64()) for name in longs.split()]
    return pa.schema([*fields, *others.items()])


TABLE_SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "ops": _schema(
        "process client client_group f type broker_group topic key tx decision node status error "
        "ref",
        "op t_invoke t_complete offset term due from_ms to_ms commit_offset",
        queue=pa.int32(),
        messages=pa.list_(_MESSAGE),
        assigned=pa.list_(pa.struct(_PLACE)),
        final=pa.bool_(),
    ),
    "faults": _schema(
        "name params effect evidence",
        "fault t_start t_effect t_heal t_healed",
        targets=pa.list_(pa.string()),
    ),
    "raft": _schema(
        "broker_group node event role peer",
        "seq t term index first entry_term chain last_index last_term t_begin",
        incarnation=pa.int32(),
        voters=pa.list_(pa.string()),
    ),
    "log": _schema(
        "broker_group node kind topic client_group value uniq_key tx decision",
        "index term chain position tag_hash queue_offset digest stored_ms",
        slot=pa.int32(),
        size=pa.int32(),
        queue=pa.int32(),
        keys=pa.list_(pa.string()),
        committed=pa.bool_(),
        cq_ok=pa.bool_(),
    ),
    "cq": _schema(
        "broker_group node topic",
        "queue_offset position tag_hash",
        queue=pa.int32(),
        size=pa.int32(),
    ),
}
TABLE_FOLDERS: Final[Mapping[str, str]] = {
    "ops": "history",
    "faults": "faults",
    "raft": "raft",
    "log": "log",
    "cq": "cq",
}


def signed_hash(*parts: object) -> int:
    """A signed 64-bit hash of `parts`, for chains and tags."""
    return _signed(xxhash.xxh3_64_intdigest(repr(parts).encode()))


def content_digest(body: bytes, flag: int, properties: Mapping[str, str]) -> int:
    """The `digest` of a message's contents, as the format's page defines it."""
    counted = {
        name.encode(): text.encode()
        for name, text in properties.items()
        if name in {"TAGS", "KEYS"} or name.startswith("u_")
    }
    pairs = b"".join(name + b"\1" + counted[name] + b"\2" for name in sorted(counted))
    return _signed(xxhash.xxh3_64_intdigest(body + b"\0" + struct.pack(">I", flag) + pairs))


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


@dataclass(kw_only=True)
class Run:
    """The five tables and the manifest of one run."""

    manifest: Row
    ops: list[Row] = field(default_factory=list)
    faults: list[Row] = field(default_factory=list)
    raft: list[Row] = field(default_factory=list)
    log: list[Row] = field(default_factory=list)
    cq: list[Row] = field(default_factory=list)
    note: str = ""
    unlisted: set[str] = field(default_factory=set)  # tables that the manifest does not list

    def copy(self) -> Run:
        """Another run with rows of its own."""
        copied: Run = pickle.loads(pickle.dumps(self))  # faster than deepcopy
        return copied

    def number_ops(self) -> None:
        """Numbers the operations by the time of their invoke, over all processes."""
        self.ops.sort(key=lambda row: row["t_invoke"])
        for number, row in enumerate(self.ops):
            row["op"] = number

    def write(self, folder: Path, *, files_per_table: int = 1) -> Path:
        """Writes the run to `folder`; the manifest comes last, by rename."""
        folder.mkdir(parents=True, exist_ok=True)
        tables: Row = {}
        for name, schema in TABLE_SCHEMAS.items():
            if name in self.unlisted:
                continue
            parts = _parts(getattr(self, name), files_per_table)
            tables[name] = {
                "files": [
                    _write_table(
                        folder, f"{TABLE_FOLDERS[name]}/{name}-{place}.parquet", schema, rows
                    )
                    for place, rows in enumerate(parts)
                ]
            }
        manifest = {**self.manifest, "tables": tables}
        temporary = folder / "run.json.tmp"
        temporary.write_text(json.dumps(manifest, indent=1))
        temporary.rename(folder / "run.json")
        return folder


def _parts(rows: Sequence[Row], count: int) -> Iterable[Sequence[Row]]:
    return [rows[place::count] for place in range(count)]


def _write_table(folder: Path, name: str, schema: pa.Schema, rows: Sequence[Row]) -> Row:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), path, compression="none")
    return {
        "name": name,
        "rows": len(rows),
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
