"""A stored message that is stored again: under another topic, with other properties.

Place in the data path: deliveries of delayed messages, retries, dead letters and the records of a
transaction are such copies; `broker.leader.proposer` gives them their places. Body, hosts, time of
birth and flag stay the message's own.
"""

from __future__ import annotations

from broker.entry.record import PendingRecord, RecordTemplate, host_bytes
from remoting.records.message import MessageRecord, tags_code

__all__ = ["copied_record"]


def copied_record(
    stored: MessageRecord,
    *,
    topic: str,
    queue_id: int,
    store_host_size: int,
    properties: bytes,
    tags: str | None,
    sys_flag: int | None = None,
    reconsume_times: int | None = None,
    prepared_position: int = 0,
    dedupe_key: str | None = None,
) -> PendingRecord:
    """Build the copy; `sys_flag` and `reconsume_times` are the message's own where they are None.

    `tags`: the property TAGS of `properties`. Without `dedupe_key` it is stored however often it is
    proposed.
    """
    template = RecordTemplate(
        topic=topic,
        queue_id=queue_id,
        sys_flag=stored.sys_flag if sys_flag is None else sys_flag,
        born_ms=stored.born_timestamp_ms,
        born_host=host_bytes(stored.born_host),
        store_host_size=store_host_size,
        reconsume_times=stored.reconsume_times if reconsume_times is None else reconsume_times,
        prepared_position=prepared_position,
    )
    return PendingRecord(
        template,
        stored.body,
        properties,
        tags_code=tags_code(tags),
        flag=stored.flag,
        dedupe_key=dedupe_key,
    )
