"""A client and a real broker, between which single frames of a send are lost, doubled, damaged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from campaigns.rig.waiting import until
from client.connection.retry import RetryPolicy
from client.consume.pull_consumer import PullConsumer
from client.errors import ClientError
from client.message import Message, SendResult
from client.produce.producer import Producer, ProducerSettings
from remoting.protocol.codes import RequestCode
from tests.client.real_broker import make_topic, real_broker
from toxiproxy.client import ProxySpec, ToxicFrames, ToxicSpec, ToxiproxyClient
from toxiproxy.server import ToxiproxyServer
from toxiproxy.toxics import AttributeValue

SEND = RequestCode.SEND_MESSAGE_V2.value
SETTINGS = ProducerSettings(timeout_ms=20_000, retry=RetryPolicy(attempt_timeout_ms=400))


@dataclass
class Rig:
    """A topic of one queue; `producer` reaches its broker by the proxy, `consumer` directly."""

    toxiproxy: ToxiproxyClient
    producer: Producer
    consumer: PullConsumer

    async def send(self, text: str) -> SendResult:
        return await self.producer.send(Message(topic="T", body=text.encode()))

    async def stored(self) -> int:
        (queue,) = await self.consumer.queues("T")
        return await self.consumer.max_offset(queue)

    @asynccontextmanager
    async def broken(
        self, type_name: str, stream: str, **attributes: AttributeValue
    ) -> AsyncIterator[None]:
        spec = ToxicSpec(
            type_name=type_name, stream=stream, name="t", attributes={"codes": SEND, **attributes}
        )
        await self.toxiproxy.add_toxic("broker", spec)
        yield
        await self.toxiproxy.delete_toxic("broker", "t")

    async def hit(self) -> ToxicFrames:
        return (await self.toxiproxy.frames("broker")).toxics["t"]

    async def answers(self) -> int:
        passed = (await self.toxiproxy.frames("broker")).passed
        return passed.get(("downstream", "response", SEND), 0)

    async def until_answered(self, count: int) -> None:
        async def is_answered() -> bool:
            return await self.answers() >= count

        await until(is_answered, f"{count} answers")


@asynccontextmanager
async def rig(root: Path) -> AsyncIterator[Rig]:
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(real_broker(root))
        await make_topic(broker, "T", 1)
        server = await stack.enter_async_context(ToxiproxyServer(port=0, seed=7))
        toxiproxy = await stack.enter_async_context(ToxiproxyClient(server.url))
        proxy = await toxiproxy.create_proxy(ProxySpec(name="broker", upstream=broker.address))
        dial = {broker.address: proxy.listen}
        producer = Producer("P", broker.name_servers, dial, settings=SETTINGS)
        consumer = PullConsumer("C", broker.name_servers)
        await stack.enter_async_context(producer)
        await stack.enter_async_context(consumer)
        yield Rig(toxiproxy, producer, consumer)


async def test_single_frames_of_a_send(tmp_path: Path) -> None:
    """However its frames are treated, a send that is answered OK is stored, and once."""
    async with rig(tmp_path) as it:
        assert (await it.send("undisturbed")).attempts == 1
        assert await it.answers() == 1

        async with it.broken("frame_drop", "downstream", count=1):
            lost = await it.send("its answer is lost")
            assert lost.attempts == 2, "only the second answer came"
            assert (lost.queue_offset, await it.stored()) == (1, 2), "the first attempt's place"
            hit = await it.hit()
            assert (hit.seen[SEND], hit.affected, hit.foreign) == (2, {SEND: 1}, 0)

        answers = await it.answers()
        async with it.broken("frame_duplicate", "downstream", count=1):
            assert (await it.send("its answer comes twice")).attempts == 1
            await it.until_answered(answers + 2)
        assert (await it.send("the copy was nobody's answer")).queue_offset == 3

        async with it.broken("frame_duplicate", "upstream", count=1):
            assert (await it.send("it is requested twice")).queue_offset == 4
            assert (await it.hit()).affected == {SEND: 1}
        assert (await it.send("behind it")).queue_offset == 5, "the second request stored nothing"

        async with it.broken("frame_damage", "downstream", header=1, bytes=4, count=1):
            assert (await it.send("its answer is garbage")).queue_offset == 6
            assert (await it.hit()).affected == {SEND: 1}

        async with it.broken("frame_reorder", "downstream", wait=5_000, count=1):
            first, second = await asyncio.gather(it.send("one"), it.send("two"))
            assert {first.queue_offset, second.queue_offset} == {7, 8}
            assert (await it.hit()).affected == {SEND: 1}
        assert await it.stored() == 9


async def test_without_an_answer_the_outcome_is_unknown(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        it.producer.settings = replace(SETTINGS, timeout_ms=1_000)
        async with it.broken("frame_drop", "downstream"):
            with pytest.raises(ClientError) as unanswered:
                await it.send("stored, and nobody hears of it")
            assert not unanswered.value.definite
            assert await it.stored() == 1
        async with it.broken("frame_drop", "upstream"):
            with pytest.raises(ClientError) as swallowed:
                await it.send("never requested")
            assert not swallowed.value.definite, "to the client it is the same"
            assert await it.stored() == 1
            assert (await it.hit()).affected.keys() == {SEND}
        assert (await it.send("healed")).attempts == 1
