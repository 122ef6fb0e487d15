"""Statistics of consumption: queue bounds, progress, backlog and its age, raw ConsumeQueue units.

Place in the data path: none; requested by `mqadmin`, answered at a read point (promise G6).
Source: RocketMQ AdminBrokerProcessor (getTopicStatsInfo, getConsumeStats, queryConsumeTimeSpan,
fetchAllConsumeStatsInBroker, queryConsumeQueue, getAllConsumerOffset, getAllDelayOffset).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec

from broker.entry.payload import UNIT
from broker.entry.topics import Topic
from broker.request.desk import Desk
from broker.request.known_groups import known_groups, offsets_by_group, offsets_of
from broker.request.leadership import Leadership
from broker.request.queue_times import stored_ms
from broker.request.read_point import answer_at_read_point
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.request.tasks import TaskOwner
from remoting.protocol.codes import ResponseCode
from remoting.protocol.headers import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    TopicRequestHeader,
)
from remoting.protocol.queue_table import QueueName, encode_queue_table

__all__ = ["ConsumeStatsProcessor"]

_UNITS_MAX: Final = 1_024
_ROWS_MAX: Final = 100_000  # of one answer, which must fit a frame
_STATS_ROWS_MAX: Final = 20_000  # each reads a message, and the loop is blocked meanwhile
_Rows: TypeAlias = dict[QueueName, dict[str, int]]


class ConsumeStatsProcessor:
    """Requests about queues and the progress of groups in them; each answer follows."""

    def __init__(
        self, replica: Replica, leadership: Leadership, desk: Desk, tasks: TaskOwner
    ) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk
        self._tasks = tasks

    def topic_stats(self, header: TopicRequestHeader, request: Request) -> None:
        """Answer GET_TOPIC_STATS_INFO with the bounds of each queue of a topic."""
        self._at_read_point(request, partial(self._topic_stats, header))

    def consume_stats(self, header: GetConsumeStatsRequestHeader, request: Request) -> None:
        """Answer GET_CONSUME_STATS with a group's progress in each queue."""
        self._at_read_point(request, partial(self._consume_stats, header))

    def broker_consume_stats(self, header: GetConsumeStatsInBrokerHeader, request: Request) -> None:
        """Answer GET_BROKER_CONSUME_STATS with the progress of every group in every topic here."""
        self._at_read_point(request, partial(self._broker_consume_stats, header))

    def time_span(self, header: QueryConsumeTimeSpanRequestHeader, request: Request) -> None:
        """Answer QUERY_CONSUME_TIME_SPAN with the store times of each queue's first, last and last
        consumed message, and the age of the next one."""
        self._at_read_point(request, partial(self._time_span, header))

    def consume_queue(self, header: QueryConsumeQueueRequestHeader, request: Request) -> None:
        """Answer QUERY_CONSUME_QUEUE with units as they are stored."""
        self._at_read_point(request, partial(self._consume_queue, header))

    def all_consumer_offsets(self, request: Request) -> None:
        """Answer GET_ALL_CONSUMER_OFFSET."""
        self._at_read_point(request, self._all_consumer_offsets)

    def all_delay_offsets(self, request: Request) -> None:
        """Answer GET_ALL_DELAY_OFFSET."""
        self._at_read_point(request, self._all_delay_offsets)

    # Answers -----------------------------------------------------------------------------------

    def _topic_stats(self, header: TopicRequestHeader, request: Request) -> None:
        topic = self._topic(header.topic)
        table: _Rows = {}
        for queue_id in range(max(topic.read_queue_count, topic.write_queue_count)):
            first, end = self._bounds(topic.name, queue_id)
            table[self._queue(topic.name, queue_id)] = {
                "minOffset": first,
                "maxOffset": end,
                "lastUpdateTimestamp": self._stored_ms(topic.name, queue_id, end - 1),
            }
        tps = self._desk.stats.tps("TOPIC_PUT_NUMS", topic.name)
        _reply(request, {"topicPutTps": tps, "offsetTable": encode_queue_table(table.items())})

    def _consume_stats(self, header: GetConsumeStatsRequestHeader, request: Request) -> None:
        group = header.consumer_group
        named = (header.topic_list or "").split(";")
        listed = [name for name in dict.fromkeys(named) if name]
        wanted = listed or [name for name in [header.topic] if name]
        offsets = offsets_of(self._replica, group)
        if not wanted:
            wanted = sorted({topic for topic, _ in offsets})
        subscribed = self._desk.clients.subscriptions(group)
        if subscribed and not listed:
            wanted = [topic for topic in wanted if topic in subscribed]
        table: _Rows = {}
        tps = 0.0
        for name in wanted:
            topic = self._replica.state.topics.get(name)
            if topic is not None:
                if len(table) + topic.read_queue_count > _STATS_ROWS_MAX:
                    raise RefusedError(
                        ResponseCode.SYSTEM_ERROR,
                        f"more than {_STATS_ROWS_MAX} queues: ask by topic",
                    )
                table |= self._progress(group, topic, topic.read_queue_count, offsets)
                tps += self._desk.stats.tps("GROUP_GET_NUMS", f"{name}@{group}")
        _reply(request, {"consumeTps": tps, "offsetTable": encode_queue_table(table.items())})

    def _broker_consume_stats(
        self, header: GetConsumeStatsInBrokerHeader, request: Request
    ) -> None:
        replica, desk = self._replica, self._desk
        listed: list[dict[str, list[dict[str, Any]]]] = []
        total = in_flight = rows = 0
        committed = offsets_by_group(replica)
        for group in known_groups(replica, desk):
            offsets = committed.get(group, {})
            subscribed = desk.clients.subscriptions(group)
            tables: list[dict[str, Any]] = []
            for name in sorted({topic for topic, _ in offsets}):
                topic = replica.state.topics.get(name)
                if (
                    topic is None
                    or (header.is_order and not topic.order)
                    or (subscribed and name not in subscribed)
                ):
                    continue
                rows += topic.write_queue_count
                if rows > _STATS_ROWS_MAX:
                    raise RefusedError(
                        ResponseCode.SYSTEM_ERROR,
                        f"more than {_STATS_ROWS_MAX} queues: ask by group",
                    )
                table = self._progress(group, topic, topic.write_queue_count, offsets)
                for row in table.values():
                    total += row["brokerOffset"] - row["consumerOffset"]
                    in_flight += row["pullOffset"] - row["consumerOffset"]
                tps = desk.stats.tps("GROUP_GET_NUMS", f"{name}@{group}")
                tables.append({"consumeTps": tps, "offsetTable": encode_queue_table(table.items())})
            listed.append({group: tables})
        _reply(
            request,
            {
                "brokerAddr": replica.config.advertised,
                "totalDiff": total,
                "totalInflightDiff": in_flight,
                "consumeStatsList": listed,
            },
        )

    def _time_span(self, header: QueryConsumeTimeSpanRequestHeader, request: Request) -> None:
        replica = self._replica
        topic, group = self._topic(header.topic), header.group
        spans: list[dict[str, Any]] = []
        for queue_id in range(topic.write_queue_count):
            first, end = self._bounds(topic.name, queue_id)
            offset = replica.state.consumer_offsets.get((group, topic.name, queue_id), -1)
            earliest_ms = self._stored_ms(topic.name, queue_id, first)
            span: dict[str, Any] = {
                "messageQueue": self._queue(topic.name, queue_id),
                "minTimeStamp": earliest_ms or -1,
                "maxTimeStamp": self._stored_ms(topic.name, queue_id, end - 1) or -1,
                "consumeTimeStamp": self._stored_ms(topic.name, queue_id, offset - 1)
                if offset > 0
                else earliest_ms or -1,
                "delayTime": 0,
            }
            next_ms = self._stored_ms(topic.name, queue_id, max(offset, first))
            if offset < end and next_ms:
                span["delayTime"] = max(0, replica.clock_ms() - next_ms)
            spans.append(span)
        _reply(request, {"consumeTimeSpanSet": spans})

    def _consume_queue(self, header: QueryConsumeQueueRequestHeader, request: Request) -> None:
        name, queue_id = header.topic, header.queue_id
        queue = self._replica.queues.find(name, queue_id)
        if queue is None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{name} is not exist!")
        body: dict[str, Any] = {
            "maxQueueIndex": queue.next_offset,
            "minQueueIndex": queue.min_offset,
            "queueData": [
                {"physicOffset": position, "physicSize": size, "tagsCode": code, "eval": False}
                for position, size, code in UNIT.iter_unpack(
                    queue.read(header.index, max(0, min(header.count, _UNITS_MAX)))
                )
            ],
        }
        group = header.consumer_group
        if group:
            subscription = self._desk.clients.subscriptions(group).get(name)
            if subscription is None:
                body["filterData"] = f"{group}@{name} is not online!"
            else:
                body["subscriptionData"] = subscription.described()
        _reply(request, body)

    def _all_consumer_offsets(self, request: Request) -> None:
        offsets = self._replica.state.consumer_offsets
        if len(offsets) > _ROWS_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"{len(offsets)} consumer offsets do not fit an answer: ask by group",
            )
        table: dict[str, dict[str, int]] = {}
        for (group, topic, queue_id), offset in offsets.items():
            table.setdefault(f"{topic}@{group}", {})[str(queue_id)] = offset
        version = {  # a RocketMQ slave takes nothing without one
            "stateVersion": self._replica.log.status().term,
            "timestamp": self._replica.state.store_timestamp_ms,
            "counter": 0,
        }
        _reply(request, {"offsetTable": table, "dataVersion": version})

    def _all_delay_offsets(self, request: Request) -> None:
        offsets = self._replica.state.delay_offsets
        table = {str(queue_id + 1): offset for queue_id, offset in sorted(offsets.items())}
        _reply(request, {"offsetTable": table})

    # Reading -----------------------------------------------------------------------------------

    def _at_read_point(self, request: Request, answer: Callable[[Request], None]) -> None:
        self._tasks.answer(request, lambda: answer_at_read_point(self._leadership, request, answer))

    def _topic(self, name: str) -> Topic:
        topic = self._replica.state.topics.get(name)
        if topic is None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        return topic

    def _progress(
        self, group: str, topic: Topic, count: int, offsets: dict[tuple[str, int], int]
    ) -> _Rows:
        """Return the group's progress in the topic's first `count` queues; a group that never
        committed an offset is at 0."""
        table: _Rows = {}
        for queue_id in range(count):
            offset = offsets.get((topic.name, queue_id), 0)
            end = self._bounds(topic.name, queue_id)[1]
            last = min(offset, end) - 1
            table[self._queue(topic.name, queue_id)] = {
                "brokerOffset": end,
                "consumerOffset": offset,
                "pullOffset": self._desk.pull_offsets.get(group, topic.name, queue_id, offset),
                "lastTimestamp": self._stored_ms(topic.name, queue_id, last),
            }
        return table

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        queue = self._replica.queues.find(topic, queue_id)
        return (0, 0) if queue is None else (queue.min_offset, queue.next_offset)

    def _stored_ms(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when a message was stored, or 0 if there is none, or none any more."""
        queue = self._replica.queues.find(topic, queue_id)
        if queue is None or offset < 0:
            return 0
        return stored_ms(self._replica, queue, offset)

    def _queue(self, topic: str, queue_id: int) -> QueueName:
        return QueueName(self._replica.config.group, queue_id, topic)


def _reply(request: Request, body: dict[str, Any]) -> None:
    request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(body))
