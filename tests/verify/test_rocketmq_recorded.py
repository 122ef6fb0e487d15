"""Stores that real RocketMQ brokers left, read and judged.

`tests/verify/testdata/rocketmq/README.md` says how they were recorded.
"""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chaos.systems.ledgermq_releases import unpack
from tests.verify.synthetic import listed_file
from verify.export.run_export import export_run
from verify.run import verify_run
from verify.sources.manifest import damage, load_manifest
from verify.sources.run_files import LocalFiles
from verify.verdict import Outcome

STORES = Path(__file__).parent / "testdata" / "rocketmq" / "dledger-5.3.3.tar.xz"
DATA = "nodes/broker-a/n1/dledger-n1/data/00000000000000000000"
QUEUE = "nodes/broker-a/n2/consumequeue/orders/0/00000000000000000000"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with tarfile.open(STORES) as archive:
        unpack(archive, tmp_path)
    write_manifest(tmp_path)
    return tmp_path


def write_manifest(run: Path) -> None:
    """List the stores as they are now."""
    files = sorted(path for path in (run / "nodes").rglob("*") if path.is_file())
    manifest: dict[str, Any] = {
        "format": 1,
        "complete": True,
        "system": "rocketmq",
        "engine": "dledger",
        "phases": {"load": [0, 1], "heal": [1, 2], "drain": [2, 3]},
        "groups": {"broker-a": ["n0", "n1", "n2"]},
        "queues": [],
        "consumer_groups": {},
        "transactions": None,
        "dedupe": None,
        "limits": None,
        "tables": {"nodes": {"files": [listed_file(run, path, 0) for path in files]}},
    }
    (run / "run.json").write_text(json.dumps(manifest))


def rows_of(run: Path, table: str) -> list[dict[str, Any]]:
    found: pa.Table = pa.concat_tables(map(pq.read_table, sorted((run / table).iterdir())))
    return found.to_pylist()


def test_every_record_is_read(run: Path) -> None:
    """Of a known store: what is there, on three replicas alike, each with its unit."""
    export_run(run)
    rows = rows_of(run, "log")
    kinds = Counter((row["node"], row["kind"]) for row in rows)
    for node in ("n0", "n1", "n2"):
        of_node = {kind: count for (name, kind), count in kinds.items() if name == node}
        assert of_node == {"message": 34, "half": 102, "final": 15, "op": 33}
    assert {row["term"] for row in rows} == {1, 3}
    assert all(row["committed"] for row in rows)
    # A further half of an op record has a row without a place, and so without a unit.
    assert Counter((row["cq_ok"], row["slot"] > 0) for row in rows) == {
        (True, False): 3 * 164,
        (None, True): 3 * 20,
    }
    assert len(rows_of(run, "cq")) == 3 * 164
    finals = {row["tx"] for row in rows if row["kind"] == "final"}
    committed = {row["tx"] for row in rows if row["decision"] == "commit"}
    assert committed <= finals


def test_sound_stores_pass(run: Path) -> None:
    verdict = verify_run(run, engine="duckdb")
    judged = {check.id: check.verdict for check in verdict.checks}
    assert (judged["S1"], judged["S2"]) == (Outcome.PASS, Outcome.PASS)


def test_damaged_stores_fail(run: Path) -> None:
    """A byte of a record's body on one replica, a ConsumeQueue unit on another."""
    content = bytearray((run / DATA).read_bytes())
    content[content.index(b"lmq_value")] ^= 0xFF
    (run / DATA).write_bytes(content)
    units = bytearray((run / QUEUE).read_bytes())
    units[60:80] = units[40:60]
    (run / QUEUE).write_bytes(units)
    write_manifest(run)
    verdict = verify_run(run, engine="duckdb")
    found = {check.id: check for check in verdict.checks}
    assert found["S2"].verdict is Outcome.FAIL
    assert "n1" in json.dumps(found["S2"].witnesses[0])
    assert found["S1"].verdict is Outcome.FAIL
    assert {witness["node"] for witness in found["S1"].witnesses} >= {"n2"}


def test_log_file_that_is_not_listed_is_told(run: Path) -> None:
    extra = (run / DATA).with_name("00000000000008388608")
    extra.write_bytes(b"")
    files = LocalFiles(run)
    told = damage(files, load_manifest(files))
    assert told is not None
    assert extra.name in told
