"""RECALL_MESSAGE: cancels the delivery of a message that waits for its time.

Place in the data path: the handle of the send's answer names time and UNIQ_KEY; the message's
removal from the table of timers is one command in the log. So a recall that was answered with
success holds across failovers.

Rules: RocketMQ RecallMessageProcessor. There a recall is itself a message that meets the other one
when the time has come, and is answered with success whether or not there is such a message. Here
success says that the message will not be delivered: it was removed now, or it does not wait any
more before its time, that is, an earlier attempt removed it. Whether its time has come is judged
by the group's time, which is never behind a stamp in the log: no delivered message is mistaken for
a recalled one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from broker.delay.recall_handle import RecallHandle, parse_recall_handle
from broker.delay.timers import Timers
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.request.tasks import TaskOwner
from remoting.protocol.codes import ResponseCode
from remoting.protocol.headers import RecallMessageRequestHeader
from remoting.records.message import decode_record
from remoting.records.property_names import PropertyName

__all__ = ["RecallProcessor"]

_READ_PER_TURN_MAX: Final = 256


class RecallProcessor:
    """Handler of recalls."""

    def __init__(
        self, replica: Replica, leadership: Leadership, tasks: TaskOwner, timers: Timers
    ) -> None:
        self._replica = replica
        self._leadership = leadership
        self._tasks = tasks
        self._timers = timers
        self._walking = asyncio.Lock()

    def handle(self, header: RecallMessageRequestHeader, request: Request) -> None:
        """Recall the message, and answer once that is committed. Raises RefusedError."""
        replica, topic = self._replica, header.topic
        if not replica.config.recall_message_enable:
            raise RefusedError(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
        if self._leadership.proposer.topic(topic) is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{topic}] not exist"
            )
        try:
            handle = parse_recall_handle(header.recall_handle)
        except ValueError as error:
            raise RefusedError(ResponseCode.ILLEGAL_OPERATION, str(error)) from error
        if handle.topic != topic:
            raise _illegal("topic not match")
        if handle.broker_name != replica.config.group:
            raise _illegal("broker service not available")
        left_ms = handle.deliver_ms - replica.clock_ms()
        if not 0 < left_ms < replica.config.timer_max_delay_sec * 1_000:
            raise _illegal("timestamp invalid")
        candidates = self._candidates(handle)
        if len(candidates) <= _READ_PER_TURN_MAX:
            for queue_offset in candidates:
                if self._is_meant(queue_offset, handle):
                    self._recall(request, handle, queue_offset)
                    return
        self._tasks.answer(request, lambda: self._recall_at_read_point(request, handle))

    async def _recall_at_read_point(self, request: Request, handle: RecallHandle) -> None:
        """Recall a message that does not wait, as far as is known here, as a proven leader (promise
        G6). Raises RefusedError."""
        await self._leadership.wait_for_read_point()
        queue_offset = await self._find(handle)
        if queue_offset is not None:
            self._recall(request, handle, queue_offset)
        elif handle.deliver_ms <= self._replica.clock_ms():
            raise _illegal("timestamp invalid")
        else:
            self._answer(request, handle, "the message does not wait any more")

    def _recall(self, request: Request, handle: RecallHandle, queue_offset: int) -> None:
        self._timers.recall(request, queue_offset, lambda: self._answer(request, handle, None))

    async def _find(self, handle: RecallHandle) -> int | None:
        """Return the waiting message's queue offset. Raises RefusedError where a candidate is
        damaged here.

        Any number may wait for the same millisecond: other tasks get their turns meanwhile, and one
        walk is under way at a time.
        """
        async with self._walking:
            for number, queue_offset in enumerate(self._candidates(handle), 1):
                if self._is_meant(queue_offset, handle):
                    return queue_offset
                if number % _READ_PER_TURN_MAX == 0:
                    await asyncio.sleep(0)
        return None

    def _candidates(self, handle: RecallHandle) -> Sequence[int]:
        """Return the queue offsets where the message may wait: one, if the handle says so."""
        if handle.queue_offset is not None:
            return (handle.queue_offset,)
        return self._replica.state.timers.at(handle.deliver_ms)

    def _is_meant(self, queue_offset: int, handle: RecallHandle) -> bool:
        replica = self._replica
        timer = replica.state.timers.get(queue_offset)
        if timer is None or timer.deliver_ms != handle.deliver_ms:
            return False  # delivered or recalled meanwhile
        record = decode_record(replica.read(timer.position, timer.size), check_crc=False)
        properties = record.property_map()
        return (
            properties.get(PropertyName.UNIQ_KEY) == handle.uniq_key
            and properties.get(PropertyName.REAL_TOPIC) == handle.topic
        )

    def _answer(self, request: Request, handle: RecallHandle, remark: str | None) -> None:
        fields = {"msgId": handle.uniq_key, "MSG_REGION": self._replica.config.region}
        request.reply(ResponseCode.SUCCESS, remark, fields)


def _illegal(reason: str) -> RefusedError:
    return RefusedError(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {reason}")
