"""Restores the newest valid snapshot at a start, and determines where replay begins.

Place in the data path: `raft.node.node` calls `restore_newest`, on a thread, after the log was
recovered and before anything else touches the state machine.

A snapshot may be newer than the log's end: the beginning of the log was installed and not all that
follows has arrived yet, or a crash fell between the snapshot and the reset of the log. Its state is
that of the group at that index all the same, and entries up to there are only indexed when they
arrive. Where the log has another entry at the snapshot's index, that entry was never committed.

Entries that a valid snapshot contains need not be read again: neither its CONFIG entries nor, where
no peer has a copy any more, damaged ones. They were committed, so that the node's promises hold
without them; reads of them are refused.

Invariants: `applied_index` is committed, in this log, and contained in the state; a log that is
served with damage holds the entry at the end of the snapshot that contains it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from raft.log.log_format import CorruptLogError
from raft.log.segment_log import SegmentLog
from raft.membership import Configuration, decode_membership
from raft.messages import Index, LogBase
from raft.snapshots.snapshot import DamagedSnapshotError, SnapshotFiles, SnapshotHeader

__all__ = ["Restorable", "RestoredState", "do_without", "restore_newest"]

_log = logging.getLogger(__name__)


class Restorable(Protocol):
    """The part of a `RestorableStateMachine` that a restore needs."""

    def prepare_restore(self, index: Index, chunks: Iterable[bytes]) -> Callable[[], None]: ...

    @property
    def needs_indexing(self) -> bool: ...

    def trim(self, position: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredState:
    """Result of a restore. `applied_index`: replay begins behind it; up to `state_index` entries
    are only indexed. `commit_index`: a hint, true of this log. `configuration`: the snapshot's,
    None without one. `snapshots`: the valid ones, ascending."""

    applied_index: Index
    state_index: Index
    commit_index: Index
    configuration: Configuration | None
    snapshots: tuple[LogBase, ...]


def do_without(log: SegmentLog, files: SnapshotFiles) -> bool:
    """Return whether a valid snapshot contains all damage of the log, so that the node can take
    part without it. Called once peers had no copies: their logs may begin behind the damage by now.

    Where the log lacks the snapshot's last entry, a crash interrupted an install: nothing of the
    log is committed beyond the snapshot, and it is emptied, as the install was about to do. Raises
    OSError.
    """
    last_damaged = max((damage.last_index for damage in log.damages), default=0)
    newest = _newest_good(files, last_damaged)
    if newest is None:
        return False
    last = newest.last
    if last.index <= log.last_index and log.chain(last.index) == last.chain:
        log.note_term(last.index, last.term)
        return True
    _log.warning("the log lacks entry %d of the snapshot, and is emptied for it", last.index)
    log.enter_term(last.term)  # hard state before log
    log.reset(last)
    return True


def restore_newest(
    log: SegmentLog,
    files: SnapshotFiles,
    state_machine: Restorable,
    *,
    commit_index: Index,
) -> RestoredState:
    """Restore the newest valid snapshot. Raises OSError, ValueError where a whole snapshot holds no
    state, CorruptLogError where the log lost its beginning and no snapshot is valid, and
    DamagedLogError where an entry is damaged that the start needs."""
    base = log.base
    good = _good_headers(files, base.index)
    contained_index = good[-1].config_index if good else 0
    for index in log.config_indexes:
        if index > contained_index:
            log.entries(index, index + 1, 0)  # the core is built from these
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
            snapshots=(),
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
        snapshots=tuple(header.last for header in good),
    )


def _newest_good(files: SnapshotFiles, least_index: Index) -> SnapshotHeader | None:
    """Return the newest valid snapshot at `least_index` or behind it; older ones are not read."""
    for index in reversed(files.indexes()):
        if index < least_index:
            break
        try:
            return files.verified(index)
        except DamagedSnapshotError as error:
            _log.error("a snapshot is damaged and not used: %s", error)
    return None


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
