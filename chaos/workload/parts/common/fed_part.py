"""The life of a part that sends by one feed and reads by clients that come and go.

Place in the data path: parts of consumers (`orderly`, `broadcast`, `retries`, `litepull`,
`longpolls`, `resets`) derive from it, and say themselves what their readers owe (`has_read`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from chaos.workload.parts.common.feed import Feed

__all__ = ["FedPart", "SlotClients"]


class SlotClients(Protocol):
    """The clients of one slot, one after another."""

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        """Run clients that come and go until `stop`, then one until `drained`."""


class FedPart:
    """Implements `WorkloadPart` but for `consumer_groups` and `has_read`. Caller's duty: a subclass
    sets `_feed` and `_members` when it is made."""

    _feed: Feed
    _members: Sequence[SlotClients]

    async def run(self, stop: asyncio.Event, drained: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._feed.run(stop))
            for members in self._members:
                tasks.create_task(members.run(stop, drained))

    async def idle(self) -> None:
        await self._feed.idle()

    def is_settled(self) -> bool:
        return True
