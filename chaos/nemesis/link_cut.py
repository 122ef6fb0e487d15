"""The base of all cuts of links: black-hole them, observe the silence, heal, observe that they
pass.

Place in the data path: base of the faults `partition_leader`, `partition_halves`, `one_way_cut`,
`cut_clients` and `cut_name_servers`, which differ only in the links that they choose.

Invariants: a link counts as cut only where an own connection through its proxy was answered before
the fault and stays silent now. Links whose far side is gone are cut but prove nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from chaos.links.base import Link
from chaos.nemesis.base import FaultContext, Observation, control_probe, links_pass, links_silent

__all__ = ["LinkCut"]


class LinkCut(ABC):
    """A fault that swallows the bytes of some links."""

    def __init__(self, context: FaultContext) -> None:
        self._context = context
        self._links: list[Link] = []
        self._control: dict[Link, float] = {}

    @property
    def targets(self) -> list[str]:
        return [str(link) for link in self._links]

    @abstractmethod
    def choose(self) -> list[Link]:
        """Choose the links to cut. Raises FaultNotPossibleError."""

    def witnesses(self, links: list[Link]) -> list[Link]:
        """Return the links to probe: all, where there are few."""
        return links

    async def setup(self) -> None:
        self._links = self.choose()
        self._control = await control_probe(self._context.world, self.witnesses(self._links))

    async def inject(self) -> None:
        await self._context.links.cut(self._links, self._context.tag)

    async def probe(self) -> Observation:
        return await links_silent(self._context.world, self._control)

    async def heal(self) -> None:
        await self._context.links.heal(self._context.tag)

    async def probe_healed(self) -> Observation:
        if not self._control:
            return Observation(seen=None, evidence="no link of it passed before the fault")
        return await links_pass(self._context.world, list(self._control))
