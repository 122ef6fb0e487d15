"""Planted bugs in the log's files, the hard state and recovery."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.source_patch import SourcePatch

__all__ = ["STORAGE_MUTANTS"]

STORAGE_MUTANTS = (
    Mutant(
        name="fsync skipped",
        breaks="a sync claims what was written without asking the disk",
        published="nats-server#7564: fsync every two minutes, acknowledged at once",
        expected=("R9", "recovery"),
        patches=(
            SourcePatch(
                module="raft.segment_log",
                within="SegmentLog.sync",
                before="tail.file.sync()",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="failed fsync tried again",
        breaks="after EIO the sync is repeated, and succeeds over pages that the kernel dropped",
        published="PostgreSQL's fsyncgate; Rebello et al., ATC '20",
        expected=("R9", "recovery", "R5"),
        patches=(
            SourcePatch(
                module="raft.segment_log",
                within="SegmentLog.sync",
                before="tail.file.sync()",
                after="""
                try:
                    tail.file.sync()
                except OSError:
                    tail.file.sync()
                """,
            ),
        ),
    ),
    Mutant(
        name="mark raised before the fsync",
        breaks="the durable mark claims bytes that a power failure may still take",
        expected=("recovery",),
        patches=(
            SourcePatch(
                module="raft.segment_log",
                within="SegmentLog.sync",
                before="""
                tail.file.sync()
                self._mark.raise_to(tail.position)
                """,
                after="""
                self._mark.raise_to(tail.position)
                tail.file.sync()
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
                module="raft.segment_log",
                within="SegmentLog._begin_segment",
                before="self._file.sync()",
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
                module="raft.segment_log",
                within="SegmentLog._begin_segment",
                before="self._disk.sync_directory(self._directory)",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="hard state renamed without fsync of the directory",
        breaks="after a power failure the old term and vote are back",
        published="Pillai et al., OSDI '14",
        expected=("R2", "R3"),
        patches=(
            SourcePatch(
                module="raft.hard_state",
                within="HardStateFile.save",
                before="self._disk.sync_directory(self._directory)",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="hard state renamed without fsync of the file",
        breaks="after a power failure the name stands over bytes that were never written",
        published="Pillai et al., OSDI '14",
        expected=("recovery", "R2", "R3"),
        patches=(
            SourcePatch(
                module="raft.hard_state",
                within="HardStateFile.save",
                before="file.sync()",
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
            SourcePatch(
                module="raft.segment_log",
                within="SegmentLog._open",
                before="self._file.sync()",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="torn tail kept",
        breaks="an entry whose header reads well is taken whatever became of its payload",
        expected=("R5", "R9", "R10"),
        patches=(
            SourcePatch(
                module="raft.log_format",
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
                module="raft.segment_log",
                within="SegmentLog._cut",
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
                module="raft.segment_log",
                within="SegmentLog._cut",
                before="""
                while self._segments[-1] > 0 and self._segments[-1] >= end:
                    first = self._segments.pop()
                    self._file.close()
                    self._disk.remove(self._path(first))
                    self._disk.sync_directory(self._directory)
                """,
                after="""
                gone = [first for first in self._segments if first > 0 and first >= end]
                while gone:
                    first = gone.pop(0)
                    self._segments.remove(first)
                    self._disk.remove(self._path(first))
                    self._disk.sync_directory(self._directory)
                    if gone:
                        continue
                    self._file.close()
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
                module="raft.segment_log",
                within="SegmentLog.truncate_from",
                before="""
                self._mark.reset(self._synced_position)
                self._cut(end)
                """,
                after="""
                self._cut(end)
                self._mark.reset(self._synced_position)
                """,
            ),
        ),
    ),
    Mutant(
        name="short write not continued",
        breaks="what a write left over is not written, and the next entry stands behind a hole",
        expected=("R9", "recovery", "R5", "exception"),
        patches=(
            SourcePatch(
                module="raft.segment_log",
                within="SegmentLog._write",
                before="while written < size:",
                after="while written < 0:",
            ),
        ),
    ),
)
