"""Slips of administrators: requests that are illegal in themselves, and what each is answered with.

Place in the data path: tables of `slips`. Pure.

Invariants: carried out, none would make or change another topic, group or user than NOBODY, which
no legal request ever makes.

Source: RocketMQ AdminBrokerProcessor, AuthenticationMetadataManagerImpl,
AuthorizationMetadataManagerImpl, SelectorParser, ClientManageProcessor; docs/DIVERGENCE.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from chaos.workload.parts.common.leader_requests import DEFAULT_TOPIC
from remoting.protocol.codes import RequestCode

__all__ = [
    "BAD_EXPRESSION",
    "BAD_PARAMETER",
    "NOBODY",
    "NO_MESSAGE",
    "NO_PERMISSION",
    "NO_TOPIC",
    "SYSTEM_ERROR",
    "Slip",
    "json_body",
    "of_access",
    "of_groups",
    "of_topics",
]

NOBODY: Final = "drills-nobody"
SYSTEM_ERROR: Final = "1"
NO_PERMISSION: Final = "16"
NO_TOPIC: Final = "17"
BAD_EXPRESSION: Final = "23"
BAD_PARAMETER: Final = "29"
NO_MESSAGE: Final = "208"
_LONG: Final = 40_000  # characters, more than any name or attribute may have
_BLANK: Final = " "
_NO_PASSWORD: Final = f"{NO_PERMISSION} password can not be blank"

_EXPRESSIONS: Final = (
    "a = NULL",
    "NULL <> a",
    "a > TRUE",
    "FALSE <= 3",
    "a BETWEEN NULL AND 2",
    "a BETWEEN 5 AND 1",
    "a NOT BETWEEN 'x' AND 'y'",
    "7",
    "'text'",
    "a > 99999999999999999999",
    "5 IN ('x')",
    "a IN ()",
    "a IN (1, 2)",
    "a CONTAINS 1",
    "a = 'open",
    "a AND",
    "(a = 1",
    "a LIKE 'x'",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slip:
    """One request. `expected`: the code that it is answered with, and the remark behind it where
    several refusals have that code. `is_garbled`: where brokers check what users may do, nobody can
    read who is to have which right, and it is refused for that."""

    what: str
    code: RequestCode
    expected: str
    fields: Mapping[str, object] = field(default_factory=dict)
    body: bytes = b""
    is_garbled: bool = False


def of_access() -> list[Slip]:
    return [*_of_users(), *_of_permissions()]


def _of_users() -> list[Slip]:
    code = RequestCode

    def create(what: str, expected: str, *, name: str = NOBODY, **info: object) -> Slip:
        right = {"username": name, "password": NOBODY}
        return Slip(
            what=f"user {what}",
            code=code.AUTH_CREATE_USER,
            fields={"username": name},
            body=json_body(**right | info),
            expected=expected,
        )

    return [
        create("without a name", BAD_PARAMETER, name=_BLANK),
        create("with too long a name", BAD_PARAMETER, name="n" * 4_000),
        create("without a password", _NO_PASSWORD, password=None),
        create("with a blank password", _NO_PASSWORD, password=_BLANK),
        create("of an unknown kind", BAD_PARAMETER, userType="Emperor"),
        create("of an unknown status", BAD_PARAMETER, userStatus="asleep"),
        Slip(
            what="user that is no map",
            code=code.AUTH_CREATE_USER,
            fields={"username": NOBODY},
            body=b'{"username":',
            expected=BAD_PARAMETER,
        ),
        Slip(
            what="change of a user that is not there",
            code=code.AUTH_UPDATE_USER,
            fields={"username": NOBODY},
            body=json_body(username=NOBODY, password=NOBODY),
            expected=f"{NO_PERMISSION} The user is not exist",
        ),
    ]


def _of_permissions() -> list[Slip]:
    code = RequestCode
    right: dict[str, object] = {
        "resource": f"Topic:{NOBODY}",
        "actions": ["Pub"],
        "decision": "Allow",
    }

    def create(what: str, expected: str, *, kind: str = "Custom", **entry: object) -> Slip:
        policies = [{"policyType": kind, "entries": [right | entry]}]
        return Slip(
            what=f"permission {what}",
            code=code.AUTH_CREATE_ACL,
            fields={"subject": f"User:{NOBODY}"},
            body=json_body(subject=f"User:{NOBODY}", policies=policies),
            expected=expected,
        )

    refused = NO_PERMISSION
    return [
        create("of nobody", f"{refused} The subject of User:{NOBODY} is not exist."),
        create("for nothing", f"{refused} The resource is null.", resource=None),
        create("of a kind of its own", f"{refused} 'Best' is no type of policy", kind="Best"),
        create("to do nothing", f"{refused} The actions is empty.", actions=[]),
        create("undecided", f"{refused} The decision is null or illegal.", decision="Perhaps"),
        create("from nowhere", f"{refused} The source ip is invalid: 'moon'", sourceIps=["moon"]),
        Slip(
            what="permissions that are none",
            code=code.AUTH_UPDATE_ACL,
            fields={"subject": f"User:{NOBODY}"},
            body=json_body(subject=f"User:{NOBODY}", policies=[]),
            expected=f"{refused} The policies is empty.",
        ),
        Slip(
            what="permissions of what is no user",
            code=code.AUTH_CREATE_ACL,
            fields={"subject": NOBODY},
            body=json_body(subject=NOBODY, policies=[{"policyType": "Custom", "entries": [right]}]),
            expected=BAD_PARAMETER,
        ),
        Slip(
            what="deletion of a permission for no resource",
            code=code.AUTH_DELETE_ACL,
            fields={"subject": f"User:{NOBODY}", "policyType": "Custom", "resource": "Moon:x"},
            expected=BAD_PARAMETER,
        ),
        Slip(
            what="deletion of a permission of no kind",
            code=code.AUTH_DELETE_ACL,
            fields={"subject": f"User:{NOBODY}", "policyType": "Best"},
            expected=BAD_PARAMETER,
        ),
        Slip(
            what="deletion of nobody's permission",
            code=code.AUTH_DELETE_ACL,
            fields={"subject": f"User:{NOBODY}", "resource": "Topic:x"},
            expected=f"{refused} The subject is not exist.",
        ),
    ]


def of_topics() -> list[Slip]:
    code = RequestCode
    legal: dict[str, object] = {
        "topic": NOBODY,
        "defaultTopic": DEFAULT_TOPIC,
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
    }

    def create(what: str, **fields: object) -> Slip:
        return Slip(
            what=f"topic {what}",
            code=code.UPDATE_AND_CREATE_TOPIC,
            fields=legal | fields,
            expected=BAD_PARAMETER,
        )

    def delete(what: str, topic: str) -> Slip:
        return Slip(
            what=f"deletion of a topic {what}",
            code=code.DELETE_TOPIC_IN_BROKER,
            fields={"topic": topic},
            expected=BAD_PARAMETER,
        )

    return [
        create("without a name", topic=" "),
        create("with an unknown kind of filter", topicFilterType="NO_TAG"),
        create("with a flag below zero", topicSysFlag=-1),
        create("with an attribute that is neither set nor taken", attributes="message.type=FIFO"),
        create("with an attribute twice", attributes="+message.type=FIFO,+message.type=NORMAL"),
        create("with too long an attribute", attributes=f"+message.type={'F' * _LONG}"),
        create("with more queues than any", readQueueNums=1 << 30),
        delete("without a name", " "),
        delete("with too long a name", "t" * 4_000),
        Slip(
            what="list of topics that is none",
            code=code.UPDATE_AND_CREATE_TOPIC_LIST,
            body=b'{"topicConfigList":7}',
            expected=BAD_PARAMETER,
        ),
        Slip(
            what="settings that are no text",
            code=code.UPDATE_BROKER_CONFIG,
            body=b"fileReservedTime=\xff\xfe\n",
            expected=BAD_PARAMETER,
        ),
    ]


def of_groups(group: str) -> list[Slip]:
    """Return those of groups and their members; `group`: a legal name."""
    return [*_of_configs(), *_of_heartbeats(), *_of_members(group), *_of_filters()]


def _of_heartbeats() -> list[Slip]:
    code = RequestCode
    consumer: dict[str, object] = {
        "groupName": NOBODY,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [],
        "unitMode": False,
    }

    def beat(what: str, expected: str, **fields: object) -> Slip:
        data = {"clientID": NOBODY, "producerDataSet": [], "consumerDataSet": [consumer | fields]}
        return Slip(
            what=f"heartbeat {what}",
            code=code.HEART_BEAT,
            body=json_body(**data),
            expected=expected,
        )

    def subscription(expression: str) -> list[dict[str, object]]:
        return [{"topic": DEFAULT_TOPIC, "subString": expression, "subVersion": 1}]

    return [
        beat("of an unknown model", SYSTEM_ERROR, messageModel=9),
        beat("of an unknown start", SYSTEM_ERROR, consumeFromWhere=99),
        beat("of a group with an illegal name", BAD_PARAMETER, groupName="no group!"),
        beat("without a tag", BAD_EXPRESSION, subscriptionDataSet=subscription("||")),
        Slip(
            what="heartbeat that is none",
            code=code.HEART_BEAT,
            body=b'{"clientID":',
            expected=SYSTEM_ERROR,
            is_garbled=True,
        ),
    ]


def _of_configs() -> list[Slip]:
    code = RequestCode

    def config(what: str, **fields: object) -> Slip:
        return Slip(
            what=f"group {what}",
            code=code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            body=json_body(**{"groupName": NOBODY, **fields}),
            expected=BAD_PARAMETER,
        )

    return [
        config("without a name", groupName=""),
        config("with a number beyond all", retryMaxTimes=1 << 40),
        config("with a number below all", retryQueueNums=-2),
        config("with an unknown attribute", attributes={"+nothing": "1"}),
        config("with an attribute that is neither set nor taken", attributes={"priority": "1"}),
        config("with too long a policy", groupRetryPolicy={"type": "x" * _LONG}),
        Slip(
            what="group that is no map",
            code=code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            body=b"[",
            expected=BAD_PARAMETER,
        ),
        Slip(
            what="deletion of no groups",
            code=code.DELETE_SUBSCRIPTION_GROUP_LIST,
            body=json_body(groupNameList=[]),
            expected=BAD_PARAMETER,
        ),
    ]


def _of_members(group: str) -> list[Slip]:
    code = RequestCode
    return [
        *(
            Slip(
                what=f"lock that is {what}",
                code=code.LOCK_BATCH_MQ,
                body=body,
                expected=BAD_PARAMETER,
                is_garbled=what == "none",
            )
            for what, body in (
                ("none", b"{"),
                ("of no group", json_body(consumerGroup="no group!", clientId="c", mqSet=[])),
                ("of nobody", json_body(consumerGroup=NOBODY, clientId="c" * _LONG, mqSet=[])),
            )
        ),
        *(
            Slip(
                what=f"acknowledgement that is {what}",
                code=code.BATCH_ACK_MESSAGE,
                body=body,
                expected=expected,
                is_garbled=what == "none",
            )
            for what, body, expected in (
                ("none", b"{", BAD_PARAMETER),
                ("of nothing", json_body(brokerName="", acks=[]), NO_MESSAGE),
                ("in no base", _ack(group, b="?!"), BAD_PARAMETER),
                ("below zero", _ack(group, so=-1), BAD_PARAMETER),
                ("of a queue below zero", _ack(group, q=-1), BAD_PARAMETER),
            )
        ),
    ]


def _of_filters() -> list[Slip]:
    return [
        Slip(
            what=f"filter {expression[:40]!r}",
            code=RequestCode.CHECK_CLIENT_CONFIG,
            body=json_body(
                clientId=NOBODY,
                group=NOBODY,
                subscriptionData={
                    "topic": DEFAULT_TOPIC,
                    "subString": expression,
                    "expressionType": "SQL92",
                    "subVersion": 1,
                },
            ),
            expected=BAD_EXPRESSION,
        )
        for expression in _EXPRESSIONS
    ]


def _ack(group: str, **changed: object) -> bytes:
    """Return a batch of one acknowledgement, of which something is wrong."""
    right = {
        "c": group,
        "t": DEFAULT_TOPIC,
        "r": "0",
        "so": 0,
        "q": 0,
        "rq": 0,
        "pt": 1_700_000_000_000,
        "it": 1_000,
        "b": "AQ==",
    }
    return json_body(brokerName="", acks=[right | changed])


def json_body(**fields: object) -> bytes:
    return json.dumps(fields).encode()
