"""A world: one system under test and the links between its places.

Place in the data path: `chaos.experiment.experiment` starts and stops it, the workload dials
through its links, `chaos.nemesis` acts on both halves.

Invariants: links are there before any process dials, and go last, so that brokers can leave
cleanly; whatever fails, `abort` leaves no process of either half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from chaos.cluster.layout import ClusterLayout
from chaos.links.base import Links
from chaos.systems.base import System

__all__ = ["World"]


class World:
    """One cluster under test. `client_slots`: the places that clients dial from."""

    def __init__(
        self, name: str, system: System, links: Links, client_slots: Sequence[str]
    ) -> None:
        self.name: Final = name
        self.system: Final = system
        self.links: Final = links
        self.client_slots: Final = tuple(client_slots)

    @property
    def layout(self) -> ClusterLayout:
        return self.system.layout

    @property
    def run(self) -> Path:
        return self.system.run

    def dial_table(self, dialer: str) -> Mapping[str, str]:
        """Return table address = address to dial, for a process or a client slot."""
        return self.links.dial_table(dialer)

    async def start(self) -> None:
        """Start everything and wait until each group has a ready leader.

        Raises SystemFailedError, LinksError.
        """
        await self.links.start()
        names = [server.name for server in self.layout.name_servers]
        names += [place.name for place in (*self.layout.brokers, *self.layout.spares)]
        dial = {name: self.dial_table(name) for name in names}
        await self.system.start(dial)

    async def stop(self) -> None:
        """Stop the brokers cleanly, then all else. Raises SystemFailedError, LinksError."""
        await self.system.stop()
        await self.links.stop()

    async def abort(self) -> None:
        """Leave nothing running, whatever state the world is in. Safe to call at any time."""
        try:
            await self.system.abort()
        finally:
            await self.links.abort()
