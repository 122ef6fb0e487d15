"""Waiting messages of topics that were deleted since.

Place in the data path: the leader checks before it moves a message into its topic: at the end of a
transaction, at a check-back, when a delay is over, when a half is resumed. Pulls of retries check
by a filter. An offset or a request mode is not committed while its topic is being deleted. Decided
by `broker.state.topic_deletions`, that is, by log positions.

Invariants: messages deleted with a topic never appear in the next one of its name. While a deletion
is in flight nobody knows on which side of it a new proposal would be stored: messages wait until
that is known.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.entry.payload import UNIT
from broker.entry.topics import RETRY_PREFIX
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import RefusedError
from remoting.errors import RecordError
from remoting.protocol.codes import ResponseCode
from remoting.records.message import decode_record
from remoting.records.message_id import parse_offset_msg_id, split_host
from remoting.records.property_names import PropertyName

__all__ = [
    "RetryFilter",
    "first_of_living_topic",
    "is_of_deleted_topic",
    "refuse_while_being_deleted",
]


def refuse_while_being_deleted(leadership: Leadership, topic: str) -> None:
    """Raise RefusedError (2) while a deletion of the topic is in flight: what is proposed behind it
    would be the next topic's of that name."""
    if leadership.proposer.is_being_deleted(topic):
        raise RefusedError(ResponseCode.SYSTEM_BUSY, f"topic[{topic}] is just being deleted")


def is_of_deleted_topic(
    replica: Replica,
    leadership: Leadership,
    topic: str,
    position: int,
    properties: Mapping[str, str],
) -> bool:
    """Whether the message at `position`, which is to go to `topic`, was sent to a deleted topic of
    that name. Raises RefusedError (2) while a deletion of it is in flight."""
    deletions = replica.state.deletions
    origin = properties.get(PropertyName.RETRY_TOPIC) if topic.startswith(RETRY_PREFIX) else None
    for name in (topic, origin):
        if name is not None:
            refuse_while_being_deleted(leadership, name)
    if deletions.took(topic, position):
        return True
    if origin is None or not deletions:
        return False
    sent_at = _origin_position(replica, origin, properties)
    return deletions.took(origin, position if sent_at is None else sent_at)


def first_of_living_topic(
    replica: Replica, topic: str, retry_topic: str, queue_id: int, start: int
) -> int:
    """Return the first offset from `start` on whose retry was not deleted with `topic`. Retries are
    deleted with the topic, unless their retry topic is also that of another group."""
    deletions = replica.state.deletions
    if not deletions:
        return start
    queue = replica.queues.get(retry_topic, queue_id)

    def is_gone(offset: int) -> bool:
        units = queue.read(offset, 1)
        return bool(units) and deletions.took(topic, UNIT.unpack(units)[0])

    low, high = max(start, queue.min_offset), queue.next_offset
    while low < high:  # positions rise along a queue
        middle = (low + high) // 2
        if is_gone(middle):
            low = middle + 1
        else:
            high = middle
    return max(start, low)


class RetryFilter:
    """Filter of a group's retries whose topics are not deleted: consumers get them under the name
    of the topic that they came from. Implements MessageFilter."""

    codes = None
    size = 0

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    @property
    def reads_properties(self) -> bool:
        return len(self._replica.state.deletions) > 0

    def wants(self, properties: Mapping[str, str]) -> bool:
        origin = properties.get(PropertyName.RETRY_TOPIC)
        if origin is None:
            return True
        sent_at = _origin_position(self._replica, origin, properties)
        return sent_at is None or not self._replica.state.deletions.took(origin, sent_at)


def _origin_position(replica: Replica, topic: str, properties: Mapping[str, str]) -> int | None:
    """Return the position of a retry's original message in this group's log; None if the retry
    doesn't name it, or names another group's: clients may send a retry anywhere."""
    try:
        ip, port, position = parse_offset_msg_id(properties.get(PropertyName.ORIGIN_MESSAGE_ID, ""))
    except (RecordError, ValueError):
        return None
    own = (replica.store_address, *replica.broker_addresses.values())
    if any(split_host(address) == (ip, port) for address in own):
        return position
    # Ids have numbers where settings have names, and addresses change: what stands there tells.
    return position if _stands_at(replica, position, topic, properties) else None


def _stands_at(replica: Replica, position: int, topic: str, properties: Mapping[str, str]) -> bool:
    """Whether the message of a retry with these properties stands at a position of this log."""
    key = properties.get(PropertyName.UNIQ_KEY)
    if key is None:
        return False
    try:
        record = decode_record(replica.read_record(position))
        return record.topic == topic and record.property_map().get(PropertyName.UNIQ_KEY) == key
    except (LookupError, RecordError, RefusedError):  # retention took it, or it is none of ours
        return False
