"""LOCK_BATCH_MQ, UNLOCK_BATCH_MQ: an orderly consumer's claim on its queues.

Place in the data path: `broker.rebalance_lock` keeps them; only the ready leader gives any.
Rules: RocketMQ AdminBrokerProcessor.lockBatchMQ.
"""

from __future__ import annotations

from typing import Final

import msgspec

from broker.context import BrokerContext
from broker.rebalance_lock import RebalanceLocks
from broker.request import RefusedError, Request
from broker.topics import TopicNameError, check_group_name
from remoting import fastjson
from remoting.codes import ResponseCode
from remoting.errors import BodyError

__all__ = ["LockProcessor"]

_QUEUES_MAX: Final = 16_384


class _Queue(msgspec.Struct):
    topic: str
    queueId: int
    brokerName: str = ""


class _LockRequest(msgspec.Struct):
    consumerGroup: str
    clientId: str
    mqSet: list[_Queue] = []


class LockProcessor:
    def __init__(self, context: BrokerContext, locks: RebalanceLocks) -> None:
        self._context = context
        self._locks = locks

    def lock(self, request: Request) -> None:
        """LOCK_BATCH_MQ: answers which of the queues the client holds now."""
        self._context.require_leader()
        wanted = self._decoded(request)
        ours = [queue for queue in wanted.mqSet if self._is_here(queue)]
        held = set(
            self._locks.lock(
                wanted.consumerGroup,
                wanted.clientId,
                [(queue.topic, queue.queueId) for queue in ours],
                self._context.clock_ms(),
            )
        )
        body = {"lockOKMQSet": [queue for queue in ours if (queue.topic, queue.queueId) in held]}
        request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode(body))

    def unlock(self, request: Request) -> None:
        """UNLOCK_BATCH_MQ."""
        given = self._decoded(request)
        self._locks.unlock(
            given.consumerGroup,
            given.clientId,
            [(queue.topic, queue.queueId) for queue in given.mqSet],
        )
        request.reply(ResponseCode.SUCCESS)

    def _is_here(self, queue: _Queue) -> bool:
        topic = self._context.state.topics.get(queue.topic)
        return topic is not None and 0 <= queue.queueId < topic.read_queue_count

    @staticmethod
    def _decoded(request: Request) -> _LockRequest:
        try:
            decoded = fastjson.decode(request.command.body, _LockRequest)
            check_group_name(decoded.consumerGroup)
        except (BodyError, TopicNameError) as error:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, f"{error}.") from error
        if len(decoded.mqSet) > _QUEUES_MAX:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"{len(decoded.mqSet)} queues; at most {_QUEUES_MAX} are allowed",
            )
        return decoded
