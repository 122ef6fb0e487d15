"""Conversion of stored records to the messages that a consumer receives.

Place in the data path: consumers decode the body of a pull's answer here; the transaction producer
that of a check request.

Invariants:
- Bodies are decompressed. What a producer wrote never makes a record unreadable, since it would
  fail every answer that holds it: a body that can't be decompressed is delivered as it is stored,
  with `body_error`, and bytes of the properties that are not UTF-8 are replaced.
- A message read from `%RETRY%group` shows its original topic, while its queue stays the one it was
  read from.

Source: RocketMQ PullAPIWrapper, MessageDecoder (its consumers skip a record whose body can't be
decompressed, and all that follow in the same answer).
"""

from __future__ import annotations

import logging
from collections.abc import Container

from client.errors import MalformedAnswerError
from client.message import DeliveredMessage, MessageQueue, PropertyName
from client.namespace import NO_NAMESPACE, Namespace
from remoting.errors import RecordError
from remoting.protocol.group_topics import RETRY_PREFIX
from remoting.records.message import MessageRecord, decode_records, decompress_body
from remoting.records.properties import parse_properties_text

__all__ = ["delivered_message", "delivered_messages", "matches_tags"]

_log = logging.getLogger(__name__)


def delivered_messages(
    body: bytes, queue: MessageQueue, address: str, namespace: Namespace = NO_NAMESPACE
) -> list[DeliveredMessage]:
    """Decode all messages of a pull's body, in order. Raises MalformedAnswerError."""
    try:
        return [delivered_message(record, queue, namespace) for record in decode_records(body)]
    except RecordError as error:
        raise MalformedAnswerError(f"records from {address} for {queue}: {error}") from error


def delivered_message(
    record: MessageRecord, queue: MessageQueue, namespace: Namespace = NO_NAMESPACE
) -> DeliveredMessage:
    """Convert one record, whatever its producer wrote."""
    properties = parse_properties_text(record.properties.decode(errors="replace"))
    topic = record.topic
    if topic.startswith(RETRY_PREFIX):
        topic = properties.get(PropertyName.RETRY_TOPIC, topic)
    offset_msg_id = record.offset_msg_id
    body, body_error = _inflated(record.body, record.sys_flag)
    if body_error is not None:
        _log.warning(
            "the body of the message at %d of %s is delivered as it is stored: %s",
            record.queue_offset,
            queue,
            body_error,
        )
    return DeliveredMessage(
        topic=namespace.unwrap(topic),
        queue=queue,
        queue_offset=record.queue_offset,
        body=body,
        properties=properties,
        uniq_key=properties.get(PropertyName.UNIQ_KEY, offset_msg_id),
        offset_msg_id=offset_msg_id,
        physical_offset=record.physical_offset,
        born_timestamp_ms=record.born_timestamp_ms,
        store_timestamp_ms=record.store_timestamp_ms,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        body_error=body_error,
    )


def _inflated(body: bytes, sys_flag: int) -> tuple[bytes, str | None]:
    """Return the body decompressed, or as it is stored and why it can't be decompressed."""
    try:
        return decompress_body(body, sys_flag), None
    except RecordError as error:
        return body, str(error)


def matches_tags(message: DeliveredMessage, tags: Container[str | None]) -> bool:
    """Return whether the message has one of `tags`. The broker compares hashes; this is exact."""
    return message.tags in tags
