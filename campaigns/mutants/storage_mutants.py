"""Planted bugs in the log's files, the hard state and recovery."""

from __future__ import annotations

from campaigns.mutants.mutant import Mutant
from campaigns.mutants.source_patch import SourcePatch

__all__ = ["SETTLE_UNSYNCED", "STORAGE_MUTANTS"]

SETTLE_UNSYNCED = SourcePatch(
    module="raft.log.durable_record", within="settle", before="file.sync()", after="pass"
)
"""What a killed process left in the page cache is not made durable by the next one's start."""

_NO_KERNEL = SourcePatch(
    module="raft.log.segment_log",
    within="SegmentLog.begin_sync",
    before="not self.begins_syncs",
    after="True",
)
"""All syncs on a thread, so that none passes a bug that stands there by."""

STORAGE_MUTANTS = (
    Mutant(
        name="fsync skipped",
        breaks="a sync claims what was written without asking the disk",
        published="nats-server#7564: fsync every two minutes, acknowledged at once",
        expected=("R9", "recovery"),
        patches=(
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog.sync",
                before="tail.file.sync()",
                after="pass",
            ),
            _NO_KERNEL,
        ),
    ),
    Mutant(
        name="failed fsync tried again",
        breaks="after EIO the sync is repeated, and succeeds over pages that the kernel dropped",
        published="PostgreSQL's fsyncgate; Rebello et al., ATC '20",
        # The exception: the log says itself that it is damaged where it reads what was dropped.
        expected=("R9", "recovery", "R5", "exception"),
        patches=(
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog.sync",
                before="tail.file.sync()",
                after="""
                try:
                    tail.file.sync()
                except OSError:
                    tail.file.sync()
                """,
            ),
            _NO_KERNEL,
        ),
    ),
    Mutant(
        name="mark raised before the fsync",
        breaks="the durable mark claims bytes that a power failure may still take",
        expected=("recovery",),
        patches=(
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog.sync",
                before="""
                tail.file.sync()
                self._claim(tail)
                """,
                after="""
                if tail.end.position > self._marked.position:
                    self._claim(tail)
                    self._mark.sync()
                tail.file.sync()
                """,
            ),
            _NO_KERNEL,
        ),
    ),
    Mutant(
        name="mark raised when the kernel begins",
        breaks="the durable mark claims bytes whose fsync beside the loop has not ended",
        expected=("recovery",),
        patches=(
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog.begin_sync",
                before="if tail.file.begin_sync(partial(self._end_sync, tail, on_done)):",
                after="""
                if tail.end.position > self._marked.position:
                    self._claim(tail)
                    self._mark.sync()
                if tail.file.begin_sync(partial(self._end_sync, tail, on_done)):
                """,
            ),
        ),
    ),
    Mutant(
        name="failed fsync of the kernel counts",
        breaks="what an fsync beside the loop has failed with is not looked at",
        published="PostgreSQL's fsyncgate; Rebello et al., ATC '20",
        expected=("R9", "recovery", "R5", "R10"),
        patches=(
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog._end_sync",
                before="if self._syncing is tail:",
                after="""
                error = None
                if self._syncing is tail:
                """,
            ),
        ),
    ),
    Mutant(
        name="segment closed without fsync",
        breaks="what was written to a segment before its successor began is never fsynced",
        expected=("R9", "recovery"),
        patches=(
            SourcePatch(
                module="raft.log.segment_files",
                within="SegmentFiles.finish_last",
                before="self.last.sync()",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="directory not fsynced for a new segment",
        breaks="the entries of a new segment are durable, its name is not",
        published="Pillai et al., OSDI '14",
        expected=("R9", "recovery"),
        patches=(
            SourcePatch(
                module="raft.log.segment_files",
                within="SegmentFiles.begin",
                before="self._disk.sync_directory(self._directory)",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="copy of the hard state left behind",
        breaks="a save that a crash tears falls back to the term and vote of long ago",
        expected=("R2", "R3", "R1", "recovery"),
        patches=(
            SourcePatch(
                module="raft.log.hard_state",
                within="HardStateFile._save",
                before="for path in _NAMES:",
                after="for path in _NAMES[:1]:",
            ),
        ),
    ),
    Mutant(
        name="hard state overwritten without fsync",
        breaks="after a power failure the old term and vote are back, or neither copy reads",
        published="Pillai et al., OSDI '14",
        expected=("recovery", "R2", "R3"),
        patches=(
            SourcePatch(
                module="raft.log.durable_record",
                within="overwrite",
                before="file.sync()",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="mark's durable slot overwritten",
        breaks="both slots of the mark may be torn by one power failure",
        expected=("recovery",),
        patches=(
            SourcePatch(
                module="raft.log.slot_file",
                within="SlotFile.note",
                before="self._write_next(record)",
                after="""
                self._write_next(record)
                self._durable_slot = 1 - self._durable_slot
                """,
            ),
        ),
    ),
    Mutant(
        name="tail of before a failed fsync read from memory",
        breaks="after EIO and a restart, clean pages that never reached the disk count as durable",
        published="Rebello et al., ATC '20",
        expected=("R9", "R10", "R5", "recovery", "R3", "R2", "R1"),
        patches=(
            SourcePatch(
                module="raft.log.durable_record",
                within="settle",
                before="file.drop_cache()",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="recovered tail not fsynced",
        breaks="entries that only the page cache holds after a crash of the process count as "
        "durable",
        published="nats-server#7567: a restarted node forgets what it had",
        expected=("R9", "recovery"),
        patches=(
            SETTLE_UNSYNCED,
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog._settle",
                before="self._files.last.sync()",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="torn tail kept",
        breaks="an entry whose header reads well is taken whatever became of its payload",
        expected=("R5", "R9", "R10", "recovery"),
        patches=(
            SourcePatch(
                module="raft.log.log_format",
                within="parse_entry",
                before="if computed != chain:",
                after="if computed < 0:",
            ),
        ),
    ),
    Mutant(
        name="truncated tail comes back",
        breaks="the removal of a truncated segment is not durable before the log goes on",
        published="rocketmq#10666",
        expected=("recovery", "R5", "R9"),
        patches=(
            SourcePatch(
                module="raft.log.segment_files",
                within="SegmentFiles.remove",
                before="self._disk.sync_directory(self._directory)",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="segments removed oldest first",
        breaks="a crash within a truncation leaves a hole before the newest segments",
        expected=("recovery",),
        patches=(
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog._cut",
                before="""
                self._files.remove_last()
                for position in gone[:-1]:
                    self._files.remove(position)
                """,
                after="""
                for position in reversed(gone[:-1]):
                    self._files.remove(position)
                self._files.remove_last()
                """,
            ),
        ),
    ),
    Mutant(
        name="mark lowered after the cut",
        breaks="a crash between cut and mark leaves a claim of bytes that were cut on purpose",
        expected=("recovery",),
        patches=(
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog._cut",
                before="""
                if lowered or gone:
                    self._reset_mark(min(cut, self._marked, key=lambda one: one.position))
                last = table.last.before.position
                if gone:
                    self._files.remove_sidecar(last)
                    self._files.remove_last()
                    for position in gone[:-1]:
                        self._files.remove(position)
                self._files.open_last(last, cut.position - last)
                """,
                after="""
                last = table.last.before.position
                if gone:
                    self._files.remove_sidecar(last)
                    self._files.remove_last()
                    for position in gone[:-1]:
                        self._files.remove(position)
                self._files.open_last(last, cut.position - last)
                if lowered or gone:
                    self._reset_mark(min(cut, self._marked, key=lambda one: one.position))
                """,
            ),
        ),
    ),
    Mutant(
        name="short write not continued",
        breaks="what a write left over is not written, and the next entry stands behind a hole",
        expected=("R9", "R10", "recovery", "R5", "exception"),
        patches=(
            SourcePatch(
                module="raft.log.segment_files",
                within="SegmentFiles.write",
                before="if written < size:",
                after="if written < 0:",
            ),
        ),
    ),
)
