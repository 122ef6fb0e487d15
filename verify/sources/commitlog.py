"""The Spark data source `commitlog`: the replicas' logs as rows, read from their stores.

Place in the data path: `spark.read.format("commitlog").load(RUN)` where a run has no exported
`log` table. One partition per segment, rows in Arrow batches.

Invariants: never fails for what a segment holds. What can't be read is a row of kind `damaged`
with the reason; whether it is a torn tail or damage below the commit index is the checks' to say.
`committed` is the node's own hint, which the trace may raise; `cq_ok` is null above the applied
index and for rows that own no unit.

Source: docs/FORMATS.md sections 1, 3, 4 and 5; the run format, table `log`.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from verify.schema import COMMIT_LOG
from verify.sources.log_entries import (
    HEADER,
    KIND_CONFIG,
    KIND_DATA,
    Damage,
    LogEntry,
    SegmentEnd,
    read_segment,
    segment_end,
)
from verify.sources.records import PayloadError, read_payload
from verify.sources.stores import Base, Checkpoint, ConsumeQueues, Segment, stores

__all__ = ["ARROW_SCHEMA", "CommitLogSource", "SegmentPartition", "segment_rows"]

_BATCH_ROWS_MAX: Final = 8192
_LOG_START: Final = SegmentEnd(next_index=1, next_position=0, chain=0)

ARROW_SCHEMA: Final = pa.schema(
    [
        ("broker_group", pa.string()),
        ("node", pa.string()),
        ("index", pa.int64()),
        ("term", pa.int64()),
        ("slot", pa.int32()),
        ("chain", pa.int64()),
        ("position", pa.int64()),
        ("size", pa.int32()),
        ("tag_hash", pa.int64()),
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("queue", pa.int32()),
        ("queue_offset", pa.int64()),
        ("client_group", pa.string()),
        ("value", pa.string()),
        ("uniq_key", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("tx", pa.string()),
        ("decision", pa.string()),
        ("committed", pa.bool_()),
        ("cq_ok", pa.bool_()),
        ("half_offset", pa.int64()),
        ("damage", pa.string()),
    ]
)
assert ARROW_SCHEMA.names == COMMIT_LOG.names


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPartition:
    """What one task needs to read one segment."""

    broker_group: str
    node: str
    store: Path
    checkpoint: Checkpoint
    base: Base | None
    segment: Segment
    before: Segment | None  # None: the log begins with this segment, right behind its base
    last: bool


class CommitLogSource(DataSource):
    """`format("commitlog")`; the path is the run directory."""

    @classmethod
    def name(cls) -> str:
        return "commitlog"

    def schema(self) -> StructType:
        return COMMIT_LOG

    def reader(self, schema: StructType) -> CommitLogReader:
        return CommitLogReader(Path(self.options["path"]))


class CommitLogReader(DataSourceReader):
    """Plans one partition per segment and reads each by itself."""

    def __init__(self, run: Path) -> None:
        self._run = run

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(part) for part in _segment_partitions(self._run)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return  # Spark asks this way where there is nothing to read
        batch: list[dict[str, object]] = []
        for row in segment_rows(partition.value):
            batch.append(row)
            if len(batch) == _BATCH_ROWS_MAX:
                yield pa.RecordBatch.from_pylist(batch, schema=ARROW_SCHEMA)
                batch = []
        yield pa.RecordBatch.from_pylist(batch, schema=ARROW_SCHEMA)


def segment_rows(part: SegmentPartition) -> Iterator[dict[str, object]]:
    """The rows of one segment; for the last of a log also what its checkpoint still misses."""
    queues = ConsumeQueues(part.store)
    last_index = 0
    for item in _entries(part):
        last_index = item.index
        common: dict[str, object] = {
            "broker_group": part.broker_group,
            "node": part.node,
            "index": item.index,
            "position": item.position,
            "slot": 0,
            "committed": item.index <= part.checkpoint.commit_index,
        }
        match item:
            case Damage():
                yield common | {"kind": "damaged", "damage": item.reason}
            case LogEntry():
                yield from _entry_rows(part, queues, common, item)
    checkpoint = part.checkpoint
    if part.last and checkpoint.clean and last_index < checkpoint.commit_index:
        yield {
            "broker_group": part.broker_group,
            "node": part.node,
            "index": last_index + 1,
            "slot": 0,
            "committed": True,
            "kind": "damaged",
            "damage": f"the node stopped cleanly with commit index {checkpoint.commit_index}, "
            f"its log ends at {last_index}",
        }


def _entry_rows(
    part: SegmentPartition, queues: ConsumeQueues, common: dict[str, object], entry: LogEntry
) -> Iterator[dict[str, object]]:
    common |= {"term": entry.term, "chain": entry.chain}
    if entry.kind != KIND_DATA:
        yield common | {"kind": "config" if entry.kind == KIND_CONFIG else "noop"}
        return
    try:
        payload = read_payload(entry.payload)
    except PayloadError as error:
        yield common | {"kind": "damaged", "damage": str(error)}
        return
    decisions = {
        command[1]: command[3]
        for command in payload.commands
        if command[0] == "decide" and len(command) > 3
    }
    above = entry.index > part.checkpoint.applied_index  # no unit is owed there
    payload_position = entry.position + HEADER.size
    slot = 0
    for record in payload.records:
        position = payload_position + record.offset
        yield common | {
            "slot": slot,
            "position": position,
            "size": record.size,
            "tag_hash": record.tag_hash,
            "kind": record.kind,
            "topic": record.topic,
            "queue": record.queue,
            "queue_offset": record.queue_offset,
            "value": record.value,
            "uniq_key": record.uniq_key,
            "keys": record.keys,
            "tx": record.tx,
            "decision": decisions.get(record.half_offset) if record.kind == "op" else None,
            "half_offset": record.half_offset,
            "cq_ok": None
            if above
            else queues.unit(record.topic, record.queue, record.queue_offset)
            == (position, record.size, record.tag_hash),
        }
        slot += 1
    for command in payload.commands:
        yield common | {"slot": slot} | _command_row(command)
        slot += 1
    if slot == 0:
        yield common | {"kind": "command"}


def _command_row(command: list[object]) -> dict[str, object]:
    if command[0] == "offset" and len(command) == 5:
        _, group, topic, queue, offset = command
        return {
            "kind": "offset",
            "client_group": group,
            "topic": topic,
            "queue": queue,
            "queue_offset": offset,
        }
    return {"kind": "command"}


def _entries(part: SegmentPartition) -> Iterator[LogEntry | Damage]:
    with _mapped(part.segment.path) as data:
        yield from read_segment(data, part.segment.position, _end_before(part))


def _end_before(part: SegmentPartition) -> SegmentEnd:
    start = part.segment.position
    if part.before is None and part.base is not None:
        base = part.base
        return SegmentEnd(next_index=base.index + 1, next_position=base.position, chain=base.chain)
    if part.before is None:
        unknown = SegmentEnd(next_index=0, next_position=start, chain=None)
        return _LOG_START if start == 0 else unknown
    with _mapped(part.before.path) as data:
        return segment_end(data, part.before.position, start)


@contextmanager
def _mapped(path: Path) -> Iterator[memoryview]:
    """The file's bytes without reading them at once; an empty file can't be mapped."""
    if path.stat().st_size == 0:
        yield memoryview(b"")
        return
    with path.open("rb") as stream:
        # Rows keep no reference into the map, so it is let go of by the garbage collector once
        # the last payload view is gone; closing it here would fail while a view is alive.
        yield memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))


def _segment_partitions(run: Path) -> Iterator[SegmentPartition]:
    for store in stores(run):
        before: Segment | None = None
        for place, segment in enumerate(store.segments):
            yield SegmentPartition(
                broker_group=store.broker_group,
                node=store.node,
                store=store.path,
                checkpoint=store.checkpoint,
                base=store.base,
                segment=segment,
                before=before,
                last=place == len(store.segments) - 1,
            )
            before = segment
