"""PEEK_MESSAGE, NOTIFICATION, POLLING_INFO: queries about pops that take nothing.

Place in the data path: the messages that a pop would find now (peek), whether it would find any
(held as a pop is), and how many pops wait. Rules: RocketMQ PeekMessageProcessor,
NotificationProcessor, PollingInfoProcessor.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from broker.entry.topics import Topic
from broker.pop.ordered_queues import OrderedQueues
from broker.pop.reader import (
    next_start,
    read_slice,
    readable_topic,
    require_readable_broker,
    start_of,
)
from broker.queues.message_filter import EVERYTHING
from broker.request.deleted_topics import first_of_living_topic
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.pop_polling import HeldPop
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.state.pop_state import QueueKey
from remoting.protocol.codes import ResponseCode
from remoting.protocol.group_topics import pop_retry_topic
from remoting.protocol.headers import (
    NotificationRequestHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
)
from remoting.protocol.pop_handle import retry_flag

__all__ = ["PopPeekProcessor"]

_COUNT_MAX: Final = 32
_POLL_MS_MAX: Final = 60_000
_QueueHeader: TypeAlias = (
    PeekMessageRequestHeader | NotificationRequestHeader | PollingInfoRequestHeader
)


class PopPeekProcessor:
    """Handler of queries about what a pop would find, and about pops that wait."""

    def __init__(self, replica: Replica, leadership: Leadership, desk: Desk) -> None:
        self._replica = replica
        self._leadership = leadership
        self._desk = desk
        self._ordered = OrderedQueues(replica, leadership, desk)

    def peek(self, header: PeekMessageRequestHeader, request: Request) -> None:
        """Answer with what a pop would find (PEEK_MESSAGE), and how many there are, these with
        them. Raises RefusedError."""
        replica = self._replica
        left = max(0, min(header.max_msg_nums, _COUNT_MAX))
        records: list[bytes] = []
        starts: list[str] = []
        offsets: list[str] = []
        topic = header.topic
        rest, size_left = 0, replica.config.pull_size_max
        for key in self._queues(header, with_retries=True):
            start = self._start(topic, key)
            rest += max(0, replica.queues.get(key[1], key[2]).next_offset - start)
            if len(records) < left and size_left > 0:  # else they are only counted
                found = read_slice(
                    replica,
                    key[1],
                    key[2],
                    start,
                    count_max=left - len(records),
                    size_max=size_left,
                    wanted=EVERYTHING,
                )
                if found.records:
                    records += found.records
                    size_left -= sum(map(len, found.records))
                    place = f"{retry_flag(key[1])} {key[2]}"
                    starts.append(f"{place} {found.start}")
                    offsets.append(f"{place} {','.join(map(str, found.offsets))}")
        request.reply(
            ResponseCode.SUCCESS if records else ResponseCode.PULL_NOT_FOUND,
            "FOUND" if records else "NO_MESSAGE_IN_QUEUE",
            {
                "popTime": str(replica.clock_ms()),
                "invisibleTime": "0",
                "reviveQid": "0",
                "restNum": str(rest),
                "startOffsetInfo": ";".join(starts),
                "msgOffsetInfo": ";".join(offsets),
            },
            b"".join(records),
        )

    def notification(self, header: NotificationRequestHeader, request: Request) -> None:
        """Answer whether a pop would find a message, held until it would (NOTIFICATION). Raises
        RefusedError."""
        replica, leadership = self._replica, self._leadership
        poll_ms = max(0, min(header.poll_ms, _POLL_MS_MAX))
        self._check(header)
        attempt_id = header.attempt_id or ""
        deadline_ms = replica.monotonic_ms() + poll_ms

        def answer(has_message: bool, *, is_full: bool = False) -> None:
            fields = {"hasMsg": str(has_message).lower(), "pollingFull": str(is_full).lower()}
            request.reply(ResponseCode.SUCCESS, None, fields)

        is_small = request.shrink(header.topic, header.consumer_group, attempt_id)

        def attempt() -> None:
            if request.connection.closed:
                return
            if not leadership.ready:
                request.refuse(leadership.not_leader())
                return
            now_ms = replica.clock_ms()
            try:
                keys = list(self._queues(header, with_retries=not header.order))
            except RefusedError as refused:  # the topic, or the permission, is gone by now
                request.refuse(refused)
                return
            waits = [self._ordered.wake_ms(key, attempt_id, now_ms) for key in keys]
            if any(
                wait is None and self._has_message(header.topic, key)
                for key, wait in zip(keys, waits, strict=True)
            ):
                answer(True)
            elif replica.monotonic_ms() >= deadline_ms:
                answer(False)
            elif not is_small or not self._desk.pop_polling.hold(
                HeldPop(
                    topic=header.topic,
                    group=header.consumer_group,
                    queue_id=header.queue_id,
                    codes=None,
                    deadline_ms=deadline_ms,
                    wake_ms=min((wait for wait in waits if wait is not None), default=None),
                    run_again=attempt,
                    is_closed=lambda: request.connection.closed,
                    is_query=True,
                )
            ):
                answer(False, is_full=True)

        attempt()

    def polling_info(self, header: PollingInfoRequestHeader, request: Request) -> None:
        """Answer with how many pops of the group wait for the queue (POLLING_INFO). Raises
        RefusedError."""
        self._check(header)
        count = self._desk.pop_polling.count(header.topic, header.consumer_group, header.queue_id)
        request.reply(ResponseCode.SUCCESS, None, {"pollingNum": str(count)})

    def _queues(self, header: _QueueHeader, *, with_retries: bool) -> Iterator[QueueKey]:
        """Yield the queues that the header names. Raises RefusedError."""
        topic = self._check(header)
        group, name, queue_id = header.consumer_group, topic.name, header.queue_id
        retry_topic = pop_retry_topic(name, group)
        if with_retries and retry_topic in self._replica.state.topics:
            yield group, retry_topic, 0
        for at in range(topic.read_queue_count) if queue_id < 0 else [queue_id]:
            yield group, name, at

    def _check(self, header: _QueueHeader) -> Topic:
        """Return the topic. Raises RefusedError where the group may not read the queue."""
        require_readable_broker(self._replica, "peeking")
        return readable_topic(self._replica, header.consumer_group, header.topic, header.queue_id)

    def _start(self, topic: str, key: QueueKey) -> int:
        """Return where a pop of the topic would begin in one of its queues, or of its retries."""
        replica = self._replica
        stored = replica.state.consumer_offsets.get(key)
        if stored is None:
            start = start_of(replica, key, from_end=False)
        else:
            start = next_start(replica, key, stored)
        if key[1] == topic:
            return start
        return first_of_living_topic(replica, topic, key[1], key[2], start)

    def _has_message(self, topic: str, key: QueueKey) -> bool:
        return self._start(topic, key) < self._replica.queues.get(key[1], key[2]).next_offset
