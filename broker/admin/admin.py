"""Topics: create, change, delete and list them; and LEDGERMQ_STATUS.

Place in the data path: topics change through the log (promise G5); every committed change is
registered with the name servers at once. Rules: RocketMQ AdminBrokerProcessor.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any, TypeVar

import msgspec

from broker.admin.release import release
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
from broker.request.commit import commit, commit_each
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.state.tombstone_offsets import FLOORS_MAX
from remoting.errors import BodyError
from remoting.protocol import fastjson
from remoting.protocol.codes import ResponseCode
from remoting.protocol.headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    StatusRequestHeader,
    TopicRequestHeader,
)

__all__ = ["AdminProcessor"]

_QUEUE_COUNT_MAX = 1_024
_LIST_SIZE_MAX = 1 << 20
_NAME_SIZE_MAX = 255  # of a retry topic
_T = TypeVar("_T")
_FILTER_TYPES = (None, "", "SINGLE_TAG", "MULTI_TAG")


class _TopicConfig(msgspec.Struct):
    """RocketMQ's TopicConfig as requested; signs of attributes say what to change of them."""

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


class _TopicNames(msgspec.Struct):
    topicList: list[str] = []


class AdminProcessor:
    """Requests about topics, and about the state of this replica."""

    def __init__(self, replica: Replica, leadership: Leadership, desk: Desk) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk
        self._release = release()

    def update_topic(self, header: CreateTopicRequestHeader, request: Request) -> None:
        """Create or change a topic (UPDATE_AND_CREATE_TOPIC); the answer follows once that is
        committed and name servers know it. Raises RefusedError."""
        self._update(request, [_of_header(header)])

    def update_topics(self, request: Request) -> None:
        """Create or change all of some topics, or none of them (UPDATE_AND_CREATE_TOPIC_LIST);
        the answer follows. Raises RefusedError."""
        self._update(request, _decoded(request.command.body, _TopicConfigs).topicConfigList)

    def _update(self, request: Request, wanted: list[_TopicConfig]) -> None:
        replica, leadership = self._replica, self._leadership
        state = replica.state.topics
        topics: dict[str, Topic] = {}
        for config in wanted:
            known = topics.get(config.topicName) or leadership.proposer.topic(config.topicName)
            _check_not_system(replica, config.topicName)
            topics[config.topicName] = _topic_of(config, known)
        changed = [  # against what is in flight, and what is committed if that comes to nothing
            topic
            for topic in topics.values()
            if not topic == leadership.proposer.topic(topic.name) == state.get(topic.name)
        ]
        fresh = sum(topic.name not in state for topic in changed)
        if len(state) + fresh > replica.state.limits.topics_max:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, "this broker has its most topics already")
        # What seems to be so already is proposed, too: a leader that was deposed without knowing it
        # has not seen the topic changed or deleted meanwhile.
        commit(
            leadership,
            request,
            [topic.command() for topic in changed or topics.values()],
            answer=partial(self._reply_when_registered, request),
        )

    def delete_topic(self, header: DeleteTopicRequestHeader, request: Request) -> None:
        """Delete a topic and its consumer offsets (DELETE_TOPIC_IN_BROKER); a new topic of that
        name never reuses offsets of its queues. Raises RefusedError; else the answer follows once
        that is committed and name servers know it: a tool deletes the topic there next, and a
        registration that was on its way, with the topic, would bring it back."""
        self._delete(request, [header.topic])

    def delete_topics(self, request: Request) -> None:
        """Delete some topics, each as `delete_topic` does (DELETE_TOPIC_IN_BROKER_LIST); none where
        one of them may not be. Raises RefusedError; else the answer follows."""
        names = _decoded(request.command.body, _TopicNames).topicList
        if not names:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, "The specified topic list is blank.")
        self._delete(request, list(dict.fromkeys(names)))

    def _delete(self, request: Request, names: list[str]) -> None:
        replica = self._replica
        for name in names:
            if not name.strip():
                raise RefusedError(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
            if len(name) > _NAME_SIZE_MAX:
                raise RefusedError(
                    ResponseCode.INVALID_PARAMETER,
                    f"a topic of {len(name)} characters; at most {_NAME_SIZE_MAX} are allowed",
                )
            _check_not_system(replica, name)
        # Propose it for a topic that seems to be gone, too: a deletion in flight may fail, and a
        # leader deposed without knowing it has not seen the topic created anew. Only a committed
        # entry proves that the topic is gone.
        # The last of them may go beyond the bound, by as many queues as a topic has.
        state = replica.state
        kept = max(len(state.floors), len(state.deletions))
        kept += sum([_queue_count(state.topics.get(name)) for name in names[1:]])
        if kept >= FLOORS_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY, f"{FLOORS_MAX} queues of deleted topics are kept already"
            )
        commit_each(
            self._leadership,
            request,
            [DeleteTopicCommand(name) for name in names],
            answer=partial(self._reply_when_registered, request),
        )

    def _reply_when_registered(self, request: Request) -> None:
        self._desk.when_routes_registered(partial(request.reply, ResponseCode.SUCCESS))

    def clean_unused_topics(self, request: Request) -> None:
        """Answer CLEAN_UNUSED_TOPIC without doing anything: a topic's deletion has deleted the
        files of its queues."""
        request.reply(ResponseCode.SUCCESS)

    def system_topics(self, request: Request) -> None:
        """Answer GET_SYSTEM_TOPIC_LIST_FROM_BROKER."""
        names = [name for name in self._replica.state.topics if is_system_topic(name)]
        own = sorted({*names, *self._replica.own_topics})
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode({"topicList": own}))

    def all_topics(self, request: Request) -> None:
        """Answer GET_ALL_TOPIC_CONFIG with every topic that this replica has applied, and their
        version. There is no read point: a follower's answer may be behind."""
        status = self._replica.log.status()
        state = self._replica.state
        body = {
            "topicConfigTable": {topic.name: _shown(topic) for topic in state.topics.values()},
            "dataVersion": {
                "stateVersion": status.term,
                "timestamp": state.topics_changed_ms,
                "counter": state.topics_version,
            },
        }
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(body))

    def topic_config(self, header: TopicRequestHeader, request: Request) -> None:
        """Answer GET_TOPIC_CONFIG. Raises RefusedError where there is no such topic."""
        name = header.topic
        topic = self._replica.state.topics.get(name)
        if topic is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}"
            )
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(_shown(topic)))

    def status(self, header: StatusRequestHeader, request: Request) -> None:
        """Answer LEDGERMQ_STATUS with the state of this replica, without a read point: what it
        reports may be behind. Queues only where they are asked for: the request is a poll."""
        config, status = self._replica.config, self._replica.log.status()
        state = self._replica.state
        body: dict[str, Any] = {
            "group": config.group,
            "node": config.node,
            "pid": os.getpid(),
            "address": config.advertised,
            "role": status.role.value,
            "term": status.term,
            "leader": status.leader_id,
            "ready": self._leadership.ready and status.ready,
            "first_index": status.first_index,
            "last_index": status.last_index,
            "commit_index": status.commit_index,
            "applied_index": status.applied_index,
            "voters": list(status.voters),
            "learners": list(status.learners),
            "phase": status.phase.value,
            "release": self._release,
            "writable": status.writable,
            "disk_full": self._leadership.room.want is not None or not status.writable,
            "begin_position": status.begin_position,
            "end_position": self._replica.log.retention_bounds().end_position,
            "undecided_halves": len(state.halves),
            "held_pulls": len(self._desk.long_polling),
            "longest_stalls_ms": _longest_stalls(self._desk),
            "wrong_clock": None if self._desk.wrong_clock is None else self._desk.wrong_clock(),
        }
        if header.queues:
            body["queues"] = [
                {
                    "topic": topic,
                    "queue": queue_id,
                    "min_offset": queue.min_offset,
                    "max_offset": queue.next_offset,
                }
                for topic, queue_id, queue in self._replica.queues.items()
            ]
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(body))


def _queue_count(topic: Topic | None) -> int:
    return 0 if topic is None else max(topic.read_queue_count, topic.write_queue_count)


def _longest_stalls(desk: Desk) -> dict[str, int]:
    """Return the longest time that each kind of work blocked the loop; "loop" is any of them."""
    if desk.stalls is None:
        return {}
    return {name: round(ms) for name, ms in desk.stalls.longest_ms.items()}


def _decoded(body: bytes, kind: type[_T]) -> _T:
    """Raises RefusedError where the body is too long, or no list of that kind."""
    if len(body) > _LIST_SIZE_MAX:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"{len(body)} bytes of topics; at most {_LIST_SIZE_MAX} are allowed",
        )
    try:
        return fastjson.decode(body, kind)
    except BodyError as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"{error}.") from error


def _shown(topic: Topic) -> dict[str, Any]:
    """Return RocketMQ's TopicConfig."""
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


def _of_header(header: CreateTopicRequestHeader) -> _TopicConfig:
    """Raises RefusedError where the attributes can't be parsed."""
    try:
        attributes = parsed(header.attributes or "")
    except BadAttributeError as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, str(error)) from error
    return _TopicConfig(
        topicName=header.topic,
        readQueueNums=header.read_queue_nums,
        writeQueueNums=header.write_queue_nums,
        perm=header.perm,
        topicFilterType=header.topic_filter_type,
        topicSysFlag=header.topic_sys_flag or 0,
        order=header.order,
        attributes=attributes,
    )


def _check_not_system(replica: Replica, name: str) -> None:
    """Raises RefusedError for a topic that brokers themselves rely on, and for one named as their
    cluster or group: clients look brokers up by those."""
    if is_system_topic(name) or name in replica.own_topics:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic."
        )


def _topic_of(config: _TopicConfig, known: Topic | None) -> Topic:
    """Return the topic as requested. Raises RefusedError where that is illegal."""
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
