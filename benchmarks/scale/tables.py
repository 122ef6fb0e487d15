"""A run directory of any size: the stretches of a timeline as Parquet files, and run.json.

Place in the data path: `benchmarks.verify_scale` writes a run with `write_run` and verifies it.

Invariants: only one stretch is in memory; run.json is written last.

Source: docs/RUN_FORMAT.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.scale.producers import CHECK_MAX
from benchmarks.scale.record import (
    DISCARDED,
    HALF,
    MS,
    NULL,
    OP,
    QUEUES,
    RETRY,
    Decision,
    F,
    Kind,
    Numbers,
    Type,
    mixed,
    ranges,
)
from benchmarks.scale.timeline import Stretch, Timeline
from benchmarks.scale.traces import NODES, Event, Role

__all__ = ["write_run"]

_BROKER: Final = "broker-0"
_NODES: Final = tuple(f"node-{node}" for node in range(NODES))
_TOPICS: Final = {
    HALF: "RMQ_SYS_TRANS_HALF_TOPIC",
    OP: "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    RETRY: "%RETRY%push",
    DISCARDED: "TRANS_CHECK_MAX_TIME_TOPIC",
}
_TOPIC_NAMES: Final = ["orders"] * QUEUES + [_TOPICS[queue] for queue in sorted(_TOPICS)]
_QUEUE_NUMBERS: Final = [*range(QUEUES), *[0] * len(_TOPICS)]
_GROUP_NAMES: Final = ["producers", "pull", "push", "drain", "tools", "CID_RMQ_SYS_TRANS"]
_SHARDS: Final = [f"s{queue}.{part}" for queue in range(QUEUES) for part in range(4)]
_MESSAGE_COLUMNS: Final = (
    *("value", "uniq_key", "keys", "broker_group", "topic", "queue", "offset"),
    *("digest", "shard", "seq", "tx", "reconsume"),
)
_CQ_COLUMNS: Final = (
    *("broker_group", "node", "topic", "queue", "queue_offset", "position", "size", "tag_hash"),
)
_ENTRY_COLUMNS: Final = (
    *("term", "index", "first", "entry_term", "chain", "last_index", "last_term", "t_begin"),
)
_FAULTS: Final = pa.schema(
    [
        ("fault", pa.int64()),
        ("name", pa.string()),
        ("targets", pa.list_(pa.string())),
        ("params", pa.string()),
        *((name, pa.int64()) for name in ("t_start", "t_effect", "t_heal", "t_healed")),
        ("effect", pa.string()),
        ("evidence", pa.string()),
    ]
)
_FILE_ROWS_MAX: Final = 2_000_000
_STRETCH_MAX: Final = 50_000
_STRETCHES_MIN: Final = 8


def write_run(
    run: Path, messages: int, *, seed: int = 1, skewed: bool = False, loss: bool = False
) -> str | None:
    """Write a run; return the value of the lost message, if one is to be lost."""
    lost = messages // 2 if loss else None
    timeline = Timeline(seed, skewed=skewed, lost=lost)
    files = _Files(run)
    count = max(1, min(_STRETCH_MAX, messages // _STRETCHES_MIN))
    faults: list[dict[str, Any]] = []
    for first in range(0, messages, count):
        stretch = timeline.stretch(min(count, messages - first))
        faults.extend(_faults(stretch, len(faults)))
        names = _Messages(stretch.message, stretch.is_tx)
        files.add("ops", _ops(stretch, names, files.rows("ops")))
        rows = _log(stretch.rows, names)
        for node, events in zip(_NODES, stretch.traces, strict=True):
            files.add("raft", _raft(events, node))
            log = rows.set_column(1, "node", _same(node, len(rows)))
            files.add("log", log)
            units = log.filter(pc.is_valid(log["cq_ok"]))
            files.add("cq", units.select(_CQ_COLUMNS))
    load_to = timeline.now
    timeline.now += MS
    for stretch in timeline.drains():
        names = _Messages(stretch.message, stretch.is_tx)
        files.add("ops", _ops(stretch, names, files.rows("ops")))
    files.add("faults", pa.Table.from_pylist(faults, schema=_FAULTS))
    manifest = _manifest(timeline, load_to) | {"tables": files.closed()}
    path = run / "run.json"
    path.with_suffix(".tmp").write_text(json.dumps(manifest))
    path.with_suffix(".tmp").rename(path)
    return None if timeline.lost_message is None else f"v{timeline.lost_message}"


class _Files:
    """The Parquet files of tables; a table gets a new file when the last one is long."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._open: dict[str, tuple[Path, pq.ParquetWriter, int]] = {}
        self._listed: dict[str, list[dict[str, Any]]] = {}

    def add(self, name: str, table: pa.Table) -> None:
        if name not in self._open:
            folder = self._run / ("history" if name == "ops" else name)
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"part-{len(self._listed.get(name, [])):04}.parquet"
            self._open[name] = path, pq.ParquetWriter(path, table.schema, compression="zstd"), 0
        path, writer, rows = self._open[name]
        writer.write_table(table)
        self._open[name] = path, writer, rows + len(table)
        if rows + len(table) >= _FILE_ROWS_MAX:
            self._close(name)

    def rows(self, name: str) -> int:
        """Return the number of rows that were added."""
        listed = sum(file["rows"] for file in self._listed.get(name, ()))
        return listed + (self._open[name][2] if name in self._open else 0)

    def closed(self) -> dict[str, Any]:
        """Close all files; return the tables as run.json lists them."""
        for name in list(self._open):
            self._close(name)
        return {name: {"files": files} for name, files in self._listed.items()}

    def _close(self, name: str) -> None:
        path, writer, rows = self._open.pop(name)
        writer.close()
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        file_name = path.relative_to(self._run).as_posix()
        listed = {"name": file_name, "rows": rows, "sha256": digest}
        self._listed.setdefault(name, []).append(listed)


class _Messages:
    """The columns of some messages, computed once and used by many rows."""

    def __init__(self, message: Numbers, is_tx: Numbers) -> None:
        self._order = np.argsort(message, kind="stable")
        self._message = message[self._order]
        is_tx = is_tx[self._order] == 1
        number = pa.array(self._message).cast(pa.string())
        self.value = pc.binary_join_element_wise("v", number, "")
        padded = pc.utf8_lpad(number, 16, "0")
        self.uniq_key = pc.binary_join_element_wise("7F000001A3B418B4", padded, "")
        places = pa.array(np.arange(len(message) + 1), pa.int32())
        self.keys = pa.ListArray.from_arrays(
            places, pc.binary_join_element_wise("key-v", number, "")
        )
        self.digest = pa.array(mixed(self._message))
        self.seq = pa.array(self._message, mask=is_tx)
        self.tx = pc.if_else(
            pa.array(is_tx), pc.binary_join_element_wise("x", number, ""), pa.scalar(None)
        )

    def take(self, column: pa.Array, message: Numbers) -> pa.Array:
        """Return the value of each message in `column`; null where the message is NULL."""
        there = message != NULL
        place = np.searchsorted(self._message, np.where(there, message, self._message[0]))
        return column.take(pa.array(place, mask=~there))


def _ops(stretch: Stretch, names: _Messages, first_op: int) -> pa.Table:
    ops = stretch.ops
    count = len(ops["f"])
    group = _named(ops["group"], _GROUP_NAMES)
    who = _named(ops["who"], ["p", "k", "c", "d", "o", "f", "q"])
    number, second = (_numbers(ops[name]).cast(pa.string()) for name in ("number", "second"))
    on_group = pa.array(ops["on_group"] == 1)
    on_topic = (ops["queue"] != NULL) & (ops["f"] != F.ASSIGN)
    topic = _named(np.where(on_topic, ops["queue"], NULL), _TOPIC_NAMES)
    topic = pc.if_else(pa.array(ops["f"] == F.QUERY), "orders", topic)
    queue = _queue_numbers(np.where(on_topic, ops["queue"], NULL))
    owned = np.flatnonzero(ops["f"] == F.ASSIGN)
    return pa.table(
        {
            "op": pa.array(first_op + np.arange(count)),
            "process": pc.binary_join_element_wise(
                pc.binary_join_element_wise(who, number, ""), second, "."
            ),
            "client": pc.binary_join_element_wise(group, number, "-"),
            "client_group": group,
            "f": _named(ops["f"], [f.name.lower() for f in F]),
            "type": _named(ops["type"], [kind.name.lower() for kind in Type]),
            "t_invoke": pa.array(ops["t_invoke"]),
            "t_complete": _numbers(ops["t_complete"]),
            "broker_group": pc.if_else(on_group, _BROKER, pa.scalar(None, pa.string())),
            "topic": topic,
            "queue": queue,
            "offset": _numbers(ops["offset"]),
            "messages": _messages(stretch, names),
            "assigned": _assigned(ops["queue"], owned, count),
            "key": _prefixed("key-v", ops["key"]),
            "tx": _prefixed("x", ops["tx"]),
            "decision": _named(ops["decision"], [each.name.lower() for each in Decision]),
            "final": pa.array(ops["final"] == 1),
            "node": _named(ops["node"], _NODES),
            "term": pa.nulls(count, pa.int64()),
            "status": _named(
                np.where((ops["f"] <= F.HALF) & (ops["type"] == Type.OK), 0, NULL), ["SEND_OK"]
            ),
            "error": pa.nulls(count, pa.string()),
        }
    )


def _messages(stretch: Stretch, names: _Messages) -> pa.Array:
    """Build the column of the messages that each operation sent or was shown."""
    ops, refs = stretch.ops, stretch.refs
    has_any = ops["refs"] != NULL
    counts = np.where(has_any, ops["refs"], 0)
    first = np.where(has_any, ops["first_ref"], 0)
    place = ranges(first, counts)
    message, queue, reconsume = (refs[name][place] for name in ("message", "queue", "reconsume"))
    shard = np.where(queue < QUEUES, queue * 4 + message % 4, NULL)
    is_tx = pc.is_valid(names.take(names.tx, message))
    values = pa.StructArray.from_arrays(
        [
            names.take(names.value, message),
            names.take(names.uniq_key, message),
            names.take(names.keys, message),
            _same(_BROKER, len(place)),
            _named(queue, _TOPIC_NAMES),
            _queue_numbers(queue),
            _numbers(refs["offset"][place]),
            names.take(names.digest, message),
            pc.if_else(is_tx, pa.scalar(None, pa.string()), _named(shard, _SHARDS)),
            names.take(names.seq, message),
            names.take(names.tx, message),
            pa.array(reconsume, pa.int32()),
        ],
        names=_MESSAGE_COLUMNS,
    )
    ends = pa.array(np.append(0, np.cumsum(counts)), pa.int32())
    return pa.ListArray.from_arrays(ends, values, mask=pa.array(~has_any))


def _assigned(queue: Numbers, owned: Numbers, count: int) -> pa.Array:
    """Build the column of assigned queues: two per operation at `owned`, from its `queue` on."""
    counts = np.zeros(count, np.int64)
    counts[owned] = 2
    number = ranges(queue[owned], counts[owned]).astype(np.int32)
    values = pa.StructArray.from_arrays(
        [_same(_BROKER, len(number)), _same("orders", len(number)), pa.array(number)],
        names=["broker_group", "topic", "queue"],
    )
    ends = pa.array(np.append(0, np.cumsum(counts)), pa.int32())
    return pa.ListArray.from_arrays(ends, values, mask=pa.array(counts == 0))


def _log(rows: Mapping[str, Numbers], names: _Messages) -> pa.Table:
    """Build the rows of one replica; all replicas have the same."""
    count = len(rows["index"])
    message, kind = rows["message"], rows["kind"]
    stored = rows["size"] > 0
    has_digest = np.isin(kind, (Kind.MESSAGE, Kind.HALF, Kind.FINAL))
    is_of_tx = np.isin(kind, (Kind.HALF, Kind.OP, Kind.FINAL)) | (rows["queue"] == DISCARDED)
    return pa.table(
        {
            "broker_group": _same(_BROKER, count),
            "node": _same("", count),
            "index": pa.array(rows["index"]),
            "term": pa.array(rows["entry_term"]),
            "slot": pa.array(rows["slot"], pa.int32()),
            "chain": pa.array(rows["chain"]),
            "position": pa.array(rows["position"]),
            "size": pa.array(rows["size"], pa.int32(), mask=~stored),
            "tag_hash": pa.array(message % 5, mask=~stored),
            "kind": _named(kind, [kind.name.lower() for kind in Kind]),
            "topic": _named(rows["queue"], _TOPIC_NAMES),
            "queue": _queue_numbers(rows["queue"]),
            "queue_offset": _numbers(rows["offset"]),
            "client_group": _named(rows["group"], _GROUP_NAMES),
            "value": names.take(names.value, message),
            "uniq_key": names.take(names.uniq_key, message),
            "keys": names.take(names.keys, message),
            "digest": names.take(names.digest, np.where(has_digest, message, NULL)),
            "tx": names.take(names.tx, np.where(is_of_tx, message, NULL)),
            "decision": _named(rows["decision"], [each.name.lower() for each in Decision]),
            "committed": pa.array(np.ones(count, bool)),
            "cq_ok": pa.array(np.ones(count, bool), mask=~stored),
        }
    )


def _raft(events: Mapping[str, Numbers], node: str) -> pa.Table:
    count = len(events["t"])
    has_voters = events["voters"] != NULL
    ends = pa.array(np.append(0, np.cumsum(np.where(has_voters, NODES, 0))), pa.int32())
    voters = pa.array(list(_NODES) * int(has_voters.sum()), pa.string())
    columns = {name: _numbers(events[name]) for name in _ENTRY_COLUMNS}
    return pa.table(
        {
            "broker_group": _same(_BROKER, count),
            "node": _same(node, count),
            "incarnation": pa.array(events["incarnation"], pa.int32()),
            "seq": pa.array(events["seq"]),
            "t": pa.array(events["t"]),
            "event": _named(events["event"], [event.name.lower() for event in Event]),
            **columns,
            "role": _named(events["role"], [role.name.lower() for role in Role]),
            "peer": _named(events["peer"], _NODES),
            "voters": pa.ListArray.from_arrays(ends, voters, mask=pa.array(~has_voters)),
        }
    )


def _faults(stretch: Stretch, before: int) -> list[dict[str, Any]]:
    faults = stretch.faults
    return [
        {name: int(faults[name][place]) for name in faults if name != "target"}
        | {
            "fault": before + place + 1,
            "name": "kill-leader",
            "targets": [f"{_BROKER}/{_NODES[target]}"],
            "params": "{}",
            "effect": "taken",
            "evidence": "process is gone",
        }
        for place, target in enumerate(faults.get("target", ()))
    ]


def _manifest(timeline: Timeline, load_to: int) -> dict[str, Any]:
    once = {"kind": "cluster", "at_least_once": True}
    return {
        "format": 1,
        "complete": True,
        "system": "ledgermq",
        "version": "0",
        "world": "made up",
        "scenario": {"name": "scale", "text": ""},
        "seed": 1,
        "started_at": "2026-01-01T00:00:00Z",
        "environment": {},
        "phases": {
            "load": [timeline.load_from, load_to],
            "heal": [load_to, load_to + MS],
            "drain": [load_to + MS, timeline.now],
        },
        "groups": {_BROKER: list(_NODES)},
        "queues": [
            {
                "broker_group": _BROKER,
                "topic": topic,
                "queue": queue,
                "min_offset": 0,
                "max_offset": int(end),
                "drained": number < QUEUES,
            }
            for number, (topic, queue, end) in enumerate(
                zip(_TOPIC_NAMES, _QUEUE_NUMBERS, timeline.ends, strict=True)
            )
        ],
        "left_behind": [],
        "consumer_groups": {
            "pull": once | {"ordered": True},
            "push": once | {"ordered": False},
            "drain": {"kind": "broadcast", "at_least_once": True, "ordered": True},
        },
        "transactions": {
            "timeout_ms": 6_000,
            "check_interval_ms": 30_000,
            "check_max": CHECK_MAX,
        },
        "dedupe": {"window_ms": 60_000},
        "limits": {"rto_ms": 5_000, "gap_ms": 5_000, "lag_ms": 5_000},
    }


def _numbers(column: Numbers) -> pa.Array:
    return pa.array(column, mask=column == NULL)


def _named(codes: Numbers, names: Sequence[str]) -> pa.Array:
    """Return the name of each number; null where it is NULL."""
    return pa.array(list(names), pa.string()).take(_numbers(codes))


def _queue_numbers(queue: Numbers) -> pa.Array:
    return pa.array(_QUEUE_NUMBERS, pa.int32()).take(_numbers(queue))


def _same(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), count)


def _prefixed(prefix: str, number: Numbers) -> pa.Array:
    return pc.binary_join_element_wise(prefix, _numbers(number).cast(pa.string()), "")
