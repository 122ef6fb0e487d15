"""Watches leaders and terms: polls every node itself, several times a second.

Place in the data path: `chaos.nemesis` finds its leader here, live progress shows it. Polled past
every proxy (request 60001), so it sees both sides of a partition.

Invariant: of two nodes that report leadership, the one of the higher term counts.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chaos.cluster.broker_status import BrokerStatus
from chaos.systems.base import System

__all__ = ["ClusterWatch"]

PERIOD_S: Final = 0.2


class ClusterWatch:
    """The watch. It runs as one task; its results are in `statuses`."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._changed = asyncio.Event()
        self.statuses: dict[str, BrokerStatus] = {}

    async def run(self) -> None:
        """Poll until cancelled. A paused node delays nobody: each is polled by its own task."""
        async with asyncio.TaskGroup() as tasks:
            for place in (*self._system.layout.brokers, *self._system.layout.spares):
                tasks.create_task(self._follow(place.name))

    def leader(self, group: str) -> str | None:
        """Return the process name of the group's ready leader, as last seen."""
        leading = [
            (status.term, name)
            for name, status in self.statuses.items()
            if status.group == group and status.role == "leader" and status.ready
        ]
        return max(leading)[1] if leading else None

    def describe(self, group: str) -> str:
        leader = self.leader(group)
        return "none" if leader is None else f"{leader} term {self.statuses[leader].term}"

    async def await_leader(self, group: str, timeout_s: float) -> str | None:
        """Wait for a leader and return it; None where there is none in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while (leader := self.leader(group)) is None:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return None
        return leader

    async def _follow(self, name: str) -> None:
        while True:
            status = await self._system.status(name)
            if status is None:
                self.statuses.pop(name, None)
            else:
                self.statuses[name] = status
            self._changed.set()
            await asyncio.sleep(PERIOD_S)
