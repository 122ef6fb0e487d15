"""The records that the life of a transaction writes: final message, op record, discarded half.

Place in the data path: made by the END_TRANSACTION processor and the check-back, stored by
`broker.leader.proposer`. Layouts and properties: RocketMQ
EndTransactionProcessor.endMessageTransaction, TransactionalMessageServiceImpl (op record: TAGS `d`,
body: half queue offsets, comma after each).
"""

from __future__ import annotations

from typing import Final

from broker.delay.timers import waiting_when_committed
from broker.entry.record import PendingRecord, RecordTemplate
from broker.entry.record_copy import copied_record
from broker.entry.topics import HALF_TOPIC, OP_TOPIC, TRANS_CHECK_MAX_TOPIC
from broker.request.deleted_topics import is_of_deleted_topic
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.stored_topic import real_place
from broker.state.half_table import Half
from remoting.records import sys_flag as flags
from remoting.records.message import (
    MessageRecord,
    append_properties,
    encode_properties,
    tags_code,
)
from remoting.records.property_names import DELAYING, PropertyName

__all__ = [
    "discarded_record",
    "final_record",
    "is_for_deleted_topic",
    "op_record",
    "resumed_record",
]

_OP_TAG: Final = "d"
_OP_PROPERTIES: Final = encode_properties({PropertyName.TAGS: _OP_TAG})


def is_for_deleted_topic(
    replica: Replica, leadership: Leadership, position: int, properties: dict[str, str]
) -> bool:
    """Return whether the half, or its copy, at `position` was sent to a topic that is deleted.

    Raises RefusedError (2) while the topic is being deleted.
    """
    return is_of_deleted_topic(replica, leadership, real_place(properties)[0], position, properties)


def final_record(
    replica: Replica, leadership: Leadership, half: Half, record: MessageRecord
) -> PendingRecord:
    """Build the committed message: the half's bytes under its real topic and queue, or under those
    in which it waits for its time from now on. Raises RefusedError where it can't wait."""
    properties = record.property_map()
    real_topic, real_queue_id = real_place(properties)
    topic = leadership.proposer.topic(real_topic)
    dedupes = topic is None or topic.dedupes
    is_delayed = not properties.keys().isdisjoint(DELAYING)
    waiting = waiting_when_committed(replica, properties) if is_delayed else None
    pending = copied_record(
        record,
        topic=real_topic if waiting is None else waiting.topic,
        queue_id=real_queue_id if waiting is None else waiting.queue_id,
        store_host_size=len(replica.store_host),
        properties=record.properties
        if waiting is None
        else append_properties(record.properties, waiting.properties),
        tags=properties.get(PropertyName.TAGS),
        sys_flag=flags.with_transaction_type(record.sys_flag, flags.TRANSACTION_COMMIT),
        prepared_position=half.position,
        dedupe_key=properties.get(PropertyName.UNIQ_KEY) if dedupes else None,
    )
    if waiting is not None and waiting.deliver_ms is not None:
        pending.tags_code = waiting.deliver_ms
    return pending


def op_record(replica: Replica, half: Half) -> PendingRecord:
    """Build the record that marks the half at this queue offset as done."""
    template = RecordTemplate(
        topic=OP_TOPIC,
        queue_id=0,
        sys_flag=0,
        born_ms=replica.clock_ms(),
        born_host=replica.store_host,
        store_host_size=len(replica.store_host),
    )
    return PendingRecord(
        template,
        f"{half.queue_offset},".encode(),
        _OP_PROPERTIES,
        tags_code=tags_code(_OP_TAG),
        flag=0,
    )


def resumed_record(replica: Replica, record: MessageRecord) -> PendingRecord:
    """Build the half again, from its copy in TRANS_CHECK_MAX_TIME_TOPIC; its checks begin anew.

    Its dedupe key is derived from the copy's offset, so that one copy is under way once.
    """
    return copied_record(
        record,
        topic=HALF_TOPIC,
        queue_id=0,
        store_host_size=len(replica.store_host),
        properties=record.properties,
        tags=record.property_map().get(PropertyName.TAGS),
        dedupe_key=f"resumed {record.queue_offset}",
    )


def discarded_record(replica: Replica, record: MessageRecord) -> PendingRecord:
    """Build the half's copy in TRANS_CHECK_MAX_TIME_TOPIC, for an operator to inspect."""
    return copied_record(
        record,
        topic=TRANS_CHECK_MAX_TOPIC,
        queue_id=0,
        store_host_size=len(replica.store_host),
        properties=record.properties,
        tags=record.property_map().get(PropertyName.TAGS),
    )
