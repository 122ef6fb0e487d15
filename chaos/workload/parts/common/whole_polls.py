"""Polls of lite pull members that last for their time, whatever the member does.

Place in the data path: loops that poll until something has come. A member that returned at once
would have such a loop go round and round; where time is virtual it would not pass any more, and the
run would have no end in which the rules could say so.
"""

from __future__ import annotations

import asyncio

from client.consume.lite_pull_consumer import LitePullConsumer
from client.message import DeliveredMessage

__all__ = ["poll_whole"]


async def poll_whole(consumer: LitePullConsumer, timeout_ms: int) -> list[DeliveredMessage]:
    """Poll; where nothing was returned before the time was up, wait for the rest of it."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + timeout_ms / 1000
    messages = await consumer.poll(timeout_ms)
    if not messages:
        await asyncio.sleep(max(0.0, end_s - loop.time()))
    return messages
