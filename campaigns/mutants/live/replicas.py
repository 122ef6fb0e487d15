"""Bugs planted into single replicas of a running group: state, ConsumeQueues, logs, traces."""

from __future__ import annotations

from campaigns.mutants.live.live_mutant import LiveMutant
from campaigns.mutants.source_patch import SourcePatch

__all__ = ["REPLICA_MUTANTS"]

REPLICA_MUTANTS = (
    LiveMutant(
        name="consumer offset not applied on a replica",
        breaks="one replica takes no consumer offset",
        expected=("R14", "S5"),
        broker=(
            SourcePatch(
                module="broker.state.state",
                within="BrokerState._apply_command",
                before="if not self.resets or self.resets.get(*key) is None:",
                after="""
                if planted("consumer offset not applied on a replica", nodes="n1"):
                    return
                if not self.resets or self.resets.get(*key) is None:
                """,
            ),
        ),
    ),
    LiveMutant(
        name="decided half forgotten on a replica",
        breaks="one replica remembers commits as rollbacks",
        expected=("R14",),
        broker=(
            SourcePatch(
                module="broker.state.state",
                within="BrokerState._apply_command",
                before='"commit" if command.decision == "commit" else "rollback",',
                after="""
                "commit"
                if command.decision == "commit"
                and not planted("decided half forgotten on a replica", every=20, nodes="n1")
                else "rollback",
                """,
            ),
        ),
    ),
    LiveMutant(
        name="unit with another tag",
        breaks="one ConsumeQueue unit in twenty has not the tag of its record",
        expected=("S1",),
        broker=(
            SourcePatch(
                module="broker.leader.proposer",
                within="Proposer._encode",
                before="units.append(pack_unit(at, record.size, record.tags_code))",
                after="""
                code = record.tags_code
                if run.topic == "orders" and planted("unit with another tag", every=20):
                    code ^= 1
                units.append(pack_unit(at, record.size, code))
                """,
            ),
        ),
    ),
    LiveMutant(
        name="unit with another size on a replica",
        breaks="one replica's units have a wrong size now and then",
        expected=("S1",),
        broker=(
            SourcePatch(
                module="broker.queues.state_machine",
                within="BrokerStateMachine.apply",
                before="self._queues.get(run.topic, run.queue_id)"
                ".append(run.first_queue_offset, run.units)",
                after="""
                units = run.units
                if run.topic == "orders" and planted(
                    "unit with another size on a replica", every=50, nodes="n2"
                ):
                    size = int.from_bytes(units[8:12], "big") + 1
                    units = units[:8] + size.to_bytes(4, "big") + units[12:]
                self._queues.get(run.topic, run.queue_id).append(run.first_queue_offset, units)
                """,
            ),
        ),
    ),
    LiveMutant(
        name="another chain applied",
        breaks="one replica says of some entries that another log stood before them",
        expected=("R10",),
        broker=(
            SourcePatch(
                module="raft.node.trace_events",
                within="TraceEvents.applied",
                before="chain=last.chain,",
                after="""
                chain=last.chain
                ^ planted("another chain applied", every=50, nodes="n1"),
                """,
            ),
        ),
    ),
    LiveMutant(
        name="trace that ends in the middle",
        breaks="a replica stops tracing and goes on working",
        expected=("R5", "R9", "A20"),
        verdict="unknown",
        broker=(
            SourcePatch(
                module="raft.store.trace",
                within="RaftTrace.record",
                before="self._seq += 1",
                after="""
                if planted("trace that ends in the middle", after=1_500, nodes="n1"):
                    return
                self._seq += 1
                """,
            ),
        ),
    ),
    LiveMutant(
        name="fsynced entries gone at a start",
        breaks="a replica that starts anew has lost its last entries, which it had fsynced",
        expected=("R9",),
        broker=(
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog.__init__",
                before="self._publish_tail()",
                after="""
                self._publish_tail()
                if self.last_index > 50 and planted("fsynced entries gone at a start"):
                    self.truncate_from(self.last_index - 9)
                """,
            ),
        ),
    ),
    LiveMutant(
        name="log cut at the stop",
        breaks="a replica that stops leaves a log that ends below what it had committed",
        expected=("S4",),
        broker=(
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog.close",
                before='"""Close every file; not a sync. One that hangs in the kernel is not waited for."""',
                after="""
                if self.last_index > 50 and planted("log cut at the stop", nodes="n1"):
                    self.truncate_from(self.last_index - 2)
                """,
            ),
        ),
    ),
    LiveMutant(
        name="truncated entries come back",
        breaks="what a deposed leader had to drop stands in its log again when it stops",
        expected=("S3",),
        broker=(
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog.truncate_from",
                before="if index <= last_index:",
                after="""
                if index <= last_index and planted("truncated entries come back"):
                    self._gone = self.entries(index, last_index + 1, 1 << 24)
                if index <= last_index:
                """,
            ),
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog.close",
                before='"""Close every file; not a sync. One that hangs in the kernel is not waited for."""',
                after="""
                gone = self.__dict__.get("_gone")
                if gone:
                    self._gone = ()
                    self.truncate_from(gone[0].index)
                    self.append(gone)
                """,
            ),
        ),
    ),
)
