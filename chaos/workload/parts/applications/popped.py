"""Messages that a consumer has popped and sends on with all that brokers have left on them, its
receipt among it; what comes of that is popped and sent on again.

Place in the data path: `broker.send.envelope`, `broker.pop` and `client.consume.pop_consumer`, in a
topic of the drill's own; the first delivery of each message runs out, so that the second one, of
the retry topic, brings its receipt as a property.

Invariants: a receipt is of the place at which its message stands, whatever was sent with it; what
was acknowledged by it does not come again, and what was not comes once more.

Source: RocketMQ PopMessageProcessor, AckMessageProcessor, SendMessageProcessor (POP_CK is of the
broker's own); rule M12.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from chaos.workload.parts.applications.bench import Bench
from client.consume.pop_consumer import PopConsumer, PoppedMessage
from client.message import Message, MessageQueue, SendResult
from client.produce.producer import Producer
from remoting.protocol.codes import RequestCode
from remoting.records.property_names import PropertyName

__all__ = ["PoppedOn"]

QUEUES: Final = 2
CHAIN: Final = 4  # how often a message is sent on
INVISIBLE_MS: Final = 1_000
AGAIN_S: Final = 4.0  # by when it comes again that was left
GIVEN_S: Final = 10.0
POLL_MS: Final = 500
TAGS: Final = ("blue", "red", "blue")
TAGGED_MS: Final = 3_000  # within which a message comes that was just sent
_OF_DELIVERY: Final = (PropertyName.POP_CK, PropertyName.FIRST_POP_TIME, PropertyName.MSG_REGION)
"""What brokers have left on a message that was delivered, and no producer sets anew."""


class PoppedOn:
    """One group that pops, sends on and acknowledges."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._queues: list[MessageQueue] = []

    async def run(self) -> None:
        """Pop messages, send them on, and acknowledge. Raises ClientError."""
        bench = self._bench
        self._queues = await bench.make_topic(QUEUES)
        async with bench.producer() as producer, bench.popper(f"{bench.name}-group") as popper:
            properties: Mapping[str, str] = {}
            for number in range(CHAIN + 1):
                properties = await self._send_one(producer, popper, properties, number)
            await asyncio.sleep(AGAIN_S)
            again = await popper.pop(bench.topic, poll_ms=POLL_MS)
            bench.hold(
                "messages that come again which were acknowledged",
                expected="none",
                answered=" ".join(_place(each) for each in again) or "none",
            )
            await self._leave_one(producer, popper)
            async with bench.popper(f"{bench.name}-by-tags") as by_tags:
                await self._pop_by_tags(producer, by_tags)

    async def _leave_one(self, producer: Producer, popper: PopConsumer) -> None:
        """Leave a popped message until it is visible again: then a pop would find one, and finds
        it, twice; both times it says when it was popped first. Raises ClientError."""
        bench = self._bench
        message = bench.message()
        await producer.send(message, queue=self._queues[0])
        first = await self._pop(popper, message.body)
        if first is None:
            return
        fields = {"consumerGroup": popper.group, "topic": bench.topic, "queueId": "-1"}

        async def would_find() -> str | None:
            answer = await bench.request(
                RequestCode.NOTIFICATION, {**fields, "pollTime": "0", "bornTime": "0"}
            )
            return answer.ext_fields.get("hasMsg")

        await bench.comes(
            "whether a pop would find what was popped and left",
            would_find,
            expected="true",
            within_s=AGAIN_S,
        )
        again = None
        for time in ("second", "third"):
            again = await self._pop(popper, message.body)
            bench.hold(
                f"when a message that was left was popped first, as it says the {time} time",
                expected=str(first.handle.pop_ms),
                answered=again and again.message.properties.get(PropertyName.FIRST_POP_TIME),
            )
        if again is not None:
            await popper.ack(again)

    async def _pop_by_tags(self, producer: Producer, popper: PopConsumer) -> None:
        """Pop by one tag, and by another one: each call has the messages of its own. Raises
        ClientError."""
        bench = self._bench
        while await popper.pop(bench.topic, expression=TAGS[0]):
            pass  # what was sent before has no tag
        for tag in TAGS:
            message = bench.message(tags=tag)
            await producer.send(message, queue=self._queues[0])
            popped = await popper.pop(
                bench.topic, poll_ms=TAGGED_MS * bench.patience, expression=tag
            )
            for each in popped:
                await popper.ack(each)
            bench.hold(
                "tags of what is popped behind pops by other tags",
                expected=[tag],
                answered=[each.message.tags for each in popped],
            )

    async def _send_one(
        self,
        producer: Producer,
        popper: PopConsumer,
        properties: Mapping[str, str],
        number: int,
    ) -> Mapping[str, str]:
        """Send a message that brings `properties`, have its first delivery run out and acknowledge
        the second; return what brokers have left on it then. Raises ClientError."""
        bench = self._bench
        body = bench.message().body
        queue = self._queues[(number // 2) % QUEUES]
        message = Message(topic=bench.topic, body=body, properties=dict(properties))
        is_batch = number % 2 == 0 and number > 0
        sending = (
            producer.send_batch([message], queue=queue)
            if is_batch
            else producer.send(message, queue=queue)
        )
        sent = await sending
        kind = "in a batch" if is_batch else "by itself"
        how = f"that is sent on for the {number}. time, {kind}" if number else "that is new"
        first = await self._pop(popper, body)
        self._hold_place(first, sent, how)
        if first is None:
            return properties
        again = await self._pop(popper, body)
        bench.hold(
            f"whether a message comes again {how} and was not acknowledged",
            expected=True,
            answered=again is not None,
        )
        last = again or first
        await popper.ack(last)
        left = last.message.properties
        return {name: left[name] for name in _OF_DELIVERY if name in left}

    async def _pop(self, popper: PopConsumer, body: bytes) -> PoppedMessage | None:
        """Pop until that message comes, or is late. Raises ClientError."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + GIVEN_S
        while loop.time() < end_s:
            for each in await popper.pop(
                self._bench.topic, count_max=1, invisible_ms=INVISIBLE_MS, poll_ms=POLL_MS
            ):
                if each.message.body == body:
                    return each
        return None

    def _hold_place(self, popped: PoppedMessage | None, sent: SendResult, how: str) -> None:
        handle = None if popped is None else popped.handle
        self._bench.hold(
            f"where the receipt says that a message stands {how}",
            expected=f"{sent.queue.queue_id}:{sent.queue_offset}",
            answered="nowhere" if handle is None else f"{handle.queue_id}:{handle.offset}",
        )


def _place(popped: PoppedMessage) -> str:
    return f"{popped.handle.queue_id}:{popped.handle.offset}"
