"""Bugs planted into running brokers: sends and what they are answered with."""

from __future__ import annotations

from campaigns.mutants.live.live_mutant import LiveMutant
from campaigns.mutants.source_patch import SourcePatch

__all__ = ["SENDING_MUTANTS"]

# Plain sends are declined by their short way, which it may do: they meet the bugs of the long one.
_LONG_WAY = SourcePatch(
    module="broker.send.plain_send",
    within="PlainSends.takes",
    before="leadership = self._leadership",
    after="leadership = self._leadership\nreturn False",
)
_STOPS_SERVING = (
    _LONG_WAY,
    SourcePatch(
        module="broker.send.send",
        within="SendProcessor.store",
        before="leadership.require_room()",
        after="""
        leadership.require_room()
        is_later = self._leadership.term > 1
        if is_later and (planted("stops serving") or planted("stops serving, with limits")):
            raise RefusedError(ResponseCode.SYSTEM_BUSY, "busy for ever")
        """,
    ),
)

_PROPOSES = """
self._log.propose_then(partial(self._encode, batch), partial(self._on_result, batch))
"""

SENDING_MUTANTS = (
    LiveMutant(
        name="answered before fsync and majority",
        breaks="what is appended is promised at once, and nothing is ever fsynced",
        expected=("A4", "A20", "A1"),
        seeds=10,
        broker=(
            SourcePatch(
                module="broker.leader.proposer",
                within="Proposer._flush",
                before=_PROPOSES,
                after="""
                plain = [one for one in batch if not one.commands]
                if not plain or not planted("answered before fsync and majority"):
                    plain = []
                left = [one for one in batch if one not in plain]
                self._log.propose_then(partial(self._encode, batch), partial(self._on_result, left))
                for one in plain:
                    self._finish(one, ProposalStatus.COMMITTED)
                """,
            ),
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog.sync",
                before="tail.file.sync()",
                after="pass",
            ),
            SourcePatch(
                module="raft.log.segment_log",
                within="SegmentLog.begin_sync",
                before="not self.begins_syncs",
                after="True",
            ),
        ),
    ),
    LiveMutant(
        name="stops serving",
        breaks="leaders behind the first refuse all sends; nothing is measured "
        "against, since the run has no limits",
        expected=("A16",),
        verdict="unknown",
        has_limits=False,
        has_transactions=False,  # a decision of a half that is there already is service, too
        broker=_STOPS_SERVING,
    ),
    LiveMutant(
        name="stops serving, with limits",
        breaks="leaders behind the first refuse all sends",
        expected=("A16",),
        broker=_STOPS_SERVING,
    ),
    LiveMutant(
        name="slow to serve again",
        breaks="a new leader refuses sends for as long as it takes to get 1,500 of them",
        expected=("A16",),
        broker=(
            _LONG_WAY,
            SourcePatch(
                module="broker.send.send",
                within="SendProcessor.store",
                before="leadership.require_room()",
                after="""
                leadership.require_room()
                if planted("slow to serve again"):
                    self.__dict__.setdefault("_refused", [0])[0] += 1
                    if self._refused[0] < 1_500 and self._leadership.term > 1:
                        raise RefusedError(ResponseCode.SYSTEM_BUSY, "warming up")
                """,
            ),
        ),
    ),
    LiveMutant(
        name="send acknowledged when proposed",
        breaks="a third of the plain sends are answered before their entry is committed",
        expected=("A20",),
        broker=(
            SourcePatch(
                module="broker.leader.proposer",
                within="Proposer._flush",
                before=_PROPOSES,
                after="""
                plain = []
                if planted("send acknowledged when proposed", every=3):
                    plain = [
                        one for one in batch if not one.commands and len(one.records) == 1
                    ]
                left = [one for one in batch if one not in plain]
                self._log.propose_then(partial(self._encode, batch), partial(self._on_result, left))
                for one in plain:
                    self._finish(one, ProposalStatus.COMMITTED)
                """,
            ),
        ),
    ),
    LiveMutant(
        name="batch acknowledged when proposed",
        breaks="a batch of messages is answered before its entry is committed",
        expected=("A20",),
        broker=(
            SourcePatch(
                module="broker.send.store_send",
                within="StoreSend._propose",
                before="""
                self._leadership.proposer.submit(
                    Proposal(records=self._records, commands=self._commands, on_done=self.on_done)
                )
                """,
                after="""
                    proposal = Proposal(
                        records=self._records, commands=self._commands, on_done=self.on_done
                    )
                    self._leadership.proposer.submit(proposal)
                    if len(self._records) > 1 and planted("batch acknowledged when proposed"):
                        proposal.on_done = lambda _: None
                        self._leadership.proposer._flush()
                        if self._records[0].queue_offset >= 0:
                            self.on_done(ProposalStatus.COMMITTED)
                        else:
                            proposal.on_done = self.on_done
                """,
            ),
        ),
    ),
    LiveMutant(
        name="refused, and stored all the same",
        breaks="a send is told that its message is illegal, and the message is in the log",
        expected=("A19", "A3"),
        broker=(
            _LONG_WAY,
            SourcePatch(
                module="broker.send.store_send",
                within="StoreSend.on_done",
                before="code = store_code_of(status)",
                after="""
                code = store_code_of(status)
                if (
                    code is not None
                    and self._records[0].topic != HALF_TOPIC
                    and planted("refused, and stored all the same", every=40)
                ):
                    self._request.refuse(
                        RefusedError(ResponseCode.MESSAGE_ILLEGAL, "the message is illegal")
                    )
                    return
                """,
            ),
        ),
    ),
    LiveMutant(
        name="half refused, and stored all the same",
        breaks="a half is told that it is illegal, and stands in the half topic",
        expected=("A19",),
        broker=(
            SourcePatch(
                module="broker.send.store_send",
                within="StoreSend.on_done",
                before="code = store_code_of(status)",
                after="""
                code = store_code_of(status)
                if (
                    code is not None
                    and self._records[0].topic == HALF_TOPIC
                    and planted("half refused, and stored all the same", every=20)
                ):
                    self._request.refuse(
                        RefusedError(ResponseCode.MESSAGE_ILLEGAL, "the message is illegal")
                    )
                    return
                """,
            ),
        ),
    ),
    LiveMutant(
        name="acknowledged, and never proposed",
        breaks="one send in fifty is answered with a place that nothing is stored at",
        expected=("A4", "A1", "A20"),
        broker=(
            _LONG_WAY,
            SourcePatch(
                module="broker.send.store_send",
                within="StoreSend._propose",
                before="""
                try:
                    self._leadership.proposer.submit(
                """,
                after="""
                record = self._records[0]
                if record.topic != HALF_TOPIC and planted(
                    "acknowledged, and never proposed", every=50
                ):
                    key = (record.topic, record.queue_id)
                    record.queue_offset = self._replica.state.next_offset(*key)
                    record.position = 0
                    self.on_done(ProposalStatus.COMMITTED)
                    return
                try:
                    self._leadership.proposer.submit(
                """,
            ),
        ),
    ),
    LiveMutant(
        name="another place told than stored at",
        breaks="one answer in thirty names the offset behind the message's own",
        expected=("A1",),
        broker=(
            _LONG_WAY,
            SourcePatch(
                module="broker.send.store_send",
                within="StoreSend._answer",
                before='"queueOffset": str(places[0].queue_offset),',
                after="""
                "queueOffset": str(
                    places[0].queue_offset
                    + (
                        places[0].topic not in _WAITING_TOPICS
                        and planted("another place told than stored at", every=30)
                    )
                ),
                """,
            ),
        ),
    ),
    LiveMutant(
        name="body cut in half",
        breaks="every body is stored in half",
        expected=("A18",),
        broker=(
            _LONG_WAY,
            SourcePatch(
                module="broker.send.send",
                within="SendProcessor._record",
                before="""
                template,
                request.command.body,
                encoded,
                """,
                after="""
                template,
                request.command.body[: len(request.command.body) // 2]
                if planted("body cut in half")
                else request.command.body,
                encoded,
                """,
            ),
        ),
    ),
    LiveMutant(
        name="property of the user lost",
        breaks="one message in thirty loses a property of its sender",
        expected=("A18",),
        broker=(
            _LONG_WAY,
            SourcePatch(
                module="broker.send.send",
                within="SendProcessor._record",
                before="encoded = envelope.encoded()",
                after="""
                if planted("property of the user lost", every=30):
                    envelope._text = envelope._text.replace("u_number\\x01", "x_number\\x01")
                encoded = envelope.encoded()
                """,
            ),
        ),
    ),
    LiveMutant(
        name="bodies of a batch in the wrong order",
        breaks="the messages of a batch get each other's bodies",
        expected=("A18",),
        broker=(
            SourcePatch(
                module="broker.send.send",
                within="SendProcessor._batch_records",
                before="if not items:",
                after="""
                if len(items) > 1 and planted("bodies of a batch in the wrong order"):
                    items = [
                        (other[0], *item[1:])
                        for item, other in zip(items, reversed(items), strict=True)
                    ]
                if not items:
                """,
            ),
        ),
    ),
    LiveMutant(
        name="dedupe window ignored",
        breaks="whatever comes again is stored again",
        expected=("A2",),
        broker=(
            SourcePatch(
                module="broker.send.duplicates",
                within="stored_place",
                before="state = replica.state",
                after="""
                if planted("dedupe window ignored"):
                    return None
                state = replica.state
                """,
            ),
        ),
    ),
    LiveMutant(
        name="message that nobody sent",
        breaks="a broker stores a message of its own making, now and then",
        expected=("A11",),
        broker=(
            _LONG_WAY,
            SourcePatch(
                module="broker.send.store_send",
                within="StoreSend._propose",
                before="""
                try:
                    self._leadership.proposer.submit(
                """,
                after="""
                record = self._records[0]
                if record.topic != HALF_TOPIC and planted("message that nobody sent", every=60):
                    ghost = PendingRecord(
                        record.template,
                        b"boo",
                        record.properties.replace(b"lmq_value\\x01", b"lmq_value\\x01ghost-"),
                        tags_code=record.tags_code,
                        flag=0,
                    )
                    self._leadership.proposer.submit(
                        Proposal(records=[ghost], on_done=lambda _: None)
                    )
                try:
                    self._leadership.proposer.submit(
                """,
            ),
        ),
    ),
    LiveMutant(
        name="half that nobody sent",
        breaks="a half is stored once more, under another value",
        expected=("A11",),
        broker=(
            SourcePatch(
                module="broker.send.store_send",
                within="StoreSend._propose",
                before="""
                try:
                    self._leadership.proposer.submit(
                """,
                after="""
                record = self._records[0]
                if record.topic == HALF_TOPIC and planted("half that nobody sent", every=20):
                    ghost = PendingRecord(
                        record.template,
                        record.body,
                        record.properties.replace(b"lmq_value\\x01", b"lmq_value\\x01ghost-"),
                        tags_code=record.tags_code,
                        flag=record.flag,
                    )
                    self._leadership.proposer.submit(
                        Proposal(records=[ghost], on_done=lambda _: None)
                    )
                try:
                    self._leadership.proposer.submit(
                """,
            ),
        ),
    ),
    LiveMutant(
        name="half shown before its decision",
        breaks="a half's message appears in its real topic at once",
        expected=("T1",),
        broker=(
            SourcePatch(
                module="broker.send.send",
                within="SendProcessor.store",
                before="records = [record]",
                after="""
                records = [record]
                if record.topic == HALF_TOPIC and planted(
                    "half shown before its decision", every=15
                ):
                    from broker.leader.proposer import Proposal
                    shown = PendingRecord(
                        self._template(
                            request, names, topic=topic.name, queue_id=queue_id, sys_flag=0
                        ),
                        record.body,
                        record.properties,
                        tags_code=record.tags_code,
                        flag=record.flag,
                    )
                    self._leadership.proposer.submit(Proposal(records=[shown], on_done=lambda _: None))
                """,
            ),
        ),
    ),
    LiveMutant(
        name="not fsynced in time, told as stored",
        breaks="a broker answers FLUSH_DISK_TIMEOUT, and the application takes it for done",
        expected=("S7",),
        broker=(
            _LONG_WAY,
            SourcePatch(
                module="broker.send.store_send",
                within="StoreSend.on_done",
                before="code = store_code_of(status)",
                after="""
                code = store_code_of(status)
                if code is not None and planted("not fsynced in time, told as stored", every=30):
                    code = ResponseCode.FLUSH_DISK_TIMEOUT
                """,
            ),
        ),
        laboratory=(
            SourcePatch(
                module="chaos.workload.plain_sender",
                within="PlainSender._send",
                before="acked = result.status is SendStatus.SEND_OK",
                after="acked = True",
            ),
            SourcePatch(
                module="chaos.workload.transactional_sender",
                within="_Process._send_half_as",
                before='acked = result.status.value == "SEND_OK"',
                after="acked = True",
            ),
        ),
    ),
)
