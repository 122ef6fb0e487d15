"""Handles of popped messages, as the answer to a pop carries them for each record; pure.

Place in the data path: `client.consume.pop_consumer` pairs the records of an answer with their
handles, and sends a handle back to acknowledge a message or change its invisible time.

Format: a handle (RocketMQ's extraInfo, property POP_CK) has eight parts joined by blanks: start
offset, time of the pop, invisible time, revive queue, retry flag, broker name, queue id, offset.
startOffsetInfo and msgOffsetInfo are `;`-joined triples of retry flag, queue id and an offset (of
msgOffsetInfo: comma-joined offsets). The retry flag is 0 for the topic itself, 1 and 2 for its
retry topics `%RETRY%group_topic` and `%RETRY%group+topic`.

Source: RocketMQ ExtraInfoUtil, KeyBuilder, MQClientAPIImpl.processPopResponse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

__all__ = ["PopAnswer", "PopHandle", "PopHandleError"]

_PARTS: Final = 8
_RETRY_PREFIX: Final = "%RETRY%"
_JOINTS: Final = {"1": "_", "2": "+"}


class PopHandleError(ValueError):
    """The answer's fields or a handle can't be parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PopHandle:
    """The handle of one popped message. Times are Unix ms and ms."""

    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    revive_queue_id: int
    retry_flag: str
    broker_name: str
    queue_id: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a handle. Raises PopHandleError."""
        parts = text.split(" ")
        if len(parts) != _PARTS:
            raise PopHandleError(f"handle {text[:80]!r} has {len(parts)} parts, not {_PARTS}")
        try:
            return cls(
                start_offset=int(parts[0]),
                pop_time_ms=int(parts[1]),
                invisible_ms=int(parts[2]),
                revive_queue_id=int(parts[3]),
                retry_flag=parts[4],
                broker_name=parts[5],
                queue_id=int(parts[6]),
                offset=int(parts[7]),
            )
        except ValueError as error:
            raise PopHandleError(f"handle {text[:80]!r}: {error}") from error

    @property
    def text(self) -> str:
        return (
            f"{self.start_offset} {self.pop_time_ms} {self.invisible_ms} {self.revive_queue_id} "
            f"{self.retry_flag} {self.broker_name} {self.queue_id} {self.offset}"
        )

    def topic_read(self, wire_topic: str, wire_group: str) -> str:
        """Return the topic that the message is stored in: the retry topic for a retried one."""
        joint = _JOINTS.get(self.retry_flag)
        return wire_topic if joint is None else f"{_RETRY_PREFIX}{wire_group}{joint}{wire_topic}"


class PopAnswer:
    """The fields of a pop's answer. Raises PopHandleError where they can't be parsed."""

    def __init__(self, fields: Mapping[str, str], broker_name: str) -> None:
        self._broker_name = broker_name
        try:
            self._pop_time_ms = int(fields["popTime"])
            self._invisible_ms = int(fields["invisibleTime"])
            self._revive_queue_id = int(fields["reviveQid"])
            self._starts = {
                key: int(value) for key, value in _triples(fields.get("startOffsetInfo", ""))
            }
            self._offsets = {
                key: frozenset(map(int, value.split(",")))
                for key, value in _triples(fields.get("msgOffsetInfo", ""))
            }
        except (KeyError, ValueError) as error:
            raise PopHandleError(f"answer to a pop lacks or garbles {error}") from error

    def handle(self, record_topic: str, queue_id: int, offset: int) -> PopHandle:
        """Return the handle of a record that carries none itself."""
        flag = "0"
        if record_topic.startswith(_RETRY_PREFIX):
            flag = "2" if "+" in record_topic else "1"
        key = (flag, queue_id)
        if offset not in self._offsets.get(key, frozenset()):
            raise PopHandleError(f"offset {offset} of queue {queue_id} is not among those popped")
        return PopHandle(
            start_offset=self._starts.get(key, offset),
            pop_time_ms=self._pop_time_ms,
            invisible_ms=self._invisible_ms,
            revive_queue_id=self._revive_queue_id,
            retry_flag=flag,
            broker_name=self._broker_name,
            queue_id=queue_id,
            offset=offset,
        )


def _triples(text: str) -> list[tuple[tuple[str, int], str]]:
    """Parse each triple into ((retry flag, queue id), value). Raises ValueError."""
    found = []
    for part in text.split(";"):
        if part:
            flag, queue_id, value = part.split(" ")
            found.append(((flag, int(queue_id)), value))
    return found
