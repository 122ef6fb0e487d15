"""How a send request spells its fields: in full, or by the letters of version 2.

Place in the data path: `broker.send.send` reads fields by these names one by one, since a
send needs nine of twenty. Source: RocketMQ SendMessageRequestHeader and its V2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["FULL", "LETTERS", "SendNames"]


@dataclass(frozen=True, slots=True)
class SendNames:
    """One spelling of the fields of a send request."""

    group: str
    topic: str
    default_topic: str
    default_queue_count: str
    queue_id: str
    sys_flag: str
    born: str
    flag: str
    properties: str
    reconsume: str
    reconsume_max: str
    unit_mode: str
    batch: str


FULL: Final = SendNames(
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "maxReconsumeTimes",
    "unitMode",
    "batch",
)
LETTERS: Final = SendNames("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "l", "k", "m")
