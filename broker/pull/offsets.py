"""Consumer offsets and queue bounds: QUERY/UPDATE_CONSUMER_OFFSET, GET_MAX/MIN_OFFSET.

Reads are linearizable: answered after a ReadIndex round (promise G6). Writes go through the log
(promise G5) and are answered once committed, unless they are oneway. A query waits for commits of
its offset that came before it and are still in flight: who committed oneway and then queries, as a
consumer does whose queue comes back in a rebalance, would go on at the older offset.
Rules: RocketMQ ConsumerManageProcessor (the offset query rule), AdminBrokerProcessor.
"""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from broker.entry.payload import OffsetCommand
from broker.entry.topics import is_group_name
from broker.pull.offsets_beside import OffsetsBeside
from broker.request.commit import commit
from broker.request.deleted_topics import refuse_while_being_deleted
from broker.request.leadership import Leadership
from broker.request.read_point import answer_at_read_point
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.request.start_position import is_young
from broker.request.tasks import TaskOwner
from remoting.protocol.codes import ResponseCode
from remoting.protocol.headers import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

__all__ = ["OffsetProcessor"]

_BoundHeader: TypeAlias = GetMaxOffsetRequestHeader | GetMinOffsetRequestHeader


class OffsetProcessor:
    """Handler of commits and queries of consumer offsets, and of queries of a queue's ends."""

    def __init__(self, replica: Replica, leadership: Leadership, tasks: TaskOwner) -> None:
        self._replica = replica
        self._leadership = leadership
        self._tasks = tasks
        self._beside = OffsetsBeside(
            leadership, count_max=replica.config.limits.consumer_offsets_max
        )

    def update(self, header: UpdateConsumerOffsetRequestHeader, request: Request) -> None:
        """Commit a consumer offset (UPDATE_CONSUMER_OFFSET). Raises RefusedError."""
        replica, leadership = self._replica, self._leadership
        if not leadership.is_orphan:
            leadership.require_leader()
        group, topic = header.consumer_group, header.topic
        queue_id, offset = header.queue_id, header.commit_offset
        if topic not in replica.state.topics:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        refuse_while_being_deleted(leadership, topic)
        if not is_group_name(group) or queue_id < 0 or offset < 0:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"group {group[:40]!r}, queueId {queue_id}, commitOffset {offset}: not all legal",
            )
        if self._beside.put((group, topic, queue_id), offset):
            request.reply(ResponseCode.SUCCESS)
            return
        offsets = replica.state.consumer_offsets
        if (
            len(offsets) >= replica.state.limits.consumer_offsets_max
            and (group, topic, queue_id) not in offsets
        ):
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY, "this broker has its most consumer offsets already"
            )

        commit(
            leadership,
            request,
            [OffsetCommand(group, topic, queue_id, offset)],
            answer=lambda: request.reply(
                ResponseCode.SUCCESS, None, {"ledgermqTerm": str(leadership.term)}
            ),
        )

    def query(self, header: QueryConsumerOffsetRequestHeader, request: Request) -> None:
        """Answer with a consumer offset (QUERY_CONSUMER_OFFSET)."""
        self._tasks.answer(request, lambda: self._query(header, request))

    def maximum(self, header: GetMaxOffsetRequestHeader, request: Request) -> None:
        """Answer with the offset that the queue's next message will have (GET_MAX_OFFSET)."""
        self._bound(header, request, want_max=True)

    def minimum(self, header: GetMinOffsetRequestHeader, request: Request) -> None:
        """Answer with the offset of the first message that is left (GET_MIN_OFFSET)."""
        self._bound(header, request, want_max=False)

    async def _query(self, header: QueryConsumerOffsetRequestHeader, request: Request) -> None:
        await self._leadership.proposer.offset_commits_ended(
            header.consumer_group, header.topic, header.queue_id
        )
        answer = partial(self._answer_query, header)
        await answer_at_read_point(self._leadership, request, answer)

    def _answer_query(self, header: QueryConsumerOffsetRequestHeader, request: Request) -> None:
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        key = (group, topic, queue_id)
        offset = self._beside.get(key)
        if offset is None:
            offset = self._replica.state.consumer_offsets.get(key)
        queue = self._replica.queues.find(topic, queue_id)
        found = "true"
        if offset is None and header.set_zero_if_not_found is not False:
            # Nothing is stored: where the queue is still whole, begin at its beginning.
            if queue is None:
                offset, found = 0, "false"
            elif is_young(self._replica, topic, queue_id, queue):
                offset, found = queue.min_offset, "false"
        term = str(self._leadership.term)
        if offset is None:
            request.reply(
                ResponseCode.QUERY_NOT_FOUND,
                "Not found, maybe this group consumer boot first",
                {"ledgermqTerm": term},
            )
        else:
            request.reply(
                ResponseCode.SUCCESS,
                None,
                {"offset": str(offset), "ledgermqStored": found, "ledgermqTerm": term},
            )

    def _bound(self, header: _BoundHeader, request: Request, *, want_max: bool) -> None:
        answer = partial(self._answer_bound, header, want_max=want_max)
        self._tasks.answer(request, lambda: answer_at_read_point(self._leadership, request, answer))

    def _answer_bound(self, header: _BoundHeader, request: Request, *, want_max: bool) -> None:
        topic, queue_id = header.topic, header.queue_id
        queue = self._replica.queues.find(topic, queue_id)
        offset = 0
        if queue is not None:
            offset = queue.next_offset if want_max else queue.min_offset
        request.reply(
            ResponseCode.SUCCESS,
            None,
            {"offset": str(offset), "ledgermqTerm": str(self._leadership.term)},
        )
