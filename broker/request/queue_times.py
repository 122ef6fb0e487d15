"""Store times of a queue's messages, and searches by them.

Place in the data path: requests of clients and tools, offset resets. Reads units and records; the
caller ensures that they are current (ReadIndex, promise G6).
Store timestamps never go back along a queue, so a search by time is a bisection.
"""

from __future__ import annotations

from typing import Final

from broker.entry.payload import UNIT
from broker.queues.consume_queue import ConsumeQueue
from broker.request.replica import Replica
from remoting.records.sys_flag import BORN_HOST_IPV6

__all__ = ["first_stored_at", "stored_ms"]


_SYS_FLAG_AT: Final = 36
_STORED_AT: Final = 56  # 12 bytes later behind a born host of IPv6 (docs/FORMATS.md section 8)
_HEAD_SIZE: Final = 76


def stored_ms(replica: Replica, queue: ConsumeQueue, offset: int) -> int:
    """Return a message's store time, or 0 if the queue doesn't have it. Raises RefusedError."""
    unit = queue.read(offset, 1)
    if not unit:
        return 0
    position, size, _ = UNIT.unpack(unit)
    try:
        head = replica.read(position, min(size, _HEAD_SIZE))  # a bisection reads many
    except LookupError:  # retention deletes it at this moment
        return 0
    sys_flag = int.from_bytes(head[_SYS_FLAG_AT : _SYS_FLAG_AT + 4], "big")
    at = _STORED_AT + 12 if sys_flag & BORN_HOST_IPV6 else _STORED_AT
    return int.from_bytes(head[at : at + 8], "big", signed=True)


def first_stored_at(replica: Replica, queue: ConsumeQueue, timestamp_ms: int) -> int:
    """Return the first offset whose store timestamp is not before `timestamp_ms`, or the next.

    Raises RefusedError.
    """
    low, high = queue.min_offset, queue.next_offset
    while low < high:
        middle = (low + high) // 2
        if stored_ms(replica, queue, middle) < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return low
