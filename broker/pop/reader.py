"""Reads of one queue for a pop or a peek.

Place in the data path: `broker.pop.pop` reads queue after queue until it has enough. Reads
committed messages only; changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from broker.entry.topics import PERM_READ, RETRY_PREFIX, Topic
from broker.queues.message_filter import MessageFilter
from broker.queues.queue_reader import offset_in_queue, read_matching
from broker.request.replica import Replica
from broker.request.request import RefusedError
from broker.request.start_position import is_young
from broker.state.pop_state import QueueKey
from remoting.errors import RecordError
from remoting.protocol.codes import ResponseCode
from remoting.protocol.pop_handle import PopHandle
from remoting.records.message import decode_record, encode_properties, encode_record
from remoting.records.property_names import PropertyName

__all__ = [
    "Slice",
    "as_first_sent",
    "next_start",
    "read_slice",
    "readable_topic",
    "require_readable_broker",
    "start_of",
]

_SCAN_MAX: Final = 800  # units read per queue when a filter matches little


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Matching records of a queue, and the offset behind them at which the group goes on."""

    start: int
    next_offset: int
    offsets: list[int]
    records: list[bytes]


def require_readable_broker(replica: Replica, what: str) -> None:
    """Raises RefusedError while the operator lets nobody consume from this broker."""
    if not replica.config.broker_permission & PERM_READ:
        raise RefusedError(
            ResponseCode.NO_PERMISSION,
            f"the broker[{replica.config.advertised}] {what} message is forbidden",
        )


def readable_topic(
    replica: Replica, group: str, name: str, queue_id: int, whose: str = ""
) -> Topic:
    """Return the topic; `queue_id` -1: any queue. Raises RefusedError where the group may not read
    it, or there is no such queue; then `whose` ends the text."""
    topic = replica.state.topics.get(name)
    if topic is None:
        raise RefusedError(
            ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!"
        )
    if not topic.readable:
        raise RefusedError(
            ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden"
        )
    if not -1 <= queue_id < topic.read_queue_count:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"queueId[{queue_id}] is illegal, topic:[{name}] "
            f"topicConfig.readQueueNums:[{topic.read_queue_count}]{whose}",
        )
    if replica.state.groups.get(group, {}).get("consumeEnable") is False:
        raise RefusedError(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group}")
    return topic


def start_of(replica: Replica, key: QueueKey, *, from_end: bool) -> int:
    """Return the offset at which a group begins in a queue of which it has none: that of the first
    message, or with `from_end` of the last one, unless the queue is young."""
    _, topic, queue_id = key
    queue = replica.queues.find(topic, queue_id)
    if queue is None:
        return 0
    if not from_end or topic.startswith(RETRY_PREFIX) or is_young(replica, topic, queue_id, queue):
        return queue.min_offset
    return max(queue.next_offset - 1, queue.min_offset)


def next_start(replica: Replica, key: QueueKey, stored: int) -> int:
    """Return the offset at which a group goes on whose offset is `stored`: retention may have
    passed it, and it may have been set beyond the queue's end."""
    queue = replica.queues.get(key[1], key[2])
    return min(max(stored, queue.min_offset), queue.next_offset)


def read_slice(
    replica: Replica,
    topic: str,
    queue_id: int,
    start: int,
    *,
    count_max: int,
    size_max: int,
    wanted: MessageFilter,
) -> Slice:
    """Read matching records from `start` on, up to the first one that can't be read now: that one
    is repaired, and read by a later pop.

    Raises DamagedQueueError.
    """
    queue = replica.queues.get(topic, queue_id)
    start = min(max(start, queue.min_offset), queue.next_offset)
    found = read_matching(
        replica.log,
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


def as_first_sent(record: bytes, topic: str, handle: PopHandle) -> bytes:
    """Encode a message of a retry topic as consumers of `topic` get it: under that name, with its
    handle, without which they could not acknowledge it.

    A message that was sent to a retry topic by hand, with no room left in its properties, comes
    without one; it must not block others.
    """
    found = decode_record(record, check_crc=False)
    properties = found.property_map()
    properties.setdefault(PropertyName.POP_CK, handle.text())
    try:
        encoded = encode_properties(properties)
    except RecordError:
        encoded = found.properties
    return encode_record(replace(found, topic=topic, properties=encoded))
