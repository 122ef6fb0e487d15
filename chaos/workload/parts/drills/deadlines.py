"""Drills of popped messages at the very end of their invisible time: acknowledged or changed as it
ends, one by one and in batches, with and without order.

Place in the data path: `drills` makes one with each new group, whose topic of one queue nobody else
knows and in no manifest is. Some hundred messages are popped, so that the times of two end in each
millisecond, and these are acknowledged as close to their end as clocks allow. Whether that came in
time the broker says itself: behind it, over the same connection, goes a change of the time of
another message, the witness, whose answer tells when it was handled. Requests that are under way
together have no rows of their own; what comes of them has.

The model: what was acknowledged in time, with success, or changed, is not given again, neither as a
retry nor by the next pop in order; what was not comes again, once.

Source: RocketMQ AckMessageProcessor, ChangeInvisibleTimeProcessor, PopReviveService,
ConsumerOrderInfoManager.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.drill import (
    UNLISTED,
    Drill,
    EndedError,
    Unsure,
    batch_fields,
)
from chaos.workload.parts.common.shown_answers import records_of
from chaos.workload.parts.drills.handles import Handle, ack_body
from chaos.workload.parts.drills.topic_of_drill import make_topic
from client.errors import ClientError
from client.message import MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.group_topics import pop_retry_topic
from remoting.records.message import BatchItem, encode_batch_body

__all__ = ["DeadlineDrill"]

COUNT: Final = 256  # messages whose times end within more than a broker's round of 100 ms
APART_S: Final = 0.0005
LANES: Final = 8  # pops at one time
TOGETHER: Final = (1, 1, 2, 3)  # messages that are acknowledged at one time
IN_ORDER: Final = 6  # pops in order
SET: Final = 3  # messages of each of them
LONG_MS: Final = 6 * 3_600_000
FIRST_END_S: Final = 1.5  # until the first time ends
SHORT_MS: Final = 150  # of a pop in order
LEAD_MS: Final = (0.0, 4.0)  # before the end: as an entry takes to be committed
LEFT_SHARE: Final = 0.1  # are left to come again
CHANGED_SHARE: Final = 0.15
BATCH_SHARE: Final = 0.5  # of the single ones are batches of one
WITNESSES_MAX: Final = 32  # of one pop
LATE_S: Final = 1.5  # what is visible again has come by then, in calm times
READ_MAX: Final = 32  # brokers give as many
PAGES_MAX: Final = 40
_WITH_SUBSCRIPTION: Final = 4  # bit of a pull's sysFlag
_CLEAN: Final = "in time, and again []; twice []"


_Answered: TypeAlias = tuple[RemotingCommand, str | None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A popped message, and when its time ends: on its broker's clock, and about when by ours."""

    offset: int
    handle: Handle
    ends_s: float

    @property
    def ends_ms(self) -> int:
        return self.handle.pop_ms + self.handle.invisible_ms


class DeadlineDrill:
    """One topic of one queue, and groups that pop it."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._rng = drill.rng
        self._group = group
        self._topic = f"{UNLISTED}{group}-deadlines"
        self._queue = MessageQueue(self._topic, drill.queue.broker_name, 0)
        self._loop = asyncio.get_running_loop()
        self._in_time: set[int] = set()
        self._witnesses: list[tuple[int, Handle]] = []
        self._attempts = itertools.count()

    async def run(self) -> None:
        """Pop, acknowledge at the end, and see what comes again. Raises Unsure, EndedError."""
        await self._fill()
        await self._take_witnesses()
        for _ in range(IN_ORDER):
            await self._pop_in_order()
        held = await self._pop_all()
        left = {each.offset for each in held if self._rng.random() < LEFT_SHARE}
        async with asyncio.TaskGroup() as tasks:
            pending = [each for each in held if each.offset not in left]
            while pending:
                count = min(len(pending), self._rng.choice(TOGETHER))
                tasks.create_task(self._end([pending.pop(0) for _ in range(count)]))
        last_s = max(each.ends_s for each in held)
        if await sleep_until_set(self.drill.ends, last_s + LATE_S - self._loop.time()):
            raise EndedError
        await self._see_again(left)
        raise Unsure  # the next one has a topic of its own

    async def _fill(self) -> None:
        await make_topic(self.drill, self._topic)
        items = [BatchItem(str(number).encode(), b"", 0) for number in range(COUNT)]
        fields = batch_fields(self._group, self._topic, self._queue.broker_name)
        await self.drill.request(
            f"send {len(items)} messages to {self._topic}",
            RequestCode.SEND_BATCH_MESSAGE,
            fields,
            body=encode_batch_body(items),
            expected="0",
            changes=True,
        )

    # Pops ----------------------------------------------------------------------------------------

    def _pop_fields(self, group: str, count: int, invisible_ms: int) -> dict[str, object]:
        return {
            "topic": self._topic,
            "queueId": 0,
            "bname": self._queue.broker_name,
            "consumerGroup": group,
            "maxMsgNums": count,
            "invisibleTime": invisible_ms,
            "pollTime": 0,
            "bornTime": 0,
            "initMode": 0,
            "order": "false",
        }

    async def _pop(self, group: str, first: int, count: int, invisible_ms: int) -> RemotingCommand:
        answer = await self.drill.request(
            f"pop {count} of {self._topic} for {group}",
            RequestCode.POP_MESSAGE,
            self._pop_fields(group, count, invisible_ms),
            expected=f"0 {list(range(first, first + count))}",
            show=lambda answer: f"{answer.code} {_offsets(answer)}",
            changes=True,
        )
        assert answer is not None
        return answer

    async def _take_witnesses(self) -> None:
        """Pop as another group what is held for longer than any run lasts."""
        group = f"{self._group}-witness"
        for first in range(0, COUNT, WITNESSES_MAX):
            answer = await self._pop(group, first, WITNESSES_MAX, LONG_MS)
            self._witnesses += [
                (offset, Handle.of_pop(answer, offset, self._queue)) for offset in _offsets(answer)
            ]

    async def _pop_all(self) -> list[_Held]:
        """Pop one by one, in some lanes; return what was popped, as the times end. Raises Unsure
        where it is not all there."""
        ends_s = self._loop.time() + FIRST_END_S
        numbers = iter(range(COUNT))
        held: list[_Held] = []

        async def pop() -> None:
            for number in numbers:
                begun_s = self._loop.time()
                left_ms = round((ends_s + number * APART_S - begun_s) * 1000)
                fields = self._pop_fields(self._group, 1, max(1, left_ms))
                answered = await self._call(RequestCode.POP_MESSAGE, fields)
                if answered is None or self.drill.ends.is_set():
                    return
                for offset in _offsets(answered[0]):
                    handle = Handle.of_pop(answered[0], offset, self._queue)
                    held.append(
                        _Held(offset=offset, handle=handle, ends_s=begun_s + left_ms / 1000)
                    )

        async with asyncio.TaskGroup() as tasks:
            for _ in range(LANES):
                tasks.create_task(pop())
        if self.drill.ends.is_set():
            raise EndedError
        if len(held) < COUNT:
            raise Unsure
        self.drill.record(
            f"pops of {COUNT} of {self._topic}",
            expected="each of them once",
            answered="each of them once"
            if {each.offset for each in held} == set(range(COUNT)) and len(held) == COUNT
            else str(sorted(each.offset for each in held)),
        )
        return sorted(held, key=lambda each: each.ends_s)

    # The end of the time -------------------------------------------------------------------------

    async def _end(self, held: Sequence[_Held]) -> None:
        """Acknowledge or change some as the time of the first one ends, and note which of them were
        surely in time."""
        lead_s = self._rng.uniform(*LEAD_MS) / 1000
        if await sleep_until_set(self.drill.ends, held[0].ends_s - lead_s - self._loop.time()):
            return
        self._in_time |= await self._request(self._group, held, may_change=True)

    async def _request(self, group: str, held: Sequence[_Held], *, may_change: bool) -> set[int]:
        """Return the offsets of what was acknowledged, or changed, with success and in time."""
        witness, left = self._witnesses.pop(), list(held)
        requested: list[tuple[list[_Held], asyncio.Task[_Answered]]] = []
        async with asyncio.TaskGroup() as tasks:
            while left:
                some = [left.pop(0) for _ in range(self._rng.randint(1, len(left)))]
                request = self._one_request(group, some, may_change=may_change)
                requested.append((some, tasks.create_task(request)))
            last = tasks.create_task(self._change(f"{self._group}-witness", *witness))
        proof = last.result()
        if proof is None or proof[0].code != 0:
            return set()
        fields = proof[0].ext_fields
        handled_ms = int(fields["popTime"]) + int(fields["invisibleTime"]) - LONG_MS
        return {
            each.offset
            for some, task in requested
            if (answered := task.result()) is not None
            and answered[0].code == 0
            and answered[1] == proof[1]
            for each in some
            if handled_ms < each.ends_ms
        }

    async def _one_request(
        self, group: str, held: Sequence[_Held], *, may_change: bool
    ) -> _Answered:
        """Acknowledge some in a batch, or the only one by itself, or change its time."""
        pairs = [(each.offset, each.handle) for each in held]
        draw = self._rng.random()
        if len(held) > 1 or draw < BATCH_SHARE:
            body = ack_body(self._queue, group, pairs)
            return await self._call(RequestCode.BATCH_ACK_MESSAGE, {}, body)
        if may_change and draw > 1 - CHANGED_SHARE:
            return await self._change(group, *pairs[0])
        return await self._call(RequestCode.ACK_MESSAGE, self._fields(group, *pairs[0]))

    def _fields(self, group: str, offset: int, handle: Handle) -> dict[str, object]:
        return {
            "topic": self._topic,
            "queueId": 0,
            "bname": self._queue.broker_name,
            "consumerGroup": group,
            "offset": offset,
            "extraInfo": handle.text(offset),
        }

    async def _change(self, group: str, offset: int, handle: Handle) -> _Answered:
        fields = self._fields(group, offset, handle) | {"invisibleTime": LONG_MS}
        return await self._call(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)

    async def _call(
        self, code: RequestCode, fields: dict[str, object], body: bytes = b""
    ) -> _Answered:
        """Return an answer, and whose it is; None where there was none."""
        try:
            return await self.drill.call(code, fields, body=body)
        except ClientError:
            return None  # whether it was carried out nobody knows: it is not held against anybody

    # What comes again ----------------------------------------------------------------------------

    async def _pop_in_order(self) -> None:
        """Pop some in order, acknowledge all or the first of them as their time ends, and pop again
        at once. A group of its own each time, which begins at 0."""
        group = f"{self._group}-order-{next(self._attempts)}"
        fields = self._pop_fields(group, SET, SHORT_MS) | {"order": "true"}
        begun_s = self._loop.time()
        answer = await self.drill.request(
            f"pop {SET} of {self._topic} in order for {group}",
            RequestCode.POP_MESSAGE,
            fields | {"attemptId": f"{group}#1"},
            expected=f"0 {list(range(SET))}",
            show=lambda answer: f"{answer.code} {_offsets(answer)}",
            changes=True,
        )
        assert answer is not None
        ends_s = begun_s + SHORT_MS / 1000
        held = [
            _Held(offset=offset, handle=Handle.of_pop(answer, offset, self._queue), ends_s=ends_s)
            for offset in range(self._rng.choice((1, SET)))
        ]
        lead_s = self._rng.uniform(*LEAD_MS) / 1000
        if await sleep_until_set(self.drill.ends, ends_s - lead_s - self._loop.time()):
            raise EndedError
        async with asyncio.TaskGroup() as tasks:
            ends = tasks.create_task(self._request(group, held, may_change=False))
            await asyncio.sleep(lead_s + self._rng.uniform(*LEAD_MS) / 1000)
            again = tasks.create_task(
                self._call(RequestCode.POP_MESSAGE, fields | {"attemptId": f"{group}#2"})
            )
        in_time, popped = ends.result(), again.result()
        if popped is None:
            return
        wrong = sorted(in_time & set(_offsets(popped[0])))
        self.drill.record(
            f"pop in order of {self._topic} for {group}, of which {sorted(in_time)} were"
            f" acknowledged as their time ended",
            expected=_CLEAN,
            answered=_clean(wrong, []),
        )

    async def _see_again(self, left: set[int]) -> None:
        """Read the group's retries: what was left has to be there in calm times."""
        retries = pop_retry_topic(self._topic, self._group)
        fields: dict[str, object] = {
            "topic": retries,
            "queueId": 0,
            "bname": self._queue.broker_name,
            "consumerGroup": f"{self._group}-reader",
            "maxMsgNums": READ_MAX,
            "sysFlag": _WITH_SUBSCRIPTION,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subVersion": 0,
            "subscription": "*",
            "expressionType": "TAG",
        }

        again: list[int] = []

        def show(answer: RemotingCommand) -> str:
            numbers = again + _numbers(answer)
            twice = sorted({number for number in numbers if numbers.count(number) > 1})
            return _clean(sorted(self._in_time & set(numbers)), twice)

        for _ in range(PAGES_MAX):
            answer = await self.drill.request(
                f"what comes again into {retries} from {len(again)}, {len(self._in_time)} were"
                " ended in time",
                RequestCode.PULL_MESSAGE,
                fields | {"queueOffset": len(again)},
                expected=_CLEAN,
                show=show,
            )
            if answer is None:
                raise Unsure
            if not (numbers := _numbers(answer)):
                break
            again += numbers
        await self.drill.request(
            f"what comes again into {retries} of {sorted(left)}, which were left",
            RequestCode.PULL_MESSAGE,
            fields | {"queueOffset": len(again)},
            expected="missing []",
            show=lambda answer: f"missing {sorted(left - {*again, *_numbers(answer)})}",
            is_calm=True,
        )


def _clean(again: Sequence[int], twice: Sequence[int]) -> str:
    return f"in time, and again {again}; twice {twice}"


def _offsets(answer: RemotingCommand) -> list[int]:
    return [record.queue_offset for record in records_of(answer)]


def _numbers(answer: RemotingCommand) -> list[int]:
    return [int(record.body) for record in records_of(answer)]
