"""Planted bugs in what the log may lose, and in what is derived from it."""

from __future__ import annotations

from campaigns.mutants.mutant import Mutant
from campaigns.mutants.source_patch import SourcePatch

__all__ = ["RETENTION_MUTANTS"]

_LIMITS = "limits = [bounds.end_position, facts.half_position, facts.delay_position]"

RETENTION_MUTANTS = (
    Mutant(
        name="retention runs past an undecided half",
        kind="group",
        breaks="the log loses a half message that may still be committed",
        expected=("G4", "T10", "liveness", "stopped"),
        patches=(
            SourcePatch(
                module="broker.config.retention",
                within="decide_retention",
                before=_LIMITS,
                after="limits = [bounds.end_position, facts.delay_position]",
            ),
        ),
    ),
    Mutant(
        name="retention runs past an undelivered message",
        kind="group",
        breaks="the log loses a delayed message before its time has come",
        expected=("G5", "G1", "liveness", "stopped"),
        patches=(
            SourcePatch(
                module="broker.config.retention",
                within="decide_retention",
                before=_LIMITS,
                after="limits = [bounds.end_position, facts.half_position]",
            ),
        ),
    ),
    Mutant(
        name="log dropped that no snapshot contains",
        kind="group",
        breaks="retention does not ask from where a restart has to replay",
        expected=("stopped", "recovery", "G3", "G5", "replicas"),
        patches=(
            SourcePatch(
                module="raft.snapshots.snapshot_keeper",
                within="SnapshotKeeper.safe_position",
                before="""
                    return (
                        self._retained[-_RETAINED_COUNT].position
                        if len(self._retained) >= _RETAINED_COUNT
                        else 0
                    )
                """,
                after="return self._log.end_position",
            ),
        ),
    ),
    Mutant(
        name="entries of a restored state applied again",
        kind="group",
        breaks="what a snapshot contains is replayed on top of it",
        expected=("stopped", "G2", "G3", "R10", "replicas"),
        patches=(
            SourcePatch(
                module="raft.node.applier",
                within="Applier.begin_at",
                before="self.state_index = state_index",
                after="self.state_index = applied_index",
            ),
        ),
    ),
    Mutant(
        name="entries of a restored state not indexed",
        kind="group",
        breaks="the units of entries that a snapshot contains are missing in the ConsumeQueues",
        published="rocketmq#8032, rocketmq#7355: messages without units",
        expected=("S1", "reads", "stopped", "liveness", "time"),
        patches=(
            SourcePatch(
                module="raft.node.applier",
                within="Applier._call",
                before="self._state_machine.index_only(committed)",
                after="pass",
            ),
        ),
    ),
)
