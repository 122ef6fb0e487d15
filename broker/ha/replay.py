"""Brings a state machine to the end of a log at a start: the newest snapshot, then what follows.

Place in the data path: `broker.ha.engine` calls it before anything else touches the state machine.

Invariants: entries in the order of the log, each applied once or contained in the snapshot; the
loop turns between batches.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Final

from broker.ha.commit_log import CommitLog, Standing
from broker.ha.framing import TERM
from broker.ha.state_keeper import StateKeeper
from raft.log.log_format import CorruptLogError
from raft.messages import EntryKind, LogBase
from raft.replicated_log import CommittedEntry, RestorableStateMachine

__all__ = ["committed", "replay"]

_ENTRIES_MAX: Final = 64
_SIZE_MAX: Final = 1 << 20

_log = logging.getLogger(__name__)


async def replay(
    log: CommitLog, keeper: StateKeeper, state_machine: RestorableStateMachine
) -> LogBase:
    """Return the end of the log, up to which all is applied. Raises OSError, CorruptLogError."""
    last = await asyncio.to_thread(keeper.newest_of_this_log)
    if last is None:
        if log.begin.index:
            reason = f"the log begins behind entry {log.begin.index}, and no snapshot is good"
            raise CorruptLogError("ha/snapshots", 0, reason)
        last = log.begin
    else:
        await asyncio.to_thread(keeper.restore, last)
        if state_machine.needs_indexing:
            _log.info("derived files are incomplete: the log is read from its beginning")
            for batch in _batches(log.entries_behind(log.begin), last.position):
                state_machine.index_only(batch)
                await asyncio.sleep(0)
    begin_s = time.monotonic()
    for batch in _batches(log.entries_behind(last), log.end.position):
        state_machine.apply(batch)
        await asyncio.sleep(0)
    took_s = time.monotonic() - begin_s
    _log.info("applied entries %d..%d in %.2f s", last.index + 1, log.end.index, took_s)
    return log.end


def committed(standing: Standing) -> CommittedEntry:
    """Return an entry of the log as a state machine gets it."""
    return CommittedEntry(
        index=standing.after.index,
        term=TERM,
        kind=EntryKind.DATA,
        # The table of a record at the log's beginning is derived, and would begin before it.
        position=max(0, standing.position),
        payload=standing.payload,
        chain=standing.after.chain,
    )


def _batches(entries: Iterator[Standing], end: int) -> Iterator[list[CommittedEntry]]:
    """Yield the entries before position `end`, so many at a time as a turn of the loop may hold."""
    batch: list[CommittedEntry] = []
    size = 0
    for standing in entries:
        if standing.before.position >= end:
            break
        batch.append(committed(standing))
        size += len(standing.payload)
        if len(batch) >= _ENTRIES_MAX or size >= _SIZE_MAX:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
