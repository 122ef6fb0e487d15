"""Questions about what is stored: by time, by message id, and a topic's bounds.

Place in the data path: read ConsumeQueues and the log. Answers that tell where a queue ends or
begins come from a leader that has just proved itself (ReadIndex, promise G6); a stored message is
the same on every replica, so anybody that has it may show it.

Rules: RocketMQ AdminBrokerProcessor, QueryMessageProcessor; store timestamps never go back along a
queue, so a search by time is a bisection.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec

from broker.context import BrokerContext
from broker.request import RefusedError, Request
from broker.store.consume_queue import ConsumeQueue
from broker.store.payload import UNIT
from broker.tasks import TaskOwner
from raft.replicated_log import NotLeaderError
from remoting.codes import ResponseCode
from remoting.errors import RecordError
from remoting.message import decode_record

__all__ = ["QueryProcessor"]


class QueryProcessor:
    def __init__(self, context: BrokerContext, tasks: TaskOwner) -> None:
        self._context = context
        self._tasks = tasks

    def search_offset(self, request: Request) -> None:
        """SEARCH_OFFSET_BY_TIMESTAMP: the first message stored at that time or later.

        With boundaryType UPPER: the last one stored at that time or earlier.
        """
        self._at_read_point(request, self._search)

    def earliest_store_time(self, request: Request) -> None:
        """GET_EARLIEST_MSG_STORETIME: -1 for an empty queue."""
        self._at_read_point(request, self._earliest)

    def topic_stats(self, request: Request) -> None:
        """GET_TOPIC_STATS_INFO."""
        self._at_read_point(request, self._stats)

    def consume_stats(self, request: Request) -> None:
        """GET_CONSUME_STATS: how far a group is behind, queue by queue."""
        self._at_read_point(request, self._consume_stats)

    def view_message(self, request: Request) -> None:
        """VIEW_MESSAGE_BY_ID: the record at a log position."""
        position = request.integer("offset")
        try:
            record = self._context.committed_record(position)
        except (LookupError, RecordError) as error:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset {position}: {error}"
            ) from error
        request.reply(ResponseCode.SUCCESS, body=record)

    # Answers -----------------------------------------------------------------------------------

    def _search(self, request: Request) -> None:
        queue = self._queue(request)
        timestamp_ms = request.integer("timestamp")
        offset = 0
        if queue is not None:
            upper = (request.fields.get("boundaryType") or "").upper() == "UPPER"
            offset = self._first_stored_at(queue, timestamp_ms + 1 if upper else timestamp_ms)
            if upper:
                offset = max(queue.min_offset, offset - 1)
        request.reply(ResponseCode.SUCCESS, None, self._fields(offset=offset))

    def _earliest(self, request: Request) -> None:
        queue = self._queue(request)
        timestamp_ms = -1
        if queue is not None and queue.next_offset > queue.min_offset:
            timestamp_ms = self._stored_ms(queue, queue.min_offset)
        request.reply(ResponseCode.SUCCESS, None, self._fields(timestamp=timestamp_ms))

    def _stats(self, request: Request) -> None:
        context = self._context
        name = request.text("topic")
        topic = context.state.topics.get(name)
        if topic is None:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        table: dict[str, dict[str, int]] = {}
        for queue_id in range(max(topic.read_queue_count, topic.write_queue_count)):
            queue = context.queues.find(name, queue_id)
            last = 0 if queue is None else queue.next_offset
            table[self._queue_text(name, queue_id)] = {
                "minOffset": 0 if queue is None else queue.min_offset,
                "maxOffset": last,
                "lastUpdateTimestamp": 0 if queue is None else self._stored_ms(queue, last - 1),
            }
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode({"offsetTable": table}))

    def _consume_stats(self, request: Request) -> None:
        context = self._context
        group, wanted = request.text("consumerGroup"), request.fields.get("topic")
        table: dict[str, dict[str, int]] = {}
        for (owner, topic, queue_id), offset in context.state.consumer_offsets.items():
            if owner != group or (wanted and topic != wanted):
                continue
            queue = context.queues.find(topic, queue_id)
            end = 0 if queue is None else queue.next_offset
            table[self._queue_text(topic, queue_id)] = {
                "brokerOffset": end,
                "consumerOffset": offset,
                "pullOffset": offset,
                "lastTimestamp": self._stored_ms(queue, min(offset, end) - 1)
                if queue is not None and min(offset, end) > 0
                else 0,
            }
        body = {"consumeTps": 0.0, "offsetTable": table}
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(body))

    # Reading -----------------------------------------------------------------------------------

    def _at_read_point(self, request: Request, answer: Callable[[Request], None]) -> None:
        self._tasks.spawn(self._after_read_point(request, answer))

    async def _after_read_point(self, request: Request, answer: Callable[[Request], None]) -> None:
        try:
            await self._context.log.read_index()
            answer(request)
        except NotLeaderError:
            request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, self._context.not_leader_remark())
        except RefusedError as refused:
            request.refuse(refused)

    def _queue_text(self, topic: str, queue_id: int) -> str:
        """A queue as the name of a JSON field: both generations of Java clients read that."""
        key = {"brokerName": self._context.config.group, "queueId": queue_id, "topic": topic}
        return json.dumps(key, separators=(",", ":"))

    def _queue(self, request: Request) -> ConsumeQueue | None:
        return self._context.queues.find(request.text("topic"), request.integer("queueId"))

    def _first_stored_at(self, queue: ConsumeQueue, timestamp_ms: int) -> int:
        """The first offset whose store timestamp is not before `timestamp_ms`, or the next."""
        low, high = queue.min_offset, queue.next_offset
        while low < high:
            middle = (low + high) // 2
            if self._stored_ms(queue, middle) < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return low

    def _stored_ms(self, queue: ConsumeQueue, offset: int) -> int:
        """0 where the queue doesn't have that message, or not any more."""
        unit = queue.read(offset, 1)
        if not unit:
            return 0
        try:
            record = self._context.read_record(UNIT.unpack(unit)[0])
        except LookupError:  # retention takes it at this moment
            return 0
        return decode_record(record, check_crc=False).store_timestamp_ms

    def _fields(self, **values: int) -> dict[str, str]:
        fields = {name: str(value) for name, value in values.items()}
        return fields | {"ledgermqTerm": str(self._context.term)}
