"""Planted bugs in the broker: dedupe, outcomes, queue offsets, delayed messages, offsets, reads."""

from __future__ import annotations

from campaigns.mutants.mutant import Mutant
from campaigns.mutants.source_patch import SourcePatch

__all__ = ["BROKER_MUTANTS"]

BROKER_MUTANTS = (
    Mutant(
        name="dedupe window lost on failover",
        kind="group",
        breaks="the keys that the old leader had stored are forgotten when leadership changes",
        published="librdkafka#4953, pulsar#25954",
        expected=("G2", "R14", "replicas"),
        patches=(
            SourcePatch(
                module="broker.queues.state_machine",
                within="BrokerStateMachine.on_role_change",
                before="self._on_role(status)",
                after="""
                self.state.messages = self.state._window()
                self._on_role(status)
                """,
            ),
        ),
    ),
    Mutant(
        name="key forgotten with its window",
        kind="group",
        breaks="a retry that comes after the dedupe window is called new, and stored again",
        expected=("G2",),
        patches=(
            SourcePatch(
                module="broker.state.dedupe",
                within="DedupeWindow.judge",
                before="""
                if generation.positions is None:
                    return Verdict.EXPIRED
                """,
                after="""
                if generation.positions is None:
                    return Verdict.NEW
                """,
            ),
            SourcePatch(
                module="broker.state.dedupe",
                within="DedupeWindow._is_forgotten",
                before="return self._memory_floor_ms > 0 and born_ms <= self._memory_floor_ms",
                after="return False",
            ),
        ),
    ),
    Mutant(
        name="retry of a send in flight is sent too",
        kind="group",
        breaks="a key is known once it is applied, not while its entry is on its way",
        published="pulsar#5218 has the other half: it was known before it was stored",
        expected=("G2",),
        patches=(
            SourcePatch(
                module="broker.leader.proposer",
                within="Proposer.submit",
                before="self._keys[record.dedupe_key] = record",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="retry of a batch in flight is sent too",
        kind="group",
        breaks="the quick look at a batch's keys does not ask what is on its way",
        expected=("G2",),
        patches=(
            SourcePatch(
                module="broker.send.duplicates",
                within="are_surely_new",
                before="""
                leadership.proposer.has_none_in_flight(keys)
                and state.messages.knows_none(keys, born_ms=born_ms)
                """,
                after="state.messages.knows_none(keys, born_ms=born_ms)",
            ),
        ),
    ),
    Mutant(
        name="retry of a plain send in flight is sent too",
        kind="group",
        breaks="the short way of plain sends does not ask what is on its way",
        expected=("G2",),
        patches=(
            SourcePatch(
                module="broker.send.duplicates",
                within="is_surely_new",
                before="leadership.proposer.in_flight_key(key) is None",
                after="True",
            ),
        ),
    ),
    Mutant(
        name="place of a plain send that is not its own",
        kind="group",
        breaks="the short way's answer names the offset behind the message's own",
        expected=("G1",),
        patches=(
            SourcePatch(
                module="broker.send.plain_send",
                within="PlainSends.answer",
                before="record.queue_offset,",
                after="record.queue_offset + 1,",
            ),
        ),
    ),
    Mutant(
        name="acknowledged when proposed",
        kind="group",
        breaks="a send is answered once the leader has appended it, committed or not",
        published="RocketMQ's asynchronous master",
        expected=("G1", "G2"),
        patches=(
            SourcePatch(
                module="broker.leader.proposer",
                within="Proposer._flush",
                before="""
                self._log.propose_then(partial(self._encode, batch), partial(self._on_result, batch))
                """,
                after="""
                self._log.propose_then(partial(self._encode, batch), partial(self._on_result, []))
                for proposal in batch:
                    self._finish(proposal, ProposalStatus.COMMITTED)
                """,
            ),
        ),
    ),
    Mutant(
        name="lost leadership answered as stored",
        kind="group",
        breaks="a send whose fate the deposed leader does not know is acknowledged",
        expected=("G1",),
        patches=(
            SourcePatch(
                module="broker.request.proposal_answers",
                before="ProposalStatus.COMMITTED: ResponseCode.SUCCESS,",
                after="""
                ProposalStatus.COMMITTED: ResponseCode.SUCCESS,
                ProposalStatus.LOST_LEADERSHIP: ResponseCode.SUCCESS,
                """,
            ),
        ),
    ),
    Mutant(
        name="unknown outcome called a failure",
        kind="group",
        breaks="a send whose fate the deposed leader does not know is refused for certain",
        expected=("G7",),
        patches=(
            SourcePatch(
                module="broker.request.proposal_answers",
                within="refused_of",
                before="if status is ProposalStatus.TRUNCATED:",
                after="if status is not ProposalStatus.COMMITTED:",
            ),
        ),
    ),
    Mutant(
        name="queue offsets of a lost leadership kept",
        kind="group",
        breaks="a leader goes on counting where its uncommitted entries of an earlier term ended",
        expected=("G3", "stopped"),
        patches=(
            SourcePatch(
                module="broker.leader.proposer",
                within="Proposer._encode",
                before="self._next_offsets.clear()",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="delayed messages and their progress in two entries",
        kind="group",
        breaks="a failover between them delivers again",
        published="RocketMQ writes the progress of ScheduleMessageService every ten seconds",
        expected=("G5", "G2"),
        patches=(
            SourcePatch(
                module="broker.delay.delivery",
                within="DelayDelivery._deliver",
                before="""
                if not propose(
                    self._leadership,
                    [DeliverCommand(queue_id, first, first + count)],
                    records=records,
                """,
                after="""
                propose(self._leadership, [], records=records)
                if not propose(
                    self._leadership,
                    [DeliverCommand(queue_id, first, first + count)],
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
        name="delayed message delivered early",
        kind="group",
        breaks="a schedule queue is delivered whole as soon as its first message is due",
        expected=("G5",),
        patches=(
            SourcePatch(
                module="broker.delay.delivery",
                within="DelayDelivery._deliver",
                before="if is_full or deliver_ms > now_ms:",
                after="if not records and deliver_ms > now_ms:",
            ),
        ),
    ),
    Mutant(
        name="two deliveries of one schedule queue under way",
        kind="group",
        breaks="a round begins the delivery that the round before has not ended",
        expected=("G2", "G5"),
        patches=(
            SourcePatch(
                module="broker.delay.delivery",
                within="DelayDelivery._deliver",
                before="self._under_way.add(queue_id)",
                after="pass",
            ),
        ),
    ),
    Mutant(
        name="consumer offset read without ReadIndex",
        kind="group",
        breaks="a deposed or lagging leader answers with an offset that was overwritten",
        published="rocketmq#3210: offsets go back across a change of leader",
        expected=("G5", "G6"),
        patches=(
            SourcePatch(
                module="broker.pull.offsets",
                within="OffsetProcessor._query",
                before="await answer_at_read_point(self._leadership, request, answer)",
                after="answer(request)",
            ),
        ),
    ),
    Mutant(
        name="max offset read without ReadIndex",
        kind="group",
        breaks="a deposed or lagging leader answers with an end that was passed before",
        expected=("G6",),
        patches=(
            SourcePatch(
                module="broker.pull.offsets",
                within="OffsetProcessor._bound",
                before="answer = partial(self._answer_bound, header, want_max=want_max)",
                after="""
                self._answer_bound(header, request, want_max=want_max)
                return
                """,
            ),
        ),
    ),
    Mutant(
        name="consumer offset acknowledged before it is committed",
        kind="group",
        breaks="a commit of an offset is answered at once, and lost with the leader",
        published="RocketMQ keeps consumer offsets in a file that is written every five seconds",
        expected=("G5", "answered"),
        patches=(
            SourcePatch(
                module="broker.pull.offsets",
                within="OffsetProcessor.update",
                before="commit(",
                after="""
                from broker.leader.proposer import Proposal

                request.reply(ResponseCode.SUCCESS, None, {"ledgermqTerm": str(self._leadership.term)})
                told = OffsetCommand(group, topic, queue_id, offset)
                self._leadership.proposer.submit(Proposal(commands=[told], on_done=lambda _: None))
                return
                commit(
                """,
            ),
        ),
    ),
)
