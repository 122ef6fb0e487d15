"""Planted bugs in what a node makes of damage, of a lost disk, and of a snapshot of its state."""

from __future__ import annotations

from campaigns.mutants.mutant import Mutant
from campaigns.mutants.source_patch import SourcePatch

__all__ = ["REPAIR_MUTANTS"]

REPAIR_MUTANTS = (
    Mutant(
        name="damaged entries served",
        kind="group",
        breaks="bytes that rotted are not compared with the chain of their entry",
        published="nats-server#7549: a flipped bit loses acknowledged writes",
        expected=("R10", "R5", "reads", "G3", "S1", "stopped", "exception", "liveness"),
        patches=(
            SourcePatch(
                module="raft.log.segment_scan",
                within="check_entries",
                before="view = memoryview(data)",
                after="""
                if low >= 0:
                    return
                view = memoryview(data)
                """,
            ),
        ),
    ),
    Mutant(
        name="wiped voter takes up its old name",
        kind="group",
        breaks="a name is enough: a node with an empty store is born because the group knows its "
        "name, and its votes and acknowledgements count as those that it has forgotten",
        published="nats-server#7567; Alagappan et al., FAST '18",
        expected=("R9", "R2", "R7", "R3", "R1", "liveness"),
        patches=(
            SourcePatch(
                module="raft.bootstrap.formation",
                within="Formation._hear_born",
                before="if named == self._store_id:",
                after="if named is not None:",
            ),
            SourcePatch(
                module="raft.membership",
                within="Membership.has_voter",
                before="return not (voter.store_id and store_id) or voter.store_id == store_id",
                after="return True",
            ),
            SourcePatch(
                module="raft.peers.peer_link",
                within="PeerLink.speaks_for",
                before="return not self.store_id or connection.peer_store_id == self.store_id",
                after="return True",
            ),
        ),
    ),
    Mutant(
        name="damage never mended",
        kind="group",
        breaks="a damaged node asks nobody for good copies",
        expected=("liveness",),
        patches=(
            SourcePatch(
                module="raft.repair.repair_plan",
                within="RepairPlan.next",
                before="if now_ms < self._pause_until_ms:",
                after="if now_ms >= self._pause_until_ms:",
            ),
        ),
    ),
    Mutant(
        name="undecided halves not restored",
        kind="group",
        breaks="a node that restarts from a snapshot has forgotten the halves that wait",
        expected=("G4", "liveness", "stopped"),
        patches=(
            SourcePatch(
                module="broker.state.half_table",
                within="HalfTable.restore",
                before="self._undecided = rows",
                after="self._undecided = _Rows()",
            ),
        ),
    ),
    Mutant(
        name="newest dedupe keys not restored",
        kind="group",
        breaks="a node that restarts from a snapshot, and leads then, stores late retries again",
        published="kop#796",
        expected=("G2", "R14", "replicas"),
        patches=(
            SourcePatch(
                module="broker.state.dedupe",
                within="DedupeWindow.restore",
                before="if image.newest is not None:",
                after="if image.newest is not None and self._count < 0:",
            ),
        ),
    ),
    Mutant(
        name="consumer offsets not restored",
        kind="group",
        breaks="a node that restarts from a snapshot answers with the offsets committed since",
        published="rocketmq#3210",
        expected=("G5", "R14"),
        patches=(
            SourcePatch(
                module="broker.state.state",
                within="BrokerState.restore",
                before="self.consumer_offsets = QueueOffsets(image.consumer_offsets)",
                after="self.consumer_offsets = QueueOffsets()",
            ),
        ),
    ),
    Mutant(
        name="delay progress not restored",
        kind="group",
        breaks="a node that restarts from a snapshot takes all delayed messages for undelivered",
        published="RocketMQ's delayOffset.json, written every ten seconds",
        expected=("G5", "G2", "R14", "stopped"),
        patches=(
            SourcePatch(
                module="broker.state.state",
                within="BrokerState.restore",
                before="self.delay_offsets = dict(image.delay_offsets)",
                after="self.delay_offsets = {}",
            ),
        ),
    ),
)
