"""Writes the stores of the synthetic cluster's replicas as docs/FORMATS.md draws them.

Own code, like everything in these tests: nothing of the broker is used.
"""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import msgpack
from xxhash import xxh3_64_intdigest

from tests.verify.synthetic import (
    HALF,
    NODES,
    OP,
    Entry,
    Rec,
    Row,
    SyntheticRun,
    listed_file,
    write_manifest,
)

_KINDS = {"noop": 0, "config": 1, "data": 2}

_BODY = b"x" * 16


def write_stores(
    synthetic: SyntheticRun, run: Path, *, segment_entries: int = 40, clean: bool = True
) -> Path:
    """nodes/ of all replicas, listed in the manifest; returns the run directory."""
    entries = _encode(synthetic.entries)
    for node in NODES:
        store = run / "nodes" / synthetic.group / node
        _write_log(store, entries, segment_entries)
        _write_queues(store, synthetic.entries)
        checkpoint = {
            "group": synthetic.group,
            "node": node,
            "incarnation": 1,
            "commit_index": len(entries),
            "applied_index": len(entries),
            "clean": clean,
        }
        (store / "checkpoint").write_text(json.dumps(checkpoint))
    relist(synthetic.manifest, run)
    return run


def relist(manifest: Row, run: Path) -> None:
    """The stores' files as they are now, with their digests."""
    files = sorted(path for path in (run / "nodes").rglob("*") if path.is_file())
    manifest["tables"]["nodes"] = {"files": [listed_file(run, path, 0) for path in files]}
    write_manifest(run, manifest)


def _encode(entries: list[Entry]) -> list[tuple[int, bytes]]:
    """(position, bytes) of every entry; sets `position`, `size` and `tag_hash` of the records."""
    position, chain, encoded = 0, 0, []
    halves: dict[int, int] = {}
    for entry in entries:
        payload = b"" if entry.kind != "data" else _payload(entry, position + 44, halves)
        size = 44 + len(payload)
        head = struct.pack(
            ">4sIQQQB3sI",
            b"LMQ1",
            size,
            entry.index,
            entry.term,
            position,
            _KINDS[entry.kind],
            b"\0\0\0",
            chain,
        )
        chain = zlib.crc32(payload, zlib.crc32(head))
        entry.position, entry.chain = position, chain
        encoded.append((position, head + struct.pack(">I", chain) + payload))
        position += size
    return encoded


def _payload(entry: Entry, position: int, halves: dict[int, int]) -> bytes:
    records = [rec for rec in entry.recs if rec.kind in {"message", "half", "op", "final"}]
    commands: list[list[object]] = []
    for rec in entry.recs:
        if rec.kind == "offset":
            commands.append(["offset", rec.client_group, rec.topic, rec.queue, rec.queue_offset])
        elif rec.kind == "command":
            commands.append(["check", 0])
        elif rec.kind == "op":
            assert rec.half_offset is not None
            place = halves[rec.half_offset]
            commands.append(["decide", rec.half_offset, place, rec.decision, rec.from_check])
    table = b""
    for _ in range(2):  # the table holds positions, which depend on its own size
        place = position + 8 + len(table)
        runs = []
        for rec in records:
            body = _record(rec, place)
            rec.position, rec.size, rec.tag_hash = (
                place,
                len(body),
                ord(rec.tags) if rec.tags else 0,
            )
            unit = struct.pack(">qiq", rec.position, rec.size, rec.tag_hash)
            runs.append([rec.topic, rec.queue, rec.queue_offset, unit, [rec.uniq_key]])
            place += len(body)
        table = msgpack.packb([1_700_000_000_000, runs, commands])
    for rec in records:
        if rec.kind == "half":
            assert rec.queue_offset is not None
            halves[rec.queue_offset] = rec.position
    bodies = b"".join(_record(rec, rec.position) for rec in records)
    return struct.pack(">B3xI", 1, len(table)) + table + bodies


def contents_digest(rec: Rec) -> int:
    """Of a record as it is written here (the run format, `digest`)."""
    told = {"KEYS": " ".join(rec.keys) if rec.keys else None, "TAGS": rec.tags}
    counted = "".join(f"{k}\x01{v}\x02" for k, v in sorted(told.items()) if v is not None)
    unsigned = xxh3_64_intdigest(_BODY + bytes(5) + counted.encode())
    return unsigned - (1 << 64) if unsigned >= 1 << 63 else unsigned


def _record(rec: Rec, position: int) -> bytes:
    properties = {
        "UNIQ_KEY": rec.uniq_key,
        "lmq_value": rec.value,
        "lmq_tx": rec.tx,
        "KEYS": " ".join(rec.keys) if rec.keys else None,
        "TAGS": rec.tags,
    }
    body = _BODY
    if rec.kind == "op":
        properties = {"TAGS": rec.tags}
        body = f"{rec.half_offset},".encode()
    block = "".join(f"{k}\x01{v}\x02" for k, v in properties.items() if v is not None).encode()
    topic = str(rec.topic).encode()
    tail = (
        struct.pack(">I", len(body)) + body + bytes([len(topic)]) + topic
        + struct.pack(">H", len(block)) + block
    )  # fmt: skip
    size = 84 + len(tail)
    head = struct.pack(
        ">IIIiiqqiq8sq8siq",
        size,
        0xDAA320A7,
        zlib.crc32(body) & 0x7FFFFFFF,
        rec.queue,
        0,
        rec.queue_offset,
        position,
        8 if rec.kind == "final" else 0,
        0,
        bytes(8),
        0,
        bytes(8),
        rec.reconsume,
        1 if rec.kind == "final" else 0,  # where the half stands: not 0, whatever else
    )
    assert len(head) == 84
    return head + tail


def _write_log(store: Path, entries: list[tuple[int, bytes]], segment_entries: int) -> None:
    folder = store / "commitlog"
    folder.mkdir(parents=True)
    for first in range(0, len(entries), segment_entries):
        some = entries[first : first + segment_entries]
        last = first + segment_entries >= len(entries)
        content = b"".join(data for _, data in some) + (bytes(300) if last else b"")
        (folder / f"{some[0][0]:020d}").write_bytes(content)


def _write_queues(store: Path, entries: list[Entry]) -> None:
    queues: dict[tuple[str, int], bytearray] = {}
    for entry in entries:
        for rec in entry.recs:
            if rec.size is not None:
                units = queues.setdefault((str(rec.topic), int(rec.queue or 0)), bytearray())
                assert len(units) == 20 * int(rec.queue_offset or 0)
                units += struct.pack(">qiq", rec.position, rec.size, int(rec.tag_hash or 0))
    for (topic, queue), units in queues.items():
        folder = store / "consumequeue" / topic / str(queue)
        folder.mkdir(parents=True)
        (folder / f"{0:020d}").write_bytes(bytes(units) + bytes(60))


assert HALF.startswith("RMQ_SYS_TRANS")
assert OP.startswith("RMQ_SYS_TRANS")
