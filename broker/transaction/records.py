"""The records that the life of a transaction writes: final message, op record, discarded half.

Place in the data path: made by the END_TRANSACTION processor and the check-back, stored by
`broker.proposer`. Layouts and properties: RocketMQ EndTransactionProcessor.endMessageTransaction,
TransactionalMessageServiceImpl (op record: TAGS `d`, body: half queue offsets, comma after each).
"""

from __future__ import annotations

from typing import Final

from broker.context import BrokerContext
from broker.store.record import PendingRecord, RecordTemplate, host_bytes
from broker.topics import OP_TOPIC, TRANS_CHECK_MAX_TOPIC
from broker.transaction.half_table import Half
from remoting import sys_flag as flags
from remoting.message import MessageRecord, tags_code

__all__ = ["discarded_record", "final_record", "op_record", "real_place"]

_OP_TAG: Final = "d"
_OP_PROPERTIES: Final = b"TAGS\x01d\x02"


def real_place(properties: dict[str, str]) -> tuple[str, int]:
    """(topic, queue id) that a half message was sent to."""
    return properties["REAL_TOPIC"], int(properties["REAL_QID"])


def final_record(context: BrokerContext, half: Half, record: MessageRecord) -> PendingRecord:
    """The committed message: the half's bytes under its real topic and queue."""
    properties = record.property_map()
    topic_name, queue_id = real_place(properties)
    topic = context.proposer.topic(topic_name)
    dedupes = topic is None or topic.dedupes
    template = RecordTemplate(
        topic=topic_name,
        queue_id=queue_id,
        sys_flag=flags.with_transaction_type(record.sys_flag, flags.TRANSACTION_COMMIT),
        born_ms=record.born_timestamp_ms,
        born_host=host_bytes(record.born_host),
        store_host_size=len(context.store_host),
        reconsume_times=record.reconsume_times,
        prepared_position=half.position,
    )
    return PendingRecord(
        template,
        record.body,
        record.properties,
        tags_code=tags_code(properties.get("TAGS")),
        flag=record.flag,
        dedupe_key=properties.get("UNIQ_KEY") if dedupes else None,
    )


def op_record(context: BrokerContext, half: Half) -> PendingRecord:
    """Says that the half at this queue offset is done with."""
    template = RecordTemplate(
        topic=OP_TOPIC,
        queue_id=0,
        sys_flag=0,
        born_ms=context.clock_ms(),
        born_host=context.store_host,
        store_host_size=len(context.store_host),
    )
    return PendingRecord(
        template,
        f"{half.queue_offset},".encode(),
        _OP_PROPERTIES,
        tags_code=tags_code(_OP_TAG),
        flag=0,
    )


def discarded_record(context: BrokerContext, record: MessageRecord) -> PendingRecord:
    """The half's copy in TRANS_CHECK_MAX_TIME_TOPIC, for a person to look at."""
    template = RecordTemplate(
        topic=TRANS_CHECK_MAX_TOPIC,
        queue_id=0,
        sys_flag=record.sys_flag,
        born_ms=record.born_timestamp_ms,
        born_host=host_bytes(record.born_host),
        store_host_size=len(context.store_host),
        reconsume_times=record.reconsume_times,
    )
    return PendingRecord(
        template,
        record.body,
        record.properties,
        tags_code=tags_code(record.property_map().get("TAGS")),
        flag=record.flag,
    )
