"""The history survives a crash, and becomes tables of exactly the run format's types."""

from __future__ import annotations

import hashlib
import json
import resource
from pathlib import Path

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chaos.recording.history import HistoryError, HistoryReader, HistoryWriter, MessageRow, QueueRow
from chaos.recording.history_rows import HistoryRows
from chaos.recording.run_manifest import TableFile, list_node_files, write_manifest
from chaos.recording.run_tables import OPS_SCHEMA, table_of
from chaos.recording.table_converter import HISTORY_FILE, RunSources, TableConverter
from chaos.recording.trace_rows import TraceFolder
from tests.chaos.histories import ops_of
from tests.disk_calls import DiskCalls, with_folders

MESSAGE = (
    "struct<value: string, uniq_key: string, keys: list<element: string>, broker_group: string,"
    " topic: string, queue: int32, offset: int64, digest: int64, shard: string, seq: int64,"
    " tx: string, reconsume: int32, origin: string>"
)
OPS_TYPES = {
    "op": "int64",
    "process": "string",
    "client": "string",
    "client_group": "string",
    "f": "string",
    "type": "string",
    "t_invoke": "int64",
    "t_complete": "int64",
    "broker_group": "string",
    "topic": "string",
    "queue": "int32",
    "offset": "int64",
    "messages": f"list<element: {MESSAGE}>",
    "assigned": "list<element: struct<broker_group: string, topic: string, queue: int32>>",
    "key": "string",
    "tx": "string",
    "decision": "string",
    "final": "bool",
    "node": "string",
    "term": "int64",
    "status": "string",
    "error": "string",
    "due": "int64",
    "ref": "string",
    "from_ms": "int64",
    "to_ms": "int64",
    "commit_offset": "int64",
}
FAULTS_TYPES = {
    "fault": "int64",
    "name": "string",
    "targets": "list<element: string>",
    "params": "string",
    "t_start": "int64",
    "t_effect": "int64",
    "t_heal": "int64",
    "t_healed": "int64",
    "effect": "string",
    "evidence": "string",
}
RAFT_TYPES = {
    "broker_group": "string",
    "node": "string",
    "incarnation": "int32",
    "seq": "int64",
    "t": "int64",
    "event": "string",
    "term": "int64",
    "index": "int64",
    "first": "int64",
    "entry_term": "int64",
    "chain": "int64",
    "last_index": "int64",
    "last_term": "int64",
    "t_begin": "int64",
    "role": "string",
    "peer": "string",
    "voters": "list<element: string>",
}


def _history(path: Path) -> None:
    with HistoryWriter(path, started_ns=0) as history:
        sent = MessageRow(value="v1", uniq_key="U1", keys=("k1",), topic="orders")
        first = history.invoke("send", process="p0", client="c0", messages=[sent])
        second = history.invoke("assign", process="p1", client="c1")
        stored = MessageRow(
            value="v1", uniq_key="U1", broker_group="broker-a", topic="orders", queue=1, offset=7
        )
        owned = [QueueRow(broker_group="broker-a", topic="orders", queue=1)]
        history.complete(second, "ok", assigned=owned)
        history.complete(first, "ok", messages=[stored], status="SEND_OK")
        history.invoke("poll", process="p1", client="c1", offset=0, final=True)
        history.fault(0, name="kill", effect="unknown", targets=["a"], t_start=5)
        history.fault(0, name="kill", effect="taken", targets=["a"], t_start=5, t_effect=6)
        history.note("phases", {"load": [0, 1]})


def test_tables_have_exactly_the_types_of_the_format(tmp_path: Path) -> None:
    _history(tmp_path / HISTORY_FILE)
    trace = TraceFolder(group="broker-a", node="n0", path=tmp_path / "trace")
    trace.path.mkdir()
    event = {"incarnation": 1, "seq": 1, "t": 1500, "event": "role", "term": 2, "role": "leader"}
    read = {"incarnation": 1, "seq": 2, "t": 1700, "event": "read", "t_begin": 1600, "index": 3}
    packed = msgpack.packb(event) + msgpack.packb(read)
    (trace.path / "000001").write_bytes(packed + packed[:10])
    made = TableConverter(RunSources(run=tmp_path, traces=(trace,), started_ns=1000)).finish()
    assert (made.ops.rows, made.faults.rows) == (3, 1)
    assert made.raft.rows == 2, "the event that was cut short is left out"
    for file, types in (
        (made.ops, OPS_TYPES),
        (made.faults, FAULTS_TYPES),
        (made.raft, RAFT_TYPES),
    ):
        schema = pq.read_schema(file.path)
        assert {field.name: str(field.type) for field in schema} == types
    rows = pq.read_table(made.raft.path).to_pylist()
    assert [(row["t"], row["t_begin"]) for row in rows] == [(500, None), (700, 600)]
    assert rows[0]["broker_group"] == "broker-a"
    ops = pq.read_table(made.ops.path).to_pylist()
    assert [(row["op"], row["f"]) for row in ops] == [(0, "send"), (1, "assign"), (2, "poll")]


def test_invokes_and_completions_become_rows(tmp_path: Path) -> None:
    _history(tmp_path / "h")
    rows = HistoryRows(tmp_path / "h")
    rows.read()
    assign, send = rows.take_completed()
    (poll,) = rows.take_open()
    assert (send["type"], send["status"]) == ("ok", "SEND_OK")
    assert send["messages"][0]["offset"] == 7
    assert send["t_invoke"] <= assign["t_invoke"] <= assign["t_complete"] <= send["t_complete"]
    assert assign["assigned"] == [{"broker_group": "broker-a", "topic": "orders", "queue": 1}]
    assert (poll["type"], poll["t_complete"], poll["final"]) == ("info", None, True)
    assert rows.faults[0]["effect"] == "taken"
    assert rows.notes == {"phases": {"load": [0, 1]}}


def test_every_cut_of_the_tail_is_survived(tmp_path: Path) -> None:
    _history(tmp_path / "h")
    data = (tmp_path / "h").read_bytes()
    whole = len(list(HistoryReader(tmp_path / "h")))
    counts = []
    for size in range(len(data)):
        (tmp_path / "cut").write_bytes(data[:size])
        reader = HistoryReader(tmp_path / "cut")
        counts.append(len(list(reader)))
        assert 0 <= reader.dropped_bytes <= size
    assert counts == sorted(counts)
    assert counts[-1] == whole - 1


def test_what_is_written_is_there_before_close(tmp_path: Path) -> None:
    history = HistoryWriter(tmp_path / "h", started_ns=0)
    handle = history.invoke("send", process="p0", client="c0")
    assert len(list(HistoryReader(tmp_path / "h"))) == 1
    history.complete(handle, "info", error="timeout")
    assert len(list(HistoryReader(tmp_path / "h"))) == 2
    history.close()


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([[9, 1, 2]], "none of a history"),
        ([{"a": 1}], "none of a history"),
        ([[1, 0, 5, "ok", {}]], "was not open"),
        ([[0, 0, 5, {}], [0, 0, 6, {}]], "invoked twice"),
        ([[0, 0, 5, {"colour": "red"}]], "unknown column colour"),
    ],
)
def test_contradictions_are_named(tmp_path: Path, records: list[object], message: str) -> None:
    (tmp_path / "h").write_bytes(b"".join(msgpack.packb(record) for record in records))
    with pytest.raises(HistoryError, match=message):
        ops_of(tmp_path / "h")


def test_a_value_of_the_wrong_type_is_refused() -> None:
    with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError)):
        table_of([{"op": "zero"}], OPS_SCHEMA)


def test_an_empty_history_makes_empty_tables(tmp_path: Path) -> None:
    (tmp_path / HISTORY_FILE).write_bytes(b"")
    made = TableConverter(RunSources(run=tmp_path, traces=(), started_ns=0)).finish()
    for file in (made.ops, made.faults, made.raft):
        assert file.rows == pq.read_table(file.path).num_rows == 0


def test_manifest_lists_rows_and_digests_of_every_file(tmp_path: Path) -> None:
    store = tmp_path / "nodes" / "broker-a" / "n0"
    (store / "commitlog").mkdir(parents=True)
    (store / "commitlog" / "0").write_bytes(b"log")
    (store / "lock").write_bytes(b"")
    files = list_node_files(tmp_path)
    assert [file.path.name for file in files] == ["0"]
    ops = tmp_path / "history" / "ops.parquet"
    ops.parent.mkdir()
    ops.write_bytes(b"table")
    tables = {"nodes": files, "ops": [TableFile(path=ops, rows=5)]}
    path = write_manifest(tmp_path, {"complete": True}, tables)
    manifest = json.loads(path.read_text())
    assert (manifest["format"], manifest["complete"]) == (1, True)
    assert manifest["tables"]["ops"]["files"] == [
        {"name": "history/ops.parquet", "rows": 5, "sha256": hashlib.sha256(b"table").hexdigest()}
    ]
    assert manifest["tables"]["nodes"]["files"][0]["name"] == "nodes/broker-a/n0/commitlog/0"
    assert not (tmp_path / "run.json.tmp").exists()


def test_what_the_manifest_lists_is_durable_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "nodes" / "broker-a" / "n0"
    ops = tmp_path / "history" / "ops.parquet"
    for path in (store / "checkpoint", ops):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"bytes")
    disk = DiskCalls(monkeypatch)
    tables = {"nodes": list_node_files(tmp_path), "ops": [TableFile(path=ops, rows=5)]}
    manifest = write_manifest(tmp_path, {"complete": True}, tables)
    run = tmp_path.resolve()
    wanted = with_folders({store / "checkpoint", ops}, below=run) | {run, run / "run.json.tmp"}
    assert disk.synced_before_named(manifest) == wanted
    assert disk.is_name_durable(manifest)


def test_a_record_without_room_is_left_out_whole(tmp_path: Path) -> None:
    """The next one must not be read as its end, once there is room again."""
    path = tmp_path / "history"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    history = HistoryWriter(path, started_ns=0)
    cut = history.invoke("send", process="a")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, before[1]))
        with pytest.raises(OSError, match="File too large"):
            history.complete(cut, "ok", messages=[MessageRow(value="v" * 500)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    later = history.invoke("send", process="b")
    history.complete(later, "ok", status="SEND_OK")
    with pytest.raises(OSError, match="File too large"):  # somebody may have swallowed it above
        history.close()
    rows = HistoryRows(path)
    rows.read()
    assert [(row["process"], row["type"]) for row in rows.take_completed()] == [("b", "ok")]
    assert [(row["process"], row["type"]) for row in rows.take_open()] == [("a", "info")]
    assert rows.dropped_bytes == 0
