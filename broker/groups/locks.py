"""LOCK_BATCH_MQ, UNLOCK_BATCH_MQ: an orderly consumer's claim on its queues.

Place in the data path: `broker.leader.rebalance_lock` judges leases, `broker.state.queue_owners` is
the replicated table; only the ready leader grants any. A renewal is answered from memory, a new
owner once its entry is committed. Rules: RocketMQ AdminBrokerProcessor.lockBatchMQ; the field
`claim` of both bodies is ours, see `broker.state.queue_owners`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from broker.entry.payload import LockCommand, UnlockCommand
from broker.entry.topics import TopicNameError, check_group_name
from broker.request.commit import commit, propose
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.state.queue_owners import Owner, Queue
from raft.replicated_log import ProposalStatus
from remoting.errors import BodyError
from remoting.protocol import fastjson
from remoting.protocol.codes import ResponseCode

__all__ = ["LockProcessor", "lock_command", "unlock_command"]

_log = logging.getLogger(__name__)
_QUEUES_MAX: Final = 16_384
_CLIENT_ID_SIZE_MAX: Final = 1_024
_CLAIM_MAX: Final = 2**63 - 1


class _Queue(msgspec.Struct):
    topic: str
    queueId: int
    brokerName: str = ""


class _LockRequest(msgspec.Struct):
    consumerGroup: str
    clientId: str
    mqSet: list[_Queue] = []
    claim: Annotated[int, msgspec.Meta(ge=0, le=_CLAIM_MAX)] = 0

    @property
    def owner(self) -> Owner:
        return Owner(self.clientId, self.claim)


class LockProcessor:
    """Handler of locks on queues, and sweeper of those whose leases are over."""

    def __init__(self, replica: Replica, leadership: Leadership, desk: Desk) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk
        self._locks = leadership.locks

    def lock(self, request: Request) -> None:
        """Lock queues for a client; answer with those that it holds now (LOCK_BATCH_MQ). Raises
        RefusedError."""
        replica, leadership = self._replica, self._leadership
        wanted = self._decoded(request)
        ours = {
            (queue.topic, queue.queueId): queue for queue in wanted.mqSet if self._is_here(queue)
        }
        group = wanted.consumerGroup
        claims = self._locks.claim(
            replica.state.queue_owners,
            group,
            wanted.clientId,
            ours,
            members=self._desk.clients.consumer_ids(group),
            now_ms=replica.monotonic_ms(),
            claim=wanted.claim,
        )

        def answer(held: Sequence[Queue]) -> None:
            known = set(held)
            locked = [ours[queue] for queue in ours if queue in known]
            request.reply(ResponseCode.SUCCESS, body=msgspec.json.encode({"lockOKMQSet": locked}))

        if not claims.free:
            answer(claims.held)
            return

        def ended(status: ProposalStatus | None) -> None:
            is_owner = status is ProposalStatus.COMMITTED
            now_ms = replica.monotonic_ms() if is_owner else None
            self._locks.end_change(group, claims.free, now_ms)

        commit(
            leadership,
            request,
            [lock_command(group, wanted.owner, claims.free)],
            answer=lambda: answer(claims.held + claims.free),
            ended=ended,
        )

    def unlock(self, request: Request) -> None:
        """Unlock queues, and answer once they are free (UNLOCK_BATCH_MQ). Raises RefusedError.

        A lock of theirs that is in flight is in the log before this unlock, and ends by it.
        """
        wanted = self._decoded(request)
        group = wanted.consumerGroup
        owners = self._replica.state.queue_owners.of_group(group)
        queues = [
            queue
            for queue in dict.fromkeys((queue.topic, queue.queueId) for queue in wanted.mqSet)
            if self._locks.is_changing(group, queue)
            or (queue in owners and owners[queue].releases(*wanted.owner))
        ]
        if not queues:
            request.reply(ResponseCode.SUCCESS)
            return

        commands = [unlock_command(group, wanted.owner, queues)]
        self._locks.change(group, queues)
        commit(
            self._leadership,
            request,
            commands,
            ended=lambda _: self._locks.end_change(group, queues, None),
        )

    def sweep(self) -> None:
        """Remove owners whose leases are over. Called by the shell now and then."""
        replica, leadership = self._replica, self._leadership
        if not leadership.ready:
            return
        owners, now_ms = replica.state.queue_owners, replica.monotonic_ms()
        expired = self._locks.expired(owners, now_ms)
        if not expired:
            return
        for group, _, queues in expired:
            self._locks.change(group, queues)

        def ended(status: ProposalStatus | None) -> None:
            for group, _, queues in expired:
                self._locks.end_change(group, queues, None)

        if not propose(leadership, [unlock_command(*row) for row in expired], ended=ended):
            _log.info("expired locks wait: too many proposals are pending")

    def _is_here(self, queue: _Queue) -> bool:
        topic = self._replica.state.topics.get(queue.topic)
        return topic is not None and 0 <= queue.queueId < topic.read_queue_count

    @staticmethod
    def _decoded(request: Request) -> _LockRequest:
        try:
            decoded = fastjson.decode_request(request.command.body, _LockRequest)
            check_group_name(decoded.consumerGroup)
        except (BodyError, TopicNameError) as error:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, f"{error}.") from error
        if len(decoded.mqSet) > _QUEUES_MAX or len(decoded.clientId) > _CLIENT_ID_SIZE_MAX:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"{len(decoded.mqSet)} queues, a client id of {len(decoded.clientId)} characters; "
                f"at most {_QUEUES_MAX} and {_CLIENT_ID_SIZE_MAX} are allowed",
            )
        return decoded


def lock_command(group: str, owner: Owner, queues: Sequence[Queue]) -> LockCommand:
    """Build the command that makes `owner` the owner of the queues."""
    return LockCommand(group, owner.client_id, [list(queue) for queue in queues], owner.claim)


def unlock_command(group: str, owner: Owner, queues: Sequence[Queue]) -> UnlockCommand:
    """Build the command that frees the queues, where `owner` still owns them."""
    return UnlockCommand(group, owner.client_id, [list(queue) for queue in queues], owner.claim)
