"""Drills of large messages: as large as brokers take, around a MiB, and a byte too large, by every
way that a message can take to its queue: at once, in a batch, by a delay level, by a timer, as a
half that is committed, and once more as the retry of a popped one.

Place in the data path: `drills` makes one with each new group, whose topic of one queue nobody else
knows and in no manifest is. What a broker moves by itself (delays, timers, retries) it moves in
portions of so many bytes: some messages of one kind become due together, which fit into a portion
together, one by one, or not even alone; and none may hold up another.

The model: what was acknowledged, in the order in which it has to stand in the queue. How soon it
stands there is judged in calm times only, and waited for longer than any broker needs.

Source: RocketMQ maxMessageSize, ScheduleMessageService, TimerMessageStore, PopReviveService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from chaos.workload.messages import PROPERTY_VALUE, wall_ms
from chaos.workload.pace import sleep_until_set
from chaos.workload.parts.common.drill import (
    UNLISTED,
    Drill,
    EndedError,
    Unsure,
    batch_fields,
)
from chaos.workload.parts.common.shown_answers import records_of
from chaos.workload.parts.common.timer_delays import LEVELS_S
from chaos.workload.parts.drills.topic_of_drill import make_topic
from client.connection.send_codec import prepare_message
from client.errors import ClientError
from client.message import Message, MessageQueue
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.group_topics import pop_retry_topic
from remoting.records.message import BatchItem, encode_batch_body
from remoting.records.property_names import PropertyName

__all__ = ["SizeDrill"]

BODY_MAX: Final = 4 << 20  # maxMessageSize
MIB: Final = 1 << 20
LARGEST_SHARE: Final = 0.1  # of the sizes; they are what a run has to store most of
NEAR: Final = 300  # bytes: more than a record has beside its body
TOGETHER: Final = (2, 4)  # messages that become due at one time, or within a round
HALVES: Final = (1, 2)
TIMER_MS: Final = 700
INVISIBLE_MS: Final = 2_000  # a pop of a large message is answered long before it comes again
PATIENCE_S: Final = 8.0  # a round of deliveries, on a slow machine
POLL_S: Final = 0.1
_WITH_SUBSCRIPTION: Final = 4  # bit of a pull's sysFlag
_COMMIT: Final = 8
_ILLEGAL: Final = "13"


class SizeDrill:
    """One topic of one queue; `stored` of it is what has to stand there, in this order."""

    def __init__(self, drill: Drill, group: str) -> None:
        self.drill = drill
        self._rng = drill.rng
        self._group = group
        self._queue = MessageQueue(f"{UNLISTED}{group}-sizes", drill.queue.broker_name, 0)
        self._stored: list[str] = []
        self._sent = 0

    async def run(self) -> None:
        """Send by each way once, in any order. Raises Unsure, EndedError."""
        await make_topic(self.drill, self._queue.topic)
        ways: list[Callable[[], Awaitable[None]]] = [
            self._send_plain,
            self._send_batch,
            self._send_halves,
            self._send_to_level,
            self._send_to_timer,
            self._be_refused,
        ]
        self._rng.shuffle(ways)
        for way in ways:
            await way()
        await self._pop_and_leave()
        raise Unsure  # the next one has a topic of its own

    def _draw_size(self) -> int:
        """Draw a body's size: about as much as a portion has, half of it, or now and then the
        most."""
        near = self._rng.randint(-NEAR, NEAR)
        if self._rng.random() < LARGEST_SHARE:
            return BODY_MAX
        return near + self._rng.choice((MIB // 2, MIB // 2, MIB))

    def _draw_sizes(self, count: tuple[int, int] = TOGETHER) -> list[int]:
        """Draw those of some messages, as many as wait together."""
        return [self._draw_size() for _ in range(self._rng.randint(*count))]

    # Sends ---------------------------------------------------------------------------------------

    async def _send_plain(self) -> None:
        """Send one at once."""
        await self._send(self._make(self._draw_size()), "", is_stored=True)
        await self._read("sent", 1)

    async def _send_batch(self) -> None:
        """Send a batch of two, whose body has as many bytes."""
        total = self._draw_size()
        names = [self._next_name() for _ in range(2)]
        blocks = [f"{PROPERTY_VALUE}\x01{name}\x02".encode() for name in names]
        empty = encode_batch_body([BatchItem(b"", block, 0) for block in blocks])
        first = self._rng.randint(1, total - len(empty) - 1)
        sizes = (first, total - len(empty) - first)
        items = [
            BatchItem(bytes(size), block, 0) for size, block in zip(sizes, blocks, strict=True)
        ]
        body = encode_batch_body(items)
        await self.drill.request(
            f"send a batch of {len(body)} bytes to {self._queue.topic}",
            RequestCode.SEND_BATCH_MESSAGE,
            batch_fields(self._group, self._queue.topic, self._queue.broker_name),
            body=body,
            expected="0",
            changes=True,
        )
        self._stored += [f"{name} {size}" for name, size in zip(names, sizes, strict=True)]
        await self._read("sent in a batch", 2)

    async def _send_halves(self) -> None:
        """Send halves and commit them."""
        sizes = self._draw_sizes(HALVES)
        for size in sizes:
            message = self._make(size)
            answer = await self._send(message, " as a half", is_stored=False, is_half=True)
            await self.drill.request(
                f"commit of {_shown(message)} in {self._queue.topic}",
                RequestCode.END_TRANSACTION,
                {
                    "tranStateTableOffset": int(answer.ext_fields["queueOffset"]),
                    "commitLogOffset": int(answer.ext_fields["msgId"][-16:], 16),
                    "msgId": message.uniq_key,
                    "producerGroup": self._group,
                    "commitOrRollback": _COMMIT,
                    "fromTransactionCheck": "false",
                    "bname": self._queue.broker_name,
                },
                expected="0",
                changes=True,
            )
            self._stored.append(_shown(message))
        await self._read("committed", len(sizes))

    async def _send_to_level(self) -> None:
        """Send some by a delay level, which keeps their order."""
        messages = [self._make(size) for size in self._draw_sizes()]
        for message in messages:
            message.properties = {**message.properties, PropertyName.DELAY: "1"}
            await self._send(message, f" by a level of {LEVELS_S[0]} s", is_stored=False)
        await self._come("delayed by a level", list(map(_shown, messages)), LEVELS_S[0])

    async def _send_to_timer(self) -> None:
        """Send some for one time."""
        messages = [self._make(size) for size in self._draw_sizes()]
        due_ms = wall_ms() + TIMER_MS
        for message in messages:
            message.properties = {**message.properties, PropertyName.TIMER_DELIVER_MS: str(due_ms)}
            await self._send(message, f" by a timer of {TIMER_MS} ms", is_stored=False)
        await self._come(
            "delayed by a timer", list(map(_shown, messages)), TIMER_MS / 1000, in_order=False
        )

    async def _be_refused(self) -> None:
        """Send what has a byte too many: at once, later, or as a half."""
        message = self._make(1)
        later = self._rng.choice(
            ({}, {PropertyName.DELAY: "1"}, {PropertyName.TIMER_DELAY_MS: "1"})
        )
        message.properties = {**message.properties, **later}
        prepared = prepare_message(
            message,
            group=self._group,
            compression=None,
            transactional=not later and self._rng.random() < 0.5,
        )
        command = prepared.command(self._queue)
        await self.drill.request(
            f"send {BODY_MAX + 1} bytes to {self._queue.topic}, with {sorted(later)}",
            RequestCode(command.code),
            command.ext_fields,
            body=bytes(BODY_MAX + 1),
            expected=_ILLEGAL,
        )
        await self._read("refused", 0)

    def _next_name(self) -> str:
        self._sent += 1
        return f"{self._group}-{self._sent}"

    def _make(self, size: int) -> Message:
        return Message(
            topic=self._queue.topic,
            body=bytes(size),
            properties={PROPERTY_VALUE: self._next_name()},
            uniq_key=self.drill.client_key(),
            born_timestamp_ms=wall_ms(),
        )

    async def _send(
        self, message: Message, how: str, *, is_stored: bool, is_half: bool = False
    ) -> RemotingCommand:
        prepared = prepare_message(
            message, group=self._group, compression=None, transactional=is_half
        )
        command = prepared.command(self._queue)
        answer = await self.drill.request(
            f"send {_shown(message)} bytes to {self._queue.topic}{how}",
            RequestCode(command.code),
            command.ext_fields,
            body=command.body,
            expected="0",
            changes=True,
        )
        assert answer is not None
        if is_stored:
            self._stored.append(_shown(message))
        return answer

    # What comes of it ----------------------------------------------------------------------------

    async def _read(self, how: str, count: int) -> None:
        """Pull the last `count` messages of the queue, one at a time, and behind its end."""
        for offset in range(len(self._stored) - count, len(self._stored) + 1):
            there = self._stored[offset : offset + 1]
            await self.drill.request(
                f"pull from {offset} of {self._queue.topic}, of what was {how}",
                RequestCode.PULL_MESSAGE,
                self._pull_fields(self._queue.topic, offset, 1),
                expected=str(there),
                show=lambda answer: str(_names(answer)),
                is_calm=True,
            )

    async def _come(
        self, how: str, shown: Sequence[str], within_s: float, *, in_order: bool = True
    ) -> None:
        """Wait until what was sent to come later has come, in its order or in any."""
        begin = len(self._stored)
        come = await self._await_all(self._queue.topic, begin, len(shown), within_s)
        expected = list(shown)
        if not in_order:
            come, expected = sorted(come), sorted(expected)
        await self.drill.request(
            f"end of {self._queue.topic}, in which {expected} stand from {begin}, {how}",
            RequestCode.GET_MAX_OFFSET,
            self._place(),
            expected=f"{expected} to {begin + len(expected)}",
            show=lambda answer: f"{come} to {answer.ext_fields.get('offset')}",
            is_calm=True,
        )
        self._stored += come

    async def _await_all(self, topic: str, begin: int, count: int, within_s: float) -> list[str]:
        """Return what stands in queue 0 of a topic from `begin` on, as soon as there are `count`,
        or when nobody would wait any longer. Raises EndedError."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + within_s + PATIENCE_S
        come: list[str] = []
        while len(come) < count and loop.time() < end_s:
            try:
                fields = self._pull_fields(topic, begin + len(come), count)
                answer, _ = await self.drill.call(RequestCode.PULL_MESSAGE, fields)
            except ClientError:
                names: list[str] = []  # no leader, for a while
            else:
                names = _names(answer)
            come += names
            if not names and await sleep_until_set(self.drill.ends, POLL_S):
                raise EndedError
        return come

    async def _pop_and_leave(self) -> None:
        """Pop some for a moment, and read them in the group's retries."""
        popped: list[str] = []
        count = min(len(self._stored), self._rng.randint(*TOGETHER))
        for _ in range(count):
            answer = await self.drill.request(
                f"pop of {self._queue.topic} behind {len(popped)}",
                RequestCode.POP_MESSAGE,
                self._place(
                    consumerGroup=self._group,
                    maxMsgNums=1,
                    invisibleTime=INVISIBLE_MS,
                    pollTime=0,
                    bornTime=0,
                    initMode=0,
                    order="false",
                ),
                expected=str(self._stored[len(popped) : len(popped) + 1]),
                show=lambda answer: str(_names(answer)),
                changes=True,
                is_calm=True,  # what was popped first may have come again before the last one
            )
            if answer is None:
                raise Unsure
            popped += _names(answer)
        retries = pop_retry_topic(self._queue.topic, self._group)
        come = await self._await_all(retries, 0, count, INVISIBLE_MS / 1000)
        await self.drill.request(
            f"whether {popped}, which were popped and left, came again into {retries}",
            RequestCode.GET_MAX_OFFSET,
            self._place() | {"topic": retries},
            expected=str(sorted(popped)),
            show=lambda _: str(sorted(come)),
            is_calm=True,
        )

    def _place(self, **more: object) -> dict[str, object]:
        queue = self._queue
        return {"topic": queue.topic, "queueId": 0, "bname": queue.broker_name, **more}

    def _pull_fields(self, topic: str, offset: int, count: int) -> dict[str, object]:
        return self._place(
            consumerGroup=f"{self._group}-reader",
            queueOffset=offset,
            maxMsgNums=count,
            sysFlag=_WITH_SUBSCRIPTION,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subVersion=0,
            subscription="*",
        ) | {"topic": topic}


def _shown(message: Message) -> str:
    return f"{message.properties[PROPERTY_VALUE]} {len(message.body)}"


def _names(answer: RemotingCommand) -> list[str]:
    return [
        f"{record.property_map().get(PROPERTY_VALUE, '?')} {len(record.body)}"
        for record in records_of(answer)
    ]
