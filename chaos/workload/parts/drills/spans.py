"""Drills of acknowledgements in a long queue: groups that begin anywhere in it pop a span of
messages and acknowledge it by BATCH_ACK_MESSAGE; what is named counts as done, and nothing else.

Place in the data path: `stretches` has one go through the queue that it has filled. A row of a
batch names offsets by bits behind a start, and brokers keep what it names in words, bytes and
blocks of their own, so spans lie across offsets that are multiples of powers of two, small and
large; a row begins with its pop, with its first message, or with one of some it was cut into.

The model: a group's next offset, what it holds, and what it has acknowledged. Without order each
message is queried: its time can be changed as long as it is held. In order the next pop says it:
it finds what follows, or nothing as long as something is left. Times are so long that nothing comes
back by itself.

Source: RocketMQ AckMessageProcessor, BatchAck (bit n is offset startOffset + n), ExtraInfoUtil.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from chaos.workload.parts.common.drill import Drill
from chaos.workload.parts.common.shown_answers import records_of
from chaos.workload.parts.drills.handles import Handle, ack_body
from client.message import MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["HELD_NO_MORE", "INVISIBLE_MS", "SpanDrill", "ack_span", "hold_held"]

SPANS: Final = 5  # of one run
BORDERS: Final = (8, 64, 512, 4_096, 4_096)  # spans lie across multiples of these
BEFORE_MAX: Final = 31  # messages of a span before the border
COUNTS: Final = (2, 8, 32, 32)
POPS: Final = (1, 3)
CHECKED: Final = 8  # messages of each kind that are queried
ORDERED_SHARE: Final = 0.4
ALL_SHARE: Final = 0.6  # of the spans are acknowledged as a whole
REACHES: Final = (3, 10, 1_000)  # offsets of a row, at most
INVISIBLE_MS: Final = 6 * 3_600_000
_NOTHING: Final = "210 []"  # POLLING_TIMEOUT
HELD_NO_MORE: Final = "208"


class SpanDrill:
    """A queue of `end` messages, and the groups that pop it."""

    def __init__(self, drill: Drill, group: str, queue: MessageQueue, *, end: int) -> None:
        self._drill = drill
        self._group = group
        self._queue = queue
        self._end = end
        self._rng = drill.rng
        self._groups = 0

    async def run(self) -> None:
        """Pop and acknowledge some spans, each by a group of its own. Raises Unsure, EndedError."""
        for _ in range(SPANS):
            self._groups += 1
            group = f"{self._group}-span-{self._groups}"
            begin, is_order = self._draw_begin(), self._rng.random() < ORDERED_SHARE
            await self._pop(group, 0, is_order=is_order)  # only a group that is known can be reset
            await self._begin_at(group, begin)
            await (self._in_order if is_order else self._without_order)(group, begin)

    def _draw_begin(self) -> int:
        border = self._rng.choice(BORDERS)
        at = border * self._rng.randint(1, self._end // border)
        return max(0, at - self._rng.randint(0, BEFORE_MAX))

    async def _begin_at(self, group: str, offset: int) -> None:
        """Reset the group, which holds nothing then."""
        await self._drill.request(
            f"reset {group} to {offset} of {self._queue.topic}",
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            self._place(group=group, timestamp=-1, isForce="true", offset=offset),
            expected="0",
            changes=True,
        )

    async def _without_order(self, group: str, begin: int) -> None:
        held: dict[int, Handle] = {}
        for _ in range(self._rng.randint(*POPS)):
            held |= await self._pop(group, begin + len(held), is_order=False)
        if not held:
            return
        acked = self._draw_acked(held)
        await ack_span(self._drill, self._queue, group, [(at, held[at]) for at in acked])
        left = [at for at in held if at not in acked]
        for offsets, expected in ((acked, HELD_NO_MORE), (left, "0")):
            for offset in self._rng.sample(offsets, min(CHECKED, len(offsets))):
                one = offset, held[offset]
                await hold_held(self._drill, self._queue, group, one, expected=expected)

    async def _in_order(self, group: str, begin: int) -> None:
        held = await self._pop(group, begin, is_order=True)
        if not held:
            return
        acked = self._draw_acked(held)
        await ack_span(self._drill, self._queue, group, [(at, held[at]) for at in acked])
        following = begin + len(held)
        if len(acked) == len(held):
            await self._pop(group, following, is_order=True)
            return
        await self._pop(group, self._end, is_order=True)  # the queue is blocked
        rest = [(at, handle) for at, handle in held.items() if at not in acked]
        await ack_span(self._drill, self._queue, group, rest)
        await self._pop(group, following, is_order=True)

    def _draw_acked(self, held: Mapping[int, Handle]) -> list[int]:
        """Draw which of the held messages are acknowledged: all, some, or all but one."""
        offsets = sorted(held)
        if self._rng.random() < ALL_SHARE or len(offsets) < 2:
            return offsets
        if self._rng.random() < 0.5:
            offsets.remove(self._rng.choice(offsets))
            return offsets
        return sorted(self._rng.sample(offsets, self._rng.randint(1, len(offsets) - 1)))

    async def _pop(self, group: str, begin: int, *, is_order: bool) -> dict[int, Handle]:
        """Pop some, which are those from `begin` on; nothing where that is the end."""
        count = self._rng.choice(COUNTS)
        found = list(range(begin, min(self._end, begin + count)))
        answer = await self._drill.request(
            f"pop {count} of {self._queue.topic} by {group}{', in order' if is_order else ''}",
            RequestCode.POP_MESSAGE,
            self._place(
                consumerGroup=group,
                maxMsgNums=count,
                invisibleTime=INVISIBLE_MS,
                pollTime=0,
                bornTime=0,
                initMode=0,
                order=str(is_order).lower(),
            ),
            expected=f"0 {found}" if found else _NOTHING,
            show=lambda answer: f"{answer.code} {_offsets_of(answer)}",
            changes=True,
        )
        assert answer is not None
        return {offset: Handle.of_pop(answer, offset, self._queue) for offset in found}

    def _place(self, **more: object) -> dict[str, object]:
        return _named(self._queue, **more)


async def ack_span(
    drill: Drill, queue: MessageQueue, group: str, pairs: Sequence[tuple[int, Handle]]
) -> None:
    """Acknowledge messages in one request, whose rows are cut in one way or another. Raises Unsure,
    EndedError."""
    offsets = [offset for offset, _ in pairs]
    from_start, reach = drill.rng.random() < 0.5, drill.rng.choice(REACHES)
    rows = "from their pops on" if from_start else f"of {reach} offsets at most"
    await drill.request(
        f"ack {len(offsets)} of {offsets[0]} to {offsets[-1]} of {group}, in rows {rows}",
        RequestCode.BATCH_ACK_MESSAGE,
        {},
        body=ack_body(queue, group, pairs, reach=reach, from_start=from_start),
        expected="0",
        changes=True,
    )


async def hold_held(
    drill: Drill, queue: MessageQueue, group: str, one: tuple[int, Handle], *, expected: str
) -> None:
    """Change the time of a message, which only one that is held has. Raises Unsure, EndedError."""
    offset, handle = one
    await drill.request(
        f"change {offset} of {group} behind a batch",
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        _named(
            queue,
            consumerGroup=group,
            offset=offset,
            extraInfo=handle.text(offset),
            invisibleTime=INVISIBLE_MS,
        ),
        expected=expected,
        changes=True,
    )


def _named(queue: MessageQueue, **more: object) -> dict[str, object]:
    return {
        "topic": queue.topic,
        "queueId": queue.queue_id,
        "bname": queue.broker_name,
        **more,
    }


def _offsets_of(answer: RemotingCommand) -> list[int]:
    return [record.queue_offset for record in records_of(answer)]
