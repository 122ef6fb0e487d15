"""POP's names of messages on the wire: handles, and the offset fields of an answer.

| text | parts, separated by blanks |
|---|---|
| extraInfo, property POP_CK | the eight parts of `Handle`, in its order |
| startOffsetInfo | `;`-joined: retry flag, queue id, start offset |
| msgOffsetInfo | `;`-joined: retry flag, queue id, comma-joined offsets |
| orderCountInfo | `;`-joined: retry flag, queue id or `qo{queue id}%{offset}`, count |

The retry flag is 0 for a topic itself and 1 for its retry topic, `%RETRY%group_topic`. Revive
queue 999 marks what was popped in order; there are no others here, so it is else 0.
Source: RocketMQ ExtraInfoUtil, KeyBuilder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from broker.entry.topics import RETRY_PREFIX

__all__ = ["ORDER_REVIVE_QUEUE", "Handle", "HandleError", "pop_retry_topic", "retry_flag"]

ORDER_REVIVE_QUEUE: Final = 999
_PARTS_MIN: Final = 7
_NUMBER_MAX: Final = (1 << 63) - 1


class HandleError(ValueError):
    """Text that is no handle of a popped message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    retry_flag: str
    broker_name: str
    queue_id: int
    offset: int

    @property
    def is_order(self) -> bool:
        return self.revive_queue == ORDER_REVIVE_QUEUE

    @classmethod
    def parse(cls, extra_info: str, offset: int) -> Self:
        """Return the handle in `extra_info`; `offset` replaces a missing last part. Raises
        HandleError."""
        parts = extra_info.split(" ")
        if len(parts) < _PARTS_MIN:
            raise HandleError(f"extraInfo {extra_info[:80]!r} has {len(parts)} parts, not 8")
        try:
            return cls(
                start_offset=_number(parts[0]),
                pop_ms=_number(parts[1]),
                invisible_ms=_number(parts[2]),
                revive_queue=_number(parts[3]),
                retry_flag=parts[4],
                broker_name=parts[5],
                queue_id=_number(parts[6]),
                offset=_number(parts[7]) if len(parts) > _PARTS_MIN else offset,
            )
        except ValueError as error:
            raise HandleError(f"extraInfo {extra_info[:80]!r}: {error}") from error

    def text(self) -> str:
        return (
            f"{self.start_offset} {self.pop_ms} {self.invisible_ms} {self.revive_queue} "
            f"{self.retry_flag} {self.broker_name} {self.queue_id} {self.offset}"
        )


def pop_retry_topic(topic: str, group: str) -> str:
    """Return the topic of messages that the group popped and did not acknowledge in time."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def retry_flag(topic: str) -> str:
    return "1" if topic.startswith(RETRY_PREFIX) else "0"


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(_NUMBER_MAX)):
        raise ValueError(f"{text[:40]!r} is no whole number")
    number = int(text)
    if number > _NUMBER_MAX:
        raise ValueError(f"{number} has more than 64 bits")
    return number
