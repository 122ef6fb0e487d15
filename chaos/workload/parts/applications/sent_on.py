"""Messages that applications send on with the properties that brokers have left on them, and
messages that are taken back; with a namespace and without.

Place in the data path: `client.produce` and a pull reader, in a topic of their own; a message that
came by a level, by a timer or at once is sent on with a delay of either kind, or with none.

Invariants: a level is obeyed, whatever a timer has left on a message; a timer is not, where one has
delivered the message before; nothing comes before its time, and all comes; what was taken back does
not come. How late something is, other rules judge.

Source: RocketMQ HookUtils.handleScheduleMessage, RecallMessageProcessor; docs/CLIENT.md (recall).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from chaos.workload.parts.common.drill import UNLISTED
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.errors import ClientError
from client.message import DeliveredMessage, Message, MessageQueue
from client.produce.producer import Producer
from remoting.records.property_names import PropertyName

__all__ = ["SentOn"]

LEVEL_MS: Final = 1_000
TIMER_MS: Final = 700
EARLY_MS: Final = 20  # of a clock's grain
GIVEN_S: Final = 15.0
HELD_MS: Final = 100
_LEVEL: Final = {PropertyName.DELAY: "1"}
_TIMER: Final = {PropertyName.TIMER_DELAY_MS: str(TIMER_MS)}
_WAYS: Final[Mapping[str, Mapping[str, str]]] = {
    "at once": {},
    "by a level": _LEVEL,
    "by a timer": {PropertyName.TIMER_DELAY_MS: "150"},
}
_DELAYS: Final[Mapping[str, Mapping[str, str]]] = {
    "no delay": {},
    "a level": _LEVEL,
    "a timer": _TIMER,
    "a level beside a timer": {PropertyName.TIMER_DELAY_MS: "3600000", **_LEVEL},
}


@dataclass(slots=True, kw_only=True)
class _Topic:
    """The drill's topic as clients in one namespace see it, and what has come in it."""

    queue: MessageQueue
    producer: Producer
    reader: PullConsumer
    offset: int = 0
    sent_s: dict[bytes, float] = field(default_factory=dict)
    came_s: dict[bytes, float] = field(default_factory=dict)
    given: dict[bytes, DeliveredMessage] = field(default_factory=dict)


class SentOn:
    """What is sent on, and what is taken back."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def run(self) -> None:
        """Go through all of it in a namespace, and in none. Raises ClientError."""
        for space in ("", f"{UNLISTED}{self._bench.name}"):
            await self._go(space)

    async def _go(self, space: str) -> None:
        bench, servers = self._bench, self._bench.kit.context.name_servers
        # A namespace that rules pass over makes any name one that they pass over.
        name = f"{bench.name}-topic" if space else bench.topic
        reading = PullConsumerSettings(
            timeout_ms=bench.timeout_ms, register=False, instance=bench.own(space)
        )
        async with contextlib.AsyncExitStack() as stack:
            enter = stack.enter_async_context
            admin = await enter(bench.admin_of(space))
            await admin.create_topic(name, queues=1, broker_names=[bench.broker_group])
            group = f"{bench.name}-readers"
            topic = _Topic(
                queue=MessageQueue(name, bench.broker_group, 0),
                producer=await enter(bench.producer(instance=bench.own(space))),
                reader=await enter(PullConsumer(group, servers, bench.slot.dial, settings=reading)),
            )
            where = "in a namespace" if space else "without a namespace"
            taken = await self._take_back(topic, where)
            await self._send_on(topic, where)
            bench.hold(
                f"whether a message comes that was taken back {where}",
                expected=False,
                answered=taken in topic.given,
                is_calm=False,
            )

    async def _take_back(self, topic: _Topic, where: str) -> bytes:
        """Send a message that waits, and recall it; return its body. Raises ClientError."""
        body = self._bench.message().body
        sent = await topic.producer.send(
            Message(topic=topic.queue.topic, body=body, properties=_TIMER | {"u": where}),
            queue=topic.queue,
        )
        answered = sent.msg_id
        try:
            answered = await topic.producer.recall(sent)
        except ClientError as error:
            answered = f"{type(error).__name__}: {error}"
        self._bench.hold(
            f"recall of a message that waits, {where}", expected=sent.msg_id, answered=answered
        )
        return body

    async def _send_on(self, topic: _Topic, where: str) -> None:
        """Have messages come in every way, and send each on with every delay."""
        firsts = {way: await self._send(topic, properties) for way, properties in _WAYS.items()}
        await self._read(topic, set(firsts.values()))
        waits: dict[bytes, tuple[str, int]] = {}
        for way, body in firsts.items():
            if body not in topic.given:
                continue  # it is late, which other rules judge
            left = _left_on(topic.given[body])
            for delay, properties in _DELAYS.items():
                sent = await self._send(topic, {**left, **properties})
                waits[sent] = (
                    f"a message that came {way} and is sent on with {delay}, {where}",
                    _wait_ms({**left, **properties}),
                )
        await self._read(topic, set(waits))
        for body, (what, wait_ms) in waits.items():
            self._bench.hold(
                what,
                expected=f"comes, {wait_ms} ms later at the earliest",
                answered=_shown(topic, body, wait_ms),
            )

    async def _send(self, topic: _Topic, properties: Mapping[str, str]) -> bytes:
        body = self._bench.message().body
        message = Message(topic=topic.queue.topic, body=body, properties=properties)
        topic.sent_s[body] = asyncio.get_running_loop().time()
        await topic.producer.send(message, queue=topic.queue)
        return body

    async def _read(self, topic: _Topic, wanted: set[bytes]) -> None:
        """Read on until all of it has come, or is late. Raises ClientError."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + GIVEN_S * self._bench.patience
        while not wanted <= topic.given.keys() and loop.time() < end_s:
            pulled = await topic.reader.pull(topic.queue, topic.offset, suspend_ms=HELD_MS)
            topic.offset = pulled.next_begin_offset
            for message in pulled.messages:
                topic.given[message.body] = message
                topic.came_s[message.body] = loop.time()


def _left_on(message: DeliveredMessage) -> dict[str, str]:
    """Return the properties with which an application sends a message on: those of delays, and its
    own; a producer sets the others itself."""
    return {
        name: value
        for name, value in message.properties.items()
        if name == PropertyName.DELAY or name.startswith("TIMER_") or name == "u"
    }


def _wait_ms(properties: Mapping[str, str]) -> int:
    """Return for how long a message waits that is sent with these."""
    if PropertyName.DELAY in properties:
        return LEVEL_MS
    if PropertyName.TIMER_OUT_MS in properties:
        return 0
    return int(properties.get(PropertyName.TIMER_DELAY_MS, "0"))


def _shown(topic: _Topic, body: bytes, wait_ms: int) -> str:
    if body not in topic.came_s:
        return f"does not come within {GIVEN_S:g} s"
    took_ms = round(1_000 * (topic.came_s[body] - topic.sent_s[body]))
    if took_ms < wait_ms - EARLY_MS:
        return f"comes {took_ms} ms later"
    return f"comes, {wait_ms} ms later at the earliest"
