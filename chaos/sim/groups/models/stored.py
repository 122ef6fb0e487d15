"""One record of the committed log, and what kind of topic it is in.

Place in the data path: `committed_log` makes them, its parts and `promises` look at them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.entry.topics import (
    DLQ_PREFIX,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TOPIC,
)
from raft.messages import Index

__all__ = ["Stored", "is_again", "is_users", "value_of"]

_SYSTEM_TOPICS: Final = frozenset(
    {HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_CHECK_MAX_TOPIC}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """`code` is what stands in the unit beside the place: tags code, or a time of delivery."""

    topic: str
    queue_id: int
    queue_offset: int
    index: Index
    position: int
    uniq_key: str
    value: str
    store_ms: int
    real_topic: str = ""  # of what waits elsewhere: where it shall go
    code: int = 0
    true_ms: int = 0  # when it was applied first

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.queue_id}/{self.queue_offset} (entry {self.index})"


def is_users(topic: str) -> bool:
    """A topic that producers send to."""
    return topic not in _SYSTEM_TOPICS and not is_again(topic)


def is_again(topic: str) -> bool:
    """A topic that holds copies of messages: for another try, or as dead letters."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def value_of(body: bytes) -> str:
    """A message's name: what its body says before the padding."""
    return body.partition(b" ")[0].decode(errors="replace")
