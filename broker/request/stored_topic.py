"""Topic of a stored message, for requests that name it by its log position.

Place in the data path: VIEW_MESSAGE_BY_ID, CONSUMER_SEND_MSG_BACK, CONSUME_MESSAGE_DIRECTLY and
END_TRANSACTION carry a position, and clients may send any; their processors read the record, and
pass its topic to `Request.require`. Pure.

RocketMQ authorises these by the topic or group that the request itself names, if any: a client that
may consume as one group could have any message sent back to it, and read it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.entry.topics import (
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TOPIC,
)
from remoting.protocol.group_topics import retry_topic
from remoting.records.message import MessageRecord
from remoting.records.property_names import PropertyName

__all__ = ["real_place", "topic_of", "topic_sent_back"]

_HOLDING_TOPICS: Final = frozenset({HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_CHECK_MAX_TOPIC})


def real_place(properties: Mapping[str, str]) -> tuple[str, int]:
    """Return the (topic, queue id) that a message was sent to which waits in another."""
    return properties[PropertyName.REAL_TOPIC], int(properties[PropertyName.REAL_QUEUE_ID])


def topic_of(record: MessageRecord) -> str:
    """Return the topic that a message was sent to, wherever it waits."""
    if record.topic not in _HOLDING_TOPICS:
        return record.topic
    return record.property_map().get(PropertyName.REAL_TOPIC, record.topic)


def topic_sent_back(record: MessageRecord, group: str) -> str | None:
    """Return the topic that a member of `group` must be permitted to read to send a message back;
    None: only the group itself. For a retry of POP it is the topic in the retry topic's name."""
    topic = topic_of(record)
    own = retry_topic(group)
    if topic == own:
        return None
    return topic.removeprefix(f"{own}_")
