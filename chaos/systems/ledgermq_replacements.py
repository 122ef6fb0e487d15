"""Nodes whose disk was lost, brought back as an operator does it.

Place in the data path: a part of `chaos.systems.ledgermq`; the heal of a wiped store calls it.

Where members are elected the node is removed from its group and added with an empty store, which
gets a new identity (decision 7). Where a master is configured, a slave needs an empty store and
nothing else; for a lost master the slave with the longest log is made the master, and the old one
comes back as its slave (decision 28).

Invariant: a node is started only in the role that it may have: one that was the master of a group
never serves from an empty store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chaos.cluster.broker_status import BrokerStatus
from chaos.cluster.cluster import write_config, write_layout
from chaos.cluster.masters import longest_log, with_master
from chaos.systems.base import Members, Processes, SystemFailedError
from chaos.systems.ledgermq_parts import SharedLayout

__all__ = ["ReplacedMasters", "ReplacedMembers"]

_STOP_TIMEOUT_S: Final = 15.0


class ReplacedMembers:
    """Replacements in groups that elect."""

    starts_empty: Final = True

    def __init__(self, shared: SharedLayout, members: Members) -> None:
        self._shared = shared
        self._members = members

    async def replace(self, node: str, statuses: Mapping[str, BrokerStatus]) -> None:
        del statuses  # the group knows who has what
        group = self._shared.now.broker(node).group
        if node in await self._members.members(group):
            await self._members.remove(node)
        added = await self._members.add(group, voter=True)
        if added != node:
            raise SystemFailedError(f"{added} was added in the place of {node}")


class ReplacedMasters:
    """Replacements in groups whose master is configured."""

    starts_empty: Final = False

    def __init__(self, shared: SharedLayout, processes: Processes) -> None:
        self._shared = shared
        self._processes = processes

    async def replace(self, node: str, statuses: Mapping[str, BrokerStatus]) -> None:
        layout = self._shared.now
        place = layout.broker(node)
        if layout.master_of(place.group) != place:
            await self._processes.restart(node)
            return
        others = [each for each in layout.groups[place.group] if each != place]
        successor = longest_log(others, statuses)
        if successor is None:
            raise SystemFailedError(f"no slave of {node} answers: there is no log to go on with")
        changed = with_master(layout, place.group, successor.node)
        for each in others:
            if self._processes.state(each.name) != "gone":
                await self._processes.terminate(each.name, timeout_s=_STOP_TIMEOUT_S)
        self._shared.now = changed
        try:
            for each in layout.groups[place.group]:
                dial = self._shared.dial.get(each.name, {})
                write_config(self._shared.run, changed, each, dial, trace=self._shared.traces)
            write_layout(self._shared.run, changed)
        except OSError as error:
            raise SystemFailedError(f"{successor.name} was not made master: {error}") from error
        for each in layout.groups[place.group]:
            await self._processes.restart(each.name)
