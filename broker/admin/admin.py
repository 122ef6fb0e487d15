"""Topics: made, changed, deleted, shown; and LEDGERMQ_STATUS.

Place in the data path: topics change through the log (promise G5); every committed change is
registered with the name servers at once. Rules: RocketMQ AdminBrokerProcessor.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import msgspec

from broker.entry.payload import DeleteTopicCommand
from broker.entry.topic_attributes import TOPIC_ATTRIBUTES, BadAttributeError, altered, parsed
from broker.entry.topics import (
    PERM_READ,
    PERM_WRITE,
    Topic,
    TopicNameError,
    check_topic_name,
    is_system_topic,
)
from broker.request.commit import commit
from broker.request.context import BrokerContext
from broker.request.request import RefusedError, Request
from broker.state.tombstone_offsets import FLOORS_MAX
from remoting.errors import BodyError
from remoting.protocol import fastjson
from remoting.protocol.codes import ResponseCode

__all__ = ["AdminProcessor"]

_QUEUE_COUNT_MAX = 1_024
_LIST_SIZE_MAX = 1 << 20
_NAME_SIZE_MAX = 255  # of a retry topic
_FILTER_TYPES = (None, "", "SINGLE_TAG", "MULTI_TAG")


class _TopicConfig(msgspec.Struct):
    """RocketMQ's TopicConfig, its attributes with signs: what shall change of them."""

    topicName: str
    readQueueNums: int = 16
    writeQueueNums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topicFilterType: str | None = None
    topicSysFlag: int = 0
    order: bool = False
    attributes: dict[str, str] = {}


class _TopicConfigs(msgspec.Struct):
    topicConfigList: list[_TopicConfig]


class AdminProcessor:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def update_topic(self, request: Request) -> None:
        """UPDATE_AND_CREATE_TOPIC: answered once it is committed and name servers know it."""
        self._context.require_leader()
        self._update(request, [_of_header(request)])

    def update_topics(self, request: Request) -> None:
        """UPDATE_AND_CREATE_TOPIC_LIST: all of them or none."""
        self._context.require_leader()
        body = request.command.body
        if len(body) > _LIST_SIZE_MAX:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"{len(body)} bytes of topics; at most {_LIST_SIZE_MAX} are allowed",
            )
        try:
            wanted = fastjson.decode(body, _TopicConfigs).topicConfigList
        except BodyError as error:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, f"{error}.") from error
        self._update(request, wanted)

    def _update(self, request: Request, wanted: list[_TopicConfig]) -> None:
        context = self._context
        state = context.state.topics
        topics: dict[str, Topic] = {}
        for config in wanted:
            known = topics.get(config.topicName) or context.proposer.topic(config.topicName)
            _check_not_system(context, config.topicName)
            topics[config.topicName] = _topic_of(config, known)
        changed = [  # against what is in flight, and what is committed if that comes to nothing
            topic
            for topic in topics.values()
            if not topic == context.proposer.topic(topic.name) == state.get(topic.name)
        ]
        fresh = sum(topic.name not in state for topic in changed)
        if len(state) + fresh > context.state.limits.topics_max:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, "this broker has its most topics already")
        if changed:
            commit(
                context,
                request,
                [topic.command() for topic in changed],
                answer=lambda: context.when_routes_told(
                    partial(request.reply, ResponseCode.SUCCESS)
                ),
            )
        else:
            request.reply(ResponseCode.SUCCESS)

    def delete_topic(self, request: Request) -> None:
        """DELETE_TOPIC_IN_BROKER: with its offsets; its queues' offsets never come again."""
        context = self._context
        name = request.text("topic")
        context.require_leader()  # a follower has handed the request on already
        if not name.strip():
            raise RefusedError(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        if len(name) > _NAME_SIZE_MAX:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"a topic of {len(name)} characters; there is none above {_NAME_SIZE_MAX}",
            )
        _check_not_system(context, name)
        # Also of a topic that seems to be gone: what is in flight may come to nothing, and who was
        # deposed without knowing it has not seen the topic made anew. The entry proves both.
        if max(len(context.state.floors), len(context.state.deletions)) >= FLOORS_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY, f"{FLOORS_MAX} queues of deleted topics are kept already"
            )
        commit(context, request, [DeleteTopicCommand(name)], ends_batch=True)

    def clean_unused_topics(self, request: Request) -> None:
        """CLEAN_UNUSED_TOPIC: a deletion has taken the files of a topic's queues already."""
        request.reply(ResponseCode.SUCCESS)

    def system_topics(self, request: Request) -> None:
        """GET_SYSTEM_TOPIC_LIST_FROM_BROKER."""
        names = [name for name in self._context.state.topics if is_system_topic(name)]
        own = sorted({*names, *self._context.own_topics})
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode({"topicList": own}))

    def all_topics(self, request: Request) -> None:
        """GET_ALL_TOPIC_CONFIG."""
        status = self._context.log.status()
        state = self._context.state
        body = {
            "topicConfigTable": {topic.name: _shown(topic) for topic in state.topics.values()},
            "dataVersion": {
                "stateVersion": status.term,
                "timestamp": state.topics_changed_ms,
                "counter": state.topics_version,
            },
        }
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(body))

    def topic_config(self, request: Request) -> None:
        """GET_TOPIC_CONFIG."""
        name = request.text("topic")
        topic = self._context.state.topics.get(name)
        if topic is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}"
            )
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(_shown(topic)))

    def status(self, request: Request) -> None:
        """LEDGERMQ_STATUS: how this replica stands; no promise goes with it."""
        config, status = self._context.config, self._context.log.status()
        state = self._context.state
        body = {
            "group": config.group,
            "node": config.node,
            "pid": os.getpid(),
            "address": config.advertised,
            "role": status.role.value,
            "term": status.term,
            "leader": status.leader_id,
            "ready": self._context.ready and status.ready,
            "first_index": status.first_index,
            "last_index": status.last_index,
            "commit_index": status.commit_index,
            "applied_index": status.applied_index,
            "voters": list(status.voters),
            "learners": list(status.learners),
            "phase": status.phase.value,
            "writable": status.writable,
            "disk_full": self._context.want_of_room is not None or not status.writable,
            "begin_position": status.begin_position,
            "end_position": self._context.log.retention_bounds().end_position,
            "undecided_halves": len(state.halves),
            "held_pulls": len(self._context.long_polling),
            "longest_stalls_ms": _longest_stalls(self._context),
            "queues": [
                {
                    "topic": topic,
                    "queue": queue_id,
                    "min_offset": queue.min_offset,
                    "max_offset": queue.next_offset,
                }
                for topic, queue_id, queue in self._context.queues.items()
            ],
        }
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(body))


def _longest_stalls(context: BrokerContext) -> dict[str, int]:
    """The longest time that each kind of work held up the loop; "loop" is any of them."""
    if context.stalls is None:
        return {}
    return {name: round(ms) for name, ms in context.stalls.longest_ms.items()}


def _shown(topic: Topic) -> dict[str, Any]:
    """RocketMQ's TopicConfig."""
    return {
        "topicName": topic.name,
        "readQueueNums": topic.read_queue_count,
        "writeQueueNums": topic.write_queue_count,
        "perm": topic.perm,
        "topicFilterType": topic.filter_type,
        "topicSysFlag": topic.sys_flag,
        "order": topic.order,
        "attributes": dict(topic.attributes),
    }


def _of_header(request: Request) -> _TopicConfig:
    try:
        attributes = parsed(request.fields.get("attributes") or "")
    except BadAttributeError as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, str(error)) from error
    return _TopicConfig(
        topicName=request.text("topic"),
        readQueueNums=request.integer("readQueueNums"),
        writeQueueNums=request.integer("writeQueueNums"),
        perm=request.integer("perm"),
        topicFilterType=request.fields.get("topicFilterType"),
        topicSysFlag=request.integer_or("topicSysFlag", 0),
        order=request.boolean_or("order", False),
        attributes=attributes,
    )


def _check_not_system(context: BrokerContext, name: str) -> None:
    """Nobody changes or deletes what the brokers themselves rely on, nor what is named as their
    cluster or group: clients learn of brokers by those."""
    if is_system_topic(name) or name in context.own_topics:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic."
        )


def _topic_of(config: _TopicConfig, known: Topic | None) -> Topic:
    """The topic as it shall be. Raises RefusedError."""
    name = config.topicName
    try:
        check_topic_name(name)
    except TopicNameError as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"{error}.") from error
    read, write, perm = config.readQueueNums, config.writeQueueNums, config.perm
    if not (0 < read <= _QUEUE_COUNT_MAX and 0 < write <= _QUEUE_COUNT_MAX and 0 <= perm <= 7):
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"readQueueNums {read}, writeQueueNums {write}, perm {perm}: queues must be 1 to "
            f"{_QUEUE_COUNT_MAX}, perm 0 to 7",
        )
    sys_flag, filter_type = config.topicSysFlag, config.topicFilterType
    if not 0 <= sys_flag < 1 << 31 or filter_type not in _FILTER_TYPES:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"topicSysFlag {sys_flag}, topicFilterType {str(filter_type)[:40]!r}: not both legal",
        )
    try:
        before = None if known is None else known.attributes
        attributes = altered(before, config.attributes, TOPIC_ATTRIBUTES)
    except BadAttributeError as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, str(error)) from error
    return Topic(
        name=name,
        read_queue_count=read,
        write_queue_count=write,
        perm=perm,
        filter_type=filter_type or "SINGLE_TAG",
        sys_flag=sys_flag,
        order=config.order,
        attributes=attributes,
    )
