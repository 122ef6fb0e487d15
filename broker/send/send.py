"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE.

Place in the data path: a request becomes records of one proposal; the answer goes out once the
entry that holds them is committed and applied. A half message (TRAN_MSG) is stored in the half
topic instead and answered with the half's own place.

Rules: the order of checks and the codes are RocketMQ's (SendMessageProcessor,
AbstractSendMessageProcessor.msgCheck, TransactionalMessageBridge). Beyond RocketMQ: a UNIQ_KEY that
is stored already is answered with its first place and not stored again (promise G2); batches have
one key per message.
"""

from __future__ import annotations

from typing import Final

from broker.delay.timers import checked_waiting
from broker.delay.waiting import ADDED_SIZE_MAX
from broker.entry.payload import Command
from broker.entry.record import PendingRecord, RecordTemplate
from broker.entry.topics import (
    HALF_TOPIC,
    PERM_INHERIT,
    PERM_WRITE,
    RETRY_PREFIX,
    SYS_FLAG_UNIT,
    TIMER_TOPIC,
    Topic,
    TopicNameError,
    check_topic_name,
    is_forbidden_for_sends,
)
from broker.request.desk import Desk
from broker.request.forwarding import born_host_of
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.send.envelope import Envelope, block_text
from broker.send.plain_send import PlainSends
from broker.send.send_back import topic_of_retry
from broker.send.send_names import FULL, LETTERS, SendNames
from broker.send.store_send import StoreSend
from remoting.errors import RecordError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.records import sys_flag as flags
from remoting.records.message import PROPERTIES_SIZE_MAX, decode_batch_body, tags_code
from remoting.records.property_names import PropertyName

__all__ = ["SendProcessor"]

_BATCH_COUNT_MAX: Final = 4_096
_UNIQ_KEY_SIZE_MAX: Final = 1_024  # an entry's table holds them; clients' have 32
_HEADING_KEY_SIZE_MAX: Final = 128  # a batch's: each of its messages without one gets it
_BATCH_KEYS_SIZE_MAX: Final = 1 << 20  # of all keys of a batch, which stand in its entry once more

_MESSAGE_ILLEGAL: Final = (
    "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit {}B, msg properties length limit 32KB."
)


class SendProcessor:
    """Handler of sends: checks a request and turns it into records."""

    def __init__(self, replica: Replica, leadership: Leadership, desk: Desk) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk
        self._added = block_text(
            {
                PropertyName.MSG_REGION: replica.config.region,
                PropertyName.TRACE_ON: "true",
                PropertyName.CLUSTER: replica.config.cluster,
            }
        )
        self._random = desk.random
        self._plain = PlainSends(replica, leadership, desk, self._added)

    def handle(self, request: Request) -> None:
        """Store the messages, and answer when the outcome is known. Raises RefusedError."""
        if request.command.code == RequestCode.SEND_MESSAGE_V2 and self._plain.takes(request):
            return
        self.store(request)

    def store(self, request: Request) -> None:
        """Do what `handle` does, but never on the short way, which encodes answers itself: every
        answer goes through `request.reply`. Raises RefusedError."""
        code = request.command.code
        replica, leadership = self._replica, self._leadership
        leadership.require_room()
        names = FULL if code == RequestCode.SEND_MESSAGE else LETTERS
        topic_name = request.text(names.topic)
        queue_id = request.integer(names.queue_id)
        commands: list[Command] = []
        retried = topic_of_retry(replica, leadership, request, names, topic_name, commands=commands)
        is_dead = retried is not None and retried.name != topic_name
        topic = retried or self._topic_for(request, names, topic_name, commands)
        if retried is not None and (is_dead or commands):
            queue_id = 0  # the sender does not know the queues there, or there were none
        if topic.order and not replica.config.broker_permission & PERM_WRITE:
            # Sends to other topics are accepted until the producers' routes show the permission: no
            # client need see an error.
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{replica.config.advertised}] sending message is forbidden",
            )
        if queue_id < 0:
            queue_id = self._random.randrange(max(1, topic.write_queue_count))
        elif queue_id >= max(topic.read_queue_count, topic.write_queue_count):
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, "
                f"{topic_name} has {topic.write_queue_count} queues",
            )
        if len(request.command.body) > replica.config.message_size_max:
            raise self._illegal()
        if code == RequestCode.SEND_BATCH_MESSAGE or request.fields.get(names.batch) == "true":
            records, key = self._batch_records(request, names, topic, queue_id)
        else:
            record, key = self._record(request, names, topic, queue_id, is_dead=is_dead)
            records = [record]
        StoreSend(
            replica,
            leadership,
            self._desk,
            request,
            records=records,
            commands=commands,
            topic=topic.name,
            queue_id=queue_id,
            transaction_id=key,
        ).start()

    # Checks ------------------------------------------------------------------------------------

    def _topic_for(
        self, request: Request, names: SendNames, name: str, commands: list[Command]
    ) -> Topic:
        """Return the topic; where it is to be created, its command is added to `commands`. Raises
        RefusedError."""
        topic = self._leadership.proposer.topic(name)
        if is_forbidden_for_sends(name):
            raise RefusedError(
                ResponseCode.NO_PERMISSION, f"sending message to topic[{name}] is forbidden."
            )
        if topic is not None:
            return topic
        try:
            check_topic_name(name)
        except TopicNameError as error:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, f"{error}.") from error
        default = self._leadership.proposer.topic(request.fields.get(names.default_topic) or "")
        if (
            not self._replica.config.auto_create_topic
            or default is None
            or not default.perm & PERM_INHERIT
        ):
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!"
            )
        if len(self._replica.state.topics) >= self._replica.state.limits.topics_max:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, "this broker has its most topics already")
        wanted = request.integer_or(names.default_queue_count, 4)
        count = max(1, min(wanted, default.write_queue_count))
        topic = Topic(
            name=name,
            read_queue_count=count,
            write_queue_count=count,
            perm=default.perm & ~PERM_INHERIT,
            sys_flag=SYS_FLAG_UNIT if request.boolean_or(names.unit_mode, False) else 0,
        )
        commands.append(topic.command())
        return topic

    def _illegal(self) -> RefusedError:
        return RefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            _MESSAGE_ILLEGAL.format(self._replica.config.message_size_max),
        )

    # Records -----------------------------------------------------------------------------------

    def _record(
        self, request: Request, names: SendNames, topic: Topic, queue_id: int, *, is_dead: bool
    ) -> tuple[PendingRecord, str]:
        """Build the record; returns it and its UNIQ_KEY. Raises RefusedError."""
        text = request.fields.get(names.properties) or ""
        if len(text) > PROPERTIES_SIZE_MAX:
            raise self._illegal()  # before anything reads all of it
        envelope = Envelope(text)
        waiting = (
            None
            if envelope.delay is None or is_dead
            else checked_waiting(self._replica, envelope.pairs())
        )
        is_half = envelope.is_half and not (
            # A retry that an old client sends by itself, with every property of the message.
            envelope.delay == PropertyName.DELAY and request.integer_or(names.reconsume, 0) > 0
        )
        envelope.drop_receipt()
        key = envelope.uniq_key
        if key is None:
            key = self._desk.unique_ids.next_id(self._replica.clock_ms())
            envelope.append(block_text({PropertyName.UNIQ_KEY: key}))
        elif len(key) > _UNIQ_KEY_SIZE_MAX:
            raise _too_long(key)
        envelope.append(self._added)
        sys_flag = request.integer(names.sys_flag)
        if sys_flag & flags.INNER_BATCH:
            raise self._illegal()  # there are no BatchCQ topics
        if waiting is not None or is_half:
            envelope.append(
                block_text(
                    {PropertyName.REAL_TOPIC: topic.name, PropertyName.REAL_QUEUE_ID: str(queue_id)}
                )
            )
        place = topic.name, queue_id
        if envelope.is_half:
            sys_flag = flags.with_transaction_type(sys_flag, flags.TRANSACTION_NONE)
        if is_half:  # its delay begins with its commit
            self._refuse_half()
            place = HALF_TOPIC, 0
        elif sys_flag & flags.TRANSACTION_MASK:
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"sysFlag {sys_flag} marks a transactional message, property TRAN_MSG does not",
            )
        elif waiting is not None:
            place = waiting.topic, waiting.queue_id
            envelope.append(block_text(waiting.properties))
        encoded = envelope.encoded()
        size_max = PROPERTIES_SIZE_MAX if waiting is None else PROPERTIES_SIZE_MAX - ADDED_SIZE_MAX
        if len(encoded) > size_max:
            raise self._illegal()
        template = self._template(
            request,
            names,
            topic=place[0],
            queue_id=place[1],
            sys_flag=sys_flag,
        )
        record = PendingRecord(
            template,
            request.command.body,
            encoded,
            tags_code=tags_code(envelope.tags),
            flag=_int32(request, names.flag),
            dedupe_key=key if topic.dedupes else None,
        )
        if place[0] == TIMER_TOPIC and waiting is not None and waiting.deliver_ms is not None:
            record.tags_code = waiting.deliver_ms  # the time of delivery stands there
        return record, key

    def _batch_records(
        self, request: Request, names: SendNames, topic: Topic, queue_id: int
    ) -> tuple[list[PendingRecord], str | None]:
        """Build the records; returns them and the UNIQ_KEY of the batch itself, if it has one.

        Raises RefusedError.
        """
        heading = _batch_heading(request, names)
        template = self._template(
            request,
            names,
            topic=topic.name,
            queue_id=queue_id,
            sys_flag=request.integer(names.sys_flag),
        )
        try:
            items = decode_batch_body(request.command.body, count_max=_BATCH_COUNT_MAX)
        except RecordError as error:
            raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, f"batch: {error}") from error
        if not items:
            raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, "a batch of no messages")
        dedupes = topic.dedupes
        records: list[PendingRecord] = []
        for at, (body, properties, flag) in enumerate(items):
            if len(properties) > PROPERTIES_SIZE_MAX:
                raise self._illegal()
            try:
                envelope = Envelope(properties.decode())
            except UnicodeDecodeError as error:
                raise RefusedError(
                    ResponseCode.MESSAGE_ILLEGAL, f"batch: properties of message {at}: {error}"
                ) from error
            if envelope.delay is not None:
                raise RefusedError(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"a batch can't hold delayed messages (property {envelope.delay})",
                )
            if envelope.is_half:
                raise RefusedError(
                    ResponseCode.MESSAGE_ILLEGAL, "a batch can't hold transactional messages"
                )
            envelope.drop_receipt()
            key = envelope.uniq_key
            if key is None and heading.uniq_key is not None:
                key = f"{heading.uniq_key}#{at}"
            if key is not None and len(key) > _UNIQ_KEY_SIZE_MAX:
                raise _too_long(key)
            records.append(
                PendingRecord(
                    template,
                    body,
                    envelope.encoded(),
                    tags_code=tags_code(envelope.tags) if envelope.tags else 0,
                    flag=flag,
                    dedupe_key=key if dedupes else None,
                )
            )
        keys = [record.dedupe_key for record in records if record.dedupe_key is not None]
        if sum(map(len, keys)) > _BATCH_KEYS_SIZE_MAX:
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"UNIQ_KEYs of a batch with more than {_BATCH_KEYS_SIZE_MAX} characters together",
            )
        if len(set(keys)) < len(keys):
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL, "two messages of the batch have one UNIQ_KEY"
            )
        return records, heading.uniq_key

    def _template(
        self, request: Request, names: SendNames, *, topic: str, queue_id: int, sys_flag: int
    ) -> RecordTemplate:
        return RecordTemplate(
            topic=topic,
            queue_id=queue_id,
            sys_flag=sys_flag & 0x7FFFFFFF,
            born_ms=request.integer(names.born),
            born_host=born_host_of(request),
            store_host_size=len(self._replica.store_host),
            reconsume_times=max(-1, min(request.integer_or(names.reconsume, 0), 0x7FFFFFFF)),
        )

    def _refuse_half(self) -> None:
        if self._replica.config.reject_transactions:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._replica.config.group}] sending transaction message "
                "is forbidden",
            )
        state = self._replica.state
        if len(state.halves) >= state.limits.halves_max:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"{len(state.halves)} transactions are undecided already",
            )


def _batch_heading(request: Request, names: SendNames) -> Envelope:
    """Read the properties of a batch as a whole. Raises RefusedError for those that no batch may
    have."""
    heading = Envelope(request.fields.get(names.properties) or "")
    topic, sys_flag = request.text(names.topic), request.integer(names.sys_flag)
    if heading.uniq_key is not None and len(heading.uniq_key) > _HEADING_KEY_SIZE_MAX:
        raise _too_long(heading.uniq_key, _HEADING_KEY_SIZE_MAX)
    if topic.startswith(RETRY_PREFIX):
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {topic}"
        )
    if heading.delay is not None or sys_flag & (flags.TRANSACTION_MASK | flags.INNER_BATCH):
        raise RefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a batch is neither delayed nor transactional (sysFlag {sys_flag}, "
            f"property {heading.delay})",
        )
    return heading


def _too_long(key: str, size_max: int = _UNIQ_KEY_SIZE_MAX) -> RefusedError:
    return RefusedError(
        ResponseCode.MESSAGE_ILLEGAL,
        f"a UNIQ_KEY of {len(key)} characters; at most {size_max} are allowed",
    )


def _int32(request: Request, name: str) -> int:
    value = request.integer(name)
    if not -(1 << 31) <= value < 1 << 31:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR, f"the field {name} is {value}, beyond 32 bits"
        )
    return value
