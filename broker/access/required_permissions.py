"""What a request needs: an administrator, or permissions on topics and groups. Pure.

Place in the data path: `broker.access.access_control` compares it with what the account may. A
group is named by its retry topic, as in the accounts. Questions that tell nothing of a message's
content need a valid signature and nothing more. A request that stands nowhere here is an
administrator's. What a request is about and does not say itself, its processor finds out
(`broker.request.stored_topic`).

Beyond RocketMQ: whatever changes topics, groups, offsets of others, members or configuration is an
administrator's; lite pulls, POP, offsets and locks need what a pull needs; replies, recalls and
ends of transactions that name a topic need what a send needs; a send to a retry topic is judged by
the group in the topic's name, not by the group that the sender names.

Source: RocketMQ PlainAccessResource.parse, Permission.ADMIN_CODE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from broker.access.accounts import Permission
from broker.entry.policies import Action, ResourceKind
from broker.entry.topics import RETRY_PREFIX
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = [
    "FREE",
    "OPERATORS",
    "MalformedRequestError",
    "Needs",
    "administration_of",
    "is_listed",
    "needs_admin",
    "needs_of",
]

Needs: TypeAlias = dict[str, Permission]

FREE: Final = frozenset({RequestCode.LEDGERMQ_CLOCK})
"""What needs no account: a group has to know its time whether or not its brokers have been given
an account of their own."""

_SUB: Final = Permission.SUB
_PUB: Final = Permission.PUB
_ADMIN: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.POP_ROLLBACK,
        RequestCode.RESET_MASTER_FLUSH_OFFSET,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_GET_USER,
        RequestCode.AUTH_LIST_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
        RequestCode.AUTH_GET_ACL,
        RequestCode.AUTH_LIST_ACL,
        RequestCode.LEDGERMQ_CHANGE_MEMBER,
        RequestCode.LEDGERMQ_TRANSFER,
    }
)

_QUESTIONS: Final = frozenset(
    {
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.POLLING_INFO,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.GET_ALL_PRODUCER_INFO,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.VIEW_BROKER_STATS_DATA,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.LEDGERMQ_STATUS,
        RequestCode.LEDGERMQ_MEMBERS,
        RequestCode.LEDGERMQ_CLOCK,
    }
)


_OF_CLIENTS: Final = frozenset(
    {
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.POLLING_INFO,
    }
)
OPERATORS: Final = (_ADMIN | _QUESTIONS) - _OF_CLIENTS
"""What operators' tools and the members of a group ask, and clients at work do not."""


class MalformedRequestError(ValueError):
    """The request's body does not say what it is about."""


class _SubscriptionData(msgspec.Struct):
    topic: str = ""


class _ConsumerData(msgspec.Struct):
    groupName: str = ""
    subscriptionDataSet: list[_SubscriptionData] | None = None


class _Heartbeat(msgspec.Struct):
    consumerDataSet: list[_ConsumerData] | None = None


class _Locks(msgspec.Struct):
    consumerGroup: str = ""


class _Ack(msgspec.Struct):
    c: str | None = None
    t: str | None = None
    consumerGroup: str | None = None
    topic: str | None = None


class _Acks(msgspec.Struct):
    acks: list[_Ack] | None = None


class _Assignment(msgspec.Struct):
    topic: str = ""
    consumerGroup: str = ""


def needs_admin(code: int) -> bool:
    """Whether a request of this code is an administrator's."""
    return code in _ADMIN or (code not in _RULES and code not in _QUESTIONS)


def is_listed(code: int) -> bool:
    """Whether somebody has thought of what this request needs."""
    return code in _ADMIN or code in _RULES or code in _QUESTIONS


def needs_of(command: RemotingCommand) -> Needs:
    """Raises MalformedRequestError."""
    rule = _RULES.get(command.code)
    if rule is None:
        return {}
    needs: Needs = {}
    try:
        rule(command, needs)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedRequestError(f"the body can't be read: {error}") from error
    return needs


def administration_of(command: RemotingCommand, cluster: str) -> tuple[ResourceKind, str, Action]:
    """What a user of 5.x needs where an account of 4.x has to be an administrator."""
    topic = command.ext_fields.get("topic")
    if topic and command.code == RequestCode.UPDATE_AND_CREATE_TOPIC:
        return ResourceKind.TOPIC, topic, Action.CREATE
    if topic and command.code == RequestCode.DELETE_TOPIC_IN_BROKER:
        return ResourceKind.TOPIC, topic, Action.DELETE
    return ResourceKind.CLUSTER, cluster, Action.UPDATE


def _need(needs: Needs, resource: str | None, permission: Permission) -> None:
    if resource:
        needs[resource] = needs.get(resource, Permission.NONE) | permission


def _need_group(needs: Needs, group: str | None) -> None:
    if group:
        _need(needs, group if group.startswith(RETRY_PREFIX) else RETRY_PREFIX + group, _SUB)


def _publish(field: str) -> Callable[[RemotingCommand, Needs], None]:
    def rule(command: RemotingCommand, needs: Needs) -> None:
        topic = command.ext_fields.get(field)
        is_retry = topic is not None and topic.startswith(RETRY_PREFIX)
        _need(needs, topic, _SUB if is_retry else _PUB)

    return rule


def _consume(topic: str | None, group: str | None) -> Callable[[RemotingCommand, Needs], None]:
    """By the names of the fields that hold topic and group."""

    def rule(command: RemotingCommand, needs: Needs) -> None:
        if topic is not None:
            _need(needs, command.ext_fields.get(topic), _SUB)
        if group is not None:
            _need_group(needs, command.ext_fields.get(group))

    return rule


def _held(command: RemotingCommand, needs: Needs) -> None:
    """What a group has popped, perhaps from its own retries of a topic."""
    group = command.ext_fields.get("consumerGroup")
    topic = command.ext_fields.get("topic", "").removeprefix(f"{RETRY_PREFIX}{group}_")
    _need(needs, topic, _SUB)
    _need_group(needs, group)


def _heartbeat(command: RemotingCommand, needs: Needs) -> None:
    heartbeat = msgspec.json.decode(command.body, type=_Heartbeat)
    for consumer in heartbeat.consumerDataSet or ():
        _need_group(needs, consumer.groupName)
        for subscription in consumer.subscriptionDataSet or ():
            _need(needs, subscription.topic, _SUB)


def _locks(command: RemotingCommand, needs: Needs) -> None:
    _need_group(needs, msgspec.json.decode(command.body, type=_Locks).consumerGroup)


def _acks(command: RemotingCommand, needs: Needs) -> None:
    for ack in msgspec.json.decode(command.body, type=_Acks).acks or ():
        for topic in (ack.t, ack.topic):  # both, whichever the processor obeys
            _need(needs, topic, _SUB)
        for group in (ack.c, ack.consumerGroup):
            _need_group(needs, group)


def _assignment(command: RemotingCommand, needs: Needs) -> None:
    wanted = msgspec.json.decode(command.body, type=_Assignment)
    _need(needs, wanted.topic, _SUB)
    _need_group(needs, wanted.consumerGroup)


_READ: Final = _consume("topic", "consumerGroup")
_RULES: Final[Mapping[int, Callable[[RemotingCommand, Any], None]]] = {
    RequestCode.SEND_MESSAGE: _publish("topic"),
    RequestCode.SEND_MESSAGE_V2: _publish("b"),
    RequestCode.SEND_BATCH_MESSAGE: _publish("b"),
    RequestCode.SEND_REPLY_MESSAGE: _publish("topic"),
    RequestCode.SEND_REPLY_MESSAGE_V2: _publish("b"),
    RequestCode.END_TRANSACTION: _publish("topic"),
    RequestCode.RECALL_MESSAGE: _publish("topic"),
    RequestCode.CONSUMER_SEND_MSG_BACK: _consume(None, "group"),
    RequestCode.PULL_MESSAGE: _READ,
    RequestCode.LITE_PULL_MESSAGE: _READ,
    RequestCode.QUERY_CONSUMER_OFFSET: _READ,
    RequestCode.UPDATE_CONSUMER_OFFSET: _READ,
    RequestCode.QUERY_MESSAGE: _consume("topic", None),
    RequestCode.VIEW_MESSAGE_BY_ID: _consume("topic", None),
    RequestCode.QUERY_CONSUME_QUEUE: _consume("topic", None),
    RequestCode.UNREGISTER_CLIENT: _consume(None, "consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _consume(None, "consumerGroup"),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _READ,
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.QUERY_ASSIGNMENT: _assignment,
    RequestCode.POP_MESSAGE: _READ,
    RequestCode.ACK_MESSAGE: _held,
    RequestCode.PEEK_MESSAGE: _READ,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _held,
    RequestCode.NOTIFICATION: _READ,
    RequestCode.BATCH_ACK_MESSAGE: _acks,
}
