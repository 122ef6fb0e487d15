"""The export: what is read in bulk is what the dumb model reads row by row, damage included."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lz4.frame
import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.disk_calls import DiskCalls, with_folders
from tests.verify import plain_reader
from tests.verify.store_writer import write_stores
from tests.verify.synthetic import SyntheticRun, listed_file
from verify.catalogue.rule_files import BUILT_IN_RULES, BUILT_IN_STAGES, read_rules, read_stages
from verify.engines.duckdb import DuckDBEngine
from verify.export import tables
from verify.export.messages import log_rows
from verify.export.messages.digests import digests
from verify.export.messages.properties import Properties
from verify.export.messages.slices import regions
from verify.export.replica import log_tables, unit_tables
from verify.export.run_export import export_run
from verify.export.stand_in import with_exports
from verify.export.store_files import Store, stores
from verify.export.tables import ExportError, export_tables
from verify.judge import judge_run
from verify.sources.format_tables import TABLES
from verify.sources.manifest import damage, load_manifest
from verify.sources.run_files import LocalFiles
from verify.sources.tag_hash import tag_hash

SLOW = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def listed(run: Path) -> list[str]:
    return [p.relative_to(run).as_posix() for p in (run / "nodes").rglob("*") if p.is_file()]


def rows_of(found: Iterable[pa.Table], name: str) -> list[dict[str, object]]:
    return pa.concat_tables([TABLES[name].empty_table(), *found]).to_pylist()


def whole(rows: Iterable[dict[str, object]], name: str) -> list[dict[str, object]]:
    return [{column: row.get(column) for column in TABLES[name].names} for row in rows]


def assert_same(run: Path, traced_index: int = 0) -> list[Store]:
    found = stores(run, listed(run))
    for store in found:
        wanted = whole(plain_reader.log_rows(store, traced_index), "log")
        assert rows_of(log_tables(store, traced_index), "log") == wanted
        assert rows_of(unit_tables(store), "cq") == whole(plain_reader.unit_rows(store), "cq")
    return found


# Digests and tags.


@pytest.mark.parametrize(
    ("body", "flag", "properties", "wanted"),
    [
        (b"hello", 0, b"TAGS\x01a\x02", 7560684089011591531),
        (
            b"hello",
            7,
            b"u_a\x011\x02UNIQ_KEY\x01x\x02KEYS\x01k1 k2\x02TAGS\x01a\x02u_\x01\x02",
            -6720152112533199961,
        ),
        (b"", 0, b"", -1700982381690277310),
    ],
)
def test_digest_has_the_formats_vectors(
    body: bytes, flag: int, properties: bytes, wanted: int
) -> None:
    def one(number: int) -> np.ndarray:
        return np.array([number], dtype=np.int64)

    block = Properties(regions(properties, one(0), one(len(properties))))
    for sys_flag, stored in (
        (0, body),
        (0x1, zlib.compress(body)),
        (0x301, zlib.compress(body)),
        (0x101, lz4.frame.compress(body)),
        (0x201, zstandard.ZstdCompressor().compress(body)),
    ):
        place = (one(0), one(len(stored)))
        found = digests(memoryview(stored), place, one(flag), one(sys_flag), block)
        assert found.to_pylist() == [wanted], hex(sys_flag)


def test_body_that_can_not_be_inflated_has_no_digest() -> None:
    bomb = zlib.compress(bytes(65 << 20))
    for sys_flag, stored in ((0x1, b"no stream"), (0x1, bomb), (0x1, bomb[:-9]), (0x501, b"x")):
        size = np.array([len(stored)])
        zero = np.array([0])
        block = Properties(regions(b"", zero, zero))
        found = digests(memoryview(stored), (zero, size), zero, np.array([sys_flag]), block)
        assert found.to_pylist() == [None]


@pytest.mark.parametrize(
    ("tags", "code"), [("", 0), ("TagA", 2598919), ("polygenelubricants", -(1 << 31))]
)
def test_tag_hash_is_javas(tags: str, code: int) -> None:
    assert tag_hash(tags) == code


# Stores of the synthetic cluster.


def test_sound_stores_are_read_alike(tmp_path: Path) -> None:
    synthetic = SyntheticRun()
    write_stores(synthetic, tmp_path)
    (store, *_) = assert_same(tmp_path)
    rows = rows_of(log_tables(store, 0), "log")
    assert {row["kind"] for row in rows} >= {"message", "half", "op", "final", "offset", "noop"}
    assert all(row["tx"] and row["decision"] for row in rows if row["kind"] == "op")


def test_chunks_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_stores(SyntheticRun(), tmp_path, segment_entries=8)
    monkeypatch.setattr(log_rows, "_CHUNK_BYTES", 700)
    assert_same(tmp_path)


def test_trace_raises_what_is_committed(tmp_path: Path) -> None:
    write_stores(SyntheticRun(), tmp_path, clean=False)
    for node in ("n0", "n1", "n2"):
        (tmp_path / "nodes" / "broker-a" / node / "checkpoint").unlink()
    found = assert_same(tmp_path, traced_index=7)
    rows = rows_of(log_tables(found[0], 7), "log")
    assert {row["committed"] for row in rows if int(str(row["index"])) <= 7} == {True}
    assert {row["committed"] for row in rows if int(str(row["index"])) > 7} == {False}


@pytest.fixture(scope="module")
def sound_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of one replica of a synthetic cluster."""
    run = tmp_path_factory.mktemp("sound")
    write_stores(SyntheticRun(), run, segment_entries=12)
    return {name: (run / name).read_bytes() for name in sorted(listed(run)) if "/n1/" in name}


@SLOW
@given(data=st.data())
def test_damaged_stores_are_read_alike(
    data: st.DataObject, sound_files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Flips, cuts and lost files, wherever they are."""
    files = dict(sound_files)
    for _ in range(data.draw(st.integers(1, 3))):
        name = data.draw(st.sampled_from(sorted(files)))
        content = bytearray(files[name])
        how = data.draw(st.sampled_from(["flip", "flip", "flip", "cut", "zeros", "gone", "swap"]))
        place = data.draw(st.integers(0, max(0, len(content) - 1)))
        if how == "gone":
            del files[name]
            continue
        if how == "flip" and content:
            content[place] ^= data.draw(st.integers(1, 255))
        elif how == "cut":
            del content[place:]
        elif how == "zeros":
            content[place : place + 50] = bytes(len(content[place : place + 50]))
        elif how == "swap":
            content = bytearray(files[data.draw(st.sampled_from(sorted(files)))])
        files[name] = bytes(content)
    run = tmp_path_factory.mktemp("damaged")
    for name, written in files.items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_bytes(written)
    assert_same(run)


# Payloads that no broker writes.


@dataclass
class OneRecord:
    topic: bytes = b"T"
    queue: int = 0
    queue_offset: int = 0
    flag: int = 0
    sys_flag: int = 0
    stored_ms: int = 1000
    prepared: int = 0
    body: bytes = b"body"
    properties: bytes = b""
    long: bool = False
    lie: tuple[int, int] = (0, 0)  # (place, what is added to the byte there)

    def encode(self) -> bytes:
        hosts = [bytes(20 if self.sys_flag & bit else 8) for bit in (0x10, 0x20)]
        tail = struct.pack(">I", len(self.body)) + self.body
        tail += struct.pack(">H" if self.long else ">B", len(self.topic)) + self.topic
        tail += struct.pack(">H", len(self.properties)) + self.properties
        rest = hosts[0] + struct.pack(">q", self.stored_ms) + hosts[1]
        rest += struct.pack(">iq", 0, self.prepared) + tail
        magic = 0xDAA320AB if self.long else 0xDAA320A7
        size = 48 + len(rest)
        fixed = (size, magic, 0, self.queue, self.flag, self.queue_offset, 0, self.sys_flag, 0)
        record = bytearray(struct.pack(">IIIiIqqiq", *fixed) + rest)
        place, more = self.lie
        record[place % len(record)] = (record[place % len(record)] + more) % 256
        return bytes(record)


@dataclass
class OneEntry:
    records: Sequence[OneRecord] = ()
    commands: object = field(default_factory=list)
    kind: int = 2
    head: bytes = struct.pack(">B3x", 1)
    zeros: bytes = bytes(3)


def write_log(run: Path, entries: Sequence[OneEntry], units: bytes = b"") -> None:
    """One segment of a log whose CRCs are right, whatever its payloads are."""
    store = run / "nodes" / "g" / "n"
    position, chain, content = 0, 0, b""
    for index, entry in enumerate(entries, start=1):
        table = msgpack.packb([1000, [], entry.commands])
        payload = entry.head + struct.pack(">I", len(table)) + table
        payload += b"".join(record.encode() for record in entry.records)
        payload = payload if entry.kind == 2 else b""
        head = struct.pack(
            ">4sIQQQB3sI",
            *(b"LMQ1", 44 + len(payload), index, 1, position, entry.kind, entry.zeros, chain),
        )
        chain = zlib.crc32(payload, zlib.crc32(head))
        content += head + struct.pack(">I", chain) + payload
        position += 44 + len(payload)
    (store / "commitlog").mkdir(parents=True, exist_ok=True)
    (store / "commitlog" / f"{0:020d}").write_bytes(content + bytes(100))
    (store / "consumequeue" / "T" / "0").mkdir(parents=True, exist_ok=True)
    (store / "consumequeue" / "T" / "0" / f"{0:020d}").write_bytes(units)
    told = '{"commit_index": 9, "applied_index": 6, "clean": false}'
    (store / "checkpoint").write_text(told)


ODD_COMMANDS: list[object] = [
    ["offset", "G", "T", "0", 5],
    ["offset", "G", "T", 1 << 31, 5],
    ["pop", "G", "T", 0, -1, 3, 7, 9, ["1"]],
    ["pop_order", "G", "T", 0, -1, 3, 7, 9, [1]],
    ["ack", "G", "T", 1, [[3, 7], []]],
    ["ack_order", "G", "T", 1 << 31, 3, 7],
    ["invisible", "G", "T", 1, 1 << 63, 7, 8, 90, False],
    ["decide", [], 0, "commit", False],
    [],
    7,
]


def rarely(usual: Sequence[object], odd: Sequence[object]) -> st.SearchStrategy[Any]:
    """One of `usual`; once in fifty one of `odd`, so that most entries are read to their end."""
    return st.integers(0, 49).flatmap(lambda dice: st.sampled_from(usual if dice else odd))


names = rarely(
    [
        b"UNIQ_KEY",
        b"lmq_value",
        b"lmq_tx",
        b"KEYS",
        b"TAGS",
        b"u_",
        b"u_b",
        b"u_\xc3\xa4",
        b"",
        b"o",
    ],
    [b"\xff", b"TAGSX", b"TIMER_OUT_MS"],
)
values = rarely([b"", b"a", b"k1 k2", b" k1\xc2\xa0k2 ", b"12", b"x\x01y", b"\xd9\xa3"], [b"\x80"])
items = st.builds(
    lambda name, mark, value: name + mark + value if mark else name,
    names,
    st.sampled_from([b"\x01", b"\x01", b"\x01", b""]),
    values,
)
blocks = st.builds(
    lambda some, end: b"\x02".join(some) + end,
    st.lists(items, max_size=8),
    st.sampled_from([b"\x02", b"\x02", b"", b"\x02\x02"]),
)
due = st.sampled_from(
    [b"TIMER_OUT_MS\x0112\x02", b"TIMER_OUT_MS\x01\xd9\xa3", b"TIMER_OUT_MS\x01x"]
)
TOPICS = (b"T", b"T", b"\xc3\xa4", b"", b"SCHEDULE_TOPIC_XXXX", b"rmq_sys_wheel_timer")
TRANSACTIONS = (b"RMQ_SYS_TRANS_HALF_TOPIC", b"RMQ_SYS_TRANS_OP_HALF_TOPIC")
records = st.builds(
    OneRecord,
    topic=rarely([*TOPICS, *TRANSACTIONS], [b"\xc3"]),
    queue=st.sampled_from([0, 0, 1, 17, 18, -1]),
    queue_offset=st.sampled_from([0, 1, 2, 300_000, -1, (1 << 63) - 1]),
    flag=st.sampled_from([0, 7, 0xFFFFFFFF]),
    sys_flag=st.sampled_from([0, 0, 8, 8, 12, 0x10, 0x20, 0x30, 1, 0x101, 0x201, 0x701]),
    stored_ms=st.sampled_from([0, 1000]),
    prepared=st.sampled_from([0, 5]),
    body=st.sampled_from([b"", b"0,", b"1,2", b"body", zlib.compress(b"body")]),
    properties=st.one_of(blocks, blocks, due),
    long=st.booleans(),
    lie=st.tuples(st.integers(0, 200), rarely([0], [1, 128, 255])),
)
commands = rarely(
    [
        ["offset", "G", "T", 0, 5],
        ["decide", 0, 0, "commit", False],
        ["decide", 1, 0, "rollback", True],
        ["check", 0],
        [["odd"]],
        ["pop", "G", "T", 0, -1, 3, 7, 9, [1, 2]],
        ["pop", "G", "T", 0, 3, 4, 7, 9, []],
        ["pop_order", "G", "T", 1, -1, 3, 7, 9, "a", [3]],
        ["ack", "G", "T", 1, [[3, 7], [5, 7]]],
        ["ack_order", "G", "T", 1, 3, 7],
        ["invisible", "G", "T", 1, 3, 7, 8, 90, False],
    ],
    ODD_COMMANDS,
)
entries = st.builds(
    OneEntry,
    records=st.lists(records, max_size=4),
    commands=st.lists(commands, max_size=3).flatmap(lambda some: rarely([some], [{}, None, 3])),
    kind=st.sampled_from([2, 2, 2, 2, 1, 0]),
    head=rarely([b"\1\0\0\0", b"\1\1\0\0"], [b"\2\0\0\0", b"\1\0\0\1"]),
    zeros=rarely([bytes(3)], [b"\0\0\1"]),
)


@settings(SLOW, max_examples=150)
@given(log=st.lists(entries, max_size=8), units=st.binary(max_size=65))
def test_whatever_payloads_hold_is_read_alike(
    log: list[OneEntry], units: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = tmp_path_factory.mktemp("odd")
    write_log(run, log, units)
    assert_same(run)


def test_unit_of_a_record_is_found(tmp_path: Path) -> None:
    """The model compares too; here it is known what has to come out."""
    record = OneRecord(properties=b"TAGS\x01a\x02", queue_offset=1)
    write_log(tmp_path, [OneEntry([record])], b"")
    (row,) = rows_of(log_tables(assert_same(tmp_path)[0], 0), "log")
    own = struct.pack(">qiq", row["position"], row["size"], 97)
    for units, wanted in ((own + own, True), (own, False), (own + bytes(20), False)):
        write_log(tmp_path, [OneEntry([record])], units)
        (row,) = rows_of(log_tables(assert_same(tmp_path)[0], 0), "log")
        assert row["cq_ok"] is wanted


# Which files are read.


def test_unlisted_files_are_not_read(tmp_path: Path) -> None:
    write_stores(SyntheticRun(), tmp_path, segment_entries=8)
    names = listed(tmp_path)
    left_out = [name for name in names if "/n0/commitlog/" in name][2:] + [
        name for name in names if "/n1/consumequeue/Orders/" in name or "/n2/" in name
    ]
    found = stores(tmp_path, sorted(set(names) - set(left_out)))
    assert [store.node for store in found] == ["n0", "n1"]
    rows = rows_of(log_tables(found[0], 0), "log")
    assert max(int(str(row["index"])) for row in rows if row["kind"] != "damaged") <= 16
    assert rows[-1]["kind"] == "damaged"
    assert "stopped cleanly" in str(rows[-1]["damage"])
    units = rows_of(unit_tables(found[1]), "cq")
    assert "Orders" not in {row["topic"] for row in units}
    log = rows_of(log_tables(found[1], 0), "log")
    assert {row["cq_ok"] for row in log if row["topic"] == "Orders" and row["size"]} == {False}


@pytest.mark.parametrize("processes", [False, True])
def test_export_writes_a_file_per_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, processes: bool
) -> None:
    synthetic = SyntheticRun()
    write_stores(synthetic, tmp_path / "run")
    synthetic.write(tmp_path / "run", tables=("ops", "faults", "raft"))
    if processes:
        monkeypatch.setattr(tables, "_SMALL_BYTES_MAX", 0)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    run = tmp_path / "run"
    written = export_tables(run, load_manifest(LocalFiles(run)), tmp_path / "out")
    assert {name: len(files) for name, files in written.items()} == {"log": 3, "cq": 3}
    for name, files in written.items():
        for file in files:
            table = pq.read_table(file.path)
            assert (table.schema, len(table)) == (TABLES[name], file.rows)
            assert file.rows > 0


# Into the run.


def stored_run(run: Path) -> Path:
    synthetic = SyntheticRun()
    write_stores(synthetic, run)
    return synthetic.write(run, tables=("ops", "faults", "raft"))


def test_run_lists_its_exported_tables(tmp_path: Path) -> None:
    run = stored_run(tmp_path)
    before = json.loads((run / "run.json").read_text())
    rows = export_run(run)
    assert min(rows.values()) > 0
    manifest = load_manifest(LocalFiles(run))
    assert damage(LocalFiles(run), manifest) is None
    for name, count in rows.items():
        assert sum(file.rows or 0 for file in manifest.tables[name]) == count
    after = json.loads((run / "run.json").read_text())
    assert {**after, "tables": {n: after["tables"][n] for n in before["tables"]}} == before
    assert not list(run.rglob("*.tmp"))
    with pytest.raises(ExportError, match="lists the tables log and cq already"):
        export_run(run)


def test_what_run_json_lists_is_durable_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stored_run(tmp_path)
    disk = DiskCalls(monkeypatch)
    rows = export_run(run)
    made = {path for name in rows for path in (run / name).glob("*.parquet")}
    wanted = with_folders(made, below=run) | {run.resolve(), (run / "run.json.tmp").resolve()}
    assert disk.synced_before_named(run / "run.json") == wanted
    assert disk.is_name_durable(run / "run.json")


def test_only_what_is_missing_is_exported(tmp_path: Path) -> None:
    run = stored_run(tmp_path)
    export_run(run)
    manifest = json.loads((run / "run.json").read_text())
    del manifest["tables"]["cq"]
    (run / "run.json").write_text(json.dumps(manifest))
    assert set(export_run(run)) == {"cq"}
    assert json.loads((run / "run.json").read_text())["tables"]["log"] == manifest["tables"]["log"]


def _no_stores(run: Path) -> None:
    SyntheticRun().write(run, tables=("ops",))


def _not_ended(run: Path) -> None:
    told = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(told | {"complete": False}))


def _flipped(run: Path) -> None:
    path = next((run / "nodes").rglob("commitlog/*"))
    path.write_bytes(path.read_bytes() + b"x")


def _other_trace(run: Path) -> None:
    pq.write_table(pa.table({"index": [1]}), run / "raft" / "part-0.parquet")
    manifest = json.loads((run / "run.json").read_text())
    manifest["tables"]["raft"]["files"] = [listed_file(run, run / "raft" / "part-0.parquet", 1)]
    (run / "run.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_no_stores, "no table nodes"),
        (_not_ended, "not complete"),
        (_flipped, "damaged.*sha256 differs"),
        (_other_trace, "lacks a column of the table raft"),
        (lambda run: (run / "log").write_text(""), "can't be exported.*File exists"),
        (lambda run: (run / "cq").symlink_to("/tmp"), "cq is a link"),
        (lambda run: (run / "run.json").unlink(), "no run.json"),
    ],
)
def test_what_can_not_be_exported_is_refused(
    tmp_path: Path, spoil: Callable[[Path], object], reason: str
) -> None:
    """And the manifest stays as it is."""
    run = tmp_path if spoil is _no_stores else stored_run(tmp_path)
    spoil(run)
    before = (run / "run.json").read_bytes() if (run / "run.json").exists() else None
    with pytest.raises(ExportError, match=reason):
        export_run(run)
    assert before is None or (run / "run.json").read_bytes() == before


def test_run_without_tables_is_judged_by_ones_made_for_it(tmp_path: Path) -> None:
    """They are gone with the block, and the run is as it was."""
    run = stored_run(tmp_path)
    before = sorted(run.rglob("*"))
    manifest = load_manifest(LocalFiles(run))
    with with_exports(run, manifest, beside=None, report=lambda text: None) as whole:
        made = [Path(file.name) for name in ("log", "cq") for file in whole.tables[name]]
        assert all(path.is_file() for path in made)
        assert len(made) == 6
        engine = DuckDBEngine(tmp_path)
        rules, stages = read_rules(BUILT_IN_RULES), read_stages(BUILT_IN_STAGES)
        judged = judge_run(
            engine, LocalFiles(run), whole, rules=rules, stages=stages, report=lambda text: None
        )
        engine.close()
    assert not any(path.exists() for path in made)
    assert sorted(run.rglob("*")) == before
    assert {row["kind"] for row in judged.counts["record_counts"]} >= {"message", "half", "op"}
    assert int(str(judged.counts["unit_counts"][0]["units"])) > 0
