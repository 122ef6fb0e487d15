"""The short way of plain sends: one message, to a topic that exists, with nothing special about it.

Place in the data path: `broker.send.send` offers each SEND_MESSAGE_V2 here first. What is taken
becomes the same record, proposal and answer as on the long way, by far fewer steps: a plan for each
topic holds what all of its sends have in common, and the answer is formatted into a constant text.
Nearly all messages of a busy broker come this way.

Invariants: the short way declines, or does what the long one does, byte for byte. It refuses
nothing, and answers nothing but success: all else that may come of a message is answered by
`StoreSend`. A plan is used only while topic and settings are the very objects that it was made of.
"""

from __future__ import annotations

from typing import Final

from broker.config.config import BrokerConfig
from broker.entry.record import PendingRecord, RecordTemplate, host_bytes
from broker.entry.topics import PERM_WRITE, Topic, is_dedupe_topic, is_forbidden_for_sends
from broker.leader.proposer import BusyError, Proposal
from broker.request.desk import Desk
from broker.request.forwarding import is_forwarded
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import Request
from broker.send.duplicates import is_surely_new
from broker.send.envelope import Envelope
from broker.send.store_send import StoreSend
from raft.replicated_log import ProposalStatus
from remoting.protocol.codes import ResponseCode
from remoting.protocol.command import (
    FLAG_RESPONSE,
    LANGUAGE_PYTHON,
    PROTOCOL_VERSION,
    SerializeType,
)
from remoting.protocol.frame import frame_of_json, json_text, language_name
from remoting.records.message import PROPERTIES_SIZE_MAX, tags_code

__all__ = ["PlainSends"]

_PLANS_MAX: Final = 10_000
_TEMPLATES_MAX: Final = 50_000  # of all topics: for each queue, and each client's address
# Shared, since the plans of thousands of topics with as many queues would fill the memory.
_QUEUE_IDS: Final = {str(queue_id): queue_id for queue_id in range(1_024)}
_KEY_SIZE_MAX: Final = 64
_BIRTH_DIGITS_MAX: Final = 15
# Not compressed, or by whatever means: what is no transaction and no inner batch.
_SYS_FLAGS: Final = {str(flag): flag for flag in (0, 0x001, 0x101, 0x201, 0x301)}
_ANSWER: Final = (
    '{{"code":0,"language":{language},"version":{version},"opaque":%d,"flag":{flag},'
    '"extFields":{{"msgId":"{host}%016X","queueId":"%d","queueOffset":"%d",'
    '"MSG_REGION":{region},"TRACE_ON":"true","ledgermqTerm":"%d","transactionId":"%s"}}}}'
)


class _Plan:
    """Values that plain sends to one topic have in common."""

    __slots__ = ("body_size_max", "config", "dedupes", "queue_count", "topic")

    def __init__(self, topic: Topic, config: BrokerConfig) -> None:
        self.topic = topic
        self.config = config
        self.dedupes = topic.dedupes
        self.body_size_max = config.message_size_max
        self.queue_count = max(topic.read_queue_count, topic.write_queue_count)


class PlainSends:
    """The short way of plain sends; it keeps a plan for each topic that had one."""

    def __init__(self, replica: Replica, leadership: Leadership, desk: Desk, added: str) -> None:
        """`added`: the properties, as text, that the broker adds to each message."""
        self._replica = replica
        self._leadership = leadership
        self._desk = desk
        self._added = added
        self._plans: dict[str, _Plan] = {}
        self._templates: dict[tuple[str, str, str, str], RecordTemplate] = {}
        self._answer_config: BrokerConfig | None = None
        self._answer = ""

    def takes(self, request: Request) -> bool:
        """Propose the message and answer once the outcome is known; False, with nothing done, where
        the request is not a plain send."""
        leadership = self._leadership
        if not leadership.ready or leadership.room.want is not None or is_forwarded(request):
            return False
        field = request.fields.get
        name = field("b", "")
        plan = self._plan_of(name)
        if plan is None:
            return False
        queue_text, flag_text, born_text = field("e", ""), field("f", ""), field("g", "")
        queue_id = _QUEUE_IDS.get(queue_text)
        body = request.command.body
        if (
            queue_id is None
            or queue_id >= plan.queue_count
            or flag_text not in _SYS_FLAGS
            or field("h") != "0"
            or field("j", "0") != "0"
            or field("m") == "true"
            or len(body) > plan.body_size_max
            or not (born_text.isascii() and born_text.isdigit())
            or len(born_text) > _BIRTH_DIGITS_MAX
        ):
            return False
        text = field("i", "")
        if len(text) > PROPERTIES_SIZE_MAX:
            return False
        envelope = Envelope(text)
        key = envelope.uniq_key
        if key is None or not envelope.is_plain or not _is_simple(key):
            return False
        born_ms = int(born_text)
        if plan.dedupes and not is_surely_new(self._replica, leadership, key, born_ms=born_ms):
            return False
        envelope.append(self._added)
        encoded = envelope.encoded()
        if len(encoded) > PROPERTIES_SIZE_MAX:
            return False
        kind = name, queue_text, flag_text, request.connection.peer
        template = self._templates.get(kind)
        if template is None or template.born_ms != born_ms:
            template = self._template(kind, template, born_ms)
        record = PendingRecord(
            template,
            body,
            encoded,
            tags_code=tags_code(envelope.tags),
            flag=0,
            dedupe_key=key if plan.dedupes else None,
        )
        send = _PlainSend(self, request, record, key)
        try:
            leadership.proposer.submit(Proposal(records=(record,), on_done=send.on_done))
        except BusyError:
            return False  # the long way says so
        return True

    def _plan_of(self, name: str) -> _Plan | None:
        topic = self._leadership.proposer.topic(name)
        plan = self._plans.get(name)
        config = self._replica.config
        if plan is not None and plan.topic is topic and plan.config is config:
            return plan
        self._plans.pop(name, None)
        if (
            topic is None
            or topic is not self._replica.state.topics.get(name)  # it is being changed
            or not is_dedupe_topic(name)  # retries, dead letters, the system's own
            or is_forbidden_for_sends(name)
            or (topic.order and not config.broker_permission & PERM_WRITE)
        ):
            return None
        if len(self._plans) >= _PLANS_MAX:
            self._plans.clear()
        plan = self._plans[name] = _Plan(topic, config)
        return plan

    def _template(
        self, kind: tuple[str, str, str, str], last: RecordTemplate | None, born_ms: int
    ) -> RecordTemplate:
        """Return the template of this kind and birth; it is the one at hand for the next send."""
        if last is not None:
            template = last.born_at(born_ms)
        else:
            topic, queue_text, flag_text, peer = kind
            template = RecordTemplate(
                topic=topic,
                queue_id=_QUEUE_IDS[queue_text],
                sys_flag=_SYS_FLAGS[flag_text],
                born_ms=born_ms,
                born_host=host_bytes(peer),
                store_host_size=len(self._replica.store_host),
            )
            if len(self._templates) >= _TEMPLATES_MAX:
                self._templates.clear()
        self._templates[kind] = template
        return template

    def answer(
        self, request: Request, record: PendingRecord, key: str, status: ProposalStatus | None
    ) -> None:
        """Answer by what became of the proposal that held the record."""
        command = request.command
        if (
            status is not ProposalStatus.COMMITTED
            or command.is_oneway
            or command.serialize_type != SerializeType.JSON
        ):
            StoreSend(
                self._replica,
                self._leadership,
                self._desk,
                request,
                records=[record],
                commands=[],
                topic=record.topic,
                queue_id=record.queue_id,
                transaction_id=key,
            ).on_done(status)
            return
        header = self._answer_text() % (
            command.opaque,
            record.position,
            record.template.queue_id,
            record.queue_offset,
            self._leadership.term,
            key,
        )
        request.reply(ResponseCode.SUCCESS, frame=frame_of_json(header.encode()))

    def _answer_text(self) -> str:
        config = self._replica.config
        if self._answer_config is not config:
            self._answer_config = config
            self._answer = _ANSWER.format(
                language=json_text(language_name(LANGUAGE_PYTHON)),
                version=PROTOCOL_VERSION,
                flag=FLAG_RESPONSE,
                host=self._replica.store_host_hex,
                region=json_text(config.region).replace("%", "%%"),
            )
        return self._answer


class _PlainSend:
    """One message on its way from the proposal to the answer."""

    __slots__ = ("_key", "_record", "_request", "_sends")

    def __init__(
        self, sends: PlainSends, request: Request, record: PendingRecord, key: str
    ) -> None:
        self._sends = sends
        self._request = request
        self._record = record
        self._key = key

    def on_done(self, status: ProposalStatus | None) -> None:
        self._sends.answer(self._request, self._record, self._key, status)


def _is_simple(key: str) -> bool:
    """Return whether a key stands in a JSON text as it is."""
    return len(key) <= _KEY_SIZE_MAX and key.isascii() and key.isalnum()
