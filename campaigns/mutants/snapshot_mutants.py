"""Planted bugs in snapshots, in installing them, and in dropping the log behind them."""

from __future__ import annotations

from campaigns.mutants.mutant import Mutant
from campaigns.mutants.source_patch import SourcePatch

__all__ = ["SNAPSHOT_MUTANTS"]

SNAPSHOT_MUTANTS = (
    Mutant(
        name="install over entries that the peer holds",
        breaks="a late snapshot empties a log that holds the snapshot's base, and with it what "
        "was acknowledged behind the base",
        published="CCF#519 and sofa-jraft#1092 are relatives: what a snapshot says of the log",
        expected=("R9",),
        patches=(
            SourcePatch(
                module="raft.core.follower_role",
                within="FollowerRole.install",
                before="if self._log.has(base.index, base.term):",
                after="if base.index < self._log.first_index:",
            ),
            SourcePatch(
                module="raft.core.raft_log",
                within="RaftLog.install",
                before='assert base.index > self.commit_index, f"{base.index} is committed already"',
                after="pass",
            ),
            SourcePatch(
                module="raft.core.raft_log",
                within="RaftLog.install",
                before="assert not self.has(base.index, base.term)",
                after="pass",
            ),
            SourcePatch(
                module="raft.core.core",
                within="Core.step",
                before="assert commit_before <= log.commit_index <= log.last_index",
                after="pass",
            ),
            SourcePatch(
                module="raft.core.follower_role",
                within="FollowerRole.on_install_snapshot",
                before="if self._log.has(base.index, base.term):",
                after="if base.index < self._log.first_index:",
            ),
        ),
    ),
    Mutant(
        name="installed configuration not in force",
        breaks="a node lives on with the members that its emptied log knew of",
        expected=("members", "R9", "assert"),
        patches=(
            SourcePatch(
                module="raft.core.follower_role",
                within="FollowerRole.install",
                before="self._configurations.install(event.configuration)",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="snapshot renamed without fsync",
        breaks="after a power failure the name stands over bytes that were never written",
        published="Pillai et al., OSDI '14",
        expected=("snapshot",),
        patches=(
            SourcePatch(
                module="raft.snapshots.snapshot",
                within="SnapshotFiles.write",
                before="file.sync()",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="pieces of two snapshots mixed",
        breaks="pieces are taken as they come, whatever snapshot they are of, and the whole is "
        "not checked",
        expected=("snapshot", "exception"),
        patches=(
            SourcePatch(
                module="raft.snapshots.install",
                within="InstallReceiver._store",
                before="if key != self._begun:",
                after="if self._begun is None:",
            ),
            SourcePatch(
                module="raft.snapshots.install",
                within="InstallReceiver._finish",
                before="index = verify(file, self._files.incoming_path).last.index",
                after="index = chunk.snapshot_index",
            ),
        ),
    ),
    Mutant(
        name="received snapshot not fsynced",
        breaks="the log is emptied for a snapshot that a power failure may still take",
        expected=("snapshot", "recovery"),
        patches=(
            SourcePatch(
                module="raft.snapshots.install",
                within="InstallReceiver._finish",
                before="file.sync()",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="segments dropped before the base is written",
        breaks="a crash between them leaves a log that begins nobody knows behind what",
        expected=("recovery", "R9", "R6"),
        patches=(
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog.drop_before",
                before="""
                self._base_file.save(base)
                self._reset_mark(self._marked, base)
                for summary in dropped:
                    self._files.remove(summary.position)
                """,
                after="""
                for summary in dropped:
                    self._files.remove(summary.position)
                self._base_file.save(base)
                self._reset_mark(self._marked, base)
                """,
            ),
        ),
    ),
    Mutant(
        name="log emptied without a note",
        breaks="a crash while the log is emptied for a snapshot leaves a part of the old one",
        expected=("recovery", "R9", "R5", "R6"),
        patches=(
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog.reset",
                before="self._base_file.save(base, resetting=True)",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="peer behind the log's beginning is sent what there is",
        breaks="the leader begins to send where its log begins, whether or not the peer has what "
        "precedes it",
        published="dledger's leader answers a follower below its first index so",
        expected=("liveness", "R5", "R9", "assert", "storm", "hang"),
        patches=(
            SourcePatch(
                module="raft.core.leader_role",
                within="LeaderRole.on_reply",
                before="""
                if peer.next_index < self._log.first_index:
                    self._begin_install(peer)
                else:
                    self._send_entries(peer)
                """,
                after="""
                peer.next_index = max(peer.next_index, self._log.first_index)
                self._send_entries(peer)
                """,
            ),
        ),
    ),
)
