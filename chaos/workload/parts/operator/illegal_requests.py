"""Requests that nobody may carry out: illegal, or about what is not there.

Place in the data path: tables of `refusals`. Pure.

Invariants: what is requested is never legal, whatever else happens in a run. Some have a legal
half, which must not be carried out either.

Source: RocketMQ TopicValidator, AttributeUtil, NamesrvConfig's configBlackList, RouteInfoManager,
DefaultRequestProcessor (checksum of a registration); docs/DIVERGENCE.md, docs/SETTINGS.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from chaos.workload.parts.common.leader_requests import DEFAULT_TOPIC
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["HALF", "MISSING", "Illegal", "illegal_at_brokers", "illegal_at_name_servers"]

MISSING: Final = "operator-missing"
HALF: Final = f"{MISSING}-half"
_LONG: Final = 70_000  # characters, more than any name or value may have


@dataclass(frozen=True, slots=True, kw_only=True)
class Illegal:
    """A request that is to be refused; `name` says why."""

    name: str
    code: RequestCode
    fields: Mapping[str, str]
    body: str | bytes = ""

    def command(self) -> RemotingCommand:
        body = self.body if isinstance(self.body, bytes) else self.body.encode()
        return RemotingCommand(code=self.code, ext_fields=dict(self.fields), body=body)


def _topic(name: str, **fields: str) -> Illegal:
    legal = {
        "topic": MISSING,
        "defaultTopic": DEFAULT_TOPIC,
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
    }
    return Illegal(name=name, code=RequestCode.UPDATE_AND_CREATE_TOPIC, fields={**legal, **fields})


def illegal_at_brokers(topic: str, cluster: str) -> list[Illegal]:
    """Return the requests for a broker group's leader. `topic`: one that is there."""
    return [*_illegal_topics(topic, cluster), *_illegal_offsets(topic), *_illegal_settings()]


def _illegal_topics(topic: str, cluster: str) -> list[Illegal]:
    two = [
        {"topicName": HALF, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6},
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
        Illegal(
            name="list with an illegal topic",
            code=RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            fields={},
            body=json.dumps({"topicConfigList": two}),
        ),
        Illegal(
            name="list of deletions with a topic of the system",
            code=RequestCode.DELETE_TOPIC_IN_BROKER_LIST,
            fields={},
            body=json.dumps({"topicList": [topic, "RMQ_SYS_TRANS_HALF_TOPIC"]}),
        ),
        Illegal(
            name="list of no deletions",
            code=RequestCode.DELETE_TOPIC_IN_BROKER_LIST,
            fields={},
            body=json.dumps({"topicList": []}),
        ),
        Illegal(
            name="deletion of a topic of the system",
            code=RequestCode.DELETE_TOPIC_IN_BROKER,
            fields={"topic": "RMQ_SYS_TRANS_HALF_TOPIC"},
        ),
    ]


def _illegal_offsets(topic: str) -> list[Illegal]:
    code = RequestCode
    offset = {"consumerGroup": "operator-nobody", "queueId": "0", "commitOffset": "7"}
    clone = {"srcGroup": MISSING, "destGroup": "operator-nobody"}
    return [
        Illegal(
            name="commit in a topic that is not there",
            code=code.UPDATE_CONSUMER_OFFSET,
            fields={**offset, "topic": MISSING},
        ),
        Illegal(
            name="commit below zero",
            code=code.UPDATE_CONSUMER_OFFSET,
            fields={**offset, "topic": topic, "commitOffset": "-7"},
        ),
        Illegal(name="clone of nobody's offsets", code=code.CLONE_GROUP_OFFSET, fields=clone),
        Illegal(
            name="reset of a group that is not there",
            code=code.INVOKE_BROKER_TO_RESET_OFFSET,
            fields={"topic": topic, "group": MISSING, "timestamp": "0", "isForce": "true"},
        ),
    ]


def _illegal_settings() -> list[Illegal]:
    code = RequestCode
    groups = [{"groupName": "operator-nobody"}, {"groupName": "with a blank"}]
    return [
        Illegal(
            name="list with an illegal group",
            code=code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            fields={},
            body=json.dumps({"groupConfigList": groups}),
        ),
        Illegal(
            name="list of deletions with an illegal group",
            code=code.DELETE_SUBSCRIPTION_GROUP_LIST,
            fields={},
            body=json.dumps({"groupNameList": ["operator-nobody", "with a blank"]}),
        ),
        Illegal(
            name="setting that is not there, beside one that is",
            code=code.UPDATE_BROKER_CONFIG,
            fields={},
            body="fileReservedTime=61\nnothing=1\n",
        ),
        Illegal(
            name="setting that can't change",
            code=code.UPDATE_BROKER_CONFIG,
            fields={},
            body="deleteWhen=01\nbrokerName=another\n",
        ),
        Illegal(
            name="setting of an illegal value",
            code=code.UPDATE_BROKER_CONFIG,
            fields={},
            body="brokerPermission=5\n",
        ),
    ]


def illegal_at_name_servers(cluster: str, group: str) -> list[Illegal]:
    """Return the requests for a name server. `group`: a broker group of the cluster."""
    return [*_illegal_at_any(), *_illegal_entries(), *_illegal_registrations(cluster, group)]


def _illegal_entries() -> list[Illegal]:
    entry = {"namespace": MISSING, "key": "k", "value": "v"}
    code = RequestCode.PUT_KV_CONFIG
    return [
        Illegal(name="entry of too long a name", code=code, fields={**entry, "key": "k" * _LONG}),
        Illegal(
            name="entry of too long a namespace",
            code=code,
            fields={**entry, "namespace": "n" * _LONG},
        ),
        Illegal(name="entry without a value", code=code, fields={"namespace": MISSING, "key": "k"}),
        Illegal(
            name="entry that is not there",
            code=RequestCode.GET_KV_CONFIG,
            fields={"namespace": MISSING, "key": "k"},
        ),
    ]


def _illegal_registrations(cluster: str, group: str) -> list[Illegal]:
    code = RequestCode.REGISTER_BROKER
    legal = {
        "brokerName": MISSING,
        "brokerAddr": "127.0.0.1:9",
        "clusterName": cluster,
        "haServerAddr": "127.0.0.1:10",
        "brokerId": "0",
        "compressed": "false",
        "bodyCrc32": "0",
    }
    body = json.dumps(
        {
            "topicConfigSerializeWrapper": {
                "topicConfigTable": {},
                "dataVersion": {"stateVersion": 0, "timestamp": 0, "counter": 0},
            },
            "filterServerList": [],
        }
    )

    def register(name: str, **changed: str) -> Illegal:
        return Illegal(name=f"registration {name}", code=code, fields=legal | changed, body=body)

    return [
        register("without a group", brokerName=""),
        register("without an address", brokerAddr=""),
        register("of too long a name", brokerName="b" * 4_000),
        register("without a role", brokerId="-1"),
        register("that ends before it begins", heartbeatTimeoutMillis="-1"),
        register("of a group of another cluster", clusterName=MISSING, brokerName=group),
        register("with another body than it was sent with", bodyCrc32="7"),
        register("of a role that is no number", brokerId="first"),
        Illegal(
            name="registration without its cluster",
            code=code,
            fields={name: value for name, value in legal.items() if name != "clusterName"},
            body=body,
        ),
        Illegal(name="registration of nothing", code=code, fields=legal, body="{"),
    ]


def _illegal_at_any() -> list[Illegal]:
    code = RequestCode.UPDATE_NAMESRV_CONFIG
    return [
        Illegal(
            name="settings that are no text", code=code, fields={}, body=b"enableTopicList=\xff\n"
        ),
        Illegal(name="route of nothing", code=RequestCode.GET_ROUTEINFO_BY_TOPIC, fields={}),
        Illegal(
            name="a broker's request",
            code=RequestCode.GET_MAX_OFFSET,
            fields={"topic": MISSING, "queueId": "0"},
        ),
        Illegal(name="file of entries", code=code, fields={}, body="kvConfigPath=/nowhere\n"),
        Illegal(
            name="setting that is not there, beside one that is",
            code=code,
            fields={},
            body="waitSecondsForService=1000\nnothing=1\n",
        ),
        Illegal(
            name="setting of an illegal value", code=code, fields={}, body="enableTopicList=7\n"
        ),
        Illegal(
            name="queues of a group that is not there",
            code=RequestCode.REGISTER_TOPIC_IN_NAMESRV,
            fields={"topic": MISSING},
            body=json.dumps(
                {
                    "queueDatas": [
                        {
                            "brokerName": MISSING,
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
