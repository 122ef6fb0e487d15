"""The tables of the run directory, format 1, column by column, as Arrow types.

Place in the data path: the files read must have these columns, and the rules see exactly them;
columns that a run adds are dropped. Engines derive their own types from these.

Invariants: a missing column makes the run unknown, except one of `ADDED`, which becomes null.
All of `ADDED` but `damage` came into the format later; `damage` is not a column of the format: in a
log that is read from a store, it says why nothing could be read at `position`, in a row of kind
`damaged` whose index is that of the first missing entry.

Source: docs/RUN_FORMAT.md. Times are int64 nanoseconds since the run's start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

__all__ = ["ADDED", "TABLES", "TableError"]


class TableError(Exception):
    """A listed table does not have the format's columns; the message names the first difference."""


_KINDS: Final = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "bool": pa.bool_(),
    "strings": pa.list_(pa.string()),
}
ADDED: Final = frozenset(
    {
        "digest",
        "damage",
        "due",
        "ref",
        "from_ms",
        "to_ms",
        "stored_ms",
        "commit_offset",
        "origin",
    }
)


def _columns(text: str, **special: pa.DataType) -> pa.Schema:
    pairs = (word.split(":") for word in text.split())
    return pa.schema([(name, special.get(kind) or _KINDS[kind]) for name, kind in pairs])


_MESSAGE: Final = pa.struct(
    _columns(
        "value:string uniq_key:string keys:strings broker_group:string topic:string queue:int "
        "offset:long digest:long shard:string seq:long tx:string reconsume:int origin:string"
    )
)
_OWNED: Final = pa.struct(_columns("broker_group:string topic:string queue:int"))

TABLES: Final[Mapping[str, pa.Schema]] = {
    "ops": _columns(
        "op:long process:string client:string client_group:string f:string type:string "
        "t_invoke:long t_complete:long broker_group:string topic:string queue:int offset:long "
        "messages:messages assigned:owned key:string tx:string decision:string final:bool "
        "node:string term:long status:string error:string due:long ref:string "
        "from_ms:long to_ms:long commit_offset:long",
        messages=pa.list_(_MESSAGE),
        owned=pa.list_(_OWNED),
    ),
    "faults": _columns(
        "fault:long name:string targets:strings params:string t_start:long t_effect:long "
        "t_heal:long t_healed:long effect:string evidence:string"
    ),
    "raft": _columns(
        "broker_group:string node:string incarnation:int seq:long t:long event:string term:long "
        "index:long first:long entry_term:long chain:long last_index:long last_term:long "
        "t_begin:long role:string peer:string voters:strings"
    ),
    "log": _columns(
        "broker_group:string node:string index:long term:long slot:int chain:long position:long "
        "size:int tag_hash:long kind:string topic:string queue:int queue_offset:long "
        "client_group:string value:string uniq_key:string keys:strings digest:long tx:string "
        "decision:string committed:bool cq_ok:bool damage:string stored_ms:long"
    ),
    "cq": _columns(
        "broker_group:string node:string topic:string queue:int queue_offset:long position:long "
        "size:int tag_hash:long"
    ),
}
