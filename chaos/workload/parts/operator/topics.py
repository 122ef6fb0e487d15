"""The topics of the part `operator`: made, changed and deleted, and queried everywhere.

Place in the data path: UPDATE_AND_CREATE_TOPIC, its form for lists, and DELETE_TOPIC_IN_BROKER at a
group's leader, DELETE_TOPIC_IN_NAMESRV at name servers; GET_TOPIC_CONFIG and GET_ALL_TOPIC_CONFIG
at any replica; routes and lists of topics at every name server; the order configuration of a topic,
which name servers store and show in its routes; an offset in the topic, which goes with it.

Invariant: after a change of unknown outcome the topic is given up, and another takes its place.

Source: RocketMQ UpdateTopicSubCommand, DeleteTopicSubCommand, UpdateOrderConfCommand.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from chaos.workload.context import WorkContext
from chaos.workload.parts.common.leader_requests import (
    DEFAULT_TOPIC,
    delete_topic_command,
    request_leader,
)
from chaos.workload.parts.common.settings_record import ABSENT, NOW, SettingsRecord
from chaos.workload.parts.operator.model import TopicChange, TopicSettings, lists_text, next_change
from chaos.workload.parts.operator.requests import OperatorRequests
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = ["TopicKeeper", "route_text"]

TIMEOUT_MS: Final = 3_000
ORDER_CONFIG: Final = "ORDER_TOPIC_CONFIG"
_OFFSET_MAX: Final = 1_000
_FOUND: Final = frozenset({0, ResponseCode.QUERY_NOT_FOUND.value})
_GONE: Final = ResponseCode.TOPIC_NOT_EXIST.value
_LISTS: Final = {
    "all": RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    "cluster": RequestCode.GET_TOPICS_BY_CLUSTER,
    "unit": RequestCode.GET_UNIT_TOPIC_LIST,
    "unit-sub": RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    "unit-sub-ununit": RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
}


class TopicKeeper:
    """Changes one topic at one broker group, and queries all nodes for it before each change."""

    def __init__(
        self,
        context: WorkContext,
        requests: OperatorRequests,
        record: SettingsRecord,
        *,
        name: str,
        group: str,
        rng: random.Random,
    ) -> None:
        self._context = context
        self._requests = requests
        self._record = record
        self._name = name
        self._group = group
        self._rng = rng
        self._turn = 0
        self._settings: TopicSettings | None = None
        self._servers = context.world.layout.name_servers

    @property
    def _topic(self) -> str:
        return f"{self._name}-{self._turn}"

    def _key(self, what: str, server: str = "") -> str:
        return f"{what} {self._topic} {server or self._group}"

    async def step(self) -> None:
        """Query everything, change something, and query the leader at once."""
        await self.query_all()
        chance = self._rng.random()
        if self._settings is not None and chance < 0.15:
            known = await self._delete()
        elif self._settings is not None and chance < 0.3:
            known = await self._change_order()
        elif self._settings is not None and chance < 0.5:
            known = await self._commit()
        else:
            known = await self._change(next_change(self._settings, self._rng))
        if not known:
            self._turn += 1
            self._settings = None
            return
        await self._query_leader()

    async def query_all(self) -> None:
        """Query the leader, every replica and every name server for the topic."""
        await self._query_leader()
        await self._query_offset()
        for place in self._context.world.layout.groups[self._group]:
            await self._query_config(place.address)
        for server in self._servers:
            await self._query_route(server.name, server.address)
            await self._query_lists(server.name, server.address)

    # Changes -----------------------------------------------------------------------------------

    async def _change(self, change: TopicChange) -> bool:
        """Return whether its outcome is known."""
        command, how = self._change_command(change)
        after = change.after
        values = {self._key("topic"): after.config_text()}
        for server in self._servers:
            values[self._key("route", server.name)] = after.route_text()
            values[self._key("lists", server.name)] = after.lists_text()
        outcome = await self._record.change(
            values, lambda: self._at_leader(command), how=how, broker_group=self._group
        )
        if outcome == "ok":
            self._settings = after
        return outcome != "info"

    def _change_command(self, change: TopicChange) -> tuple[RemotingCommand, str]:
        after = change.after
        if self._rng.random() < 0.3:
            config = {
                "topicName": self._topic,
                "readQueueNums": after.read,
                "writeQueueNums": after.write,
                "perm": after.perm,
                "topicFilterType": after.filter_type,
                "topicSysFlag": after.flag,
                "order": after.order,
                "attributes": dict(change.changes),
            }
            code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
            body = json.dumps({"topicConfigList": [config]}).encode()
            return RemotingCommand(code=code, body=body), "update of a list"
        fields = {
            "topic": self._topic,
            "defaultTopic": DEFAULT_TOPIC,
            "readQueueNums": str(after.read),
            "writeQueueNums": str(after.write),
            "perm": str(after.perm),
            "topicFilterType": after.filter_type,
            "topicSysFlag": str(after.flag),
            "order": str(after.order).lower(),
        }
        if change.changes:
            fields["attributes"] = ",".join(
                f"{name}={value}" if name.startswith("+") else name
                for name, value in change.changes.items()
            )
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        return RemotingCommand(code=code, ext_fields=fields), "update"

    async def _delete(self) -> bool:
        """Delete the topic at the leader, then at name servers; return whether that is known."""
        command, how = delete_topic_command(self._topic), "deletion"
        if self._rng.random() < 0.3:
            names = [self._topic, f"{self._topic}-unknown"]
            self._rng.shuffle(names)
            command = RemotingCommand(
                code=RequestCode.DELETE_TOPIC_IN_BROKER_LIST,
                body=json.dumps({"topicList": names}).encode(),
            )
            how = "deletion of a list"
        outcome = await self._record.change(
            {self._key("topic"): ABSENT, self._key("offset"): ABSENT},
            partial(self._at_leader, command),
            how=how,
            broker_group=self._group,
        )
        if outcome != "ok":
            return outcome == "fail"
        self._settings = None
        command = delete_topic_command(self._topic, at_name_server=True)
        for server in self._servers:
            keys = (self._key("route", server.name), self._key("lists", server.name))
            outcome = await self._record.change(
                dict.fromkeys(keys, ABSENT),
                partial(self._requests.at_name_server, server.name, server.address, command),
                how="deletion",
            )
            if outcome != "ok":
                return False
        return True

    async def _commit(self) -> bool:
        """Commit an offset of a group in the topic, which goes when the topic is deleted."""
        offset = str(self._rng.randint(1, _OFFSET_MAX))
        command = RemotingCommand(
            code=RequestCode.UPDATE_CONSUMER_OFFSET,
            ext_fields={**self._offset_fields(), "commitOffset": offset},
        )
        outcome = await self._record.change(
            {self._key("offset"): offset},
            lambda: self._at_leader(command),
            how="commit",
            broker_group=self._group,
        )
        return outcome != "info"

    def _offset_fields(self) -> dict[str, str]:
        return {"consumerGroup": f"{self._name}-readers", "topic": self._topic, "queueId": "0"}

    async def _change_order(self) -> bool:
        """Store the topic's order configuration at all name servers, or delete it."""
        value = ABSENT if self._rng.random() < 0.3 else f"{self._group}:{self._rng.randint(1, 9)}"
        fields = {"namespace": ORDER_CONFIG, "key": self._topic}
        code = RequestCode.DELETE_KV_CONFIG
        if value != ABSENT:
            code, fields = RequestCode.PUT_KV_CONFIG, {**fields, "value": value}
        command = RemotingCommand(code=code, ext_fields=fields)
        for server in self._servers:
            outcome = await self._record.change(
                {self._key("order", server.name): value},
                partial(self._requests.at_name_server, server.name, server.address, command),
                how="order configuration",
            )
            if outcome == "info":
                return False
        return True

    async def _at_leader(self, command: RemotingCommand) -> str:
        _, address = await request_leader(
            self._requests.instance, self._group, lambda: command, timeout_ms=TIMEOUT_MS
        )
        return address

    # Questions ---------------------------------------------------------------------------------

    async def _query_leader(self) -> None:
        leader = self._requests.instance.routes.leader(self._group)
        if leader is not None and leader.address is not None:
            await self._query_config(leader.address)

    async def _query_offset(self) -> None:
        key = self._key("offset")
        fields = {**self._offset_fields(), "setZeroIfNotFound": "false"}
        command = RemotingCommand(code=RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=fields)

        async def send() -> tuple[Mapping[str, str], str]:
            answer, address = await request_leader(
                self._requests.instance,
                self._group,
                lambda: command,
                timeout_ms=TIMEOUT_MS,
                accept=_FOUND,
            )
            offset = answer.ext_fields.get("offset") if answer.code == 0 else None
            return {} if offset is None else {key: offset}, address

        await self._record.query([key], send, how="query", broker_group=self._group, when=NOW)

    async def _query_config(self, address: str) -> None:
        """Query one replica for the topic's configuration, alone or among those of all topics."""
        key, topic = self._key("topic"), self._topic
        is_among_all = self._rng.random() < 0.3

        async def send() -> tuple[Mapping[str, str], str]:
            if is_among_all:
                command = RemotingCommand(code=RequestCode.GET_ALL_TOPIC_CONFIG)
                answer = await self._requests.json_at(address, command)
                config = answer.get("topicConfigTable", {}).get(topic)
            else:
                fields = {"topic": topic}
                command = RemotingCommand(code=RequestCode.GET_TOPIC_CONFIG, ext_fields=fields)
                config = await self._requests.json_at(address, command, nothing=_GONE)
            return {} if not config else {key: _config_text(config)}, address

        how = "among all topics" if is_among_all else "topic"
        await self._record.query([key], send, how=how, broker_group=self._group)

    async def _query_route(self, name: str, address: str) -> None:
        route, order = self._key("route", name), self._key("order", name)
        fields = {"topic": self._topic}
        command = RemotingCommand(code=RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=fields)

        async def send() -> tuple[Mapping[str, str], str]:
            answer = await self._requests.json_at(address, command, nothing=_GONE)
            shown = route_text(answer, self._group)
            values = {} if shown is None else {route: shown}
            if answer.get("orderTopicConf") is not None:
                values[order] = str(answer["orderTopicConf"])
            return values, name

        # What has no route shows no order configuration, either.
        keys = [route] if self._settings is None else [route, order]
        await self._record.query(keys, send, how="route", broker_group=self._group)

    async def _query_lists(self, name: str, address: str) -> None:
        key, topic = self._key("lists", name), self._topic
        cluster = self._context.world.layout.cluster

        async def send() -> tuple[Mapping[str, str], str]:
            member = {}
            for which, code in _LISTS.items():
                fields = {"cluster": cluster} if which == "cluster" else {}
                answer = await self._requests.json_at(
                    address, RemotingCommand(code=code, ext_fields=fields)
                )
                member[which] = topic in answer.get("topicList", [])
            return {key: lists_text(member)}, name

        await self._record.query([key], send, how="lists of topics", broker_group=self._group)


def _config_text(config: Mapping[str, Any]) -> str:
    """Return the text of GET_TOPIC_CONFIG's answer; what it does not say is `None`."""
    attributes = config.get("attributes") or {}
    shown = ",".join(f"{name}={attributes[name]}" for name in sorted(attributes))
    return (
        f"read={config.get('readQueueNums')} write={config.get('writeQueueNums')}"
        f" perm={config.get('perm')} flag={config.get('topicSysFlag')}"
        f" order={str(config.get('order')).lower()} filter={config.get('topicFilterType')}"
        f" attributes={shown or '-'}"
    )


def route_text(route: Mapping[str, Any], group: str) -> str | None:
    """Return the text of what a route says of a broker group's queues; None: it has none."""
    for queues in route.get("queueDatas", ()):
        if queues.get("brokerName") == group:
            return (
                f"read={queues.get('readQueueNums')} write={queues.get('writeQueueNums')}"
                f" perm={queues.get('perm')} flag={queues.get('topicSysFlag')}"
            )
    return None
