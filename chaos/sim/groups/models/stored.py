"""One record of the committed log, and the kind of topic that holds it.

Place in the data path: `log_model` makes them, its parts and `client_checker` read them.
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
    """One record. `code` is the unit's third field: tags code, or a time of delivery."""

    topic: str
    queue_id: int
    queue_offset: int
    index: Index
    position: int
    uniq_key: str
    value: str
    store_ms: int
    real_topic: str = ""  # of a message that waits elsewhere: its destination
    code: int = 0
    true_ms: int = 0  # when it was applied first

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.queue_id}/{self.queue_offset} (entry {self.index})"


def is_users(topic: str) -> bool:
    """Return whether producers send to the topic."""
    return topic not in _SYSTEM_TOPICS and not is_again(topic)


def is_again(topic: str) -> bool:
    """Return whether the topic holds copies of messages: for a retry, or as dead letters."""
    return topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def value_of(body: bytes) -> str:
    """Return a message's name: its body before the padding."""
    return body.partition(b" ")[0].decode(errors="replace")
