"""Planted bugs in the node's shell: rounds of fsync, open calls, applying."""

from __future__ import annotations

from campaigns.mutants.mutant import Mutant
from campaigns.mutants.source_patch import SourcePatch

__all__ = ["SHELL_MUTANTS"]

SHELL_MUTANTS = (
    Mutant(
        name="messages sent before their round of fsync",
        kind="group",
        breaks="what waits for an fsync leaves with the rest",
        published="nats-server#7564; NodeDB#161",
        expected=("R2", "R9", "R1", "R3"),
        patches=(
            SourcePatch(
                module="raft.node.group_commit",
                within="GroupCommit.defer",
                before="""
                last = self._next or self._running
                if last is not None:
                    last.messages += messages
                return last is not None
                """,
                after="return False",
            ),
        ),
    ),
    Mutant(
        name="round of fsync claims what came after it began",
        kind="group",
        breaks="entries appended while the fsync was under way are reported durable with it",
        expected=("R9", "stopped"),
        patches=(
            SourcePatch(
                module="raft.node.group_commit",
                within="GroupCommit._finish",
                before="assert done is not None",
                after="""
                assert done is not None
                if done.durable is not None:
                    log = self._log
                    done.durable = SyncedTo(index=log.last_index, term=log.last_term)
                """,
            ),
        ),
    ),
    Mutant(
        name="round done when the kernel begins",
        kind="group",
        breaks="what waits for an fsync beside the loop leaves when that has begun",
        expected=("R2", "R9", "R1", "R3", "stopped"),
        patches=(
            SourcePatch(
                module="raft.node.group_commit",
                within="GroupCommit.begin",
                before="""
                if log.begin_sync(self._finish):
                    return
                """,
                after="""
                if log.begin_sync(lambda _: None):
                    self._finish(None)
                    return
                """,
            ),
        ),
    ),
    Mutant(
        name="kernel syncs while a hard state waits",
        breaks="a vote leaves after the fsync of a log, and its hard state is not durable",
        expected=("vote before durable", "sent before durable", "R2", "R1", "R3", "recovery"),
        patches=(
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog.begin_sync",
                before="or not (self._hard_state is None or self._hard_state.is_saved)",
                after="or False",
            ),
        ),
    ),
    Mutant(
        name="round of fsync outlives a truncation",
        kind="group",
        breaks="a round that began before a truncation reports what is no longer there",
        expected=("R9", "stopped"),
        patches=(
            SourcePatch(
                module="raft.node.group_commit",
                within="GroupCommit.log_truncated",
                before="self._running.durable = None",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="proposal answered by its index alone",
        kind="group",
        breaks="an entry of another leader at the same index acknowledges a proposal that was cut",
        published="PySyncObj's callbacks by index",
        expected=("G1", "G2"),
        patches=(
            SourcePatch(
                module="raft.node.open_proposals",
                within="OpenProposals.leadership_lost",
                before="""
                if index > commit_index:
                    status = ProposalStatus.LOST_LEADERSHIP
                elif term_at(index) != term:
                    status = ProposalStatus.TRUNCATED
                else:
                    continue
                """,
                after="continue",
            ),
            SourcePatch(
                module="raft.node.open_proposals",
                within="OpenProposals.applied",
                before='assert proposal[0] == term, "what was replaced is answered when leadership is lost"',
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="ready before its own entry is applied",
        kind="group",
        breaks="a new leader proposes on a state that lacks the last entries of the old one",
        expected=("G2", "G3", "G4", "G5", "stopped"),
        patches=(
            SourcePatch(
                module="raft.node.node_status",
                within="NodeStatus.is_ready",
                before="not self.stopped and self._core.ready and self._applier.applied_index >= self.noop_index",
                after="not self.stopped and self._core.role is Role.LEADER",
            ),
        ),
    ),
    Mutant(
        name="entries applied twice",
        kind="group",
        breaks="a turn begins where the last one began, not where it ended",
        expected=("R10", "stopped", "G3"),
        patches=(
            SourcePatch(
                module="raft.node.applier",
                within="Applier._call",
                before="self.applied_index = committed[-1].index",
                after="self.applied_index = committed[0].index",
            ),
        ),
    ),
    Mutant(
        name="garbled frame taken as it came",
        kind="group",
        breaks="what a middleman changed in a frame of Raft reaches the core, and the log",
        published="this broker, until the simulator garbled frames",
        expected=("R4", "R5", "R9", "R10", "stopped", "garbled"),
        patches=(
            SourcePatch(
                module="raft.peers.frame_reader",
                within="FrameReader.received",
                before="if crc32(frame) != crc:",
                after="if False:",
            ),
        ),
    ),
    Mutant(
        name="size of a garbled frame believed",
        kind="group",
        breaks="a size that is wrong and allowed swallows the frames behind it",
        published="this broker, until the simulator garbled frames",
        expected=("garbled", "liveness"),
        patches=(
            SourcePatch(
                module="raft.peers.frame_reader",
                within="FrameReader.received",
                before="""
                raise WireError("prefix of a frame: its bytes are not those that were sent")
                """,
                after="pass",
            ),
        ),
    ),
)
