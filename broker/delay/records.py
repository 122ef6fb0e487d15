"""A delayed message as its consumers get it: under its real topic, without its delay.

Place in the data path: built by the deliveries of `broker.delay`, stored by
`broker.leader.proposer`. It has no dedupe key: the key counted when the delayed message was stored.
Messages of a topic that was deleted meanwhile are not delivered. Sources: RocketMQ
ScheduleMessageService.messageTimeUp, TimerMessageStore.convertMessage.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.entry.record import PendingRecord
from broker.entry.record_copy import copied_record
from broker.request.deleted_topics import is_of_deleted_topic
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.stored_topic import real_place
from remoting.records.message import MessageRecord, decode_record, encode_properties
from remoting.records.property_names import PropertyName

__all__ = ["delivered_record"]


def delivered_record(
    replica: Replica,
    leadership: Leadership,
    stored: bytes,
    change: Callable[[MessageRecord, dict[str, str]], None],
) -> PendingRecord | None:
    """Build the message to deliver; `change` edits its properties. None where its topic was
    deleted. Raises RefusedError while that is being deleted."""
    record = decode_record(stored)
    properties = record.property_map()
    topic, queue_id = real_place(properties)
    if is_of_deleted_topic(replica, leadership, topic, record.physical_offset, properties):
        return None
    change(record, properties)
    return copied_record(
        record,
        topic=topic,
        queue_id=queue_id,
        store_host_size=len(replica.store_host),
        properties=encode_properties(properties),
        tags=properties.get(PropertyName.TAGS),
    )
