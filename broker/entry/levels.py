"""RocketMQ's eighteen delay levels.

A message with property DELAY waits in queue `level - 1` of SCHEDULE_TOPIC_XXXX, under its real
topic and queue in REAL_TOPIC and REAL_QID; its unit's tags code is the time of its delivery. All
messages of a level wait equally long, so a queue is in the order of delivery.

Source: RocketMQ MessageStoreConfig.messageDelayLevel, ScheduleMessageService.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DELAY_LEVEL_MAX", "delay_level_of", "delay_ms", "schedule_queue_id"]

_SECONDS: Final = (1, 5, 10, 30)
_MINUTES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)
_DELAYS_MS: Final = tuple(
    [1_000 * seconds for seconds in _SECONDS] + [60_000 * minutes for minutes in _MINUTES]
)
DELAY_LEVEL_MAX: Final = len(_DELAYS_MS)
assert DELAY_LEVEL_MAX == 18
_DIGITS_MAX: Final = 9


def delay_level_of(text: str) -> int | None:
    """Return the level in property DELAY: 0 for no delay, the last level for any above it.

    None if it is no number.
    """
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > _DIGITS_MAX:
        return None
    return max(0, min(int(text), DELAY_LEVEL_MAX))


def schedule_queue_id(level: int) -> int:
    """Return the queue of SCHEDULE_TOPIC_XXXX for messages of a level, from 1 on."""
    assert 1 <= level <= DELAY_LEVEL_MAX, f"delay level {level}"
    return level - 1


def delay_ms(queue_id: int) -> int:
    """Return how long messages of a schedule queue wait, in milliseconds."""
    return _DELAYS_MS[queue_id]
