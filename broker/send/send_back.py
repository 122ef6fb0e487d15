"""CONSUMER_SEND_MSG_BACK: a consumer could not process a message and wants it again, later.

Place in the data path: the message is stored anew, delayed, for `%RETRY%group`, with its count of
attempts raised; after the last attempt, or at delay level -1, it goes to `%DLQ%group`. Rules:
RocketMQ AbstractSendMessageProcessor.consumerSendMsgBack. The same rule for retries that a client
sends by itself is in `topic_of_retry`.
"""

from __future__ import annotations

from typing import Final

from broker.entry.levels import DELAY_LEVEL_MAX, schedule_queue_id
from broker.entry.payload import Command
from broker.entry.record import PendingRecord
from broker.entry.record_copy import copied_record
from broker.entry.topics import (
    DLQ_PREFIX,
    PERM_WRITE,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYS_FLAG_UNIT_SUB,
    Topic,
    TopicNameError,
    check_group_name,
)
from broker.request.commit import commit
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.request.stored_topic import topic_sent_back
from broker.send.send_names import SendNames
from remoting.errors import RecordError
from remoting.protocol.codes import ResponseCode
from remoting.protocol.headers import ConsumerSendMsgBackRequestHeader
from remoting.records.message import (
    MessageRecord,
    decode_record,
    encode_properties,
    offset_msg_id,
)
from remoting.records.message_id import split_host
from remoting.records.property_names import PropertyName

__all__ = ["SendBackProcessor", "retry_queue_count", "topic_of_retry"]

_RETRIES_DEFAULT: Final = 16
_RETRY_QUEUES_MAX: Final = 1_024
_FIRST_RETRY_LEVEL: Final = 3  # 10 seconds


class SendBackProcessor:
    """Handler of messages that consumers send back."""

    def __init__(self, replica: Replica, leadership: Leadership, desk: Desk) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk

    def handle(self, header: ConsumerSendMsgBackRequestHeader, request: Request) -> None:
        """Store the copy, and answer once it is committed. Raises RefusedError."""
        replica, leadership, group = self._replica, self._leadership, header.group
        leadership.require_room()
        try:
            check_group_name(group)
        except TopicNameError as error:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, f"{error}.") from error
        if not replica.config.broker_permission & PERM_WRITE:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{replica.config.advertised}] sending message is forbidden",
            )
        record = self._stored(header.offset)
        topic_read = topic_sent_back(record, group)
        if topic_read is not None:
            request.require(topic_read)
        if retry_queue_count(replica, group) <= 0:
            request.reply(ResponseCode.SUCCESS, "the group wants no retries")
            return
        level = header.delay_level
        limit = -1 if header.max_reconsume_times is None else header.max_reconsume_times
        commands: list[Command] = []
        is_dead = level < 0 or _dead_letter_due(replica, group, record.reconsume_times + 1, limit)
        topic = _group_topic(
            replica,
            leadership,
            DLQ_PREFIX if is_dead else RETRY_PREFIX,
            group,
            commands,
            sys_flag=SYS_FLAG_UNIT_SUB if header.unit_mode else 0,
        )
        if not topic.writable:
            raise RefusedError(
                ResponseCode.NO_PERMISSION, f"the topic[{topic.name}] sending message is forbidden"
            )
        if level == 0:
            level = _FIRST_RETRY_LEVEL + record.reconsume_times
        pending = self._copy(record, topic, 0 if is_dead else min(level, DELAY_LEVEL_MAX))

        def answer() -> None:
            self._desk.stats.sent_back(
                group, record.property_map().get(PropertyName.RETRY_TOPIC, record.topic)
            )
            request.reply(ResponseCode.SUCCESS)

        commit(leadership, request, commands, records=[pending], answer=answer)

    def _stored(self, position: int) -> MessageRecord:
        try:
            return decode_record(self._replica.committed_record(position))
        except (LookupError, RecordError) as error:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {position}: {error}"
            ) from error

    def _copy(self, record: MessageRecord, topic: Topic, level: int) -> PendingRecord:
        replica = self._replica
        queue_id = self._desk.random.randrange(topic.write_queue_count)
        properties = record.property_map()
        for name in (
            PropertyName.DELAY,
            PropertyName.POP_CK,
            PropertyName.REAL_TOPIC,
            PropertyName.REAL_QUEUE_ID,
        ):
            properties.pop(name, None)
        properties[PropertyName.WAIT] = "false"  # a consumer sees it, as with RocketMQ
        properties.setdefault(PropertyName.RETRY_TOPIC, record.topic)
        properties.setdefault(
            PropertyName.ORIGIN_MESSAGE_ID,
            offset_msg_id(*split_host(replica.store_address), record.physical_offset),
        )
        if topic.name.startswith(DLQ_PREFIX):
            properties[PropertyName.DLQ_ORIGIN_TOPIC] = properties[PropertyName.RETRY_TOPIC]
            properties[PropertyName.DLQ_ORIGIN_MESSAGE_ID] = properties[
                PropertyName.ORIGIN_MESSAGE_ID
            ]
        if level:
            properties |= {
                PropertyName.DELAY: str(level),
                PropertyName.REAL_TOPIC: topic.name,
                PropertyName.REAL_QUEUE_ID: str(queue_id),
            }
        try:
            encoded = encode_properties(properties)
        except RecordError as error:
            raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        return copied_record(
            record,
            topic=SCHEDULE_TOPIC if level else topic.name,
            queue_id=schedule_queue_id(level) if level else queue_id,
            store_host_size=len(replica.store_host),
            properties=encoded,
            tags=properties.get(PropertyName.TAGS),
            reconsume_times=record.reconsume_times + 1,
        )


def _dead_letter_due(replica: Replica, group: str, attempts: int, limit: int) -> bool:
    """Return whether a message that was tried `attempts` times goes to the dead letters.

    `limit` is the request's own maximum; below 0 the group's counts.
    """
    if limit < 0:
        limit = replica.state.groups.get(group, {}).get("retryMaxTimes", _RETRIES_DEFAULT)
        limit = _RETRIES_DEFAULT if limit < 0 else limit
    return attempts > limit


def retry_queue_count(replica: Replica, group: str) -> int:
    """Return the number of queues that the group's retry topic is created with; 0 and below: the
    group wants no retries."""
    count = replica.state.groups.get(group, {}).get("retryQueueNums", 1)
    return min(int(count), _RETRY_QUEUES_MAX)


def _group_topic(
    replica: Replica,
    leadership: Leadership,
    prefix: str,
    group: str,
    commands: list[Command],
    *,
    sys_flag: int = 0,
) -> Topic:
    """Return a group's retry or dead-letter topic; where there is none, `commands` creates it.
    Raises RefusedError."""
    name = f"{prefix}{group}"
    topic = leadership.proposer.topic(name)
    if topic is None:
        if len(replica.state.topics) >= replica.state.limits.topics_max:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, "this broker has its most topics already")
        count = 1 if prefix == DLQ_PREFIX else max(1, retry_queue_count(replica, group))
        topic = Topic(name=name, read_queue_count=count, write_queue_count=count, sys_flag=sys_flag)
        commands.append(topic.command())
    return topic


def topic_of_retry(
    replica: Replica,
    leadership: Leadership,
    request: Request,
    names: SendNames,
    topic: str,
    *,
    commands: list[Command],
) -> Topic | None:
    """Return the topic of a retry that a client sends by itself, after its last attempt that of the
    dead letters; None for other messages. It needs no default topic: its consumers are there.

    Raises RefusedError.
    """
    if not topic.startswith(RETRY_PREFIX):
        return None
    group = topic.removeprefix(RETRY_PREFIX)
    try:
        check_group_name(group)
    except TopicNameError as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"{error}.") from error
    attempts = request.integer_or(names.reconsume, 0)
    limit = request.integer_or(names.reconsume_max, -1)
    # An orderly consumer retries in place: a message that it sends away has had its attempts.
    is_ordered = leadership.locks.is_ordered(
        replica.state.queue_owners, group, replica.monotonic_ms()
    )
    if not is_ordered and not _dead_letter_due(replica, group, attempts, limit):
        is_unit = request.boolean_or(names.unit_mode, False)
        sys_flag = SYS_FLAG_UNIT_SUB if is_unit else 0
        return _group_topic(replica, leadership, RETRY_PREFIX, group, commands, sys_flag=sys_flag)
    return _group_topic(replica, leadership, DLQ_PREFIX, group, commands)
