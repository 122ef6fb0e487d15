"""Requests about one queue: pull, a consumer group's offset, minimum, maximum, search by time.

Place in the data path: `client.consume.pull_consumer` offers them, `client.consume.push_consumer`
is built on them.

All of them may be repeated without harm, so they follow a group's leader until the deadline
(`client.connection.broker_call`). With ledgermq's brokers, offsets and maximum are linearizable: an
answer reflects everything acknowledged before the request.

Source: RocketMQ's request codes 11, 14, 15, 29, 30, 31 and the rules of PullStatus.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, TypeVar

from client.connection.broker_call import call_group
from client.connection.heartbeat import Subscription
from client.connection.instance import ClientInstance
from client.connection.request_fields import request_fields
from client.connection.retry import RetryPolicy
from client.delivery import delivered_messages
from client.errors import MalformedAnswerError, OffsetNotFoundError
from client.message import DeliveredMessage, MessageQueue
from client.namespace import NO_NAMESPACE, Namespace
from remoting.errors import HeaderError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.headers import (
    PULL_COMMIT_OFFSET,
    PULL_SUBSCRIPTION,
    PULL_SUSPEND,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    Header,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

__all__ = [
    "PULL_CODES",
    "PullResult",
    "PullStatus",
    "QueueRequests",
    "offset_of_reset",
    "pull_command",
    "pull_result",
]

_H = TypeVar("_H", bound=Header)


class PullStatus(enum.Enum):
    """Outcome of a pull: FOUND has messages; OFFSET_ILLEGAL: the queue has no such offset (now)."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


_STATUSES: Final = {
    ResponseCode.SUCCESS.value: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND.value: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY.value: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED.value: PullStatus.OFFSET_ILLEGAL,
}
PULL_CODES: Final = frozenset(_STATUSES)


@dataclass(slots=True, kw_only=True)
class PullResult:
    """The result of a pull. `next_begin_offset` is where the next pull should start.

    `min_offset` is the first offset retained, `max_offset` the next one to be written, both as
    known to the node at table address `address`.
    """

    status: PullStatus
    messages: list[DeliveredMessage]
    next_begin_offset: int
    min_offset: int
    max_offset: int
    address: str


def pull_command(
    *,
    group: str,
    queue: MessageQueue,
    offset: int,
    count_max: int,
    suspend_ms: int,
    subscription: Subscription,
    namespace: Namespace = NO_NAMESPACE,
    commit_offset: int | None = None,
) -> RemotingCommand:
    """Return a pull request; the broker may hold it for `suspend_ms` while there is no message.

    `commit_offset`: the group's offset that the broker is to store by the way.
    """
    flags = PULL_SUBSCRIPTION | (PULL_SUSPEND if suspend_ms > 0 else 0)
    flags |= PULL_COMMIT_OFFSET if commit_offset is not None else 0
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=namespace.wrap(queue.topic),
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count_max,
        sys_flag=flags,
        commit_offset=commit_offset or 0,
        suspend_timeout_ms=suspend_ms,
        sub_version=subscription.version,
        subscription=subscription.expression,
        expression_type=subscription.kind.value,
    )
    fields = request_fields(header)
    fields["bname"] = queue.broker_name
    return RemotingCommand(code=RequestCode.PULL_MESSAGE, ext_fields=fields)


def pull_result(
    answer: RemotingCommand,
    queue: MessageQueue,
    address: str,
    namespace: Namespace = NO_NAMESPACE,
) -> PullResult:
    """Decode a pull's answer, its code one of PULL_CODES. Raises MalformedAnswerError."""
    header = _answer_header(PullMessageResponseHeader, answer, address)
    status = _STATUSES[answer.code]
    messages = delivered_messages(answer.body, queue, address, namespace) if answer.body else []
    if status is PullStatus.FOUND and not messages:
        raise MalformedAnswerError(f"{address} answered a pull of {queue} with no message")
    return PullResult(
        status=status,
        messages=messages,
        next_begin_offset=header.next_begin_offset,
        min_offset=header.min_offset,
        max_offset=header.max_offset,
        address=address,
    )


def offset_of_reset(answer: RemotingCommand) -> int | None:
    """Return where a pull's answer sends the group by a reset of its offset; None if it says
    anything else. Raises MalformedAnswerError."""
    if answer.code != ResponseCode.PULL_OFFSET_MOVED or answer.remark != "OFFSET_RESET":
        return None
    return _answer_header(PullMessageResponseHeader, answer, "a broker").next_begin_offset


class QueueRequests:
    """Requests on behalf of consumer group `group`, as brokers know it. All raise ClientError."""

    def __init__(
        self, instance: ClientInstance, group: str, *, timeout_ms: int, policy: RetryPolicy
    ) -> None:
        self._instance = instance
        self._group = group
        self._timeout_ms = timeout_ms
        self._policy = policy

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count_max: int,
        suspend_ms: int,
        subscription: Subscription,
        timeout_ms: int,
        commit_offset: int | None = None,
    ) -> PullResult:
        """Pull messages from `offset` on. `timeout_ms` bounds all attempts; each may be held.

        `commit_offset` rides on each of them; whether it was stored is not answered.
        """
        policy = RetryPolicy(
            attempt_timeout_ms=suspend_ms + self._policy.attempt_timeout_ms,
            attempts_max=self._policy.attempts_max,
            backoff_ms_min=self._policy.backoff_ms_min,
            backoff_ms_max=self._policy.backoff_ms_max,
            jitter=self._policy.jitter,
        )
        answer, address = await call_group(
            self._instance,
            queue.broker_name,
            lambda: pull_command(
                group=self._group,
                queue=queue,
                offset=offset,
                count_max=count_max,
                suspend_ms=suspend_ms,
                subscription=subscription,
                namespace=self._instance.namespace,
                commit_offset=commit_offset,
            ),
            topic=queue.topic,
            timeout_ms=timeout_ms,
            policy=policy,
            accept=PULL_CODES,
        )
        return pull_result(answer, queue, address, self._instance.namespace)

    async def fetch_offset(
        self, queue: MessageQueue, *, zero_if_young: bool = False, timeout_ms: int | None = None
    ) -> int | None:
        """Return the group's committed offset in `queue`; None where nothing is stored.

        With `zero_if_young` a broker may answer 0 instead of None for a queue that still has its
        first message at hand (RocketMQ's rule for new groups on young topics).
        """
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=self._topic(queue),
            queue_id=queue.queue_id,
            set_zero_if_not_found=None if zero_if_young else False,
        )
        try:
            return await self._query_offset(
                RequestCode.QUERY_CONSUMER_OFFSET, queue, header, timeout_ms
            )
        except OffsetNotFoundError:
            return None

    async def commit_offset(
        self, queue: MessageQueue, offset: int, *, timeout_ms: int | None = None
    ) -> None:
        """Store `offset` (the next to be consumed) for the group, and await the broker's answer."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=self._group,
            topic=self._topic(queue),
            queue_id=queue.queue_id,
            commit_offset=offset,
        )
        await self._request(RequestCode.UPDATE_CONSUMER_OFFSET, queue, header, timeout_ms)

    async def max_offset(self, queue: MessageQueue, *, timeout_ms: int | None = None) -> int:
        """Return the next offset to be written."""
        header = GetMaxOffsetRequestHeader(topic=self._topic(queue), queue_id=queue.queue_id)
        return await self._query_offset(RequestCode.GET_MAX_OFFSET, queue, header, timeout_ms)

    async def min_offset(self, queue: MessageQueue, *, timeout_ms: int | None = None) -> int:
        """Return the first offset retained."""
        header = GetMinOffsetRequestHeader(topic=self._topic(queue), queue_id=queue.queue_id)
        return await self._query_offset(RequestCode.GET_MIN_OFFSET, queue, header, timeout_ms)

    async def search_offset(
        self, queue: MessageQueue, timestamp_ms: int, *, timeout_ms: int | None = None
    ) -> int:
        """Return the first offset stored at Unix time `timestamp_ms` or later."""
        header = SearchOffsetRequestHeader(
            topic=self._topic(queue), queue_id=queue.queue_id, timestamp_ms=timestamp_ms
        )
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return await self._query_offset(code, queue, header, timeout_ms)

    def _topic(self, queue: MessageQueue) -> str:
        return self._instance.namespace.wrap(queue.topic)

    async def _query_offset(
        self, code: RequestCode, queue: MessageQueue, header: Header, timeout_ms: int | None
    ) -> int:
        answer, address = await self._request(code, queue, header, timeout_ms)
        return _answer_header(OffsetResponseHeader, answer, address).offset

    async def _request(
        self, code: RequestCode, queue: MessageQueue, header: Header, timeout_ms: int | None
    ) -> tuple[RemotingCommand, str]:
        fields = request_fields(header)
        fields["bname"] = queue.broker_name
        return await call_group(
            self._instance,
            queue.broker_name,
            lambda: RemotingCommand(code=code, ext_fields=fields),
            topic=queue.topic,
            timeout_ms=self._timeout_ms if timeout_ms is None else timeout_ms,
            policy=self._policy,
        )


def _answer_header(kind: type[_H], answer: RemotingCommand, address: str) -> _H:
    try:
        return kind.from_ext_fields(answer.ext_fields)
    except HeaderError as error:
        raise MalformedAnswerError(f"answer of {address}: {error}") from error
