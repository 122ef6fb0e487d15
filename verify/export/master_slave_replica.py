"""One master's or slave's store as rows of the table `log`.

Place in the data path: `verify.export.tables` passes it a store and how far that is committed, and
writes the tables that it yields, one process per replica. Units are read as of any store of ours.

Invariants: rows come in the order of the log; a few megabytes of it are in memory at a time, plus
the half messages. What can't be read becomes a row of kind `damaged` with the reason; so does a
tail that the node itself had reported durable, or applied at a clean stop, and that is missing.

Source: docs/FORMATS.md section 19; docs/RUN_FORMAT.md, table `log`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from verify.export.master_slave_entries import (
    LOG_START,
    NO_CHAIN,
    TRAILER_SIZE_BYTES,
    LogPlace,
    MasterFile,
    read_file,
)
from verify.export.messages.entries import Entries
from verify.export.messages.log_rows import LogRows
from verify.export.messages.mapped_file import mapped_file
from verify.export.messages.record_fields import Payloads, record_fields, select_records
from verify.export.messages.records import RecordStyle
from verify.export.payloads import read_payloads
from verify.export.store_files import Segment, Store

__all__ = ["files_of", "log_tables"]

_NOT_AS_DRAWN: Final = "the record's parts are not as long as its size says, or no UTF-8"


def files_of(store: Store) -> Iterator[tuple[Segment, MasterFile, memoryview]]:
    """Yield each file of the store's log, what was read of it, and its bytes."""
    end = _begin(store)
    for segment in store.segments:
        with mapped_file(segment.path) as data:
            read = read_file(data, segment.position, end)
            yield segment, read, data
        end = read.end


def log_tables(store: Store, commit_index: int) -> Iterator[pa.Table]:
    """Yield the rows of the store's log; what is committed ends at `commit_index`."""
    checkpoint = store.checkpoint
    rows = LogRows(
        store.broker_group,
        store.node,
        store.queue_files,
        commit_index=commit_index,
        applied_index=checkpoint.applied_index,
    )
    last_index = 0 if store.base is None else store.base.index
    for segment, read, data in files_of(store):
        for table in _of_file(rows, data, segment.position, read):
            yield _without_unknown_chains(table)
        last_index = read.last_index or last_index
    lost = _lost_tail(store, last_index)
    if lost is not None:
        yield rows.of_lost_tail(last_index + 1, lost)


def _begin(store: Store) -> LogPlace:
    """Return the place before the first file present."""
    base = store.base
    if base is not None:
        return LogPlace(next_index=base.index + 1, next_position=base.position, chain=base.chain)
    if not store.segments or store.segments[0].position == 0:
        return LOG_START
    return LogPlace(next_index=0, next_position=store.segments[0].position, chain=None)


def _lost_tail(store: Store, last_index: int) -> str | None:
    """Return why entries behind `last_index` had to be there; None: nothing says so."""
    checkpoint = store.checkpoint
    if checkpoint.clean and last_index < checkpoint.applied_index:
        return (
            f"the node stopped cleanly with entry {checkpoint.applied_index} applied, its log ends "
            f"at {last_index}"
        )
    if last_index < store.durable_index:
        return (
            f"the node had told its log to be durable up to entry {store.durable_index}, it ends "
            f"at {last_index}"
        )
    return None


def _of_file(
    rows: LogRows, data: memoryview, position: int, read: MasterFile
) -> Iterator[pa.Table]:
    """Yield the rows of a file. Entries of ours and bare records are read apart, in their order."""
    entries, yielded = read.entries, 0
    changes = np.flatnonzero(np.diff(read.is_bare.astype(np.int8))) + 1
    edges = [0, *changes.tolist(), len(entries.index)]
    for first, end in pairwise(edges):
        part = entries.part(first, end)
        is_last = end == len(entries.index)
        before = [
            item for item in read.damages[yielded:] if is_last or item[0] < int(part.order[-1])
        ]
        yielded += len(before)
        if first < end and read.is_bare[first]:
            yield from rows.of_file(data, position, part, before, _bare, style=RecordStyle.COPIED)
        else:
            yield from rows.of_file(data, position, part, before, _framed)


def _framed(data: memoryview, entries: Entries) -> Payloads:
    return read_payloads(data, entries, TRAILER_SIZE_BYTES)


def _bare(data: memoryview, entries: Entries) -> Payloads:
    """Read entries that are one record each."""
    each = np.arange(len(entries.index), dtype=np.int64)
    records, sound = record_fields(data, each, entries.start, len(each))
    defects = dict.fromkeys(each[~sound].tolist(), _NOT_AS_DRAWN)
    return Payloads(records=select_records(records, sound), commands={}, defects=defects)


def _without_unknown_chains(table: pa.Table) -> pa.Table:
    chain = table["chain"]
    if not pc.any(pc.equal(chain, NO_CHAIN)).as_py():
        return table
    place = table.schema.get_field_index("chain")
    known = pc.if_else(pc.equal(chain, NO_CHAIN), None, chain)
    return table.set_column(place, table.schema.field("chain"), known)
