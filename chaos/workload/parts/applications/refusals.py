"""Messages that listeners fail in every way, under every setting of retries: when they come again,
how often, and what is among the dead letters then.

Place in the data path: `client.consume.send_back` and `queue_consumer`; one group for each setting,
which is given the one message with its tag.

Invariant: what comes again and how often is computed from the settings alone.

Source: RocketMQ ConsumeMessageConcurrentlyService (delayLevelWhenNextConsume -1: dead letters at
once), ConsumeMessageOrderlyService, DefaultMQPushConsumer.maxReconsumeTimes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from chaos.workload.parts.applications.bench import SENT_ONCE, Bench
from client.consume.listener import ConsumeStatus
from client.consume.push_consumer import PushConsumer
from client.errors import NoRouteError
from client.message import DeliveredMessage, Message
from remoting.protocol.group_topics import DLQ_PREFIX

__all__ = ["RefusedMessages"]

LEVEL_S: Final = {1: 1.0, 2: 5.0}  # RocketMQ's messageDelayLevel
EARLY_S: Final = 0.1  # by which a broker's clock may run otherwise
GIVEN_S: Final = 12.0
DEAD_S: Final = 4.0
LONG_S: Final = 30.0  # what a listener may take that does not end
STOP_MS: Final = 300
STOP_SLACK_S: Final = 3.0
PROPERTY: Final = "of-the-application"

Fail = Callable[[], Awaitable[ConsumeStatus]]


async def _refuse() -> ConsumeStatus:
    return ConsumeStatus.RECONSUME_LATER


async def _raise() -> ConsumeStatus:
    raise ValueError("a listener that fails on purpose")


async def _take_long() -> ConsumeStatus:
    await asyncio.sleep(LONG_S)
    return ConsumeStatus.CONSUME_SUCCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """`counts`: the numbers of earlier failures with which the message is given; after the last one
    it is a dead letter, or `ok`. `apart_s`: the least time between two of them."""

    counts: Sequence[int]
    ok: bool = False
    fail: Fail = _refuse
    apart_s: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)


_CASES: Final[Mapping[str, _Case]] = {
    "dead-at-once": _Case(counts=(0,), settings={"retry_delay_level": -1}),
    "no-retry": _Case(counts=(0,), settings={"reconsume_times_max": 0}),
    "one-retry": _Case(
        counts=(0, 1),
        apart_s=LEVEL_S[1],
        settings={"retry_delay_level": 1, "reconsume_times_max": 1},
    ),
    "second-level": _Case(
        counts=(0, 1), ok=True, apart_s=LEVEL_S[2], settings={"retry_delay_level": 2}
    ),
    "raises": _Case(
        counts=(0, 1), ok=True, fail=_raise, apart_s=LEVEL_S[1], settings={"retry_delay_level": 1}
    ),
    "takes-long": _Case(
        counts=(0, 1),
        ok=True,
        fail=_take_long,
        apart_s=LEVEL_S[1],
        settings={"retry_delay_level": 1, "consume_timeout_ms": 300},
    ),
    "in-order": _Case(
        counts=(0, 1, 2),
        apart_s=0.2,
        settings={"ordered": True, "reconsume_times_max": 2, "redelivery_ms_min": 200},
    ),
    # More often than RocketMQ tries a message that needs no order.
    "in-order-for-long": _Case(
        counts=range(19), ok=True, settings={"ordered": True, "redelivery_ms_min": 50}
    ),
    "in-order-and-on": _Case(
        counts=(0, 1, 2, 3), ok=True, settings={"ordered": True, "redelivery_ms_min": 50}
    ),
}


class _Given:
    """What one group is given of its message."""

    def __init__(self, case: _Case) -> None:
        self._case = case
        self.counts: list[int] = []
        self.times_s: list[float] = []

    async def listen(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        for message in messages:
            self.counts.append(message.reconsume_times)
            self.times_s.append(asyncio.get_running_loop().time())
        if self._case.ok and len(self.counts) >= len(self._case.counts):
            return ConsumeStatus.CONSUME_SUCCESS
        return await self._case.fail()

    def too_soon(self) -> bool:
        least_s = self._case.apart_s - EARLY_S
        return any(
            later - one < least_s
            for one, later in zip(self.times_s, self.times_s[1:], strict=False)
        )


class RefusedMessages:
    """All cases at once, and a listener that does not end when its member is stopped."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def run(self) -> None:
        """Fail the messages. Raises ClientError."""
        bench = self._bench
        await bench.make_topic(len(_CASES))
        given = {name: _Given(case) for name, case in _CASES.items()}
        async with contextlib.AsyncExitStack() as stack:
            producer = await stack.enter_async_context(bench.producer())
            messages = {name: self._message(name) for name in _CASES}
            for message in messages.values():
                await producer.send(message)
            for name, case in _CASES.items():
                consumer = self._consumer(name, given[name].listen, **case.settings)
                await stack.enter_async_context(consumer)
            await asyncio.gather(*(self._hold(name, given[name]) for name in _CASES))
            for name, case in _CASES.items():
                await self._hold_dead(name, messages[name], is_dead=not case.ok)
            await self._stop_in_the_middle(producer.send)
        for name, case in _CASES.items():
            bench.hold(
                f"failures with which a message was given in all that is failed: {name}",
                expected=list(case.counts),
                answered=given[name].counts,
            )

    def _message(self, name: str) -> Message:
        return self._bench.message(tags=name, keys=(f"key-{name}",), properties={PROPERTY: name})

    def _consumer(self, name: str, listener: Any, **settings: Any) -> PushConsumer:
        common = {"suspend_ms": 1_000, **SENT_ONCE}
        consumer = self._bench.consumer(listener, group=self._group(name), **{**common, **settings})
        consumer.subscribe(self._bench.topic, name)
        return consumer

    def _group(self, name: str) -> str:
        return f"{self._bench.name}-{name}"

    async def _hold(self, name: str, given: _Given) -> None:
        await self._bench.becomes(
            f"failures with which a message was given that is failed: {name}",
            lambda: list(given.counts),
            expected=list(_CASES[name].counts),
            within_s=GIVEN_S,
        )
        self._bench.hold(
            f"whether a message that is failed comes again too soon: {name}",
            expected=False,
            answered=given.too_soon(),
            is_calm=False,
        )

    async def _hold_dead(self, name: str, message: Message, *, is_dead: bool) -> None:
        """Hold that the group's dead letters are the message, or none. Raises ClientError."""
        expected = [_shown(message.body, message.tags, message.keys, name)] if is_dead else []
        loop = asyncio.get_running_loop()
        end_s = loop.time() + (DEAD_S * self._bench.patience if is_dead else 0)
        while (shown := await self._dead(name)) != expected and loop.time() < end_s:
            await self._bench.pause()
        self._bench.hold(f"dead letters of a group: {name}", expected=expected, answered=shown)

    async def _dead(self, name: str) -> list[str]:
        """Return the dead letters of a group. Raises ClientError."""
        reader = self._bench.reader
        shown: list[str] = []
        try:
            queues = await reader.queues(DLQ_PREFIX + self._group(name))
        except NoRouteError:
            return []  # the topic is made with the first one
        for queue in queues:
            for each in (await reader.pull(queue, 0)).messages:
                own = each.properties.get(PROPERTY)
                shown.append(_shown(each.body, each.tags, each.keys, own))
        return shown

    async def _stop_in_the_middle(self, send: Callable[[Message], Awaitable[object]]) -> None:
        """Stop a member whose listener does not end; hold that it stops in time, and that the next
        one is given what it had. Raises ClientError."""
        name = "stopped"
        begun = asyncio.Event()
        again: list[bytes] = []

        async def begin(_: Sequence[DeliveredMessage]) -> ConsumeStatus:
            begun.set()
            return await _take_long()

        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            again.extend(message.body for message in messages)
            return ConsumeStatus.CONSUME_SUCCESS

        message = self._message(name)
        await send(message)
        loop = asyncio.get_running_loop()
        async with self._consumer(name, begin, stop_timeout_ms=STOP_MS):
            await self._bench.becomes(
                "whether a listener begins", begun.is_set, expected=True, within_s=GIVEN_S
            )
            began_s = loop.time()
        self._bench.hold(
            "whether a member stops in time whose listener does not end",
            expected=True,
            answered=loop.time() - began_s < STOP_MS / 1000 + STOP_SLACK_S * self._bench.patience,
        )
        async with self._consumer(name, listen):
            await self._bench.becomes(
                "what the next member is given of a stopped one's",
                lambda: list(again),
                expected=[message.body],
                within_s=GIVEN_S,
            )


def _shown(body: bytes, tags: str | None, keys: Sequence[str], own: str | None) -> str:
    return f"{body!r} {tags} {list(keys)} {own}"
