"""How much members hold: up to their bounds, and what a reset or a seek has dropped counts no more.

Place in the data path: `client.consume.process_queue`, by members of small bounds: of messages, of
bytes, and of offsets. Again and again their listeners stop (or they poll nothing) until they hold
as much as they may; then their group is reset, by themselves or by an administrator, and they go
on.

Invariants: one message of one queue is in a listener's hands at a time, so that what comes behind a
reset comes in order; a pull brings one message, so that no bound is passed.

Source: RocketMQ DefaultMQPushConsumer (pullThresholdForQueue, pullThresholdSizeForQueue,
consumeConcurrentlyMaxSpan), ProcessQueue.clear; docs/CLIENT.md (flow control).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.common.whole_polls import poll_whole
from client.consume.listener import ConsumeStatus
from client.consume.lite_pull_consumer import LitePullConsumer
from client.consume.push_consumer import PushConsumer
from client.consume.queue_consumer import QueueState
from client.message import DeliveredMessage, MessageQueue

__all__ = ["HeldMessages"]

CYCLES: Final = 4
SENT: Final = 10  # messages of a cycle
SIZE: Final = 1_000
BOUND: Final = 4
PULLED: Final = 1
SETTLED_S: Final = 0.3
FULL_S: Final = 4.0
GIVEN_S: Final = 6.0
POLL_MS: Final = 100
_MEMBERS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "messages": {"held_count_max": BOUND},
        "bytes": {"held_bytes_max": BOUND * SIZE},
        "offsets": {"held_span_max": BOUND},
        "messages, in order": {"held_count_max": BOUND, "ordered": True},
        "bytes, in order": {"held_bytes_max": BOUND * SIZE, "ordered": True},
    }
)
_POLLERS: Final = ("messages", "bytes")


class HeldMessages:
    """One queue, and a group for each bound."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def run(self) -> None:
        """Fill members, and reset them. Raises ClientError."""
        bench = self._bench
        (queue,) = await bench.make_topic(1)
        pushed = [_Pushed(bench, queue, name) for name in _MEMBERS]
        polling = [_Polling(bench, queue, name) for name in _POLLERS]
        members: Sequence[_Pushed | _Polling] = (*pushed, *polling)
        async with contextlib.AsyncExitStack() as stack:
            producer = await stack.enter_async_context(bench.producer())
            for member in members:
                await member.start()
                stack.push_async_callback(member.stop)
            for cycle in range(CYCLES):
                for member in pushed:
                    member.may_go_on.clear()
                for _ in range(SENT):
                    message = bench.message()
                    message.body = message.body.ljust(SIZE, b".")
                    await producer.send(message, queue=queue)
                end = SENT * (cycle + 1)
                await asyncio.gather(*(member.go_round(end) for member in members))


class _Pushed:
    """A push consumer whose listener stops at times."""

    def __init__(self, bench: Bench, queue: MessageQueue, name: str) -> None:
        self._bench = bench
        self._queue = queue
        self._name = name
        words = name.replace(",", "").split()
        self._group = f"{bench.name}-{'-'.join(words)}"
        self._given: list[int] = []
        self.may_go_on = asyncio.Event()
        self._consumer: PushConsumer = bench.consumer(
            self._listen,
            group=self._group,
            pull_batch_max=PULLED,
            suspend_ms=1_000,
            **_MEMBERS[name],
        )
        self._consumer.subscribe(bench.topic)

    async def start(self) -> None:
        await self._consumer.start()

    async def stop(self) -> None:
        self.may_go_on.set()
        await self._consumer.stop()

    async def _listen(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        self._given += [message.queue_offset for message in messages]
        await self.may_go_on.wait()
        return ConsumeStatus.CONSUME_SUCCESS

    async def go_round(self, end: int) -> None:
        """Fill up, be reset, and consume to the end. Raises ClientError."""
        bench, name = self._bench, self._name
        first = begun = end - SENT
        is_full = await bench.becomes(
            f"whether a member holds as much as it may ({name})",
            lambda: self._held(begun) >= BOUND,
            expected=True,
            within_s=FULL_S,
        )
        await asyncio.sleep(SETTLED_S)
        bench.hold(
            f"whether a member holds more than it may ({name})",
            expected=False,
            answered=self._held(begun) > BOUND,
            is_calm=False,
        )
        is_notified_later = False
        if is_full and begun:
            is_notified_later = bench.rng.random() < 0.5
            first = await self._reset(begun, end, is_notified_later)
        self.may_go_on.set()
        await bench.becomes(
            f"what a member holds that has consumed all, by {name}",
            self._left,
            expected=f"0 messages of 0 bytes, all before {end} consumed",
            within_s=GIVEN_S,
        )
        given, self._given = self._given, []
        expected = list(range(first, end))
        if is_notified_later:  # until it has room to pull, it goes on with what it holds
            head = given[: max(0, len(given) - len(expected))]
            held = list(range(begun, begun + BOUND + PULLED))
            given = given[len(head) :] if head == held[: len(head)] else given
        bench.hold(
            f"offsets that a member is given, by {name}, from {first} on",
            expected=expected,
            answered=given,
        )

    async def _reset(self, begun: int, end: int, is_notified_later: bool) -> int:
        """Reset the group's place, which is `begun`; return where it is then."""
        bench, rng = self._bench, self._bench.rng
        offset = rng.choice((rng.randrange(begun), rng.randrange(begun + 1, end), end))
        if is_notified_later:
            await bench.admin.reset_queue(self._group, self._queue, offset=offset)
            return offset
        await self._consumer.reset({self._queue: offset})
        bench.hold(
            f"where a member goes on behind a reset to {offset}, by {self._name}",
            expected=[(offset, "bytes of what is held")],
            answered=[
                (
                    state.commit_offset,
                    "bytes of what is held"
                    if state.held_bytes == state.held * SIZE
                    else f"{state.held_bytes} bytes of {state.held} messages",
                )
                for state in self._states()
            ],
        )
        self._given.clear()  # what is in hand counts for nothing
        return offset

    def _states(self) -> list[QueueState]:
        return [state for state in self._consumer.states() if state.queue == self._queue]

    def _held(self, begun: int) -> int:
        """Return how much was pulled of what the group has not consumed, from `begun` on: by
        offsets, since each is of one message of that size."""
        return sum(state.next_offset - begun for state in self._states())

    def _left(self) -> str:
        return "; ".join(
            f"{state.held} messages of {state.held_bytes} bytes, all before"
            f" {state.commit_offset} consumed"
            for state in self._states()
        )


class _Polling:
    """A member that polls, and seeks while it holds what it has not polled."""

    def __init__(self, bench: Bench, queue: MessageQueue, name: str) -> None:
        self._bench = bench
        self._queue = queue
        self._name = name
        self._consumer: LitePullConsumer = bench.poller(
            f"{bench.name}-polling-{name}",
            lite={"poll_batch_max": PULLED},
            pull_batch_max=PULLED,
            suspend_ms=1_000,
            **_MEMBERS[name],
        )
        self._consumer.subscribe(bench.topic)

    async def start(self) -> None:
        await self._consumer.start()

    async def stop(self) -> None:
        await self._consumer.stop()

    async def go_round(self, end: int) -> None:
        """Let messages be held, seek, and poll to the end. Raises ClientError."""
        rng, loop = self._bench.rng, asyncio.get_running_loop()
        begun = end - SENT
        await asyncio.sleep(SETTLED_S)
        given: list[int] = []
        end_s = loop.time() + GIVEN_S
        for _ in range(rng.randrange(3)):
            given += await self._poll()
        if begun:
            begun = rng.choice((rng.randrange(begun), rng.randrange(begun, end)))
            await self._consumer.seek(self._queue, begun)
            given.clear()
        while len(given) < end - begun and loop.time() < end_s:
            given += await self._poll()
        self._bench.hold(
            f"offsets that are polled by a member whose bound is one of {self._name},"
            f" from {begun} on",
            expected=list(range(begun, end)),
            answered=given,
        )

    async def _poll(self) -> list[int]:
        return [message.queue_offset for message in await poll_whole(self._consumer, POLL_MS)]
