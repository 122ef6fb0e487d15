"""UPDATE_AND_CREATE_TOPIC, GET_ALL_TOPIC_CONFIG, LEDGERMQ_STATUS.

Place in the data path: topics change through the log (promise G5); every committed change is
registered with the name servers at once. Rules: RocketMQ AdminBrokerProcessor.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from broker.context import BrokerContext
from broker.outcomes import refused_of
from broker.proposer import BusyError, Proposal
from broker.request import RefusedError, Request
from broker.topics import Topic, TopicNameError, check_topic_name, is_system_topic
from raft.replicated_log import ProposalStatus
from remoting.codes import ResponseCode

__all__ = ["AdminProcessor"]

_QUEUE_COUNT_MAX = 1_024
_ATTRIBUTES_MAX = 64
_ATTRIBUTES_SIZE_MAX = 4_096
_FILTER_TYPES = (None, "", "SINGLE_TAG", "MULTI_TAG")


class AdminProcessor:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def update_topic(self, request: Request) -> None:
        """UPDATE_AND_CREATE_TOPIC: answered once the topic is committed."""
        context = self._context
        context.require_leader()
        topic = _topic_of(request)
        known = context.proposer.topic(topic.name)
        if known == topic:
            request.reply(ResponseCode.SUCCESS)
            return
        if known is None and len(context.state.topics) >= context.state.limits.topics_max:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, "this broker has its most topics already")
        if known is not None:
            attributes = {**known.attributes, **topic.attributes}
            for name in _removed_attributes(request):
                attributes.pop(name, None)
            if len(attributes) > _ATTRIBUTES_MAX:
                raise RefusedError(
                    ResponseCode.INVALID_PARAMETER,
                    f"{len(attributes)} attributes; at most {_ATTRIBUTES_MAX} are allowed",
                )
            topic = Topic(**{**_values(topic), "attributes": attributes})

        def done(status: ProposalStatus | None) -> None:
            refused = refused_of(status, context.not_leader_remark)
            if refused is None:
                request.reply(ResponseCode.SUCCESS)
            else:
                request.refuse(refused)

        try:
            context.proposer.submit(Proposal(commands=[topic.command()], on_done=done))
        except BusyError as error:
            raise RefusedError(ResponseCode.SYSTEM_BUSY, str(error)) from error

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
            "ready": status.ready,
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
            "undecided_halves": len(state.halves),
            "held_pulls": len(self._context.long_polling),
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


def _values(topic: Topic) -> dict[str, Any]:
    return {name: getattr(topic, name) for name in Topic.__slots__}


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


def _topic_of(request: Request) -> Topic:
    name = request.text("topic")
    try:
        check_topic_name(name)
    except TopicNameError as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"{error}.") from error
    if is_system_topic(name):
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic."
        )
    read, write = request.integer("readQueueNums"), request.integer("writeQueueNums")
    perm = request.integer("perm")
    if not (0 < read <= _QUEUE_COUNT_MAX and 0 < write <= _QUEUE_COUNT_MAX and 0 <= perm <= 7):
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"readQueueNums {read}, writeQueueNums {write}, perm {perm}: queues must be 1 to "
            f"{_QUEUE_COUNT_MAX}, perm 0 to 7",
        )
    sys_flag = request.integer_or("topicSysFlag", 0)
    filter_type = request.fields.get("topicFilterType")
    if not 0 <= sys_flag < 1 << 31 or filter_type not in _FILTER_TYPES:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"topicSysFlag {sys_flag}, topicFilterType {str(filter_type)[:40]!r}: not both legal",
        )
    return Topic(
        name=name,
        read_queue_count=read,
        write_queue_count=write,
        perm=perm,
        filter_type=filter_type or "SINGLE_TAG",
        sys_flag=sys_flag,
        order=request.boolean_or("order", False),
        attributes=_attributes(request.fields.get("attributes") or ""),
    )


def _attributes(text: str) -> dict[str, str]:
    """RocketMQ's "+k=v,+k2=v2"; a removal ("-k") of what a new topic has not is ignored."""
    if len(text) > _ATTRIBUTES_SIZE_MAX:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"attributes of {len(text)} characters; at most {_ATTRIBUTES_SIZE_MAX} are allowed",
        )
    attributes: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        name, separator, value = item[1:].partition("=")
        if item[0] == "+" and separator and name:
            attributes[name] = value
        elif item[0] != "-":
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER, f"attribute {item[:40]!r} is not +key=value or -key"
            )
    return attributes


def _removed_attributes(request: Request) -> list[str]:
    text = request.fields.get("attributes") or ""
    return [item[1:] for item in text.split(",") if item.startswith("-")]
