"""HEART_BEAT, UNREGISTER_CLIENT, GET_CONSUMER_LIST_BY_GROUP, CHECK_CLIENT_CONFIG.

Place in the data path: feeds `broker.request.clients`, which rebalancing and check-backs read. A
heartbeat of a consumer also creates its `%RETRY%group` topic, through the log, on the leader; it is
answered once name servers know that topic, whose route the client queries next.
Rules: RocketMQ ClientManageProcessor, HeartbeatData.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from broker.entry.topics import (
    SYS_FLAG_UNIT_SUB,
    Topic,
    TopicNameError,
    check_group_name,
)
from broker.queues.message_filter import EXPRESSION_SIZE_MAX, TAG, FilterError
from broker.queues.sql import filter_of
from broker.request.clients import ClientsFullError, Subscription
from broker.request.commit import propose
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.proposal_answers import store_code_of
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.send.send_back import retry_queue_count
from raft.replicated_log import ProposalStatus
from remoting.errors import BodyError
from remoting.protocol import fastjson
from remoting.protocol.codes import ResponseCode
from remoting.protocol.frame import language_name
from remoting.protocol.group_topics import retry_topic
from remoting.protocol.headers import (
    GetConsumerListByGroupRequestHeader,
    UnregisterClientRequestHeader,
)

__all__ = ["ClientProcessor"]


_CLIENT_ID_SIZE_MAX = 1_024
_SUBSCRIPTIONS_MAX = 1_024
_GROUPS_MAX = 1_024
_BODY_SIZE_MAX = 4 << 20
_TOPIC_SIZE_MAX = 1_024
_COMPILED_SIZE_MAX = 131_072  # characters in one heartbeat: a quarter of a second to compile
_ANSWER_FIELDS: Final = {"IS_SUPPORT_HEART_BEAT_V2": "false", "IS_SUB_CHANGE": "false"}


class _Subscription(msgspec.Struct):
    topic: str
    subString: str | None = None
    subVersion: int = 0
    expressionType: str | None = "TAG"


class _CheckedClient(msgspec.Struct):
    clientId: str | None = None
    group: str | None = None
    subscriptionData: _Subscription | None = None


class _Producer(msgspec.Struct):
    groupName: str


class _Consumer(msgspec.Struct):
    groupName: str
    # Clients but Java's may write the places of these names in their enums.
    messageModel: str | int = "CLUSTERING"
    consumeType: str | int | None = None
    consumeFromWhere: str | int | None = None
    subscriptionDataSet: list[_Subscription] = []
    unitMode: bool = False


class _Heartbeat(msgspec.Struct):
    clientID: str
    producerDataSet: list[_Producer] = []
    consumerDataSet: list[_Consumer] = []
    withoutSub: bool = False  # version 2: the subscriptions are those that were sent before


_decoder = msgspec.json.Decoder(_Heartbeat)
_MESSAGE_MODELS: Final = ("BROADCASTING", "CLUSTERING")
_CONSUME_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
_CONSUME_FROM: Final = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
_DEFAULTS: Final = {
    _MESSAGE_MODELS: "CLUSTERING",
    _CONSUME_TYPES: "CONSUME_PASSIVELY",
    _CONSUME_FROM: "CONSUME_FROM_LAST_OFFSET",
}


class ClientProcessor:
    """Handler of heartbeats, and of queries about the members of groups."""

    def __init__(self, replica: Replica, leadership: Leadership, desk: Desk) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk

    def heartbeat(self, request: Request) -> None:
        """Note the client as a member of its groups (HEART_BEAT), and create the topics for their
        retries; the answer follows. Raises RefusedError, for a single group once the others are
        noted."""
        _check("bytes of a heartbeat", len(request.command.body), _BODY_SIZE_MAX)
        heartbeat = _decoded(request.command.body)
        _check_names(heartbeat)
        clients, now_ms = self._desk.clients, self._replica.monotonic_ms()
        language, version = language_name(request.command.language), request.command.version
        retry_topics: dict[str, Topic] = {}
        refused: RefusedError | None = None
        compiled_size = 0
        try:
            for producer in heartbeat.producerDataSet:
                clients.producer_seen(
                    producer.groupName,
                    heartbeat.clientID,
                    request.connection,
                    now_ms,
                    language=language,
                    version=version,
                    account=request.account,
                )
            for consumer in heartbeat.consumerDataSet:
                try:
                    size = compiled_size + _compiled_size(consumer)
                    _check("characters of expressions in one heartbeat", size, _COMPILED_SIZE_MAX)
                    compiled_size = size
                    subscriptions = (
                        list(clients.subscriptions(consumer.groupName).values())
                        if heartbeat.withoutSub
                        else [_subscription(data) for data in consumer.subscriptionDataSet]
                    )
                    model = _named(consumer.messageModel, _MESSAGE_MODELS)
                    consume_type = _named(consumer.consumeType, _CONSUME_TYPES)
                    consume_from_where = _named(consumer.consumeFromWhere, _CONSUME_FROM)
                except RefusedError as error:
                    # A client has one heartbeat for all its groups: the others are members.
                    refused = refused or error
                    continue
                clients.consumer_seen(
                    consumer.groupName,
                    heartbeat.clientID,
                    request.connection,
                    message_model=model,
                    subscriptions=subscriptions,
                    now_ms=now_ms,
                    consume_type=consume_type,
                    consume_from_where=consume_from_where,
                    language=language,
                    version=version,
                    notifies=self._notifies(consumer.groupName),
                )
                if model == "CLUSTERING":
                    self._want_retry_topic(consumer, retry_topics)
        except ClientsFullError as error:
            self._make_topics(retry_topics)
            raise RefusedError(ResponseCode.SYSTEM_BUSY, str(error)) from error
        if refused is not None:
            self._make_topics(retry_topics)
            raise refused
        answer = partial(request.reply, ResponseCode.SUCCESS, None, _ANSWER_FIELDS)
        self._make_topics(retry_topics, then=answer)

    def unregister(self, header: UnregisterClientRequestHeader, request: Request) -> None:
        """Remove the client from its groups (UNREGISTER_CLIENT)."""
        self._desk.clients.unregister(
            header.client_id,
            header.producer_group or "",
            header.consumer_group or "",
            request.connection,
        )
        request.reply(ResponseCode.SUCCESS)

    def consumer_list(self, header: GetConsumerListByGroupRequestHeader, request: Request) -> None:
        """Answer with the group's client ids (GET_CONSUMER_LIST_BY_GROUP). Raises RefusedError.

        Only the leader does, or a slave without its master: a follower that has just started has
        heard of some of the members, and who took its word for it would share queues out among
        these.
        """
        if not self._leadership.ready and not self._leadership.is_orphan:
            raise self._leadership.not_leader()
        group = header.consumer_group
        members = self._desk.clients.consumer_ids(group)
        if not members:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode({"consumerIdList": members}))

    def check_config(self, request: Request) -> None:
        """Check a consumer's subscription (CHECK_CLIENT_CONFIG). Raises RefusedError where the
        broker does not accept it."""
        try:
            wanted = fastjson.decode_request(request.command.body, _CheckedClient).subscriptionData
        except BodyError as error:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"client config: {error}") from error
        if wanted is not None and (wanted.expressionType or TAG) != TAG:
            if not self._replica.config.enable_property_filter:
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    "The broker does not support consumer to filter message by "
                    f"{wanted.expressionType}",
                )
            try:
                filter_of(wanted.expressionType, wanted.subString)
            except FilterError as error:
                raise RefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
        request.reply(ResponseCode.SUCCESS)

    def _notifies(self, group: str) -> bool:
        config = self._replica.state.groups.get(group)
        return config is None or config.get("notifyConsumerIdsChangedEnable") is not False

    def _want_retry_topic(self, consumer: _Consumer, wanted: dict[str, Topic]) -> None:
        replica, leadership = self._replica, self._leadership
        name = retry_topic(consumer.groupName)
        if not leadership.ready or leadership.proposer.topic(name) is not None:
            return
        if len(replica.state.topics) + len(wanted) >= replica.state.limits.topics_max:
            return  # without it the group still consumes; its retries are refused by name
        count = max(1, retry_queue_count(replica, consumer.groupName))
        wanted[name] = Topic(
            name=name,
            read_queue_count=count,
            write_queue_count=count,
            sys_flag=SYS_FLAG_UNIT_SUB if consumer.unitMode else 0,
        )

    def _make_topics(
        self, topics: dict[str, Topic], then: Callable[[], None] = lambda: None
    ) -> None:
        """Create the topics, in one proposal: how many may wait is limited. `then` is called once
        name servers know them, or as soon as it is sure that they won't be told of them."""

        def ended(status: ProposalStatus | None) -> None:
            # Where too many proposals wait, or this one failed, the next heartbeat creates them.
            if store_code_of(status) is not None:
                self._desk.when_routes_registered(then)
            else:
                then()

        if topics:
            commands = [topic.command() for topic in topics.values()]
            propose(self._leadership, commands, ended=ended)
        else:
            then()


def _decoded(body: bytes) -> _Heartbeat:
    """Decode as fastjson does: C++ clients write numbers as text. Raises RefusedError."""
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            return fastjson.decode_request(body, _Heartbeat)
        except BodyError as error:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"heartbeat: {error}") from error


def _named(value: str | int | None, names: tuple[str, ...]) -> str:
    """Return the name of an enum's value, given by its name or its place in `names`. Raises
    RefusedError."""
    if isinstance(value, int):
        if not 0 <= value < len(names):
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"heartbeat: {value} is none of {names}")
        return names[value]
    return value or _DEFAULTS[names]


def _check_names(heartbeat: _Heartbeat) -> None:
    groups = [producer.groupName for producer in heartbeat.producerDataSet]
    groups += [consumer.groupName for consumer in heartbeat.consumerDataSet]
    try:
        for group in groups:
            check_group_name(group)
    except TopicNameError as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"{error}.") from error
    _check("groups in one heartbeat", len(groups), _GROUPS_MAX)
    _check("characters of a client id", len(heartbeat.clientID), _CLIENT_ID_SIZE_MAX)


def _compiled_size(consumer: _Consumer) -> int:
    """Return how many characters of expressions are compiled for a consumer. Raises RefusedError
    where it has too many, or too long ones."""
    _check("subscriptions", len(consumer.subscriptionDataSet), _SUBSCRIPTIONS_MAX)
    compiled_size = 0
    for data in consumer.subscriptionDataSet:
        size = len(data.subString or "")
        _check("characters of a topic", len(data.topic), _TOPIC_SIZE_MAX)
        _check("characters of an expression", size, EXPRESSION_SIZE_MAX)
        compiled_size += size
    return compiled_size


def _check(what: str, count: int, count_max: int) -> None:
    if count > count_max:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER, f"{count} {what}; at most {count_max} are allowed"
        )


def _subscription(data: _Subscription) -> Subscription:
    """Compile a subscription. Raises RefusedError.

    An invalid SQL expression makes pulls fail (27), not the heartbeat, as in RocketMQ: clients that
    want to know beforehand send CHECK_CLIENT_CONFIG.
    """
    kind = data.expressionType or TAG
    try:
        wanted = filter_of(kind, data.subString)
    except FilterError as error:
        if kind == TAG:
            raise RefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
        wanted = None
    return Subscription(
        topic=data.topic,
        expression=data.subString or "*",
        version=data.subVersion,
        filter=wanted,
        kind=kind,
    )
