"""Cases of our own clients: what an application does beside sending and being called.

In a module of their own for its length; `python_cases` runs them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from campaigns.interop.python_program import Rig, Seen, keys, message
from client.administer.admin import Admin
from client.connection.heartbeat import ConsumeFrom
from client.consume.listener import PushConsumerSettings
from client.consume.lite_pull_consumer import LitePullConsumer, LitePullSettings
from client.consume.push_consumer import PushConsumer
from client.errors import NotRecalledError
from client.message import Message
from client.produce.batches import split_batches

__all__ = ["LIBRARY_CASES"]

FIRST = PushConsumerSettings(consume_from=ConsumeFrom.FIRST)


async def lite_pull(rig: Rig) -> str:
    topic, group = await rig.topic(), rig.unique("g")
    producer = await rig.producer()
    seen = Seen()

    async def poll_all(consumer: LitePullConsumer, wanted: list[str]) -> None:
        consumer.subscribe(topic)
        async with consumer:
            while seen.missing(wanted):
                await seen.take(await consumer.poll(1_000))

    settings = LitePullSettings(consumer=FIRST)
    await rig.send_all(producer, topic, "l", 0, 20)
    await poll_all(LitePullConsumer(group, rig.servers, settings=settings), keys("l", 0, 20))
    await rig.midpoint()
    await rig.send_all(producer, topic, "l", 20, 40)
    await poll_all(LitePullConsumer(group, rig.servers, settings=settings), keys("l", 20, 40))
    again = len(seen.repeated)
    assert again == 0 or rig.faults, seen.repeated
    return f"40 read, {again} repeated"


async def long_list(rig: Rig) -> str:
    topic = await rig.topic()
    producer = await rig.producer()
    many = [Message(topic=topic, body=b"x" * 4_000, keys=(key,)) for key in keys("m", 0, 300)]
    async with rig.consuming(topic) as seen:
        pieces = list(split_batches(many, size_bytes_max=200_000))
        for piece in pieces:
            await producer.send_batch(piece)
        await rig.seen_all(seen, keys("m", 0, 300))
    assert len(pieces) > 3, pieces
    return f"{len(pieces)} batches"


async def lookups(rig: Rig) -> str:
    """By key, by UNIQ_KEY, by the broker's id."""
    topic = await rig.topic()
    producer = await rig.producer()
    sent = await rig.send(producer, message(topic, "A", "wanted"))
    await rig.send(producer, message(topic, "A", "other"))
    await rig.midpoint()
    async with Admin(rig.servers) as admin:
        deadline = time.monotonic() + 20
        while not (found := await admin.query_messages(topic, "wanted")):
            assert time.monotonic() < deadline, "no key was found"
            await asyncio.sleep(0.1)
        assert [each.uniq_key for each in found] == [sent.msg_id], found
        by_id = await admin.query_messages(topic, sent.msg_id, unique=True)
        assert [each.keys for each in by_id] == [["wanted"]], by_id
        if not rig.faults:  # who is killed is asked by nobody
            viewed = await admin.view_message(sent.offset_msg_id)
            assert viewed.uniq_key == sent.msg_id, viewed
        assert await admin.query_messages(topic, "nothing") == []
    return "found"


async def recall(rig: Rig) -> str:
    topic = await rig.topic()
    producer = await rig.producer()
    async with rig.consuming(topic) as seen:
        late = await rig.send(producer, message(topic, "A", "late", TIMER_DELAY_MS="6000"))
        delivered = await rig.send(producer, message(topic, "A", "kept", TIMER_DELAY_MS="6000"))
        assert await producer.recall(late) == late.msg_id
        await rig.seen_all(seen, ["kept"])
        await asyncio.sleep(1)
        assert not seen.counts["late"], seen.counts
        with contextlib.suppress(NotRecalledError):
            await producer.recall(delivered)
            raise AssertionError("a delivered message was recalled")
    return "one recalled, one delivered"


async def changes_while_running(rig: Rig) -> str:
    """Another subscription, a pause, and what the consumer is told to go on at."""
    topic = await rig.topic(1)
    producer = await rig.producer()
    seen = Seen()
    consumer = PushConsumer(rig.unique("g"), rig.servers, seen.take, settings=FIRST)
    consumer.subscribe(topic, "A")
    async with consumer:
        await rig.send(producer, message(topic, "A", "a"))
        await rig.seen_all(seen, ["a"])
        consumer.subscribe(topic, "B")
        await rig.send(producer, message(topic, "A", "no"))
        await rig.send(producer, message(topic, "B", "b"))
        await rig.seen_all(seen, ["b"])
        consumer.suspend()
        await rig.send(producer, message(topic, "B", "c"))
        await asyncio.sleep(0.5)
        assert not seen.counts["c"], seen.counts
        consumer.resume()
        await rig.seen_all(seen, ["c"])
    assert not seen.counts["no"], seen.counts
    return "a, b, c"


LIBRARY_CASES = {
    "lite-pull": lite_pull,
    "long-list": long_list,
    "lookups": lookups,
    "recall": recall,
    "changes": changes_while_running,
}
