"""The ways in which a listener does not consume what it was given.

Place in the data path: listeners of push groups that refuse a message record that, and end their
call by `refuse`: they answer that they want it later, answer nothing, raise, or hang until the
consumer's time limit. A consumer takes all of them alike.

Invariant: a listener hangs only where its consumer has a time limit that ends the call.

Source: RocketMQ ConsumeMessageConcurrentlyService: null, a Throwable and a timeout are
RECONSUME_LATER; ConsumeMessageOrderlyService: SUSPEND_CURRENT_QUEUE_A_MOMENT.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final, cast

from client.consume.listener import ConsumeStatus

__all__ = ["CONSUME_TIMEOUT_MS", "ListenerBugError", "refuse"]

CONSUME_TIMEOUT_MS: Final = 2_500
"""The time limit of one call of listeners that may hang; their other calls end within it."""
_LATER, _NOTHING, _RAISE, _HANG = range(4)
_MANNERS: Final = (*[_LATER] * 4, *[_RAISE] * 3, _NOTHING, _HANG)
_HANGS_S: Final = 60.0  # the limit comes first


class ListenerBugError(Exception):
    """A bug of the application in its listener."""


async def refuse(rng: random.Random) -> ConsumeStatus:
    """End a listener's call in one of the ways. Raises ListenerBugError."""
    manner = rng.choice(_MANNERS)
    if manner == _RAISE:
        raise ListenerBugError("the listener failed")
    if manner == _HANG:
        await asyncio.sleep(_HANGS_S)
    if manner == _NOTHING:
        return cast("ConsumeStatus", None)  # an application without type checks
    return ConsumeStatus.RECONSUME_LATER
