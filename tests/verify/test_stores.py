"""Replica stores read as they lie on disk: the same rows as an export, and honest about damage."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.verify.store_writer import relist, write_stores
from tests.verify.stored_run import segments, stored_run
from tests.verify.synthetic import SyntheticRun
from verify.export.replica import log_tables
from verify.export.store_files import stores
from verify.export.tables import export_tables
from verify.run import verify_run
from verify.sources.manifest import load_manifest
from verify.sources.run_files import LocalFiles
from verify.verdict import CheckResult, Outcome, Verdict


def log_rows(run: Path, node: str) -> list[dict[str, object]]:
    listed = [path.relative_to(run).as_posix() for path in (run / "nodes").rglob("*")]
    (store,) = (store for store in stores(run, listed) if store.node == node)
    return [row for table in log_tables(store, 0) for row in table.to_pylist()]


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0xFF
    path.write_bytes(content)


def result(verdict: Verdict, check: str) -> CheckResult:
    return next(item for item in verdict.checks if item.id == check)


def test_rows_are_those_that_an_export_has(tmp_path: Path) -> None:
    synthetic = stored_run(tmp_path)
    exported = [row for row in SyntheticRun().log if row["node"] == "n1"]
    rows = log_rows(tmp_path, "n1")
    assert len(segments(tmp_path, "n1")) == 1 + len(synthetic.entries) // 41
    compared = ("index", "term", "kind", "topic", "queue", "queue_offset", "value", "uniq_key")
    places = {(row["index"], row["kind"], row.get("topic")) for row in exported}
    assert {(row["index"], row["kind"], row.get("topic")) for row in rows} >= places
    for row in rows:
        if row["kind"] in {"message", "half", "final"}:
            twin = next(
                other
                for other in exported
                if (other["index"], other["kind"]) == (row["index"], row["kind"])
            )
            assert [row.get(name) for name in compared] == [twin.get(name) for name in compared]
            assert row["cq_ok"] is True
            assert row["committed"] is True
    decisions = [row["decision"] for row in rows if row["kind"] == "op"]
    assert sorted(decisions) == ["commit", "commit", "rollback", "rollback"]


def test_torn_tail_is_told_at_its_place(tmp_path: Path) -> None:
    synthetic = stored_run(tmp_path, clean=False)
    last = segments(tmp_path, "n2")[-1]
    content = last.read_bytes().rstrip(b"\0")
    last.write_bytes(content[:-3])
    rows = log_rows(tmp_path, "n2")
    assert rows[-1]["kind"] == "damaged"
    assert rows[-1]["index"] == synthetic.entries[-1].index
    assert "cut short" in str(rows[-1]["damage"])


def test_clean_stop_that_lost_its_tail_is_told(tmp_path: Path) -> None:
    synthetic = stored_run(tmp_path)
    last = segments(tmp_path, "n2")[-1]
    start, end = int(last.name), synthetic.entries[-1].position
    last.write_bytes(last.read_bytes()[: end - start])
    rows = log_rows(tmp_path, "n2")
    assert rows[-1]["kind"] == "damaged"
    assert "stopped cleanly" in str(rows[-1]["damage"])


def test_missing_segment_is_told(tmp_path: Path) -> None:
    synthetic = SyntheticRun()
    write_stores(synthetic, tmp_path, segment_entries=8)
    segments(tmp_path, "n0")[1].unlink()
    damaged = [row for row in log_rows(tmp_path, "n0") if row["kind"] == "damaged"]
    assert damaged[0]["index"] == 9
    assert "the next begins at" in str(damaged[0]["damage"])


def base_slots(position: int, index: int, chain: int, *, emptying: int = 0) -> bytes:
    """A file of two slots: an older one that nobody should believe, and the newer."""
    content = b""
    for sequence, record in ((4, (0, 0, 0, 0, 1)), (5, (position, index, 1, chain, emptying))):
        slot = struct.pack(">4sQQQQII", b"LMQB", sequence, *record)
        content += (slot + struct.pack(">I", zlib.crc32(slot))).ljust(4096, b"\0")
    return content


def test_log_begins_behind_its_base(tmp_path: Path) -> None:
    """Segments below the base are leftovers, whatever they hold; what is missing is told."""
    synthetic = SyntheticRun()
    write_stores(synthetic, tmp_path, segment_entries=8)
    before = synthetic.entries[15]
    base = tmp_path / "nodes" / "broker-a" / "n0" / "commitlog.base"
    slots = base_slots(int(segments(tmp_path, "n0")[2].name), before.index, before.chain)
    base.write_bytes(slots)
    flip(segments(tmp_path, "n0")[1], 100)
    rows = log_rows(tmp_path, "n0")
    assert (rows[0]["index"], "damaged" in {row["kind"] for row in rows}) == (17, False)
    segments(tmp_path, "n0")[2].unlink()
    (first, *_) = log_rows(tmp_path, "n0")
    assert (first["index"], first["kind"]) == (17, "damaged")
    base.write_bytes(b"")
    base.with_name("commitlog.base.copy").write_bytes(slots[:4096] + slots[:4096])
    assert log_rows(tmp_path, "n0") == []  # the log was being emptied


@pytest.mark.parametrize("names_transaction", [True, False])
def test_op_record_of_a_half_that_retention_took_here_is_named_by_the_others(
    tmp_path: Path, *, names_transaction: bool
) -> None:
    """Replicas are cut at places of their own, and an op record then differs in nothing."""
    synthetic = SyntheticRun()
    for rec in (rec for entry in synthetic.entries for rec in entry.recs):
        rec.tx = rec.tx if names_transaction else None
    write_stores(synthetic, tmp_path, segment_entries=1)
    entries = {entry.index: entry for entry in synthetic.entries}
    half = min(
        index for index, entry in entries.items() if entry.recs and entry.recs[0].kind == "half"
    )
    base = tmp_path / "nodes" / "broker-a" / "n0" / "commitlog.base"
    base.write_bytes(
        base_slots(int(segments(tmp_path, "n0")[half].name), half, entries[half].chain)
    )
    relist(synthetic.manifest, tmp_path)
    ops = [row for row in log_rows(tmp_path, "n0") if row["kind"] == "op"]
    orphans = [row for row in ops if not row["uniq_key"]]
    assert len(orphans) == 1
    written = export_tables(
        tmp_path, load_manifest(LocalFiles(tmp_path)), tmp_path / "out", ["log"]
    )
    cut, *whole = (
        {
            (row["index"], row["slot"]): row
            for row in pq.read_table(file.path).drop_columns(["node", "cq_ok"]).to_pylist()
        }
        for file in written["log"]
    )
    for other in whole:
        assert cut == {place: row for place, row in other.items() if row["index"] > half}
    assert all(row["uniq_key"] for row in cut.values() if row["kind"] == "op")


def test_base_of_another_log_is_told(tmp_path: Path) -> None:
    synthetic = SyntheticRun()
    write_stores(synthetic, tmp_path, segment_entries=8)
    position = int(segments(tmp_path, "n1")[1].name)
    base = tmp_path / "nodes" / "broker-a" / "n1" / "commitlog.base"
    base.write_bytes(base_slots(position, 8, synthetic.entries[7].chain ^ 1))
    (first, *_) = log_rows(tmp_path, "n1")
    assert (first["index"], first["kind"]) == (9, "damaged")
    assert "continues chain" in str(first["damage"])


def test_garbage_never_raises(tmp_path: Path) -> None:
    stored_run(tmp_path)
    path = segments(tmp_path, "n1")[0]
    whole = path.read_bytes()
    for offset in range(0, len(whole), 211):
        path.write_bytes(whole[:offset] + b"\xff" * 7 + whole[offset + 7 :])
        assert any(row["kind"] == "damaged" for row in log_rows(tmp_path, "n1")), offset


def test_record_that_is_no_record_is_told(tmp_path: Path) -> None:
    """A payload whose CRC is right and whose content is not as drawn."""
    folder = tmp_path / "nodes" / "broker-a" / "n0" / "commitlog"
    folder.mkdir(parents=True)
    payload = struct.pack(">B3xI", 1, 4) + b"\x93\x01\x90\x90" + b"no record"
    head = struct.pack(">4sIQQQB3sI", b"LMQ1", 44 + len(payload), 1, 1, 0, 2, b"\0\0\0", 0)
    chain = zlib.crc32(payload, zlib.crc32(head))
    (folder / f"{0:020d}").write_bytes(head + struct.pack(">I", chain) + payload)
    (row,) = log_rows(tmp_path, "n0")
    assert row["kind"] == "damaged"
    assert "record at byte" in str(row["damage"])


def test_clean_stores_pass(tmp_path: Path) -> None:
    stored_run(tmp_path)
    verdict = verify_run(tmp_path, engine="duckdb")
    assert verdict.outcome is Outcome.PASS, [c for c in verdict.checks if c.reason or c.violations]


def test_damaged_store_fails(tmp_path: Path) -> None:
    """One flipped byte below the commit index of n2, one ConsumeQueue unit zeroed on n1."""
    synthetic = stored_run(tmp_path)
    flip(segments(tmp_path, "n2")[0], 3000)
    queue = tmp_path / "nodes" / "broker-a" / "n1" / "consumequeue" / "Orders" / "0"
    unit = bytearray((queue / f"{0:020d}").read_bytes())
    unit[40:60] = bytes(20)
    (queue / f"{0:020d}").write_bytes(unit)
    relist(synthetic.manifest, tmp_path)
    verdict = verify_run(tmp_path, engine="duckdb")
    differ, queues = result(verdict, "S2"), result(verdict, "S1")
    assert differ.verdict is Outcome.FAIL
    assert "CRC" in json.dumps(differ.witnesses[0])
    assert "n2" in json.dumps(differ.witnesses[0])
    assert queues.verdict is Outcome.FAIL
    lost = [witness for witness in queues.witnesses if witness["node"] == "n1"]
    assert [witness["offset"] for witness in lost] == [2]
    assert "a message without its unit" in str(lost[0]["problems"])
    assert "cq_ok is false" in str(lost[0]["problems"])
