"""What a pop or a peek finds in one queue of a group.

Place in the data path: `broker.processor.pop` asks queue after queue until it has enough. Reads
committed messages only; changes nothing.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Final

from broker.context import BrokerContext
from broker.filter.message_filter import MessageFilter
from broker.pop.extra_info import Handle
from broker.pop.state import QueueKey
from broker.request import RefusedError
from broker.start_position import is_young
from broker.store.consume_queue import ConsumeQueue
from broker.store.payload import UNIT
from broker.topics import RETRY_PREFIX
from remoting.errors import RecordError
from remoting.message import decode_record, encode_properties, encode_record, record_properties

__all__ = ["Slice", "as_first_sent", "read_slice", "start_of"]

# What a record says of itself: total size, queue id, queue offset, physical offset.
_OF_ITSELF: Final = struct.Struct(">i8xi4xqq")
assert _OF_ITSELF.size == 36
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
    if not from_end or topic.startswith(RETRY_PREFIX) or is_young(context, queue):
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
    start = at = min(max(start, queue.min_offset), queue.next_offset)
    end = min(queue.next_offset, start + max(_SCAN_MAX, count_max))
    offsets: list[int] = []
    records: list[bytes] = []
    size_left = size_max
    while at < end:
        units = queue.read(at, end - at)
        assert units, f"{topic}/{queue_id}: no units at {at}"
        for position, size, code in UNIT.iter_unpack(units):
            if wanted.wants_code(code):
                is_full = len(records) >= count_max or (records and size > size_left)
                record = (
                    None if is_full else _record(context, queue, (size, queue_id, at, position))
                )
                if record is None:
                    return Slice(start=start, next_offset=at, offsets=offsets, records=records)
                if not wanted.reads_properties or wanted.wants(record_properties(record)):
                    offsets.append(at)
                    records.append(record)
                    size_left -= size
            at += 1
    return Slice(start=start, next_offset=at, offsets=offsets, records=records)


def _record(
    context: BrokerContext, queue: ConsumeQueue, itself: tuple[int, int, int, int]
) -> bytes | None:
    """The record of a unit; None where it can't be read now, or retention takes it.

    `itself` is what it has to say of itself: size, queue id, queue offset, position.
    """
    size, _, at, position = itself
    try:
        record = context.read(position, size)
    except RefusedError:
        return None
    except LookupError as error:
        if position >= context.log.status().begin_position:
            raise queue.damaged(at) from error
        return None
    if size < _OF_ITSELF.size or _OF_ITSELF.unpack_from(record) != itself:
        raise queue.damaged(at)
    return record


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
