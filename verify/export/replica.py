"""One replica's store as rows of the tables `log` and `cq`.

Place in the data path: `verify.export.tables` passes it a store and writes the tables that it
yields, one process per replica.

Invariants: rows come in the order of the log; a few megabytes of it are in memory at a time, plus
the half messages. What can't be read becomes a row of kind `damaged` with the reason; whether it is
a torn tail or damage below the commit index is for the checks to decide.

Source: docs/FORMATS.md sections 1, 3, 4 and 5; docs/RUN_FORMAT.md, tables `log` and `cq`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from verify.export.messages.log_rows import LogRows, unit_rows
from verify.export.messages.mapped_file import mapped_file
from verify.export.payloads import read_payloads
from verify.export.segment_entries import LOG_START, SegmentEnd, read_segment
from verify.export.store_files import Store

__all__ = ["log_tables", "unit_tables"]


def log_tables(store: Store, traced_index: int) -> Iterator[pa.Table]:
    """Yield the rows of the store's log. `traced_index`: the highest commit index in its trace."""
    commit_index = max(store.checkpoint.commit_index, traced_index)
    rows = LogRows(
        store.broker_group,
        store.node,
        store.queue_files,
        commit_index=commit_index,
        applied_index=store.checkpoint.applied_index,
    )
    last_index = 0 if store.base is None else store.base.index
    end = LOG_START
    for place, segment in enumerate(store.segments):
        if place == 0:
            end = _before_first(store)
        with mapped_file(segment.path) as data:
            read = read_segment(data, segment.position, end)
            position, damages = segment.position, read.damages
            yield from rows.of_file(data, position, read.entries, damages, read_payloads)
        end = read.end
        last_index = read.last_index or last_index
    checkpoint = store.checkpoint
    emptied = store.base is not None and store.base.emptying
    if checkpoint.clean and last_index < checkpoint.commit_index and not emptied:
        reason = (
            f"the node stopped cleanly with commit index {checkpoint.commit_index}, "
            f"its log ends at {last_index}"
        )
        yield rows.of_lost_tail(last_index + 1, reason)


def unit_tables(store: Store) -> Iterator[pa.Table]:
    """Yield the rows of the store's ConsumeQueues, one table per file."""
    yield from unit_rows(store.broker_group, store.node, store.queue_files)


def _before_first(store: Store) -> SegmentEnd:
    """Return the end of the log before the first segment present."""
    base, start = store.base, store.segments[0].position
    if base is not None:
        return SegmentEnd(next_index=base.index + 1, next_position=base.position, chain=base.chain)
    return LOG_START if start == 0 else SegmentEnd(next_index=0, next_position=start, chain=None)
