"""Simulated nodes whose disk was lost, brought back as an operator does it, where groups elect.

Place in the data path: a part of `chaos.sim.world.simulated_system`. Where a master is configured
the part of real processes serves here too (`chaos.systems.ledgermq_replacements`).

Invariant: the group knows the new store by its own identity before it counts on it (decision 7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from chaos.cluster.broker_status import BrokerStatus
from chaos.cluster.cluster import ClusterError
from chaos.cluster.layout import ClusterLayout
from chaos.cluster.members import change_member, read_members
from chaos.sim.groups.broker_machine import BrokerMachine
from chaos.systems.base import SystemFailedError
from raft.store.identity import IdentityFile

__all__ = ["SimulatedReplacements"]

_START_TIMEOUT_S: Final = 20.0
_PROMOTE_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.05


class SimulatedReplacements:
    """Replacements of voters. `machine` returns a node's machine."""

    starts_empty: Final = True

    def __init__(
        self, layout: Callable[[], ClusterLayout], machine: Callable[[str], BrokerMachine]
    ) -> None:
        self._layout = layout
        self._machine = machine

    async def replace(self, node: str, statuses: Mapping[str, BrokerStatus]) -> None:
        del statuses  # the group knows who has what
        try:
            await self._replace(node)
        except ClusterError as error:
            raise SystemFailedError(f"{node} was not replaced: {error}") from error

    async def _replace(self, node: str) -> None:
        layout = self._layout()
        place = layout.broker(node)
        machine = self._machine(node)
        if place.node in {row.node for row in await read_members(layout, [place.group])}:
            await change_member(layout, place.group, {"change": "remove", "node": place.node})
        if machine.alive:
            machine.die(power=False)
        machine.new_disk()
        machine.start()
        fields = {"change": "add", "node": place.node, "address": place.raft_address}
        fields["storeId"] = await self._identity(machine)
        await change_member(layout, place.group, fields)
        fields = {"change": "promote", "node": place.node}
        await change_member(layout, place.group, fields, busy_timeout_s=_PROMOTE_TIMEOUT_S)

    async def _identity(self, machine: BrokerMachine) -> str:
        """Wait for the identity of the store that the machine's process makes."""
        deadline = asyncio.get_running_loop().time() + _START_TIMEOUT_S
        while (identity := IdentityFile(machine.disk).peek()) is None:
            if asyncio.get_running_loop().time() >= deadline:
                raise SystemFailedError(f"{machine.name} made no store")
            await asyncio.sleep(_POLL_S)
        return identity.store_id
