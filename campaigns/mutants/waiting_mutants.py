"""Planted bugs in what waits in the log: timer messages, popped messages, floors of topics."""

from __future__ import annotations

from campaigns.mutants.mutant import Mutant
from campaigns.mutants.source_patch import SourcePatch

__all__ = ["WAITING_MUTANTS"]

_ONE_PROPOSAL_PER_ENTRY = SourcePatch(
    module="broker.leader.proposer",
    within="Proposer._take_batch",
    before="if batch and (",
    after="if len(batch) == 1 or batch and (",
)

_TIMER_MUTANTS = (
    Mutant(
        name="timer message delivered before its time",
        kind="group",
        breaks="the leader looks half a second ahead",
        published="RocketMQ's timerPrecisionMs rounds to a second",
        expected=("G5",),
        patches=(
            SourcePatch(
                module="broker.delay.timers",
                within="Timers.round",
                before="now_ms = replica.clock_ms()",
                after="now_ms = self._replica.clock_ms() + 500",
            ),
        ),
    ),
    Mutant(
        name="delivery of a timer and its removal in two entries",
        kind="group",
        breaks="a crash between them delivers the message again",
        published="RocketMQ's timer wheel keeps its progress beside the log",
        expected=("G5", "G2"),
        patches=(
            SourcePatch(
                module="broker.delay.timers",
                within="Timers._deliver_some",
                before="""
                if propose(self._leadership, [DeliverTimersCommand(offsets)], records=records, ended=ended):
                """,
                after="""
                propose(self._leadership, [], records=records)
                if propose(self._leadership, [DeliverTimersCommand(offsets)], ended=ended):
                """,
            ),
            _ONE_PROPOSAL_PER_ENTRY,
        ),
    ),
    Mutant(
        name="waiting timers not in the snapshot",
        kind="group",
        breaks="a node that begins with a snapshot has forgotten what waited",
        expected=("G5", "replicas", "stopped"),
        patches=(
            SourcePatch(
                module="broker.state.state",
                within="BrokerState.parts",
                before='"timers": self.timers,',
                after='"timers": TimerTable(),',
            ),
        ),
    ),
    Mutant(
        name="recall answered when proposed",
        kind="group",
        breaks="a recall is answered with success before it is committed",
        published="RocketMQ answers a recall once its own message is stored",
        expected=("G5",),
        patches=(
            SourcePatch(
                module="broker.delay.timers",
                within="Timers.recall",
                before="commit(",
                after="""
                landed = lambda _: self._under_way.discard(queue_offset)
                command = RecallTimerCommand(queue_offset)
                propose(self._leadership, [command], ended=landed)
                answer()
                return
                commit(
                """,
            ),
        ),
    ),
    Mutant(
        name="recall of what is being recalled",
        kind="group",
        breaks="a recall does not heed what is on its way with the message",
        expected=("G5",),
        patches=(
            SourcePatch(
                module="broker.delay.timers",
                within="Timers.recall",
                before="if queue_offset in self._under_way:",
                after="if False:",
            ),
        ),
    ),
)

_POP_MUTANTS = (
    Mutant(
        name="pop answered when proposed",
        kind="group",
        breaks="messages are given to a consumer before the log says so",
        published="RocketMQ's checkpoints of pops, in memory until they are stored",
        expected=("G5",),
        patches=(
            SourcePatch(
                module="broker.pop.pop",
                within="PopProcessor._run",
                before="commit(",
                after="""
                from broker.leader.proposer import Proposal

                landed = lambda _: self._landed(pop, catch)
                self._leadership.proposer.submit(Proposal(commands=commands, on_done=landed))
                self._answer(pop, catch)
                return
                commit(
                """,
            ),
            SourcePatch(
                module="broker.pop.pop",
                within="PopProcessor._is_mine",
                before="state, first = self._replica.state.pop, taken.slice.offsets[0]",
                after="return True",
            ),
        ),
    ),
    Mutant(
        name="two pops under way take the same messages",
        kind="group",
        breaks="a pop does not begin behind the one on its way, and its command counts",
        expected=("G5", "replicas"),
        patches=(
            SourcePatch(
                module="broker.pop.pop",
                within="PopProcessor._start",
                before="ahead = self._ahead.get(key)",
                after="ahead = None",
            ),
            SourcePatch(
                module="broker.state.pop_state",
                within="PopState._pop",
                before="""
                if offsets.get(key, -1) != command.expected:
                    return
                """,
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="acknowledgement of an older holding counts",
        kind="group",
        breaks="a handle that was replaced ends the holding that replaced it",
        expected=("G5", "replicas", "liveness"),
        patches=(
            SourcePatch(
                module="broker.state.pop_state",
                within="PopState._end",
                before="if holding is not None and holding.pop_ms == pop_ms:",
                after="if holding is not None:",
            ),
        ),
    ),
    Mutant(
        name="revived while its acknowledgement is under way",
        kind="group",
        breaks="a message is stored again in the very entry behind its acknowledgement",
        expected=("G5",),
        patches=(
            SourcePatch(
                module="broker.pop.revive",
                within="PopRevive._due",
                before="if due not in self._unreadable and (due.key, due.offset) not in busy",
                after="if due not in self._unreadable",
            ),
        ),
    ),
    Mutant(
        name="popped message visible before its time",
        kind="group",
        breaks="the leader revives 300 ms too early",
        expected=("G5",),
        patches=(
            SourcePatch(
                module="broker.pop.revive",
                within="PopRevive.round",
                before="for due in self._due(replica.clock_ms()):",
                after="for due in self._due(self._replica.clock_ms() + 300):",
            ),
        ),
    ),
    Mutant(
        name="end of a holding and the message's copy in two entries",
        kind="group",
        breaks="a crash between them loses the message",
        published="RocketMQ's PopReviveService stores the copy, then its own progress",
        expected=("G5",),
        patches=(
            SourcePatch(
                module="broker.pop.revive",
                within="PopRevive._propose",
                before="""
                if not propose(
                    self._leadership, [*commands, ReviveCommand(rows)], records=records, ended=ended
                ):
                """,
                after="""
                propose(self._leadership, [ReviveCommand(rows)])
                if not propose(self._leadership, commands, records=records, ended=ended):
                """,
            ),
            _ONE_PROPOSAL_PER_ENTRY,
        ),
    ),
    Mutant(
        name="popped messages not in the snapshot",
        kind="group",
        breaks="a node that begins with a snapshot has forgotten who holds what",
        published="RocketMQ's PopBufferMergeService, after a failover",
        expected=("G5", "R14", "replicas", "liveness"),
        patches=(
            SourcePatch(
                module="broker.state.state",
                within="BrokerState.parts",
                before='"pop": self.pop,',
                after='"pop": PopState(),',
            ),
        ),
    ),
)

_DELETION_MUTANTS = (
    Mutant(
        name="deleted topic begins at 0 again",
        kind="group",
        breaks="queue offsets are given a second time to other messages",
        published="RocketMQ deletes a topic's ConsumeQueues with their offsets",
        expected=("G3", "stopped"),
        patches=(
            SourcePatch(
                module="broker.state.state",
                within="BrokerState._delete_topic",
                before="self.resets.drop_topics(names)",
                after="""
                self.resets.drop_topics(names)
                for key in [key for key in self.next_offsets if key[0] == name]:
                    del self.next_offsets[key]
                """,
            ),
        ),
    ),
    Mutant(
        name="deletion without a floor",
        kind="group",
        breaks="a queue that is built again shows what was deleted",
        expected=("G3", "S1"),
        patches=(
            SourcePatch(
                module="broker.state.tombstone_offsets",
                within="TombstoneOffsets.topics_deleted",
                before="self._floors[key] = end",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="floors forgotten by a restart",
        kind="group",
        breaks="a queue that is adopted or built again begins below its floor",
        expected=("S1",),
        patches=(
            SourcePatch(
                module="broker.queues.consume_queues",
                within="ConsumeQueues.restore",
                before="self._floors = dict(floors or {})",
                after="pass",
            ),
            SourcePatch(  # its loss costs a rebuild, and nothing else: then floors are needed
                module="broker.queues.consume_queues",
                within="ConsumeQueues.restore",
                before="begins = self._read_begins()",
                after="begins: dict[tuple[str, int], int] = {}",
            ),
        ),
    ),
    Mutant(
        name="deletion answered while it is in flight",
        kind="group",
        breaks="who finds the topic gone, as it will be, is told that it is",
        published="this broker, until the simulator deleted topics",
        expected=("G3",),
        patches=(
            SourcePatch(
                module="broker.admin.admin",
                within="AdminProcessor._delete",
                before="if kept >= FLOORS_MAX:",
                after="""
                if all(self._leadership.proposer.topic(name) is None for name in names):
                    request.reply(ResponseCode.SUCCESS)
                    return
                if kept >= FLOORS_MAX:
                """,
            ),
        ),
    ),
    Mutant(
        name="level stops at a message of a deleted topic",
        kind="group",
        breaks="what waits behind it on its level is never delivered",
        expected=("liveness", "time"),
        patches=(
            SourcePatch(
                module="broker.delay.delivery",
                within="DelayDelivery._deliver",
                before="""
                count += 1
                if record is not None:
                """,
                after="""
                if record is None:
                    break
                count += 1
                if record is not None:
                """,
            ),
        ),
    ),
    Mutant(
        name="level waits where all that is due is of deleted topics",
        kind="group",
        breaks="progress is made only in an entry that delivers something",
        expected=("liveness",),
        patches=(
            SourcePatch(
                module="broker.delay.delivery",
                within="DelayDelivery._deliver",
                before="if not count:",
                after="if not records:",
            ),
        ),
    ),
    Mutant(
        name="progress of a level counts what is delivered",
        kind="group",
        breaks="messages of deleted topics are no progress: others behind them come twice",
        expected=("G5", "G2"),
        patches=(
            SourcePatch(
                module="broker.delay.delivery",
                within="DelayDelivery._deliver",
                before="[DeliverCommand(queue_id, first, first + count)],",
                after="[DeliverCommand(queue_id, first, first + max(1, len(records)))],",
            ),
        ),
    ),
    Mutant(
        name="delayed message outlives its topic",
        kind="group",
        breaks="what was delayed when its topic was deleted is delivered into the next one",
        published="this broker, as RocketMQ: a place in the schedule queue knows a name only",
        expected=("deletions",),
        patches=(
            SourcePatch(
                module="broker.delay.records",
                within="delivered_record",
                before="if is_of_deleted_topic(replica, leadership, topic, record.physical_offset, properties):",
                after="if leadership.proposer.topic(topic) is None:",
            ),
        ),
    ),
    Mutant(
        name="half outlives its topic",
        kind="group",
        breaks="the commit of a half makes it visible in the next topic of its topic's name",
        published="this broker, as RocketMQ: a half knows its topic's name only",
        expected=("deletions",),
        patches=(
            SourcePatch(
                module="broker.transaction.records",
                within="is_for_deleted_topic",
                before="""
                return is_of_deleted_topic(replica, leadership, real_place(properties)[0], position, properties)
                """,
                after="return leadership.proposer.topic(real_place(properties)[0]) is None",
            ),
        ),
    ),
    Mutant(
        name="deletion under way is not waited for",
        kind="group",
        breaks="what waits is moved into a topic whose deletion comes first in the log",
        expected=("deletions",),
        patches=(
            SourcePatch(
                module="broker.request.deleted_topics",
                within="is_of_deleted_topic",
                before="if name is not None:",
                after="if False:",
            ),
        ),
    ),
)

WAITING_MUTANTS = _TIMER_MUTANTS + _POP_MUTANTS + _DELETION_MUTANTS
