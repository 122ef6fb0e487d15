"""Consumer offsets and queue bounds: QUERY/UPDATE_CONSUMER_OFFSET, GET_MAX/MIN_OFFSET.

Reads are linearizable: answered after a ReadIndex round (promise G6). Writes go through the log
(promise G5) and are answered once committed, unless they are oneway. A query waits for commits of
its offset that came before it and are still in flight: who committed oneway and then asks, as a
consumer does whose queue comes back in a rebalance, would go on at the older offset.
Rules: RocketMQ ConsumerManageProcessor (the offset query rule), AdminBrokerProcessor.
"""

from __future__ import annotations

from broker.entry.payload import OffsetCommand
from broker.entry.topics import is_group_name
from broker.request.commit import commit
from broker.request.context import BrokerContext
from broker.request.request import RefusedError, Request
from broker.request.start_position import is_young
from broker.request.tasks import TaskOwner
from raft.replicated_log import NotLeaderError
from remoting.protocol.codes import ResponseCode

__all__ = ["OffsetProcessor"]

_INT32_END = 1 << 31


class OffsetProcessor:
    def __init__(self, context: BrokerContext, tasks: TaskOwner) -> None:
        self._context = context
        self._tasks = tasks

    def update(self, request: Request) -> None:
        """UPDATE_CONSUMER_OFFSET."""
        context = self._context
        context.require_leader()
        group, topic = request.text("consumerGroup"), request.text("topic")
        queue_id, offset = request.integer("queueId"), request.integer("commitOffset")
        if topic not in context.state.topics:
            raise RefusedError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if not is_group_name(group) or not 0 <= queue_id < _INT32_END or offset < 0:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"group {group[:40]!r}, queueId {queue_id}, commitOffset {offset}: not all legal",
            )
        offsets = context.state.consumer_offsets
        if (
            len(offsets) >= context.state.limits.consumer_offsets_max
            and (group, topic, queue_id) not in offsets
        ):
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY, "this broker has its most consumer offsets already"
            )

        commit(
            context,
            request,
            [OffsetCommand(group, topic, queue_id, offset)],
            answer=lambda: request.reply(
                ResponseCode.SUCCESS, None, {"ledgermqTerm": str(context.term)}
            ),
        )

    def query(self, request: Request) -> None:
        """QUERY_CONSUMER_OFFSET."""
        self._tasks.answer(request, lambda: self._query(request))

    def maximum(self, request: Request) -> None:
        """GET_MAX_OFFSET: the offset that the queue's next message will have."""
        self._tasks.answer(request, lambda: self._bound(request, want_max=True))

    def minimum(self, request: Request) -> None:
        """GET_MIN_OFFSET."""
        self._tasks.answer(request, lambda: self._bound(request, want_max=False))

    async def _query(self, request: Request) -> None:
        try:
            group, topic = request.text("consumerGroup"), request.text("topic")
            queue_id = request.integer("queueId")
            await self._context.proposer.offset_settled(group, topic, queue_id)
            await self._read_point()
        except RefusedError as refused:
            request.refuse(refused)
            return
        state = self._context.state
        offset = state.consumer_offsets.get((group, topic, queue_id))
        queue = self._context.queues.find(topic, queue_id)
        may_be_zero = request.boolean_or("setZeroIfNotFound", True)
        found = "true"
        if offset is None and may_be_zero:
            # Nothing is stored: where the queue is still whole, begin at its beginning.
            if queue is None:
                offset, found = 0, "false"
            elif is_young(self._context, topic, queue_id, queue):
                offset, found = queue.min_offset, "false"
        term = str(self._context.term)
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

    async def _bound(self, request: Request, *, want_max: bool) -> None:
        try:
            topic, queue_id = request.text("topic"), request.integer("queueId")
            await self._read_point()
        except RefusedError as refused:
            request.refuse(refused)
            return
        queue = self._context.queues.find(topic, queue_id)
        offset = 0
        if queue is not None:
            offset = queue.next_offset if want_max else queue.min_offset
        request.reply(
            ResponseCode.SUCCESS,
            None,
            {"offset": str(offset), "ledgermqTerm": str(self._context.term)},
        )

    async def _read_point(self) -> None:
        """Raises RefusedError (14) where this is not the leader."""
        try:
            await self._context.log.read_index()
        except NotLeaderError as error:
            raise RefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE, self._context.not_leader_remark()
            ) from error
