"""Names of the topics that belong to a consumer group: its retries and its dead letters.

Source: RocketMQ MixAll, KeyBuilder.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DLQ_PREFIX", "RETRY_PREFIX", "pop_retry_topic", "retry_topic"]

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"


def retry_topic(group: str) -> str:
    """Return the topic through which a group's failed messages are redelivered."""
    return f"{RETRY_PREFIX}{group}"


def pop_retry_topic(topic: str, group: str, joint: str = "_") -> str:
    """Return where messages go that the group popped and did not acknowledge in time.

    Newer brokers of RocketMQ join both names with `+`, which is in no name.
    """
    return f"{RETRY_PREFIX}{group}{joint}{topic}"
