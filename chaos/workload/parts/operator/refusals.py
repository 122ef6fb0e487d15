"""Requests of the part `operator` that nobody may carry out: illegal, or about what is not there.

Place in the data path: an operator's slips, at a broker group's leader and at name servers. Some
have a legal half, which must not be carried out either: a later question about it shows that.

Invariants: what is requested is never legal, whatever else happens in the run; an answer of any
error refuses; a request that is not answered says nothing.

Source: the run format (set, get; M14); RocketMQ TopicValidator, AttributeUtil, NamesrvConfig's
configBlackList; docs/SETTINGS.md.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from chaos.cluster.layout import NameServerPlace
from chaos.workload.context import WorkContext
from chaos.workload.parts.common.leader_requests import request_leader
from chaos.workload.parts.common.settings_record import ABSENT, NOW, SettingsRecord
from chaos.workload.parts.operator.illegal_requests import (
    HALF,
    MISSING,
    Illegal,
    illegal_at_brokers,
    illegal_at_name_servers,
)
from chaos.workload.parts.operator.requests import OperatorRequests
from client.connection.answers import error_of_remoting
from client.errors import BrokerRefusedError
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = ["RefusalKeeper"]

TIMEOUT_MS: Final = 2_000
_GONE: Final = ResponseCode.TOPIC_NOT_EXIST.value
_ANSWERS: Final = frozenset({0, _GONE, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST.value})


class RefusalKeeper:
    """Sends one illegal request after the other to one broker group and to all name servers."""

    def __init__(
        self,
        context: WorkContext,
        requests: OperatorRequests,
        record: SettingsRecord,
        *,
        topic: str,
        group: str,
        rng: random.Random,
    ) -> None:
        layout = context.world.layout
        self._requests = requests
        self._record = record
        self._group = group
        self._rng = rng
        self._servers = layout.name_servers
        self._at_brokers = illegal_at_brokers(topic, layout.cluster)
        self._at_servers = illegal_at_name_servers(layout.cluster, group)
        self._stated: set[str] = set()

    async def step(self) -> None:
        """Send some to the broker group, and some to a name server."""
        for illegal in self._rng.sample(self._at_brokers, 4):
            await self._try_broker(illegal)
        server = self._rng.choice(self._servers)
        for illegal in self._rng.sample(self._at_servers, 3):
            await self._try_server(illegal, server)
        for topic in (MISSING, HALF):
            await self._query_missing(topic)

    async def _try_broker(self, illegal: Illegal) -> None:
        key = f"refusal {illegal.name} {self._group}"

        async def send() -> tuple[Mapping[str, str], str]:
            try:
                answer, address = await request_leader(
                    self._requests.instance,
                    self._group,
                    illegal.command,
                    timeout_ms=TIMEOUT_MS,
                    accept=_ANSWERS,
                )
            except BrokerRefusedError as error:
                return {key: "refused"}, error.address
            return {key: "carried out" if answer.code == 0 else "refused"}, address

        await self._state(key)
        await self._record.query(
            [key], send, how=illegal.code.name.lower(), broker_group=self._group, when=NOW
        )

    async def _try_server(self, illegal: Illegal, place: NameServerPlace) -> None:
        key = f"refusal {illegal.name} {place.name}"

        async def send() -> tuple[Mapping[str, str], str]:
            try:
                answer = await self._requests.instance.rpc.request(
                    place.address, illegal.command(), TIMEOUT_MS
                )
            except RemotingError as error:
                raise error_of_remoting(error, place.address) from error
            return {key: "carried out" if answer.code == 0 else "refused"}, place.name

        await self._state(key)
        await self._record.query([key], send, how=illegal.code.name.lower(), when=NOW)

    async def _query_missing(self, topic: str) -> None:
        """Query a topic that no legal request has made."""
        key = f"topic {topic} {self._group}"
        command = RemotingCommand(code=RequestCode.GET_TOPIC_CONFIG, ext_fields={"topic": topic})

        async def send() -> tuple[Mapping[str, str], str]:
            answer, address = await request_leader(
                self._requests.instance,
                self._group,
                lambda: command,
                timeout_ms=TIMEOUT_MS,
                accept=_ANSWERS,
            )
            return {} if answer.code == _GONE else {key: "it is there"}, address

        await self._state(key, ABSENT)
        await self._record.query([key], send, how="topic", broker_group=self._group, when=NOW)

    async def _state(self, key: str, value: str = "refused") -> None:
        """State once what has to come of it."""
        if key in self._stated:
            return
        self._stated.add(key)

        async def stated() -> str:
            return self._group

        await self._record.change({key: value}, stated, how="what is legal")
