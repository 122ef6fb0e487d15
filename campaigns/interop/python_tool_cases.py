"""Cases of our clients beside plain sending and reading: dead letters, timers, traces,
namespaces, administration, and the blocking face for scripts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial

from campaigns.interop.python_program import Rig, Seen, keys, message
from client.administer.admin import Admin
from client.blocking.sync import Session
from client.connection.heartbeat import ConsumeFrom
from client.connection.instance import InstanceSettings
from client.consume.listener import ConsumeStatus, PushConsumerSettings
from client.consume.pull_consumer import PullConsumer
from client.consume.push_consumer import PushConsumer
from client.errors import ClientError
from client.message import DeliveredMessage, Message
from client.produce.producer import Producer, ProducerSettings
from client.produce.request_reply import NoReplyError
from client.trace.tracer import TraceSettings

__all__ = ["TOOL_CASES"]

TRACES = "RMQ_SYS_TRACE_TOPIC"


async def dead_letters(rig: Rig) -> str:
    topic, group = await rig.topic(), rig.unique("g")
    producer = await rig.producer()
    readings: list[int] = []

    async def refuse(given: object) -> ConsumeStatus:
        readings.append(len(readings))
        return ConsumeStatus.RECONSUME_LATER

    settings = PushConsumerSettings(
        consume_from=ConsumeFrom.FIRST, reconsume_times_max=1, retry_delay_level=1
    )
    async with rig.consuming(topic, group=group, settings=settings, take=refuse):
        await rig.send(producer, message(topic, "A", "bad"))
        await rig.midpoint()
        dead = f"%DLQ%{group}"
        async with PullConsumer(rig.unique("g"), rig.servers) as consumer:
            await rig.until(lambda: f"{readings} readings", lambda: len(readings) >= 2)
            (queue,) = await rig.request(lambda: consumer.queues(dead), patient=True)
            found = await rig.request(lambda: consumer.pull(queue, 0, timeout_ms=20_000))
    assert [each.keys for each in found.messages] == [["bad"]], found
    assert found.messages[0].properties["RETRY_TOPIC"] == topic, found
    return f"after {len(readings)} readings"


async def timers(rig: Rig) -> str:
    topic = await rig.topic()
    producer = await rig.producer()
    async with rig.consuming(topic) as seen:
        at_ms = int(time.time() * 1000) + 4_000
        await rig.send(producer, message(topic, "A", "at", TIMER_DELIVER_MS=str(at_ms)))
        await rig.send(producer, message(topic, "A", "after", TIMER_DELAY_MS="4000"))
        await rig.midpoint()
        await rig.seen_all(seen, ["at", "after"])
    # RocketMQ's wheel turns once a second and may be that early.
    late_ms = [seen.at_ms[key] - at_ms for key in ("at", "after")]
    assert min(late_ms) >= -1_000, late_ms
    return f"{late_ms[0]:.0f} and {late_ms[1]:.0f} ms late"


async def trace(rig: Rig) -> str:
    topic = await rig.topic()
    async with rig.consuming(TRACES) as traces:
        sending = ProducerSettings(trace=TraceSettings())
        taking = PushConsumerSettings(consume_from=ConsumeFrom.FIRST, trace=TraceSettings())
        async with (
            Producer(rig.unique("p"), rig.servers, settings=sending) as producer,
            rig.consuming(topic, settings=taking) as seen,
        ):
            await rig.midpoint()
            sent = await rig.send(producer, message(topic, "A", "traced"))
            await rig.seen_all(seen, ["traced"])

            def is_traced(kind: str) -> bool:
                bodies = [each.body.decode() for each in traces.every]
                lines = [line for body in bodies for line in body.split("\x02")]
                return any(sent.msg_id in line and line.startswith(kind) for line in lines)

            for kind in ("Pub", "SubBefore", "SubAfter"):
                await rig.until(partial(str, kind), partial(is_traced, kind))
    return "Pub, SubBefore, SubAfter"


async def namespace(rig: Rig) -> str:
    space, topic = rig.unique("NS"), rig.unique("t")
    instance = InstanceSettings(namespace=space)
    async with (
        Admin(rig.servers) as admin,
        Producer(
            rig.unique("p"), rig.servers, settings=ProducerSettings(instance=instance)
        ) as producer,
    ):
        await rig.request(lambda: admin.create_topic(f"{space}%{topic}", queues=2))
        await rig.send(producer, message(topic, "A", "inside"))
        await rig.midpoint()
        settings = PushConsumerSettings(consume_from=ConsumeFrom.FIRST, instance=instance)
        async with rig.consuming(topic, settings=settings) as seen:
            await rig.seen_all(seen, ["inside"])
        assert seen.messages["inside"].topic == topic, seen.messages
        async with rig.consuming(f"{space}%{topic}") as outside:
            await rig.seen_all(outside, ["inside"])
    return f"{space}%{topic} outside"


async def administration(rig: Rig) -> str:
    topic, group = rig.unique("t"), rig.unique("g")
    producer = await rig.producer()
    async with Admin(rig.servers) as admin:
        await rig.request(lambda: admin.create_topic(topic, queues=2))
        await rig.request(lambda: admin.create_group(group, retry_times_max=3))
        async with rig.consuming(topic, group=group) as seen:
            await rig.send_all(producer, topic, "m", 0, 10)
            await rig.seen_all(seen, keys("m", 0, 10))
        await rig.midpoint()
        deadline = time.monotonic() + 30
        while True:  # a consumer that ends doesn't wait until its offsets are stored
            progress = await rig.request(lambda: admin.consumer_progress(group, topic))
            assert sum(each.broker_offset for each in progress.values()) == 10, progress
            if sum(each.lag for each in progress.values()) == 0:
                break
            assert time.monotonic() < deadline, progress
            await asyncio.sleep(0.1)
        reset = await rig.request(lambda: admin.reset_offsets(group, topic, 0))
        assert set(reset.values()) == {0}, reset
        async with rig.consuming(topic, group=group) as again:
            await rig.seen_all(again, keys("m", 0, 10))
        await rig.request(lambda: admin.delete_group(group, clean_offsets=True))
        await rig.request(lambda: admin.delete_topic(topic))
        try:
            await admin.topic_route(topic)
        except ClientError as gone:
            return str(gone)
    raise AssertionError("a deleted topic has a route")


async def unanswered(rig: Rig) -> str:
    topic = await rig.topic()
    producer = await rig.producer()
    try:
        await producer.request(message(topic, "A", "nobody"), 3_000)
    except NoReplyError as error:
        return str(error)
    raise AssertionError("somebody answered")


def _script(servers: list[str], topic: str, names: tuple[str, str, str]) -> list[str]:
    producers, readers, listeners = names
    heard: list[str] = []

    def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        heard.extend(each.keys[0] for each in messages)
        return ConsumeStatus.CONSUME_SUCCESS

    with Session(servers) as session:
        session.admin().create_topic(topic, queues=1)
        producer = session.producer(producers)
        for key in keys("s", 0, 4):
            producer.send(Message(topic=topic, body=b"x", keys=(key,)), 20_000)
        reader = session.pull_consumer(readers)
        (queue,) = reader.queues(topic)
        read = [each.keys[0] for each in reader.pull(queue, 0, timeout_ms=20_000).messages]
        settings = PushConsumerSettings(consume_from=ConsumeFrom.FIRST)
        with session.push_consumer(listeners, listen, {topic: "*"}, settings=settings):
            deadline = time.monotonic() + 30
            while len(heard) < 4:
                assert time.monotonic() < deadline, heard
                time.sleep(0.05)
    assert sorted(heard) == read, (heard, read)
    return read


async def script(rig: Rig) -> str:
    """The blocking face; no midpoint: it runs in a thread of its own, from its start to its end."""
    names = (rig.unique("p"), rig.unique("g"), rig.unique("g"))
    read = await asyncio.to_thread(_script, rig.servers, rig.unique("t"), names)
    assert read == keys("s", 0, 4), read
    return "4 sent, pulled and listened to"


async def crash_and_again(rig: Rig) -> str:
    """A consumer that ends without a word: what it had not committed comes to its successor."""
    topic, group = await rig.topic(1), rig.unique("g")
    producer = await rig.producer()
    settings = PushConsumerSettings(consume_from=ConsumeFrom.FIRST)
    seen = Seen()
    first = PushConsumer(group, rig.servers, seen.take, settings=settings)
    first.subscribe(topic)
    await first.start()
    await rig.send_all(producer, topic, "c", 0, 10)
    await rig.seen_all(seen, keys("c", 0, 10))
    await first.crash()
    await rig.midpoint()
    await rig.send_all(producer, topic, "c", 10, 15)
    async with rig.consuming(topic, group=group) as second:
        await rig.seen_all(second, keys("c", 10, 15))
    return f"{len(second.counts)} read by the second"


TOOL_CASES = {
    "dead-letters": dead_letters,
    "timers": timers,
    "trace": trace,
    "namespace": namespace,
    "admin": administration,
    "request-unanswered": unanswered,
    "script": script,
    "consumer-crash": crash_and_again,
}
