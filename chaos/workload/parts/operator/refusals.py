"""Requests of the part `operator` that nobody may carry out: illegal, or about what is not there.

Place in the data path: an operator's slips, at a broker group's leader and at name servers. Some
have a legal half, which must not be carried out either: a later question about it shows that.

Invariants: what is requested is never legal, whatever else happens in the run; an answer of any
error refuses; a request that is not answered says nothing.

Source: the run format (set, get; M14); RocketMQ TopicValidator, AttributeUtil, NamesrvConfig's
configBlackList; docs/SETTINGS.md.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from chaos.cluster.layout import NameServerPlace
from chaos.workload.context import WorkContext
from chaos.workload.parts.common.leader_requests import DEFAULT_TOPIC, request_leader
from chaos.workload.parts.common.settings_record import ABSENT, NOW, SettingsRecord
from chaos.workload.parts.operator.requests import OperatorRequests
from client.connection.answers import error_of_remoting
from client.errors import BrokerRefusedError
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = ["RefusalKeeper", "illegal_at_brokers", "illegal_at_name_servers"]

TIMEOUT_MS: Final = 2_000
_MISSING: Final = "operator-missing"
_HALF: Final = f"{_MISSING}-half"
_GONE: Final = ResponseCode.TOPIC_NOT_EXIST.value
_ANSWERS: Final = frozenset({0, _GONE, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST.value})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Illegal:
    """A request that is to be refused; `name` says why."""

    name: str
    code: RequestCode
    fields: Mapping[str, str]
    body: str = ""

    def command(self) -> RemotingCommand:
        return RemotingCommand(
            code=self.code, ext_fields=dict(self.fields), body=self.body.encode()
        )


def _topic(name: str, **fields: str) -> _Illegal:
    legal = {
        "topic": _MISSING,
        "defaultTopic": DEFAULT_TOPIC,
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
    }
    return _Illegal(name=name, code=RequestCode.UPDATE_AND_CREATE_TOPIC, fields={**legal, **fields})


def illegal_at_brokers(topic: str, cluster: str) -> list[_Illegal]:
    """Return the requests for a broker group's leader. `topic`: one that is there."""
    return [*_illegal_topics(topic, cluster), *_illegal_offsets(topic), *_illegal_settings()]


def _illegal_topics(topic: str, cluster: str) -> list[_Illegal]:
    two = [
        {"topicName": _HALF, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6},
        {"topicName": "with a blank", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6},
    ]
    return [
        _topic("topic with a blank in its name", topic="with a blank"),
        _topic("topic with too long a name", topic="t" * 128),
        _topic("topic of the system", topic="SCHEDULE_TOPIC_XXXX"),
        _topic("topic named as the cluster", topic=cluster),
        _topic("topic without queues to read", readQueueNums="0"),
        _topic("topic without queues to write", writeQueueNums="0"),
        _topic("topic of an unknown permission", perm="8"),
        _topic("topic of an unknown attribute", attributes="+nothing=1"),
        _topic("topic of an illegal attribute", attributes="+message.type=SOMETHING"),
        _topic("topic that loses what it has not", attributes="-dedupe"),
        _Illegal(
            name="list with an illegal topic",
            code=RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            fields={},
            body=json.dumps({"topicConfigList": two}),
        ),
        _Illegal(
            name="list of deletions with a topic of the system",
            code=RequestCode.DELETE_TOPIC_IN_BROKER_LIST,
            fields={},
            body=json.dumps({"topicList": [topic, "RMQ_SYS_TRANS_HALF_TOPIC"]}),
        ),
        _Illegal(
            name="list of no deletions",
            code=RequestCode.DELETE_TOPIC_IN_BROKER_LIST,
            fields={},
            body=json.dumps({"topicList": []}),
        ),
        _Illegal(
            name="deletion of a topic of the system",
            code=RequestCode.DELETE_TOPIC_IN_BROKER,
            fields={"topic": "RMQ_SYS_TRANS_HALF_TOPIC"},
        ),
    ]


def _illegal_offsets(topic: str) -> list[_Illegal]:
    code = RequestCode
    offset = {"consumerGroup": "operator-nobody", "queueId": "0", "commitOffset": "7"}
    clone = {"srcGroup": _MISSING, "destGroup": "operator-nobody"}
    return [
        _Illegal(
            name="commit in a topic that is not there",
            code=code.UPDATE_CONSUMER_OFFSET,
            fields={**offset, "topic": _MISSING},
        ),
        _Illegal(
            name="commit below zero",
            code=code.UPDATE_CONSUMER_OFFSET,
            fields={**offset, "topic": topic, "commitOffset": "-7"},
        ),
        _Illegal(name="clone of nobody's offsets", code=code.CLONE_GROUP_OFFSET, fields=clone),
        _Illegal(
            name="reset of a group that is not there",
            code=code.INVOKE_BROKER_TO_RESET_OFFSET,
            fields={"topic": topic, "group": _MISSING, "timestamp": "0", "isForce": "true"},
        ),
    ]


def _illegal_settings() -> list[_Illegal]:
    code = RequestCode
    groups = [{"groupName": "operator-nobody"}, {"groupName": "with a blank"}]
    return [
        _Illegal(
            name="list with an illegal group",
            code=code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            fields={},
            body=json.dumps({"groupConfigList": groups}),
        ),
        _Illegal(
            name="list of deletions with an illegal group",
            code=code.DELETE_SUBSCRIPTION_GROUP_LIST,
            fields={},
            body=json.dumps({"groupNameList": ["operator-nobody", "with a blank"]}),
        ),
        _Illegal(
            name="setting that is not there, beside one that is",
            code=code.UPDATE_BROKER_CONFIG,
            fields={},
            body="fileReservedTime=61\nnothing=1\n",
        ),
        _Illegal(
            name="setting that can't change",
            code=code.UPDATE_BROKER_CONFIG,
            fields={},
            body="deleteWhen=01\nbrokerName=another\n",
        ),
        _Illegal(
            name="setting of an illegal value",
            code=code.UPDATE_BROKER_CONFIG,
            fields={},
            body="brokerPermission=5\n",
        ),
    ]


def illegal_at_name_servers() -> list[_Illegal]:
    code = RequestCode.UPDATE_NAMESRV_CONFIG
    return [
        _Illegal(name="file of entries", code=code, fields={}, body="kvConfigPath=/nowhere\n"),
        _Illegal(
            name="setting that is not there, beside one that is",
            code=code,
            fields={},
            body="waitSecondsForService=1000\nnothing=1\n",
        ),
        _Illegal(
            name="setting of an illegal value", code=code, fields={}, body="enableTopicList=7\n"
        ),
        _Illegal(
            name="queues of a group that is not there",
            code=RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            fields={"topic": _MISSING},
            body=json.dumps(
                {
                    "queueDatas": [
                        {
                            "brokerName": _MISSING,
                            "readQueueNums": 1,
                            "writeQueueNums": 1,
                            "perm": 6,
                            "topicSysFlag": 0,
                        }
                    ]
                }
            ),
        ),
    ]


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
        self._at_servers = illegal_at_name_servers()
        self._stated: set[str] = set()

    async def step(self) -> None:
        """Send some of the broker's, and one to a name server."""
        for illegal in self._rng.sample(self._at_brokers, 4):
            await self._try_broker(illegal)
        await self._try_server(self._rng.choice(self._at_servers), self._rng.choice(self._servers))
        for topic in (_MISSING, _HALF):
            await self._query_missing(topic)

    async def _try_broker(self, illegal: _Illegal) -> None:
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

    async def _try_server(self, illegal: _Illegal, place: NameServerPlace) -> None:
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
