"""The Spark data source `consumequeue`: the replicas' ConsumeQueue units as rows of table `cq`.

Place in the data path: `spark.read.format("consumequeue").load(RUN)` where a run has no exported
`cq` table. One partition per store and topic, rows in Arrow batches.

Invariants: a unit of size 0 was never written and is no row; half a unit at the end of a file is
none either.

Source: docs/FORMATS.md section 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from verify.schema import CQ
from verify.sources.stores import UNIT, QueueFile, queue_files, stores

__all__ = ["ARROW_SCHEMA", "ConsumeQueueSource", "unit_batch"]

ARROW_SCHEMA = pa.schema(
    [
        ("broker_group", pa.string()),
        ("node", pa.string()),
        ("topic", pa.string()),
        ("queue", pa.int32()),
        ("queue_offset", pa.int64()),
        ("position", pa.int64()),
        ("size", pa.int32()),
        ("tag_hash", pa.int64()),
    ]
)
assert ARROW_SCHEMA.names == CQ.names


class ConsumeQueueSource(DataSource):
    """`format("consumequeue")`; the path is the run directory."""

    @classmethod
    def name(cls) -> str:
        return "consumequeue"

    def schema(self) -> StructType:
        return CQ

    def reader(self, schema: StructType) -> ConsumeQueueReader:
        return ConsumeQueueReader(Path(self.options["path"]))


class ConsumeQueueReader(DataSourceReader):
    """Plans one partition per store and topic."""

    def __init__(self, run: Path) -> None:
        self._run = run

    def partitions(self) -> list[InputPartition]:
        return [
            InputPartition((store.broker_group, store.node, tuple(files)))
            for store in stores(self._run)
            for _, files in groupby(queue_files(store.path), key=lambda file: file.topic)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:
            return  # Spark asks this way where there is nothing to read
        broker_group, node, files = partition.value
        for file in files:
            yield unit_batch(broker_group, node, file)


def unit_batch(broker_group: str, node: str, file: QueueFile) -> pa.RecordBatch:
    """The units of one file, which holds at most 300,000."""
    content = file.path.read_bytes()
    whole = len(content) - len(content) % UNIT.size
    rows = [
        (file.first_offset + place, position, size, tag_hash)
        for place, (position, size, tag_hash) in enumerate(UNIT.iter_unpack(content[:whole]))
        if size > 0
    ]
    count = len(rows)
    return pa.RecordBatch.from_pydict(
        {
            "broker_group": [broker_group] * count,
            "node": [node] * count,
            "topic": [file.topic] * count,
            "queue": [file.queue] * count,
            "queue_offset": [row[0] for row in rows],
            "position": [row[1] for row in rows],
            "size": [row[2] for row in rows],
            "tag_hash": [row[3] for row in rows],
        },
        schema=ARROW_SCHEMA,
    )
