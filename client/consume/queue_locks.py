"""The brokers' locks on the queues of an orderly consumer.

Place in the data path: `client.consume.push_consumer` requests a queue's lock before it takes the
queue, renews all locks every `lock_interval_ms`, and releases them after the last commit;
`client.consume.queue_consumer` calls the listener only while the lock is known to be held.

Invariants:
- A lock counts from the moment before its request was sent, so that it expires here before it
  expires at the broker: here it holds `held_ms` (30 s), a broker keeps it twice as long.
- A lock that was not renewed for as long as the broker keeps one may have been another member's in
  between: it is treated as lost, not renewed, and the queue starts again at the committed offset.
- A lock that was requested and not answered may be held: it is released with the others.
- Each request carries this member's claim, a number raised at each release: an unlock that arrives
  after a later lock request of this member releases nothing (at RocketMQ's brokers, which ignore
  the field, it would, and another member could get a queue that this one believes it holds).

Source: RocketMQ RebalanceImpl.lockAll, ProcessQueue.REBALANCE_LOCK_MAX_LIVE_TIME,
RebalanceLockManager; requests LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from client.connection.broker_call import call_group
from client.connection.instance import ClientInstance
from client.connection.retry import RetryPolicy
from client.consume.listener import ConsumerObserver
from client.errors import ClientError, MalformedAnswerError, UnansweredError
from client.message import MessageQueue
from remoting.errors import BodyError
from remoting.protocol import fastjson
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["LockAnswer", "LockTable", "QueueLocks"]

_log = logging.getLogger(__name__)

_HELD_MS: Final = 30_000
_LEASE_FACTOR: Final = 2  # times as long as it is held here


class _Queue(msgspec.Struct):
    topic: str
    brokerName: str
    queueId: int


class _Locked(msgspec.Struct):
    lockOKMQSet: list[_Queue] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class LockAnswer:
    """The outcome of a lock request.

    A queue in neither set: its broker did not answer, or it was released during the request.
    """

    granted: frozenset[MessageQueue]
    refused: frozenset[MessageQueue]


class LockTable:
    """The locks held, and since when; pure, times are ms of any one clock."""

    __slots__ = ("_asked", "_claim", "_held_ms", "_released", "_since")

    def __init__(self, *, held_ms: int = _HELD_MS) -> None:
        self._held_ms = held_ms
        self._since: dict[MessageQueue, float] = {}
        self._asked: set[MessageQueue] = set()  # requested, and not answered
        self._released: dict[MessageQueue, int] = {}  # -> the last claim that released it
        self._claim = 1

    @property
    def claim(self) -> int:
        """Return the claim that a lock request carries now; clients without claims count as 0."""
        return self._claim

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """Return the queues whose locks brokers may still hold for this member."""
        return tuple(sorted(self._asked.union(self._since)))

    def asked(self, queues: Iterable[MessageQueue]) -> None:
        """Record that these locks are requested."""
        self._asked.update(queues)

    def granted(self, queue: MessageQueue, requested_ms: float) -> bool:
        """Record a granted lock; False where another member may have held it meanwhile."""
        self._asked.discard(queue)
        before = self._since.get(queue)
        self._since[queue] = requested_ms
        return before is None or requested_ms - before < _LEASE_FACTOR * self._held_ms

    def was_released_since(self, queue: MessageQueue, claim: int) -> bool:
        """Return whether `queue` was released since `claim`, which voids that lock's answer."""
        return self._released.get(queue, 0) >= claim

    def forget(self, queue: MessageQueue) -> None:
        self._asked.discard(queue)
        self._since.pop(queue, None)

    def release(self, queues: Iterable[MessageQueue]) -> int:
        """Release these locks; return their claim, which no later request carries."""
        for queue in queues:
            self.forget(queue)
            self._released[queue] = self._claim
        self._claim += 1
        return self._claim - 1

    def holds(self, queue: MessageQueue, now_ms: float) -> bool:
        since = self._since.get(queue)
        return since is not None and now_ms - since < self._held_ms

    def is_over(self, requested_ms: float, now_ms: float) -> bool:
        """Return whether a lock that was requested at `requested_ms` has expired."""
        return now_ms - requested_ms >= self._held_ms


class QueueLocks:
    """The locks of one member of a group; `wire_group` is the group's name at brokers."""

    def __init__(
        self,
        instance: ClientInstance,
        wire_group: str,
        *,
        timeout_ms: int,
        policy: RetryPolicy,
        held_ms: int = _HELD_MS,
        observer: ConsumerObserver | None = None,
    ) -> None:
        self._instance = instance
        self._wire_group = wire_group
        self._observer = observer or ConsumerObserver()
        self._timeout_ms = timeout_ms
        self._policy = policy
        self._table = LockTable(held_ms=held_ms)

    def holds(self, queue: MessageQueue) -> bool:
        """Return whether messages of `queue` may be consumed now."""
        return self._table.holds(queue, self._instance.now_ms())

    async def lock(self, queues: Iterable[MessageQueue]) -> LockAnswer:
        """Request or renew the locks on `queues`. Never raises ClientError.

        Refused are also those that another member may have held since the last grant, and those
        whose answer comes when the lock has expired again, as in a process that was paused.
        """
        groups = _by_broker(queues)
        requested_ms, claim = self._instance.now_ms(), self._table.claim
        self._table.asked(queue for group in groups for queue in group)
        answers = await asyncio.gather(
            *(self._request_quietly(RequestCode.LOCK_BATCH_MQ, group, claim) for group in groups)
        )
        is_over = self._table.is_over(requested_ms, self._instance.now_ms())
        granted: set[MessageQueue] = set()
        refused: set[MessageQueue] = set()
        for group, locked in zip(groups, answers, strict=True):
            if locked is None:
                continue
            for queue in group:
                # Released while the request was on its way: its answer must not bring the lock
                # back.
                if self._table.was_released_since(queue, claim):
                    continue
                is_ours = False
                if queue in locked:  # also where it is over: the broker keeps it for this member
                    is_ours = self._table.granted(queue, requested_ms) and not is_over
                else:
                    self._table.forget(queue)
                (granted if is_ours else refused).add(queue)
        return LockAnswer(granted=frozenset(granted), refused=frozenset(refused))

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Release locks. A lock whose release does not reach the broker expires within a minute."""
        groups = _by_broker(queues)
        if not groups:
            return
        claim = self._table.release(queue for group in groups for queue in group)
        await asyncio.gather(
            *(self._request_quietly(RequestCode.UNLOCK_BATCH_MQ, group, claim) for group in groups)
        )

    async def unlock_all(self) -> None:
        await self.unlock(self._table.queues)

    async def _request_quietly(
        self, code: RequestCode, queues: Sequence[MessageQueue], claim: int
    ) -> set[MessageQueue] | None:
        """Return the queues in the answer of the group with `queues`; None without an answer.

        The observer is notified of either, and of a request that was interrupted.
        """
        began = time.monotonic_ns()
        held: set[MessageQueue] = set()
        error: ClientError | None = UnansweredError("cut short")
        try:
            held = await self._request(code, queues, claim)
            error = None
        except ClientError as failure:
            error = failure
            _log.info("%s for %s: %s", code.name, queues[0].broker_name, error)
            return None
        finally:
            ended = time.monotonic_ns()
            if code == RequestCode.LOCK_BATCH_MQ:
                self._observer.locks_requested(
                    queues, held, error, t_invoke=began, t_complete=ended
                )
            else:
                self._observer.locks_released(queues, error, t_invoke=began, t_complete=ended)
        return held

    async def _request(
        self, code: RequestCode, queues: Sequence[MessageQueue], claim: int
    ) -> set[MessageQueue]:
        namespace = self._instance.namespace
        named = {
            (namespace.wrap(queue.topic), queue.broker_name, queue.queue_id): queue
            for queue in queues
        }
        body = msgspec.json.encode(
            {
                "consumerGroup": self._wire_group,
                "clientId": self._instance.client_id,
                "mqSet": [
                    {"topic": topic, "brokerName": broker_name, "queueId": queue_id}
                    for topic, broker_name, queue_id in named
                ],
                "onlyThisBroker": False,
                "claim": claim,
            }
        )
        answer, address = await call_group(
            self._instance,
            queues[0].broker_name,
            lambda: RemotingCommand(code=code, body=body),
            topic=queues[0].topic,
            timeout_ms=self._timeout_ms,
            policy=self._policy,
        )
        if code != RequestCode.LOCK_BATCH_MQ:
            return set()
        try:
            locked = fastjson.decode(answer.body, _Locked).lockOKMQSet
        except BodyError as error:
            raise MalformedAnswerError(f"locks from {address}: {error}") from error
        keys = {(item.topic, item.brokerName, item.queueId) for item in locked}
        return {queue for key, queue in named.items() if key in keys}


def _by_broker(queues: Iterable[MessageQueue]) -> list[list[MessageQueue]]:
    groups: dict[str, list[MessageQueue]] = {}
    for queue in sorted(queues):
        groups.setdefault(queue.broker_name, []).append(queue)
    return list(groups.values())
