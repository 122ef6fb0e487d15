"""What a pop or a peek finds in one queue of a group.

Place in the data path: `broker.pop.pop` asks queue after queue until it has enough. Reads
committed messages only; changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from broker.entry.pop_handle import Handle
from broker.entry.topics import RETRY_PREFIX
from broker.queues.message_filter import MessageFilter
from broker.queues.queue_reader import offset_in_queue, read_matching
from broker.request.context import BrokerContext
from broker.request.start_position import is_young
from broker.state.pop_state import QueueKey
from remoting.errors import RecordError
from remoting.records.message import decode_record, encode_properties, encode_record

__all__ = ["Slice", "as_first_sent", "read_slice", "start_of"]

_SCAN_MAX: Final = 800  # units looked at per queue when a filter matches little


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Records that match, and where the group goes on behind them."""

    start: int
    next_offset: int
    offsets: list[int]
    records: list[bytes]


def start_of(context: BrokerContext, key: QueueKey, *, from_end: bool) -> int:
    """Where a group begins in a queue of which it has no offset: the first message, or with
    `from_end` the last one, unless the queue is young."""
    _, topic, queue_id = key
    queue = context.queues.find(topic, queue_id)
    if queue is None:
        return 0
    if not from_end or topic.startswith(RETRY_PREFIX) or is_young(context, topic, queue_id, queue):
        return queue.min_offset
    return max(queue.next_offset - 1, queue.min_offset)


def read_slice(
    context: BrokerContext,
    topic: str,
    queue_id: int,
    start: int,
    *,
    count_max: int,
    size_max: int,
    wanted: MessageFilter,
) -> Slice:
    """Stops at what can't be read now: that is repaired, and read by a later pop.

    Raises DamagedQueueError.
    """
    queue = context.queues.get(topic, queue_id)
    start = min(max(start, queue.min_offset), queue.next_offset)
    found = read_matching(
        context.log,
        queue,
        queue_id,
        start,
        count_max=count_max,
        size_max=size_max,
        scan_max=_SCAN_MAX,
        wanted=wanted,
    )
    return Slice(
        start=start,
        next_offset=found.next_offset,
        offsets=[offset_in_queue(record) for record in found.records],
        records=found.records,
    )


def as_first_sent(record: bytes, topic: str, handle: Handle) -> bytes:
    """A message of a retry topic as consumers of `topic` get it: under that name, with its handle.

    They could not tell otherwise where to acknowledge it. Whoever has written a message of a retry
    topic by hand, with no room left in its properties, gets it without; it must not hold up others.
    """
    found = decode_record(record, check_crc=False)
    properties = found.property_map()
    properties.setdefault("POP_CK", handle.text())
    try:
        encoded = encode_properties(properties)
    except RecordError:
        encoded = found.properties
    return encode_record(replace(found, topic=topic, properties=encoded))
