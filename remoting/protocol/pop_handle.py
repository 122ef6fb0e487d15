"""Handles of popped messages: how POP names a message on the wire.

Place in the data path: a broker's answer to a pop carries a handle for each record, or the fields
that the client makes them of; the client sends a handle back to acknowledge the message or to
change its invisible time.

| text | parts, separated by blanks |
|---|---|
| extraInfo, property POP_CK | the eight parts of `PopHandle`, in its order |
| startOffsetInfo | `;`-joined: retry flag, queue id, start offset |
| msgOffsetInfo | `;`-joined: retry flag, queue id, comma-joined offsets |
| orderCountInfo | `;`-joined: retry flag, queue id or `qo{queue id}%{offset}`, count |

The retry flag is 0 for a topic itself, 1 and 2 for its retry topics `%RETRY%group_topic` and
`%RETRY%group+topic`, of which ledgermq's brokers have the first only. Revive queue 999 marks what
was popped in order; ledgermq's brokers have no others, so theirs is else 0.
Source: RocketMQ ExtraInfoUtil, KeyBuilder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from remoting.protocol.group_topics import RETRY_PREFIX, pop_retry_topic

__all__ = ["ORDER_REVIVE_QUEUE", "PopHandle", "PopHandleError", "retry_flag"]

ORDER_REVIVE_QUEUE: Final = 999
_PARTS: Final = 8
_NUMBER_MAX: Final = (1 << 63) - 1
_JOINTS: Final = {"1": "_", "2": "+"}


class PopHandleError(ValueError):
    """A handle or the answer that it is made of can't be parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PopHandle:
    """The handle of one popped message. Times are Unix ms and ms."""

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
    def parse(cls, text: str) -> Self:
        """Parse a handle of all eight parts. Raises PopHandleError."""
        parts = text.split(" ")
        if len(parts) != _PARTS:
            raise PopHandleError(f"handle {text[:80]!r} has {len(parts)} parts, not {_PARTS}")
        return cls._made(text, parts)

    @classmethod
    def parse_for(cls, extra_info: str, offset: int) -> Self:
        """Parse what a request names the message at `offset` by. Raises PopHandleError.

        Its last part may be missing, and further ones are ignored, as RocketMQ's brokers do.
        """
        parts = extra_info.split(" ")
        if len(parts) < _PARTS - 1:
            raise PopHandleError(f"extraInfo {extra_info[:80]!r} has {len(parts)} parts, not 8")
        return cls._made(extra_info, [*parts, str(offset)])

    @classmethod
    def _made(cls, text: str, parts: list[str]) -> Self:
        try:
            return cls(
                start_offset=_number(parts[0]),
                pop_ms=_number(parts[1]),
                invisible_ms=_number(parts[2]),
                revive_queue=_number(parts[3]),
                retry_flag=parts[4],
                broker_name=parts[5],
                queue_id=_number(parts[6]),
                offset=_number(parts[7]),
            )
        except ValueError as error:
            raise PopHandleError(f"handle {text[:80]!r}: {error}") from error

    def text(self) -> str:
        return (
            f"{self.start_offset} {self.pop_ms} {self.invisible_ms} {self.revive_queue} "
            f"{self.retry_flag} {self.broker_name} {self.queue_id} {self.offset}"
        )

    def topic_read(self, topic: str, group: str) -> str:
        """Return the topic that the message is stored in: the retry topic for a retried one."""
        joint = _JOINTS.get(self.retry_flag)
        return topic if joint is None else pop_retry_topic(topic, group, joint)


def retry_flag(topic: str) -> str:
    """Return the flag of messages that are stored in the topic."""
    if not topic.startswith(RETRY_PREFIX):
        return "0"
    return "2" if _JOINTS["2"] in topic else "1"


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(_NUMBER_MAX)):
        raise ValueError(f"{text[:40]!r} is no whole number")
    number = int(text)
    if number > _NUMBER_MAX:
        raise ValueError(f"{number} has more than 64 bits")
    return number
