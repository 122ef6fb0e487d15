"""What a stored message is about, for requests that name it by its place in the log.

Place in the data path: VIEW_MESSAGE_BY_ID, CONSUMER_SEND_MSG_BACK, CONSUME_MESSAGE_DIRECTLY and
END_TRANSACTION carry a position, which may be anybody's guess; their processors ask here, once they
have read the record, and hand what they get to `Request.require`. Pure.

RocketMQ judges these by the topic or group that the request itself names, if any: whoever may
consume one group could have any message sent back to it, and read it there.
"""

from __future__ import annotations

from typing import Final

from broker.entry.topics import (
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TOPIC,
)
from remoting.records.message import MessageRecord

__all__ = ["topic_of", "topic_sent_back"]

_KEPT_FOR_OTHERS: Final = frozenset(
    {HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_CHECK_MAX_TOPIC}
)


def topic_of(record: MessageRecord) -> str:
    """The topic that it was sent to, wherever it waits."""
    if record.topic not in _KEPT_FOR_OTHERS:
        return record.topic
    return record.property_map().get("REAL_TOPIC", record.topic)


def topic_sent_back(record: MessageRecord, group: str) -> str | None:
    """What a member of `group` must be allowed to read to send it back; None: nothing but the
    group itself. Of a retry by POP it is the topic in that retry topic's name."""
    topic = topic_of(record)
    own = f"{RETRY_PREFIX}{group}"
    if topic == own:
        return None
    return topic.removeprefix(f"{own}_")
