"""Planted bugs in transactional messages."""

from __future__ import annotations

from campaigns.mutants.mutant import Mutant
from campaigns.mutants.source_patch import SourcePatch

__all__ = ["TRANSACTION_MUTANTS"]

TRANSACTION_MUTANTS = (
    Mutant(
        name="op record lost at a crash",
        kind="group",
        breaks="the final message is stored, that the half is decided is not: the check-back asks "
        "again, and the commit is stored twice",
        published="rocketmq#8158: double commit",
        expected=("G4", "G2", "liveness"),
        patches=(
            SourcePatch(
                module="broker.transaction.end_transaction",
                within="EndTransactionProcessor._propose",
                before="[command],",
                after="[] if decision == 'commit' and half.queue_offset % 2 else [command],",
            ),
        ),
    ),
    Mutant(
        name="final message and decision in two entries",
        kind="group",
        breaks="a crash between them separates the message from its decision",
        published="RocketMQ stores final and op messages one after the other",
        expected=("G4", "G2"),
        patches=(
            SourcePatch(
                module="broker.transaction.end_transaction",
                within="EndTransactionProcessor._propose",
                before="commit(",
                after="""
                if decision == "commit":
                    final = Proposal(records=records[:1], on_done=lambda _: None)
                    self._leadership.proposer.submit(final)
                    del records[0]
                commit(
                """,
            ),
            SourcePatch(
                module="broker.leader.proposer",
                within="Proposer._take_batch",
                before="if batch and (",
                after="if len(batch) == 1 or batch and (",
            ),
        ),
    ),
    Mutant(
        name="second decision while the first is in flight",
        kind="group",
        breaks="two decisions of one half are proposed, since neither is applied yet",
        expected=("G4", "G2", "stopped"),
        patches=(
            SourcePatch(
                module="broker.leader.proposer",
                within="Proposer.submit",
                before="self._decisions[proposal.half_queue_offset] = proposal",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="contrary decision answered as done",
        kind="group",
        breaks="who comes too late is told that its decision was taken",
        published="rocketmq#8158",
        expected=("G4",),
        patches=(
            SourcePatch(
                module="broker.transaction.end_transaction",
                within="EndTransactionProcessor._answer_decided",
                before="if known == decision:",
                after="if known is not None:",
            ),
        ),
    ),
    Mutant(
        name="rollback makes the message visible",
        kind="group",
        breaks="the final message is stored whatever was decided",
        expected=("G4",),
        patches=(
            SourcePatch(
                module="broker.transaction.end_transaction",
                within="EndTransactionProcessor._propose",
                before='elif decision == "commit":',
                after="else:",
            ),
        ),
    ),
    Mutant(
        name="check offset runs past an undecided half",
        kind="group",
        breaks="a half that is too young to be checked is passed, and never looked at again",
        published="rocketmq#544, rocketmq#9500",
        expected=("liveness", "T6", "T10"),
        patches=(
            SourcePatch(
                module="broker.transaction.check_schedule",
                within="CheckSchedule.fresh",
                before="""
                if half.stored_ms > stored_ms_max:
                    return
                """,
                after="""
                if half.stored_ms > stored_ms_max:
                    self._cursor = halves.next_offset
                    return
                """,
            ),
        ),
    ),
    Mutant(
        name="progress of the half queue past an undecided half",
        kind="group",
        breaks="the replicated offset of the half queue says that all before it is decided, and "
        "it is not",
        published="rocketmq#9500",
        expected=("T10",),
        patches=(
            SourcePatch(
                module="broker.state.half_table",
                within="HalfTable.progress",
                before="return self.next_offset if oldest is None else oldest.queue_offset",
                after="return self.next_offset",
            ),
        ),
    ),
    Mutant(
        name="half that was decided is checked again",
        kind="group",
        breaks="a decided half stays in the table of the undecided",
        expected=("G2", "G4", "liveness", "stopped"),
        patches=(
            SourcePatch(
                module="broker.state.half_table",
                within="HalfTable.decide",
                before="self._undecided.remove(row)",
                after="",
            ),
        ),
    ),
    Mutant(
        name="undecided halves lost on failover",
        kind="group",
        breaks="the table of undecided halves is the old leader's own",
        published="rocketmq#544: a half that nobody asks for any more",
        expected=("T10", "G4", "liveness", "stopped"),
        patches=(
            SourcePatch(
                module="broker.queues.state_machine",
                within="BrokerStateMachine.on_role_change",
                before="self._on_role(status)",
                after="""
                self.state.halves._undecided = type(self.state.halves._undecided)()
                self._on_role(status)
                """,
            ),
        ),
    ),
)
