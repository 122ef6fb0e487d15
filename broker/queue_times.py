"""When a queue's messages were stored, and which message was the first of a time.

Place in the data path: questions of clients and tools, offset resets. Reads units and records; the
caller sees to it that they are current (ReadIndex, promise G6).
Store timestamps never go back along a queue, so a search by time is a bisection.
"""

from __future__ import annotations

from broker.context import BrokerContext
from broker.store.consume_queue import ConsumeQueue
from broker.store.payload import UNIT
from remoting.message import decode_record

__all__ = ["first_stored_at", "stored_ms"]


def stored_ms(context: BrokerContext, queue: ConsumeQueue, offset: int) -> int:
    """0 where the queue doesn't have that message, or not any more. Raises RefusedError."""
    unit = queue.read(offset, 1)
    if not unit:
        return 0
    try:
        record = context.read_record(UNIT.unpack(unit)[0])
    except LookupError:  # retention takes it at this moment
        return 0
    return decode_record(record, check_crc=False).store_timestamp_ms


def first_stored_at(context: BrokerContext, queue: ConsumeQueue, timestamp_ms: int) -> int:
    """The first offset whose store timestamp is not before `timestamp_ms`, or the next.

    Raises RefusedError.
    """
    low, high = queue.min_offset, queue.next_offset
    while low < high:
        middle = (low + high) // 2
        if stored_ms(context, queue, middle) < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return low
