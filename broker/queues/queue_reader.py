"""Reader of one queue's records from an offset on through a filter, for pulls and pops.

Place in the data path: ConsumeQueue units name the records, the log gives their bytes as stored.
Reads committed messages only, since only they have units; changes nothing.

Each record is compared with its unit before it is returned: a damaged unit stops the broker, which
then restarts and rebuilds the queue from the log.

Source: RocketMQ DefaultMessageStore.getMessage.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from broker.entry.payload import UNIT
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.message_filter import MessageFilter
from raft.log.damage import DamagedLogError
from raft.replicated_log import ReplicatedLog
from remoting.protocol.codes import ResponseCode
from remoting.records.message import record_properties

__all__ = ["Reading", "UnreadableError", "offset_in_queue", "read_matching"]

# Fields that identify a record: total size, queue id, queue offset, physical offset.
_OF_ITSELF: Final = struct.Struct(">i8xi4xqq")
assert _OF_ITSELF.size == 36


class UnreadableError(Exception):
    """Error of a stored message that can't be read now."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


@dataclass(slots=True, kw_only=True)
class Reading:
    """Result of a read; `unreadable` is why it ended at `next_offset`, if an error ended it.

    Not frozen, since one is created per pull.
    """

    records: list[bytes]
    size: int  # of all records, in bytes
    next_offset: int
    unreadable: UnreadableError | None


def read_matching(
    log: ReplicatedLog,
    queue: ConsumeQueue,
    queue_id: int,
    start: int,
    *,
    count_max: int,
    size_max: int,
    scan_max: int,
    wanted: MessageFilter,
) -> Reading:
    """Return the records from `start` on that `wanted` accepts; the first may have any size.

    Reads `scan_max` units, or `count_max` if that is more. Raises DamagedQueueError.
    """
    records: list[bytes] = []
    size_total = 0
    at = start
    codes = wanted.codes
    wants = wanted.wants if wanted.reads_properties else None
    filters = codes is not None or wants is not None
    end = min(queue.next_offset, start + max(scan_max, count_max))
    while at < end:
        left = end - at
        units = queue.read(at, left if filters else min(left, count_max))
        assert units, f"no units at {at} of a queue of {queue.min_offset} to {queue.next_offset}"
        for position, size, code in UNIT.iter_unpack(units):
            if codes is None or code in codes:
                if len(records) >= count_max or (records and size_total + size > size_max):
                    return Reading(
                        records=records, size=size_total, next_offset=at, unreadable=None
                    )
                try:
                    record = _stored(log, queue, (size, queue_id, at, position))
                except UnreadableError as error:
                    return Reading(
                        records=records, size=size_total, next_offset=at, unreadable=error
                    )
                if wants is None or wants(record_properties(record)):
                    records.append(record)
                    size_total += size
            at += 1
    return Reading(records=records, size=size_total, next_offset=at, unreadable=None)


def offset_in_queue(record: bytes) -> int:
    """Return the queue offset in a record that was read here."""
    return int.from_bytes(record[20:28], "big")


def _stored(log: ReplicatedLog, queue: ConsumeQueue, itself: tuple[int, int, int, int]) -> bytes:
    """Return the record that a unit names. Raises UnreadableError, DamagedQueueError.

    `itself` has the fields that identify it: size, queue id, queue offset, position.
    """
    size, _, at, position = itself
    try:
        record = log.read(position, size)
    except DamagedLogError as error:  # until a good copy is fetched
        raise UnreadableError(
            ResponseCode.SYSTEM_ERROR,
            f"the message at {at} is damaged here and is fetched from another replica",
        ) from error
    except LookupError as error:
        if position >= log.status().begin_position:
            raise queue.damaged(at) from error
        # Retention deletes it at this moment.
        raise UnreadableError(
            ResponseCode.PULL_RETRY_IMMEDIATELY, "MESSAGE_WAS_REMOVING"
        ) from error
    if size < _OF_ITSELF.size or _OF_ITSELF.unpack_from(record) != itself:
        raise queue.damaged(at)
    return record
