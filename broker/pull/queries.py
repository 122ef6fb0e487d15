"""Queries about what is stored: by time and by message id.

Place in the data path: read ConsumeQueues and the log. Answers that say where a queue ends or
begins come from a leader that has just proved itself (ReadIndex, promise G6); a stored message is
the same on every replica, so each replica that has it may return it.

Rules: RocketMQ AdminBrokerProcessor, QueryMessageProcessor; store timestamps never go back along a
queue, so a search by time is a bisection.
"""

from __future__ import annotations

from functools import partial

from broker.request.leadership import Leadership
from broker.request.queue_times import first_stored_at, stored_ms
from broker.request.read_point import answer_at_read_point
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.request.stored_topic import topic_of
from broker.request.tasks import TaskOwner
from remoting.errors import RecordError
from remoting.protocol.codes import ResponseCode
from remoting.protocol.headers import (
    GetMinOffsetRequestHeader,
    SearchOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from remoting.records.message import decode_record

__all__ = ["QueryProcessor"]


class QueryProcessor:
    """Handler of searches by time and of views of single messages."""

    def __init__(self, replica: Replica, leadership: Leadership, tasks: TaskOwner) -> None:
        self._replica = replica
        self._leadership = leadership
        self._tasks = tasks

    def search_offset(self, header: SearchOffsetRequestHeader, request: Request) -> None:
        """Answer with the first message stored at a time or later (SEARCH_OFFSET_BY_TIMESTAMP).

        With boundaryType UPPER: the last one stored at that time or earlier; 0 before the first.
        """
        answer = partial(self._search, header)
        self._tasks.answer(request, lambda: answer_at_read_point(self._leadership, request, answer))

    def earliest_store_time(self, header: GetMinOffsetRequestHeader, request: Request) -> None:
        """Answer with the first message's store time (GET_EARLIEST_MSG_STORETIME); -1 for an empty
        queue."""
        answer = partial(self._earliest, header)
        self._tasks.answer(request, lambda: answer_at_read_point(self._leadership, request, answer))

    def view_message(self, header: ViewMessageRequestHeader, request: Request) -> None:
        """Answer with the record at a log position (VIEW_MESSAGE_BY_ID). Raises RefusedError, also
        where the request names another topic than the message was sent to."""
        position = header.offset
        try:
            record = self._replica.committed_record(position)
        except (LookupError, RecordError) as error:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset {position}: {error}"
            ) from error
        topic = topic_of(decode_record(record, check_crc=False))
        request.require(topic)
        if header.topic and header.topic.strip() and header.topic != topic:
            raise RefusedError(ResponseCode.NO_PERMISSION, "The topic does not match the message")
        request.reply(ResponseCode.SUCCESS, body=record)

    # Answers -----------------------------------------------------------------------------------

    def _search(self, header: SearchOffsetRequestHeader, request: Request) -> None:
        queue = self._replica.queues.find(header.topic, header.queue_id)
        timestamp_ms = header.timestamp_ms
        offset = 0
        if queue is not None:
            upper = header.boundary_type.upper() == "UPPER"
            offset = first_stored_at(
                self._replica, queue, timestamp_ms + 1 if upper else timestamp_ms
            )
            if upper:
                offset = offset - 1 if offset > queue.min_offset else 0
        request.reply(ResponseCode.SUCCESS, None, self._fields(offset=offset))

    def _earliest(self, header: GetMinOffsetRequestHeader, request: Request) -> None:
        queue = self._replica.queues.find(header.topic, header.queue_id)
        timestamp_ms = -1
        if queue is not None and queue.next_offset > queue.min_offset:
            timestamp_ms = stored_ms(self._replica, queue, queue.min_offset)
        request.reply(ResponseCode.SUCCESS, None, self._fields(timestamp=timestamp_ms))

    def _fields(self, **values: int) -> dict[str, str]:
        fields = {name: str(value) for name, value in values.items()}
        return fields | {"ledgermqTerm": str(self._leadership.term)}
