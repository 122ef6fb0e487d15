"""The queue in which a delayed message waits, and until when.

Place in the data path: evaluated by the send processor before it stores a message, and by the
commit of a transaction before it stores the final one. Pure: the time is an argument.

Rules: RocketMQ HookUtils.handleScheduleMessage. A level (DELAY) wins over a time of its own
(TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS, in this order); a time that has passed is no
delay; a message that was delivered by a timer (TIMER_OUT_MS) is not delayed again. TIMER_OUT_MS has
the value that RocketMQ sets with a precision of one millisecond: the delivery's time less one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.entry.levels import delay_level_of, schedule_queue_id
from broker.entry.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from remoting.records.property_names import PropertyName

__all__ = ["ADDED_SIZE_MAX", "DelayError", "Waiting", "waiting_of"]

ADDED_SIZE_MAX: Final = 128
"""Bytes that a delay adds to a message's properties on its way; room must be left for them."""
_LONG: Final = re.compile(r"[+-]?[0-9]{1,19}")


class DelayError(ValueError):
    """Invalid delay of a message, and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Queue in which a message waits. `deliver_ms` None: its level says how long, counted from the
    time when it is stored."""

    topic: str
    queue_id: int
    deliver_ms: int | None = None

    @property
    def properties(self) -> dict[str, str]:
        """Return the properties that are added to the waiting message."""
        return (
            {} if self.deliver_ms is None else {PropertyName.TIMER_OUT_MS: str(self.deliver_ms - 1)}
        )


def waiting_of(
    properties: Mapping[str, str], *, now_ms: int, delay_ms_max: int | None
) -> Waiting | None:
    """Return where the message waits; None where it is not delayed. `delay_ms_max` None: it may
    wait for however long it likes. Raises DelayError."""
    text = properties.get(PropertyName.DELAY)
    if text is not None:
        level = delay_level_of(text)
        if level is None:
            raise DelayError(f"property DELAY is {text[:40]!r}, not a number")
        if level:
            return Waiting(topic=SCHEDULE_TOPIC, queue_id=schedule_queue_id(level))
    if PropertyName.TIMER_OUT_MS in properties:
        return None
    deliver_ms = _deliver_ms(properties, now_ms)
    if deliver_ms is None or deliver_ms <= now_ms:
        return None
    if delay_ms_max is not None and deliver_ms - now_ms > delay_ms_max:
        raise DelayError(
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{delay_ms_max}ms; or if set del msg, the delay time should be bigger than the "
            "current time"
        )
    return Waiting(topic=TIMER_TOPIC, queue_id=0, deliver_ms=deliver_ms)


def _deliver_ms(properties: Mapping[str, str], now_ms: int) -> int | None:
    """Return the time of delivery by the first timer property. Raises DelayError."""
    for name, unit_ms, begin_ms in (
        (PropertyName.TIMER_DELAY_SEC, 1_000, now_ms),
        (PropertyName.TIMER_DELAY_MS, 1, now_ms),
        (PropertyName.TIMER_DELIVER_MS, 1, 0),
    ):
        text = properties.get(name)
        if text is not None:
            if not _LONG.fullmatch(text):
                raise DelayError(f"property {name} is {text[:40]!r}, not a number")
            return begin_ms + int(text) * unit_ms
    return None
