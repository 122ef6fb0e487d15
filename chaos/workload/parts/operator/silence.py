"""Replicas that are down, in the part `operator`: what the leader says of them meanwhile.

Place in the data path: GET_BROKER_HA_STATUS at a group's leader, when a process of the group has
ended or was stopped, which the laboratory knows past every proxy.

Invariants: only a replica that was down before the question, behind the answer, and between them is
spoken of; it counts as in sync with nobody, whatever faults there are.

Source: RocketMQ HAStatusSubCommand, DefaultHAService; the run format (ask; M12).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from chaos.cluster.layout import BrokerPlace
from chaos.systems.base import SystemFailedError
from chaos.workload.context import WorkContext
from chaos.workload.expectations import Expectations
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.operator.requests import OperatorRequests
from client.errors import ClientError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["SilenceWatcher"]

POLL_S: Final = 0.15
AGAIN_S: Final = 1.0  # between two questions about one replica that stays down
SAMPLE_S: Final = 0.05
_DOWN: Final = frozenset({"gone", "Z", "T"})


class SilenceWatcher:
    """Queries the replicas of one broker group that are down, as long as others work."""

    def __init__(
        self,
        context: WorkContext,
        requests: OperatorRequests,
        expectations: Expectations,
        *,
        group: str,
    ) -> None:
        self._context = context
        self._requests = requests
        self._expectations = expectations
        self._group = group
        self._places = context.world.layout.groups[group]

    async def watch(self, ends: asyncio.Event) -> None:
        """Watch until `ends`; at once over where the laboratory does not start the processes."""
        if self._context.world.system.processes is None:
            return
        while not await sleep_until_set(ends, POLL_S):
            down = self._down()
            if 0 < len(down) < len(self._places) and await self._query(down):
                await sleep_until_set(ends, AGAIN_S)

    def _down(self) -> set[str]:
        """Return the brokers whose processes are gone or stopped."""
        processes = self._context.world.system.processes
        assert processes is not None, "asked before"
        names = [place.name for place in self._places]
        return {name for name in names if processes.state(name) in _DOWN}

    async def _query(self, down: set[str]) -> bool:
        """Query the leader, if there is one; return whether it answered in time."""
        lead = await self._lead()
        if lead is None:
            return False
        place, members = lead
        async with asyncio.TaskGroup() as tasks:
            query = tasks.create_task(self._status_of(place))
            while not query.done():
                await asyncio.wait({query}, timeout=SAMPLE_S)
                down &= self._down()  # whoever was back for a moment may have answered the leader
        body = query.result()
        if not down or not body.get("master") or await self._lead() != lead:
            return False
        self._hold(place, members, down, body)
        return True

    async def _status_of(self, place: BrokerPlace) -> Mapping[str, Any]:
        """Return what the leader says of its replicas; nothing where it does not answer."""
        command = RemotingCommand(code=RequestCode.GET_BROKER_HA_STATUS)
        try:
            return await self._requests.json_at(place.address, command)
        except ClientError:
            return {}  # without an answer nothing is compared

    def _hold(
        self, leader: BrokerPlace, members: frozenset[str], down: set[str], body: Mapping[str, Any]
    ) -> None:
        silent = [place for place in self._places if place.name in down]
        addresses = {place.address for place in silent}
        counted = sum(
            bool(each.get("inSync")) and each.get("addr") in addresses
            for each in body.get("haConnectionInfo") or ()
        )
        most = len(members - {place.node for place in silent}) - 1
        shown = body.get("inSyncSlaveNums")
        is_right = isinstance(shown, int) and shown <= most
        self._expectations.hold(
            f"what {leader.name} has in sync while {' '.join(sorted(down))} is down",
            expected=f"none of them, at most {most}",
            answered=f"{counted or 'none'} of them, {f'at most {most}' if is_right else shown}",
        )

    async def _lead(self) -> tuple[BrokerPlace, frozenset[str]] | None:
        """Return who leads, and the members of the group as it knows them."""
        system = self._context.world.system
        for place in self._places:
            if place.name in self._down():
                continue
            try:
                status = await system.status(place.name)
            except SystemFailedError:
                return None
            if status is not None and status.ready:
                return place, frozenset({*status.voters, *status.learners})
        return None
