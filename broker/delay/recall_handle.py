"""The handle by which a waiting message is recalled; the answer to its send contains it.

Place in the data path: the send processor writes it, RECALL_MESSAGE reads it. Pure. The text
`v1 topic broker deliver_ms uniq_key` in URL-safe base64, behind which ours name the place in the
queue of timers: any number may wait for one millisecond. RocketMQ ignores what follows. Source:
RocketMQ RecallMessageHandle.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

__all__ = ["RecallHandle", "parse_recall_handle", "recall_handle"]

_VERSION: Final = "v1"
_SIZE_MAX: Final = 4_096
_DIGITS_MAX: Final = 19


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallHandle:
    """Fields of a handle; `deliver_ms` is -1 where it is not a number."""

    topic: str
    broker_name: str
    deliver_ms: int
    uniq_key: str
    queue_offset: int | None = None
    """Where the message waits; None: another broker's handle, or an older one."""


def recall_handle(
    *,
    topic: str,
    broker_name: str,
    deliver_ms: int,
    uniq_key: str,
    queue_offset: int | None = None,
) -> str:
    """Encode a handle."""
    text = f"{_VERSION} {topic} {broker_name} {deliver_ms} {uniq_key}"
    if queue_offset is not None:
        text += f" {queue_offset}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def parse_recall_handle(text: str) -> RecallHandle:
    """Decode a handle. Raises ValueError where it is invalid."""
    if not text or len(text) > _SIZE_MAX:
        raise ValueError("recall handle is invalid")
    try:
        padded = text + "=" * (-len(text) % 4)
        items = base64.b64decode(padded, altchars=b"-_", validate=True).decode().split(" ")
    except (binascii.Error, ValueError) as error:
        raise ValueError("recall handle is invalid") from error
    if items[0] != _VERSION or len(items) < 5:
        raise ValueError("recall handle is invalid")
    _, topic, broker_name, deliver, uniq_key, *more = items
    deliver_ms = _number(deliver)
    return RecallHandle(
        topic=topic,
        broker_name=broker_name,
        deliver_ms=-1 if deliver_ms is None else deliver_ms,
        uniq_key=uniq_key,
        queue_offset=_number(more[0]) if more else None,
    )


def _number(text: str) -> int | None:
    is_number = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
    return int(text) if is_number else None
