"""Name servers in the part `operator`: their key-value configuration and settings, and the right to
write to a broker group, which an operator takes from it before a maintenance.

Place in the data path: PUT/GET/DELETE_KV_CONFIG, GET_KVLIST_BY_NAMESPACE,
UPDATE/GET_NAMESRV_CONFIG, WIPE_WRITE_PERM_OF_BROKER and ADD_WRITE_PERM_OF_BROKER at each name
server.

Invariants: each entry is queried by its name or in the list of its namespace; one name server has
it and has stored what it acknowledged, so that its answers are exact, whatever restarts; some are
deleted for good and asked for on; the right to write is taken only when everybody
else has ended, since all topics of the group lose it; an answer about it counts only where the
group's topics kept their version all the while, for a changed registration gives the right back.

Source: RocketMQ KVConfigManager, WipeWritePermSubCommand, RouteInfoManager.wipeWritePermOfBroker.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from chaos.cluster.layout import NameServerPlace
from chaos.scenario.scenario import route_expiry_ms
from chaos.workload.context import WorkContext
from chaos.workload.parts.common.leader_requests import request_leader
from chaos.workload.parts.common.settings_record import (
    ABSENT,
    NOW,
    NotSureError,
    SettingsRecord,
)
from chaos.workload.parts.operator.requests import OperatorRequests, json_of
from chaos.workload.parts.operator.topics import route_text
from client.errors import ClientError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = ["ServerKeeper", "WriteRight"]

TIMEOUT_MS: Final = 3_000
_NAMESPACES: Final = ("operator-a", "operator-b")
_KEYS: Final = ("one", "two")
_RETAINED: Final = "operator-kept"
RETAINED_MAX: Final = 16
LIVE_MIN: Final = 3  # entries, of which one may go: others are there to be changed
PUT_LAST_SHARE: Final = 0.6
CHANGED_SHARE: Final = 0.6
_CHANGES: Final = 3
_SETTING: Final = "waitSecondsForService"
_NOT_FOUND: Final = ResponseCode.QUERY_NOT_FOUND.value


class ServerKeeper:
    """Changes entries and a setting of one name server, and queries them."""

    def __init__(
        self,
        requests: OperatorRequests,
        record: SettingsRecord,
        *,
        place: NameServerPlace,
        rng: random.Random,
    ) -> None:
        self._requests = requests
        self._record = record
        self._place = place
        self._rng = rng
        self._number = 0
        self._retained: list[str] = []  # keys of entries that were put once
        self._live: list[str] = []  # those that were not deleted since

    async def step(self) -> None:
        """Change the setting and some entries, and query these and others after each."""
        await self._change_setting()
        await self._query_setting()
        for _ in range(_CHANGES):
            await self._change_entry(self._rng.choice(_NAMESPACES), self._rng.choice(_KEYS))
            await self._query_entry(self._rng.choice(_NAMESPACES), self._rng.choice(_KEYS))
            await self._query_list(self._rng.choice(_NAMESPACES), _KEYS)
        await self._change_retained()
        if self._retained:
            await self._query_list(_RETAINED, self._retained)

    async def _change_retained(self) -> None:
        """Put an entry, or change one, and delete one: whichever comes last is the last thing that
        a name server has done before it is asked for the next, or killed."""
        rng, live = self._rng, list(self._live)
        is_put_last = rng.random() < PUT_LAST_SHARE
        gone = rng.choice(live) if len(live) >= LIVE_MIN else None
        if gone is not None:  # another than is put: what is done in one moment is concurrent
            self._live.remove(gone)
        if not is_put_last:
            await self._put_retained()
        if gone is not None:
            await self._store(_RETAINED, gone, ABSENT)
        if is_put_last:
            await self._put_retained()

    async def _put_retained(self) -> None:
        """Put a new entry, or another value of one that is there."""
        if self._live and self._rng.random() < CHANGED_SHARE:
            key = self._rng.choice(self._live)
        elif len(self._retained) < RETAINED_MAX:
            key = f"kept-{len(self._retained)}"
            self._retained.append(key)
            self._live.append(key)
        else:
            return
        self._number += 1
        await self._store(_RETAINED, key, f"value {self._number} of {key}")

    def _key(self, what: str) -> str:
        return f"{what} {self._place.name}"

    async def _change_entry(self, namespace: str, key: str) -> None:
        self._number += 1
        value = ABSENT if self._rng.random() < 0.35 else f"value {self._number}; äöü=1"
        await self._store(namespace, key, value)

    async def _store(self, namespace: str, key: str, value: str) -> None:
        """Put an entry, or delete it."""
        fields = {"namespace": namespace, "key": key}
        code = RequestCode.DELETE_KV_CONFIG
        if value != ABSENT:
            code, fields = RequestCode.PUT_KV_CONFIG, {**fields, "value": value}
        await self._change({self._key(f"entry {namespace} {key}"): value}, code, fields)

    async def _change_setting(self) -> None:
        seconds = str(self._rng.randint(1, 999))
        await self._change(
            {self._key(_SETTING): seconds},
            RequestCode.UPDATE_NAMESRV_CONFIG,
            {},
            f"{_SETTING}={seconds}\n".encode(),
        )

    async def _change(
        self,
        values: Mapping[str, str],
        code: RequestCode,
        fields: Mapping[str, str],
        body: bytes = b"",
    ) -> None:
        command = RemotingCommand(code=code, ext_fields=dict(fields), body=body)
        name, address = self._place.name, self._place.address
        await self._record.change(
            values,
            lambda: self._requests.at_name_server(name, address, command),
            how=code.name.lower(),
        )

    async def _query_entry(self, namespace: str, key: str) -> None:
        name = self._key(f"entry {namespace} {key}")
        fields = {"namespace": namespace, "key": key}
        command = RemotingCommand(code=RequestCode.GET_KV_CONFIG, ext_fields=fields)

        async def send() -> tuple[Mapping[str, str], str]:
            answer = await self._requests.at(self._place.address, command, nothing=_NOT_FOUND)
            value = None if answer is None else answer.ext_fields.get("value")
            return {} if value is None else {name: value}, self._place.name

        await self._record.query([name], send, how="entry", when=NOW)

    async def _query_list(self, namespace: str, keys: Sequence[str]) -> None:
        names = {self._key(f"entry {namespace} {key}"): key for key in keys}
        command = RemotingCommand(
            code=RequestCode.GET_KVLIST_BY_NAMESPACE, ext_fields={"namespace": namespace}
        )

        async def send() -> tuple[Mapping[str, str], str]:
            answer = await self._requests.json_at(self._place.address, command, nothing=_NOT_FOUND)
            table = answer.get("table", {})
            values = {name: str(table[key]) for name, key in names.items() if key in table}
            return values, self._place.name

        await self._record.query(list(names), send, how="list of a namespace", when=NOW)

    async def _query_setting(self) -> None:
        key = self._key(_SETTING)
        command = RemotingCommand(code=RequestCode.GET_NAMESRV_CONFIG)

        async def send() -> tuple[Mapping[str, str], str]:
            answer = await self._requests.at(self._place.address, command)
            text = "" if answer is None else answer.body.decode(errors="replace")
            pairs = dict(line.partition("=")[::2] for line in text.splitlines())
            return {key: pairs[_SETTING]} if _SETTING in pairs else {}, self._place.name

        await self._record.query([key], send, how="settings")


class WriteRight:
    """Takes the right to write from one broker group at every name server, and gives it back."""

    def __init__(
        self,
        context: WorkContext,
        requests: OperatorRequests,
        record: SettingsRecord,
        *,
        group: str,
        topics: Mapping[str, str],
    ) -> None:
        """`topics`: some of the group, with the text of what routes say of each."""
        self._requests = requests
        self._record = record
        self._group = group
        self._topics = topics
        self._servers = context.world.layout.name_servers
        self._interval_s = route_expiry_ms(context.scenario) / 1000

    async def take_and_give(self) -> None:
        """Take it, query until each broker must have registered once more, and give it back."""
        version = await self._version()
        if version is None:
            return
        texts = {topic: text.replace("perm=6", "perm=4") for topic, text in self._topics.items()}
        await self._change(RequestCode.WIPE_WRITE_PERM_OF_BROKER, texts)
        await self._query(version)
        await asyncio.sleep(self._interval_s)
        await self._query(version)
        await self._change(RequestCode.ADD_WRITE_PERM_OF_BROKER, self._topics)
        await self._query(version)

    def _key(self, topic: str, server: str) -> str:
        return f"write {topic} {self._group} {server}"

    async def _change(self, code: RequestCode, texts: Mapping[str, str]) -> None:
        command = RemotingCommand(code=code, ext_fields={"brokerName": self._group})
        for server in self._servers:
            await self._record.change(
                {self._key(topic, server.name): text for topic, text in texts.items()},
                partial(self._requests.at_name_server, server.name, server.address, command),
                how=code.name.lower(),
                broker_group=self._group,
            )

    async def _query(self, version: object) -> None:
        for server in self._servers:
            for topic in self._topics:
                await self._query_route(topic, server, version)

    async def _query_route(self, topic: str, server: NameServerPlace, version: object) -> None:
        key = self._key(topic, server.name)
        command = RemotingCommand(
            code=RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic}
        )

        async def send() -> tuple[Mapping[str, str], str]:
            route = await self._requests.json_at(server.address, command)
            if await self._version() != version:
                raise NotSureError("the group's topics changed, so it registers anew")
            shown = route_text(route, self._group)
            return {} if shown is None else {key: shown}, server.name

        await self._record.query([key], send, how="route", broker_group=self._group)

    async def _version(self) -> object:
        """Return the version of the group's topics and the leader that has it; None: unknown."""
        command = RemotingCommand(code=RequestCode.GET_ALL_TOPIC_CONFIG)
        try:
            answer, address = await request_leader(
                self._requests.instance, self._group, lambda: command, timeout_ms=TIMEOUT_MS
            )
            return address, json_of(answer, address).get("dataVersion")
        except ClientError:
            return None  # without it no answer is compared
