"""A lite pull consumer on a real broker of ours."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from campaigns.rig.waiting import until
from client.connection.heartbeat import ConsumeFrom
from client.consume.listener import PushConsumerSettings
from client.consume.lite_pull_consumer import LitePullConsumer, LitePullSettings
from client.consume.pull_consumer import PullConsumer
from client.consume.queue_consumer import QueueConsumer
from client.consume.queue_requests import QueueRequests
from client.errors import ClientClosedError, OffsetOutOfRangeError, QueueNotOwnedError
from client.message import DeliveredMessage, Message, MessageQueue
from client.produce.producer import Producer
from tests.client.real_broker import RealBroker, make_topic, real_broker

QUEUE = MessageQueue("T", "broker-a", 0)


def consumer(broker: RealBroker, **changes: int) -> LitePullConsumer:
    inside = PushConsumerSettings(
        consume_from=ConsumeFrom.FIRST, suspend_ms=1_000, commit_interval_ms=60_000
    )
    made = LitePullConsumer(
        "CG", broker.name_servers, settings=LitePullSettings(consumer=inside, **changes)
    )
    made.subscribe("T")
    return made


async def send(broker: RealBroker, *bodies: bytes, queue_id: int = 0) -> None:
    async with Producer("PG", broker.name_servers) as producer:
        for body in bodies:
            queue = MessageQueue("T", "broker-a", queue_id)
            await producer.send(Message(topic="T", body=body), queue=queue)


async def committed(broker: RealBroker) -> int | None:
    async with PullConsumer("CG", broker.name_servers) as reader:
        return await reader.fetch_offset(QUEUE)


def bodies(messages: list[DeliveredMessage]) -> list[bytes]:
    return [message.body for message in messages]


async def poll_until(member: LitePullConsumer, count: int) -> list[bytes]:
    """What is polled until it is so much."""
    polled: list[bytes] = []
    while len(polled) < count:
        found = bodies(await member.poll(10_000))
        assert found, f"nothing came after {polled}"
        polled += found
    return polled


async def test_what_was_polled_is_consumed_with_the_next_call(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 1)
        await send(broker, b"0", b"1", b"2")
        killed = consumer(broker, poll_batch_max=2)
        await killed.start()
        assert bodies(await killed.poll(10_000)) == [b"0", b"1"]
        await killed.commit()
        assert await committed(broker) == 2
        assert bodies(await killed.poll(10_000)) == [b"2"]
        await killed.crash()
        async with consumer(broker) as member:
            assert await poll_until(member, 1) == [b"2"], "it was in the hands of who was killed"
            assert await member.poll(50) == []
        assert await committed(broker) == 3
        with pytest.raises(ClientClosedError):
            await member.poll(50)


async def test_what_a_failed_body_has_polled_is_not_consumed(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 1)
        await send(broker, b"0", b"1", b"2")

        async def work() -> None:
            async with consumer(broker, poll_batch_max=1, release_timeout_ms=50) as member:
                assert await poll_until(member, 2) == [b"0", b"1"]
                raise KeyError("the row of 1")

        with pytest.raises(KeyError):
            await work()
        assert await committed(broker) == 1, "what the poll before it returned was consumed"
        async with consumer(broker) as member:
            assert await poll_until(member, 2) == [b"1", b"2"]
        assert await committed(broker) == 3, "a body that ends has consumed what it polled"


async def test_what_waits_to_be_polled_has_not_failed(tmp_path: Path) -> None:
    """However long the application is busy elsewhere, or works on what it has polled."""
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 1)
        await send(broker, b"0", b"1")
        inside = PushConsumerSettings(
            consume_from=ConsumeFrom.FIRST, suspend_ms=1_000, consume_timeout_ms=1
        )
        settings = LitePullSettings(consumer=inside, poll_batch_max=1)
        member = LitePullConsumer("CG", broker.name_servers, settings=settings)
        member.subscribe("T")
        async with member:
            await until(lambda: member._laid_out)
            polled = []
            for body in (b"2", b"3"):
                await send(broker, body)  # takes far longer than that limit
                polled += await member.poll(10_000)
            polled += await member.poll(10_000)
        assert [(one.body, one.reconsume_times) for one in polled] == [
            (b"0", 0),
            (b"1", 0),
            (b"2", 0),
        ]


async def test_poll_of_no_time_returns_what_is_there(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 1)
        async with consumer(broker, poll_timeout_ms=60_000) as member:
            async with asyncio.timeout(10):
                assert await member.poll(0) == []
            await send(broker, b"0")
            found: list[bytes] = []

            async def has_come() -> bool:
                found.extend(bodies(await member.poll(0)))
                return bool(found)

            await until(has_come)
            assert found == [b"0"]


async def test_members_share_the_queues(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 2)
        one, two = consumer(broker, release_timeout_ms=50), consumer(broker)
        async with one:
            await until(lambda: sum(queue.topic == "T" for queue in one.queues) == 2)
            await send(broker, b"a", queue_id=1)
            await until(lambda: bool(one._laid_out))  # nobody polls, and it is taken away
            async with two:
                await until(lambda: any(queue.topic == "T" for queue in two.queues))
                theirs = next(queue for queue in two.queues if queue.topic == "T")
                await send(broker, b"b", queue_id=theirs.queue_id)
                await send(broker, b"c", queue_id=1 - theirs.queue_id)
                got = await poll_until(two, 1 + (theirs.queue_id == 1))
                assert got == ([b"a", b"b"] if theirs.queue_id == 1 else [b"b"])


async def test_a_seek_counts_before_the_queue_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member owns the queue, and still asks for the group's offset there."""
    asked, go_on = asyncio.Event(), asyncio.Event()
    fetch = QueueConsumer._first_offset

    async def held(consumer: QueueConsumer) -> int:
        offset = await fetch(consumer)
        if consumer.queue == QUEUE:
            asked.set()
            await go_on.wait()
        return offset

    monkeypatch.setattr(QueueConsumer, "_first_offset", held)
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 1)
        await send(broker, b"0", b"1", b"2")
        async with consumer(broker) as member:
            await asked.wait()
            await member.seek(QUEUE, 1)
            go_on.set()
            assert await poll_until(member, 2) == [b"1", b"2"]


async def test_a_seek_that_can_not_count_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a queue that is not the member's before it begins, while it asks or ever; elsewhere."""
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 1)
        await send(broker, b"0", b"1", b"2")
        early = consumer(broker)
        with pytest.raises(ClientClosedError):
            await early.seek(QUEUE, 2)
        await early.start()
        with pytest.raises(QueueNotOwnedError) as raised:
            await early.seek(QUEUE, 2)
        assert raised.value.definite
        assert raised.value.retriable
        assert await poll_until(early, 3) == [b"0", b"1", b"2"]
        with pytest.raises(QueueNotOwnedError):
            await early.seek(MessageQueue("T", "broker-a", 1), 0)
        for offset in (-1, 4, 10**9):
            with pytest.raises(OffsetOutOfRangeError, match=rf"0 to 3, not {offset}"):
                await early.seek(QUEUE, offset)
        await early.commit()
        assert await committed(broker) == 3
        await early.seek(QUEUE, 3)
        await send(broker, b"3")
        assert await poll_until(early, 1) == [b"3"]

        ask = QueueRequests.max_offset

        async def lose(requests: QueueRequests, queue: MessageQueue) -> int:
            end = await ask(requests, queue)
            early.unsubscribe("T")
            await until(lambda: queue not in early.queues)
            return end

        monkeypatch.setattr(QueueRequests, "max_offset", lose)
        with pytest.raises(QueueNotOwnedError):
            await early.seek(QUEUE, 0)
        await early.stop()
        assert await committed(broker) == 4
        with pytest.raises(ClientClosedError):
            await early.seek(QUEUE, 0)


async def test_seek_and_pause(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 1)
        await send(broker, b"0", b"1", b"2")
        async with consumer(broker, poll_batch_max=1) as member:
            assert await poll_until(member, 2) == [b"0", b"1"]
            await until(lambda: bool(member._laid_out) or bool(member._returned))
            await member.seek(QUEUE, 1)
            assert await poll_until(member, 2) == [b"1", b"2"]
            member.pause([QUEUE])
            await send(broker, b"3")
            assert await member.poll(150) == []
            member.resume([QUEUE])
            assert await poll_until(member, 1) == [b"3"]
