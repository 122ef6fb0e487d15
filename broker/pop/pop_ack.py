"""ACK_MESSAGE, BATCH_ACK_MESSAGE, CHANGE_MESSAGE_INVISIBLETIME: ends of popped messages.

Place in the data path: each names holdings by their handle (`remoting.protocol.pop_handle`) and
becomes a command; answered once that is committed. An acknowledgement of what is held no more is
answered with success, as in RocketMQ: it may be the retry of one whose answer was lost. A change of
what is held no more is not (208): the message is somebody else's by now, or done.

Rules: RocketMQ AckMessageProcessor, ChangeInvisibleTimeProcessor.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec

from broker.entry.payload import Command
from broker.entry.pop_commands import AckCommand, AckOrderCommand, ChangeInvisibleCommand
from broker.pop.batch_ack import BITS_SIZE_MAX, BatchAcks
from broker.pop.ordered_queues import OrderedQueues
from broker.request.commit import commit
from broker.request.desk import Desk
from broker.request.leadership import Leadership
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.state.pop_state import QueueKey
from raft.replicated_log import ProposalStatus
from remoting.errors import BodyError
from remoting.protocol import fastjson
from remoting.protocol.codes import ResponseCode
from remoting.protocol.group_topics import pop_retry_topic
from remoting.protocol.headers import AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader
from remoting.protocol.pop_handle import ORDER_REVIVE_QUEUE, PopHandle, PopHandleError

__all__ = ["PopAckProcessor"]

_INVISIBLE_MS_MAX: Final = 12 * 3_600_000
_ACKS_MAX: Final = 4_096
_BODY_SIZE_MAX: Final = 4 << 20  # as many acks, with bitsets of as many bytes as there may be
_OFFSET_MAX: Final = (1 << 63) - 1
_HeldHeader: TypeAlias = AckMessageRequestHeader | ChangeInvisibleTimeRequestHeader


class _BatchAck(msgspec.Struct):
    """RocketMQ's BatchAck, with its short names."""

    c: str
    t: str
    so: int
    q: int
    pt: int
    b: str | None = None
    r: str = "0"
    rq: int = 0
    it: int = 0


class _LongBatchAck(msgspec.Struct):
    """The same fields under their long names."""

    consumerGroup: str
    topic: str
    startOffset: int
    queueId: int
    popTime: int
    bitSet: str | None = None
    retry: str = "0"
    reviveQueueId: int = 0


class _BatchAckBody(msgspec.Struct):
    acks: list[msgspec.Raw] = []
    brokerName: str | None = None


class PopAckProcessor:
    """Handler of acknowledgements, and of changes of the time until a message is given again."""

    def __init__(self, replica: Replica, leadership: Leadership, desk: Desk) -> None:
        self._replica = replica
        self._leadership = leadership
        self._ordered = OrderedQueues(replica, leadership, desk)
        # The newest pop time of each message whose change is under way.
        self._renamed: dict[tuple[QueueKey, int], int] = {}

    def ack(self, header: AckMessageRequestHeader, request: Request) -> None:
        """Acknowledge one message (ACK_MESSAGE). Raises RefusedError."""
        key, offset, handle = self._held(header, request, ends_at=1)
        command: Command = (
            AckOrderCommand(*key, offset, handle.pop_ms)
            if handle.is_order
            else AckCommand(*key, [[offset, handle.pop_ms]])
        )
        self._propose(
            request,
            [command],
            [(key, offset)],
            lambda: self._acked(request, [key] if handle.is_order else []),
        )

    def batch_ack(self, request: Request) -> None:
        """Acknowledge many messages (BATCH_ACK_MESSAGE). Raises RefusedError."""
        acks = _acks_of(request.command.body)
        if not acks:
            raise RefusedError(ResponseCode.NO_MESSAGE, "no message is acknowledged")
        wanted = BatchAcks()
        for ack in acks:
            topic = ack.t if ack.r == "0" else pop_retry_topic(ack.t, ack.c)
            is_order = ack.rq == ORDER_REVIVE_QUEUE
            wanted.add((ack.c, topic, ack.q), ack.pt, ack.so, _bits_of(ack), is_order=is_order)
        state = self._replica.state.pop
        plain, ordered = wanted.plain(state), wanted.ordered(state)
        busy = [
            ((command.group, command.topic, command.queue_id), offset)
            for command in plain
            for offset, _ in command.rows
        ]
        busy += [
            ((command.group, command.topic, command.queue_id), command.offset)
            for command in ordered
        ]
        # Where nothing is held the entry is as good as empty, but it proves that this node leads:
        # a leader that was deposed without knowing it does not know what is held.
        self._propose(
            request,
            [*plain, *ordered],
            busy,
            lambda: self._acked(request, wanted.ordered_queues()),
        )

    def change(self, header: ChangeInvisibleTimeRequestHeader, request: Request) -> None:
        """Change when a message is given again (CHANGE_MESSAGE_INVISIBLETIME). Raises
        RefusedError."""
        invisible_ms = header.invisible_ms
        key, offset, handle = self._held(header, request, ends_at=0)
        if not 0 <= invisible_ms <= _INVISIBLE_MS_MAX:
            raise RefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"invisibleTime {invisible_ms} is not within 0 and {_INVISIBLE_MS_MAX}",
            )
        now_ms = self._replica.clock_ms()
        pop_ms = handle.pop_ms if handle.is_order else self._new_pop_ms((key, offset), now_ms)
        visible_ms = now_ms + invisible_ms
        command = ChangeInvisibleCommand(
            *key, offset, handle.pop_ms, pop_ms, visible_ms, handle.is_order
        )

        def answer() -> None:
            if handle.is_order:
                self._ordered.changed(key)
            if not self._is_held(key, offset, pop_ms, is_order=handle.is_order):
                request.reply(ResponseCode.NO_MESSAGE, f"offset {offset} is held no more")
                return
            fields = {
                "popTime": str(pop_ms),
                "invisibleTime": str(max(0, visible_ms - pop_ms)),
                "reviveQid": str(handle.revive_queue),
            }
            request.reply(ResponseCode.SUCCESS, None, fields)

        self._propose(request, [command], [(key, offset)], answer)

    def _new_pop_ms(self, held: tuple[QueueKey, int], now_ms: int) -> int:
        """Return a pop time that no other change of this message has, so that none is taken for
        another. The handle's own does not count: anybody may have made that up."""
        holding = self._replica.state.pop.holding(*held)
        last_ms = max(self._renamed.get(held, 0), 0 if holding is None else holding.pop_ms)
        self._renamed[held] = pop_ms = max(now_ms, last_ms + 1)
        return pop_ms

    def _held(
        self, header: _HeldHeader, request: Request, *, ends_at: int
    ) -> tuple[QueueKey, int, PopHandle]:
        """Return the group's queue, the offset and its handle that the request names. Raises
        RefusedError."""
        replica = self._replica
        topic_name, queue_id, offset = header.topic, header.queue_id, header.offset
        topic = replica.state.topics.get(topic_name)
        if topic is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic_name}] not exist, apply first please!"
            )
        if not 0 <= queue_id < topic.read_queue_count:
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{queue_id}] is illegal, topic:[{topic_name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_count}] "
                f"consumer:[{request.connection.peer}]",
            )
        queue = replica.queues.get(topic_name, queue_id)
        if not queue.min_offset <= offset < queue.next_offset + ends_at:
            raise RefusedError(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{topic_name}@{queue_id}, commit:{offset}, "
                f"store:{queue.min_offset}~{queue.next_offset}",
            )
        try:
            handle = PopHandle.parse_for(header.extra_info, offset)
        except PopHandleError as error:
            raise RefusedError(ResponseCode.INVALID_PARAMETER, str(error)) from error
        return (header.consumer_group, topic_name, queue_id), offset, handle

    def _is_held(self, key: QueueKey, offset: int, pop_ms: int, *, is_order: bool) -> bool:
        state = self._replica.state.pop
        if is_order:
            held = state.orders.get(key)
            return held is not None and held.pop_ms == pop_ms and offset in held.offsets
        holding = state.holding(key, offset)
        return holding is not None and holding.pop_ms == pop_ms

    def _acked(self, request: Request, ordered: Sequence[QueueKey]) -> None:
        request.reply(ResponseCode.SUCCESS)
        for key in ordered:  # what waited behind them may be popped now
            self._ordered.changed(key)

    def _propose(
        self,
        request: Request,
        commands: Sequence[Command],
        busy: Sequence[tuple[QueueKey, int]],
        answer: Callable[[], None],
    ) -> None:
        """Propose the commands, and answer once they are committed. Raises RefusedError.

        While they are in flight the `busy` messages are not given again: `broker.pop.revive` passes
        them over, and a pop in order waits.
        """
        leadership = self._leadership
        mine = leadership.pop_busy.begin(busy)

        def ended(_: ProposalStatus | None) -> None:
            leadership.pop_busy.end(mine)
            for held in mine:
                if held not in leadership.pop_busy:
                    self._renamed.pop(held, None)

        commit(leadership, request, commands, answer=answer, ended=ended)


def _acks_of(body: bytes) -> list[_BatchAck]:
    """Decode the rows of a batch. Raises RefusedError."""
    if len(body) > _BODY_SIZE_MAX:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"{len(body)} bytes of acks; at most {_BODY_SIZE_MAX} are allowed",
        )
    try:
        raw = fastjson.decode_request(body, _BatchAckBody).acks
        acks = [_ack_of(bytes(item)) for item in raw[:_ACKS_MAX]]
    except BodyError as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"acks: {error}") from error
    if len(raw) > _ACKS_MAX:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER, f"{len(raw)} acks; at most {_ACKS_MAX} are allowed"
        )
    return acks


def _ack_of(item: bytes) -> _BatchAck:
    if b'"consumerGroup"' not in item:
        return fastjson.decode_request(item, _BatchAck)
    long = fastjson.decode_request(item, _LongBatchAck)
    return _BatchAck(
        c=long.consumerGroup,
        t=long.topic,
        so=long.startOffset,
        q=long.queueId,
        pt=long.popTime,
        b=long.bitSet,
        r=long.retry,
        rq=long.reviveQueueId,
    )


def _bits_of(ack: _BatchAck) -> bytes:
    """Return the bitset of the offsets from the start offset on. Raises RefusedError."""
    try:
        bits = base64.b64decode(ack.b or "", validate=True)
    except binascii.Error as error:
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"bitset: {error}") from error
    if len(bits) > BITS_SIZE_MAX or not 0 <= ack.so < _OFFSET_MAX - 8 * BITS_SIZE_MAX:
        raise RefusedError(
            ResponseCode.INVALID_PARAMETER,
            f"a bitset of {len(bits)} bytes at {ack.so}; at most {BITS_SIZE_MAX} are allowed",
        )
    if not (0 <= ack.q < 1 << 31 and 0 <= ack.pt <= _OFFSET_MAX):
        raise RefusedError(ResponseCode.INVALID_PARAMETER, f"queue {ack.q}, pop time {ack.pt}")
    return bits
