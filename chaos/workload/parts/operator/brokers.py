"""Brokers in the part `operator`: a setting of each, and what all say of who leads and who follows.

Place in the data path: UPDATE_BROKER_CONFIG and GET_BROKER_CONFIG at each replica;
GET_BROKER_CLUSTER_INFO and GET_BROKER_MEMBER_GROUP at name servers, GET_BROKER_HA_STATUS at the
leader and GET_BROKER_RUNTIME_INFO at every replica, against the replicas' own status, which is read
past every proxy.

Invariants: the settings that change are of no effect in a run; who leads is stated as a `set` when
it is read, asked for a moment later, and compared only where the same node still leads in the same
term behind the answer.

Source: RocketMQ UpdateBrokerConfigSubCommand, ClusterListSubCommand, HAStatusSubCommand.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from chaos.cluster.layout import BrokerPlace
from chaos.systems.base import SystemFailedError
from chaos.workload.context import WorkContext
from chaos.workload.parts.common.settings_record import NotSureError, SettingsRecord
from chaos.workload.parts.operator.requests import OperatorRequests
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["BrokerKeeper"]

_SETTINGS: Final = {
    "fileReservedTime": ("60", "72", "90"),
    "deleteWhen": ("03", "04", "05"),
    "diskMaxUsedSpaceRatio": ("96", "97", "98"),
    "diskSpaceCleanForciblyRatio": ("96", "97", "98"),
    "diskSpaceWarningLevelRatio": ("97", "98", "99"),
    "cleanFileForciblyEnable": ("true", "false"),
    "maxTransferCountOnMessageInMemory": ("90000", "99999", "100000"),
    "timerMaxDelaySec": ("259200", "270000", "300000"),
}
_TOGETHER_MAX: Final = 3  # settings of one request
_REFUSED_SHARE: Final = 0.2  # of the requests have one more, which can't change: nothing does
_WRONG: Final = ("listenPort=1", "fileReservedTime=soon", "cleanFileForciblyEnable=2")
_MOMENT_S: Final = 1.2  # within which name servers have heard of what was so before
_Query = Callable[[], Awaitable[tuple[Mapping[str, str], str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lead:
    """Who leads the group, in which term, and who is of it."""

    place: BrokerPlace
    term: int
    members: tuple[str, ...]


class BrokerKeeper:
    """Changes settings of the replicas of one broker group, and queries who leads it."""

    def __init__(
        self,
        context: WorkContext,
        requests: OperatorRequests,
        record: SettingsRecord,
        *,
        group: str,
        rng: random.Random,
    ) -> None:
        self._context = context
        self._requests = requests
        self._record = record
        self._group = group
        self._rng = rng
        self._places = context.world.layout.groups[group]

    async def step(self) -> None:
        place = self._rng.choice(self._places)
        await self._query_settings(place)
        await self._change_settings(place)
        await self._query_settings(place)
        await self._query_lead()

    # Settings ----------------------------------------------------------------------------------

    async def _change_settings(self, place: BrokerPlace) -> None:
        """Change some at once, or ask for one change too many, which is refused as a whole."""
        rng = self._rng
        names = rng.sample(sorted(_SETTINGS), rng.randint(1, _TOGETHER_MAX))
        values = {name: rng.choice(_SETTINGS[name]) for name in names}
        lines = [f"{name}={value}" for name, value in values.items()]
        if rng.random() < _REFUSED_SHARE:
            wrong = rng.choice(_WRONG)
            if wrong.partition("=")[0] not in values:
                lines.insert(rng.randrange(len(lines) + 1), wrong)
        command = RemotingCommand(
            code=RequestCode.UPDATE_BROKER_CONFIG, body="\n".join([*lines, ""]).encode()
        )

        async def send() -> str:
            await self._requests.at(place.address, command)
            return place.address

        await self._record.change(
            {f"{name} {place.name}": value for name, value in values.items()},
            send,
            how="update of settings",
            broker_group=self._group,
        )

    async def _query_settings(self, place: BrokerPlace) -> None:
        command = RemotingCommand(code=RequestCode.GET_BROKER_CONFIG)

        async def send() -> tuple[Mapping[str, str], str]:
            answer = await self._requests.at(place.address, command)
            text = "" if answer is None else answer.body.decode(errors="replace")
            pairs = dict(line.partition("=")[::2] for line in text.splitlines())
            return {
                f"{name} {place.name}": pairs[name] for name in _SETTINGS if name in pairs
            }, place.address

        keys = [f"{name} {place.name}" for name in _SETTINGS]
        await self._record.query(keys, send, how="settings", broker_group=self._group)

    # Who leads ---------------------------------------------------------------------------------

    async def _query_lead(self) -> None:
        lead = await self._lead()
        if lead is None:
            return
        servers = self._context.world.layout.name_servers
        others = [node for node in lead.members if node != lead.place.node]
        in_info = " ".join([lead.place.node, *others])
        values = {f"cluster info {self._group} {server.name}": in_info for server in servers}
        values |= {f"member group {self._group} {server.name}": in_info for server in servers}
        values[f"copies {self._group}"] = f"{' '.join(others)} in sync: {len(others)}"
        for place in self._places:
            values[f"active {place.name}"] = str(place == lead.place).lower()

        async def stated() -> str:
            return "status"

        await self._record.change(values, stated, how="status", broker_group=self._group)
        await asyncio.sleep(_MOMENT_S)
        for server in servers:
            for what, query in (("cluster info", self._info), ("member group", self._member_group)):
                key = f"{what} {self._group} {server.name}"
                await self._query_about(lead, key, query(key, server.name, server.address), what)
        await self._query_about(lead, f"copies {self._group}", self._copies(lead), "ha status")
        for place in self._places:
            await self._query_about(lead, f"active {place.name}", self._active(place), "runtime")

    async def _query_about(self, lead: _Lead, key: str, query: _Query, how: str) -> None:
        async def send() -> tuple[Mapping[str, str], str]:
            found = await query()
            if await self._lead() != lead:
                raise NotSureError("another leads by now, or nobody")
            return found

        await self._record.query([key], send, how=how, broker_group=self._group)

    async def _lead(self) -> _Lead | None:
        system = self._context.world.system
        for place in self._places:
            try:
                status = await system.status(place.name)
            except SystemFailedError:
                return None
            if status is not None and status.ready:
                members = tuple(sorted({*status.voters, *status.learners}))
                return _Lead(place=place, term=status.term, members=members)
        return None

    def _info(self, key: str, name: str, address: str) -> _Query:
        async def query() -> tuple[Mapping[str, str], str]:
            command = RemotingCommand(code=RequestCode.GET_BROKER_CLUSTER_INFO)
            body = await self._requests.json_at(address, command)
            shown = body.get("brokerAddrTable", {}).get(self._group, {})
            listed = body.get("clusterAddrTable", {}).get(self._context.world.layout.cluster, ())
            # Tools that work by cluster see no group but those of its list.
            addresses = shown.get("brokerAddrs") if self._group in listed else None
            return self._nodes(key, addresses), name

        return query

    def _member_group(self, key: str, name: str, address: str) -> _Query:
        fields = {
            "clusterName": self._context.world.layout.cluster,
            "brokerName": self._group,
        }
        command = RemotingCommand(code=RequestCode.GET_BROKER_MEMBER_GROUP, ext_fields=fields)

        async def query() -> tuple[Mapping[str, str], str]:
            body = await self._requests.json_at(address, command)
            return self._nodes(key, body.get("brokerMemberGroup", {}).get("brokerAddrs")), name

        return query

    def _nodes(self, key: str, addresses: Mapping[str, str] | None) -> dict[str, str]:
        """Return the leader's node and the others', as a name server shows them."""
        nodes = {number: self._context.node(at) or at for number, at in (addresses or {}).items()}
        if not nodes:
            return {}
        leader = nodes.pop("0", "-")
        return {key: " ".join([leader, *sorted(nodes.values())])}

    def _copies(self, lead: _Lead) -> _Query:
        async def query() -> tuple[Mapping[str, str], str]:
            command = RemotingCommand(code=RequestCode.GET_BROKER_HA_STATUS)
            body = await self._requests.json_at(lead.place.address, command)
            shown: list[dict[str, Any]] = body.get("haConnectionInfo") or []
            nodes = sorted(self._context.node(each.get("addr", "")) or "?" for each in shown)
            text = f"{' '.join(nodes)} in sync: {body.get('inSyncSlaveNums')}"
            return {f"copies {self._group}": text}, lead.place.address

        return query

    def _active(self, place: BrokerPlace) -> _Query:
        async def query() -> tuple[Mapping[str, str], str]:
            command = RemotingCommand(code=RequestCode.GET_BROKER_RUNTIME_INFO)
            body = await self._requests.json_at(place.address, command)
            shown = str(body.get("table", {}).get("brokerActive"))
            return {f"active {place.name}": shown}, place.address

        return query
