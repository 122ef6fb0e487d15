"""The brokers' locks on the queues of an orderly consumer.

Place in the data path: `client.consume.push_consumer` asks for a queue's lock before it takes the
queue up, renews all of them every `lock_interval_ms`, and gives them back after the last commit;
`client.consume.queue_consumer` calls the listener only while the lock is known to be held.

Invariants:
- A lock counts from the moment before it was asked for, so that our clock ends it before the
  broker's does: for us it holds 30 s, a broker keeps it 60 s.
- A lock that was not renewed for as long as the broker keeps one may have been another member's in
  between: it is not renewed but lost, and the queue begins anew at the committed offset.
- Each request carries our claim, which is raised when queues are given back: an unlock that comes
  late, after a lock that we asked for since, takes nothing from us (RocketMQ's would, and
  another member could get a queue that we believe we hold). Brokers of RocketMQ ignore the field.

Source: RocketMQ RebalanceImpl.lockAll, ProcessQueue.REBALANCE_LOCK_MAX_LIVE_TIME,
RebalanceLockManager; requests LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from client.connection.broker_call import call_group
from client.connection.instance import ClientInstance
from client.connection.retry import RetryPolicy
from client.errors import ClientError, MalformedAnswerError
from client.message import MessageQueue
from remoting.errors import BodyError
from remoting.protocol import fastjson
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["LockAnswer", "LockTable", "QueueLocks"]

_log = logging.getLogger(__name__)

_HELD_MS: Final = 30_000
_BROKER_KEEPS_MS: Final = 60_000


class _Queue(msgspec.Struct):
    topic: str
    brokerName: str
    queueId: int


class _Locked(msgspec.Struct):
    lockOKMQSet: list[_Queue] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class LockAnswer:
    """Queues not named in either are those whose brokers did not answer, and those that were given
    back while they were asked for."""

    granted: frozenset[MessageQueue]
    refused: frozenset[MessageQueue]


class LockTable:
    """Which locks are held since when; pure, times are ms of any one clock."""

    __slots__ = ("_claim", "_given_back", "_since")

    def __init__(self) -> None:
        self._since: dict[MessageQueue, float] = {}
        self._given_back: dict[MessageQueue, int] = {}  # by which claim last
        self._claim = 1

    @property
    def claim(self) -> int:
        """What a lock that is asked for now says of itself; 0 is that of clients without."""
        return self._claim

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """Those that brokers may still keep for us."""
        return tuple(sorted(self._since))

    def granted(self, queue: MessageQueue, asked_ms: float) -> bool:
        """Take note of a lock; False where another member may have had it since we last had."""
        before = self._since.get(queue)
        self._since[queue] = asked_ms
        return before is None or asked_ms - before < _BROKER_KEEPS_MS

    def is_given_back_since(self, queue: MessageQueue, claim: int) -> bool:
        """Then the answer to a lock that was asked for by that claim says nothing any more."""
        return self._given_back.get(queue, 0) >= claim

    def forget(self, queue: MessageQueue) -> None:
        self._since.pop(queue, None)

    def give_back(self, queues: Iterable[MessageQueue]) -> int:
        """They are ours no more: the claim by which they were, and by which none will be again."""
        for queue in queues:
            self.forget(queue)
            self._given_back[queue] = self._claim
        self._claim += 1
        return self._claim - 1

    def holds(self, queue: MessageQueue, now_ms: float) -> bool:
        since = self._since.get(queue)
        return since is not None and now_ms - since < _HELD_MS


class QueueLocks:
    """Locks on behalf of one member of a group; `wire_group` as brokers know it."""

    def __init__(
        self, instance: ClientInstance, wire_group: str, *, timeout_ms: int, policy: RetryPolicy
    ) -> None:
        self._instance = instance
        self._wire_group = wire_group
        self._timeout_ms = timeout_ms
        self._policy = policy
        self._table = LockTable()

    def holds(self, queue: MessageQueue) -> bool:
        """Whether messages of `queue` may be consumed now."""
        return self._table.holds(queue, self._instance.now_ms())

    async def lock(self, queues: Iterable[MessageQueue]) -> LockAnswer:
        """Ask for the locks on `queues`, new ones and those held alike. Never raises ClientError.

        Refused are also those that were granted after somebody else may have had them, and those
        whose answer comes when nothing may be consumed by it any more, as to one that was paused.
        """
        groups = _by_broker(queues)
        asked_ms, claim = self._instance.now_ms(), self._table.claim
        answers = await asyncio.gather(
            *(self._ask_quietly(RequestCode.LOCK_BATCH_MQ, group, claim) for group in groups)
        )
        is_over = self._instance.now_ms() - asked_ms >= _HELD_MS
        granted: set[MessageQueue] = set()
        refused: set[MessageQueue] = set()
        for group, locked in zip(groups, answers, strict=True):
            if locked is None:
                continue
            for queue in group:
                if self._table.is_given_back_since(queue, claim):
                    continue
                is_ours = False
                if queue in locked:  # also where it is over: the broker keeps it for us
                    is_ours = self._table.granted(queue, asked_ms) and not is_over
                else:
                    self._table.forget(queue)
                (granted if is_ours else refused).add(queue)
        return LockAnswer(granted=frozenset(granted), refused=frozenset(refused))

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back. One that a broker does not hear of ends by itself within a minute."""
        groups = _by_broker(queues)
        if not groups:
            return
        claim = self._table.give_back(queue for group in groups for queue in group)
        await asyncio.gather(
            *(self._ask_quietly(RequestCode.UNLOCK_BATCH_MQ, group, claim) for group in groups)
        )

    async def unlock_all(self) -> None:
        await self.unlock(self._table.queues)

    async def _ask_quietly(
        self, code: RequestCode, queues: Sequence[MessageQueue], claim: int
    ) -> set[MessageQueue] | None:
        """The queues in the answer of the one broker group that has `queues`; None without one."""
        try:
            return await self._ask(code, queues, claim)
        except ClientError as error:
            _log.info("%s for %s: %s", code.name, queues[0].broker_name, error)
            return None

    async def _ask(
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
