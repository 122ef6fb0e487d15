"""What a start makes of the store: the newest good snapshot restored, and where replay begins.

Place in the data path: `raft.node` calls `restore_newest` once, on a thread, after the log was
recovered and before anything else touches the state machine.

A snapshot may be newer than the log's end: the beginning of the log was installed and what follows
has not all come yet, or a crash fell between the snapshot and the reset of the log. Its state is
that of the group at that index all the same, and entries up to there only pass by when they come.
Where the log has another entry at the snapshot's index, that entry was never committed.

Invariant: `applied_index` is committed, in this log, and contained in the state.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from raft.log_format import CorruptLogError
from raft.membership import Configuration, decode_membership
from raft.messages import Index, LogBase
from raft.replicated_log import RestorableStateMachine
from raft.segment_log import SegmentLog
from raft.snapshot import DamagedSnapshotError, SnapshotFiles, SnapshotHeader

__all__ = ["RestoredState", "restore_newest"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredState:
    """`applied_index`: replay begins behind it; up to `state_index` entries are only indexed.
    `commit_index`: a hint, true of this log. `configuration`: the snapshot's, None without one.
    `kept`: the good snapshots, ascending."""

    applied_index: Index
    state_index: Index
    commit_index: Index
    configuration: Configuration | None
    kept: tuple[LogBase, ...]


def restore_newest(
    log: SegmentLog,
    files: SnapshotFiles,
    state_machine: RestorableStateMachine,
    *,
    commit_index: Index,
) -> RestoredState:
    """Raises OSError, ValueError where a whole snapshot holds no state, CorruptLogError where the
    log lost its beginning and no snapshot is good, and DamagedLogError where an entry is damaged
    without which nothing can begin."""
    base = log.base
    for index in log.config_indexes:
        log.entries(index, index + 1, 0)  # the core is made of these
    good = _good_headers(files, base.index)
    if not good:
        if base.index:
            raise CorruptLogError(
                "snapshots",
                0,
                f"the log begins behind entry {base.index}, and no snapshot is good: remove this "
                "member, empty its store, and add it again",
            )
        return RestoredState(
            applied_index=0,
            state_index=0,
            commit_index=commit_index,
            configuration=None,
            kept=(),
        )
    newest = good[-1]
    last = newest.last
    begin = time.monotonic()
    state_machine.prepare_restore(last.index, files.chunks(last.index))()
    state_machine.trim(base.position)
    _log.info("restored the snapshot at %d in %.3f s", last.index, time.monotonic() - begin)
    in_log = base.index <= last.index <= log.last_index and log.chain(last.index) == last.chain
    committed = max(base.index, min(commit_index, log.last_index))
    if in_log:
        committed = max(committed, last.index)
    applied_index = min(committed, last.index)
    if state_machine.needs_indexing:
        _log.info("derived files are incomplete: the log is read from its beginning")
        applied_index = base.index
    return RestoredState(
        applied_index=applied_index,
        state_index=last.index,
        commit_index=committed,
        configuration=Configuration(
            index=newest.config_index, membership=decode_membership(newest.membership)
        ),
        kept=tuple(header.last for header in good),
    )


def _good_headers(files: SnapshotFiles, base_index: Index) -> list[SnapshotHeader]:
    good: list[SnapshotHeader] = []
    for index in files.indexes():
        try:
            header = files.verified(index)
        except DamagedSnapshotError as error:
            _log.error("a snapshot is damaged and not used: %s", error)
            continue
        if index < base_index:
            _log.warning("the snapshot at %d is of no use: the log lacks what follows", index)
            continue
        good.append(header)
    return good
