"""One replica of a RocketMQ run as rows of the tables `log` and `cq`.

Place in the data path: `verify.export.tables` passes it a store and what is known of its group, and
writes the tables that it yields, one process per replica.

Kinds: `half` and `op` by topic, `final` by its system flags, `noop` a DLedger no-op, `message` any
other. An op record names halves, not what became of them: its decision is `commit` where the final
message of its half is in the log before it, else null; one that names several halves has a row for
each, of which those after the first have slots from 1 on and no place. Consumer offsets are no part
of RocketMQ's log: there are no rows of kind `offset`.

Invariants: rows come in the order of the log. What can't be read becomes a row of kind `damaged`
with the reason; so does a tail that DLedger called committed and that is missing.

Source: docs/RUN_FORMAT.md, tables `log` and `cq`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from verify.export.messages.entries import KIND_DATA, Entries
from verify.export.messages.log_rows import LogRows, unit_rows
from verify.export.messages.mapped_file import mapped_file
from verify.export.messages.record_fields import Payloads, record_fields, select_records
from verify.export.messages.records import RecordStyle
from verify.export.rocketmq.commitment import Extent
from verify.export.rocketmq.log_files import NO_CHAIN, LogReader
from verify.export.rocketmq.record_frames import record_defect
from verify.export.rocketmq.store_files import RocketmqStore

__all__ = ["log_tables", "unit_tables"]

_NOT_AS_DRAWN: Final = "the record's parts are not as long as its size says, or no UTF-8"


def log_tables(store: RocketmqStore, extent: Extent) -> Iterator[pa.Table]:
    """Yield the rows of the store's log."""
    rows = LogRows(
        store.broker_group,
        store.node,
        store.queue_files,
        commit_index=extent.commit_index,
        applied_index=extent.applied_index,
        style=RecordStyle.ROCKETMQ,
    )
    reader = LogReader(store, divide=extent.divide, chain_from=extent.chain_from)
    finished: set[str] = set()
    for file in store.files:
        with mapped_file(file.path) as data:
            read = reader.read(data, file)

            def payloads(
                data: memoryview, entries: Entries, position: int = file.position
            ) -> Payloads:
                return _payloads(data, entries, position)

            for table in rows.of_file(data, file.position, read.entries, read.damages, payloads):
                yield _with_decisions(_without_chains(table), finished)
    if store.committed_index is not None and reader.last_index < extent.commit_index:
        reason = "" if reader.end is None else f": {reader.end.reason}"
        yield rows.of_lost_tail(
            reader.last_index + 1,
            f"DLedger called index {store.committed_index} committed, which its log does not "
            f"reach{reason}",
        )


def unit_tables(store: RocketmqStore) -> Iterator[pa.Table]:
    """Yield the rows of the store's ConsumeQueues, one table per file."""
    yield from unit_rows(store.broker_group, store.node, store.queue_files, RecordStyle.ROCKETMQ)


def _payloads(data: memoryview, entries: Entries, file_position: int) -> Payloads:
    """Read the one record of each entry; the entries of which it can't be read are defects."""
    defects: dict[int, str] = {}
    whole: list[int] = []
    starts, ends = entries.start.tolist(), entries.end.tolist()
    for entry in np.flatnonzero(entries.kind == KIND_DATA).tolist():
        start, end = starts[entry], ends[entry]
        reason = record_defect(data, start, end, file_position + start)
        if reason is None and int.from_bytes(data[start : start + 4], "big") != end - start:
            reason = "the record is not as long as its entry"
        if reason is None:
            whole.append(entry)
        else:
            defects[entry] = reason
    held = np.array(whole, dtype=np.int64)
    records, sound = record_fields(data, held, entries.start[held], len(entries.index))
    defects |= dict.fromkeys(held[~sound].tolist(), _NOT_AS_DRAWN)
    return Payloads(records=select_records(records, sound), commands={}, defects=defects)


def _without_chains(table: pa.Table) -> pa.Table:
    """Null where there is no chain to compare."""
    chain = table["chain"]
    return _with_column(table, "chain", pc.if_else(pc.equal(chain, NO_CHAIN), None, chain))


def _with_decisions(table: pa.Table, finished: set[str]) -> pa.Table:
    """Set the decision of op records; `finished` collects transactions with a final message."""
    kinds = table["kind"].to_pylist()
    if not {"op", "final"} & set(kinds):
        return table
    decisions: list[str | None] = []
    for kind, tx in zip(kinds, table["tx"].to_pylist(), strict=True):
        if kind == "final" and tx is not None:
            finished.add(tx)
        decisions.append("commit" if kind == "op" and tx in finished else None)
    return _with_column(table, "decision", pa.array(decisions, type=pa.string()))


def _with_column(table: pa.Table, name: str, column: pa.ChunkedArray | pa.Array) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), column)
