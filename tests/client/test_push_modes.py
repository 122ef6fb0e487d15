"""Ordered and broadcasting consumers, retries and dead letters, on a real broker of ours."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from campaigns.rig.waiting import until
from client.connection.heartbeat import MessageModel
from client.consume.listener import ConsumeStatus
from client.consume.pull_consumer import PullConsumer
from client.consume.push_consumer import PushConsumer
from client.message import DeliveredMessage, Message, MessageQueue
from client.produce.producer import Producer
from tests.client.real_broker import make_topic, real_broker, settings

SUCCESS, LATER = ConsumeStatus.CONSUME_SUCCESS, ConsumeStatus.RECONSUME_LATER


class Ordered:
    """Notes (queue, number) in order; two calls for one queue never overlap."""

    def __init__(self) -> None:
        self.seen: dict[int, list[int]] = defaultdict(list)
        self.running: set[int] = set()
        self.overlaps = 0
        self.failures = {3: 2}

    async def __call__(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        (message,) = messages
        queue_id, number = message.queue.queue_id, int(message.body)
        self.overlaps += queue_id in self.running
        self.running.add(queue_id)
        await asyncio.sleep(0.002)
        self.running.discard(queue_id)
        if message.reconsume_times < self.failures.get(number, 0):
            return LATER
        self.seen[queue_id].append(number)
        return SUCCESS


async def test_order_survives_members_that_come_and_go(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 4)
        listener = Ordered()  # shared, so that overlaps between members show
        members = [
            PushConsumer("CG", broker.name_servers, listener, settings=settings(ordered=True))
            for _ in range(3)
        ]
        for member in members:
            member.subscribe("T")
        sent = 0
        async with Producer("PG", broker.name_servers) as producer:

            async def send(count: int) -> None:
                nonlocal sent
                for number in range(sent, sent + count):
                    for queue_id in range(4):
                        await producer.send(
                            Message(topic="T", body=b"%d" % number),
                            queue=MessageQueue("T", "broker-a", queue_id),
                        )
                sent += count

            async def caught_up() -> None:
                await until(
                    lambda: all(sent - 1 in listener.seen[queue_id] for queue_id in range(4))
                )

            await members[0].start()
            await send(20)
            await members[1].start()
            await send(20)
            await until(lambda: len(members[1].queues) >= 2)
            await caught_up()
            await members[0].stop()
            await members[2].start()
            await send(20)
            await caught_up()
            for member in members[1:]:
                await member.stop()
        assert listener.overlaps == 0
        # All left in good order, so that nothing came twice.
        assert dict(listener.seen) == {queue_id: list(range(60)) for queue_id in range(4)}


class Counting:
    def __init__(self, fail: bytes = b"") -> None:
        self.seen: list[tuple[bytes, int]] = []
        self.topics: set[str] = set()
        self.fail = fail

    async def __call__(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        (message,) = messages
        self.seen.append((message.body, message.reconsume_times))
        self.topics.add(message.topic)
        return LATER if message.body == self.fail else SUCCESS


async def test_broadcasting_members_each_get_all_and_go_on_where_they_were(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 2)

        def member(name: str, listener: Counting) -> PushConsumer:
            consumer = PushConsumer(
                "CG",
                broker.name_servers,
                listener,
                settings=settings(
                    message_model=MessageModel.BROADCASTING,
                    offset_file=tmp_path / name / "offsets.json",
                    reconsume_times_max=2,
                ),
            )
            consumer.subscribe("T")
            return consumer

        async with Producer("PG", broker.name_servers) as producer:
            one, two = Counting(), Counting()
            async with member("one", one), member("two", two):
                for number in range(6):
                    await producer.send(Message(topic="T", body=b"%d" % number))
                await until(lambda: len(one.seen) == len(two.seen) == 6)
            await producer.send(Message(topic="T", body=b"bad"))
            again = Counting(fail=b"bad")
            async with member("one", again):
                await until(lambda: len(again.seen) == 3)
                await producer.send(Message(topic="T", body=b"after"))
                await until(lambda: (b"after", 0) in again.seen)
            assert again.seen == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"after", 0)]


async def test_a_failed_message_comes_back_and_ends_among_the_dead(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 1)
        listener = Counting(fail=b"bad")
        consumer = PushConsumer(
            "CG", broker.name_servers, listener, settings=settings(reconsume_times_max=1)
        )
        consumer.subscribe("T")
        async with consumer, Producer("PG", broker.name_servers) as producer:
            bad = await producer.send(Message(topic="T", body=b"bad", tags="x", keys=("k",)))
            await producer.send(Message(topic="T", body=b"good"))
            await until(lambda: (b"bad", 1) in listener.seen)
        assert listener.seen == [(b"bad", 0), (b"good", 0), (b"bad", 1)]
        assert listener.topics == {"T"}
        async with PullConsumer("TOOL", broker.name_servers) as tool:
            (queue,) = await tool.queues("%DLQ%CG")
            (dead,) = (await tool.pull(queue, 0)).messages
            assert dead.body == b"bad"
            assert (dead.tags, dead.keys) == ("x", ["k"])
            assert dead.uniq_key == bad.msg_id
            assert dead.properties["DLQ_ORIGIN_TOPIC"] == "T"
            (source,) = await tool.queues("T")
            async with PullConsumer("CG", broker.name_servers) as same:
                assert await same.fetch_offset(source) == 2


async def test_an_ordered_message_ends_among_the_dead_too(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 1)
        listener = Counting(fail=b"bad")
        consumer = PushConsumer(
            "CG",
            broker.name_servers,
            listener,
            settings=settings(ordered=True, reconsume_times_max=2),
        )
        consumer.subscribe("T")
        async with consumer, Producer("PG", broker.name_servers) as producer:
            await producer.send(Message(topic="T", body=b"bad"))
            await producer.send(Message(topic="T", body=b"good"))
            await until(lambda: (b"good", 0) in listener.seen)
        assert listener.seen == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0)]
        async with PullConsumer("TOOL", broker.name_servers) as tool:
            (queue,) = await tool.queues("%DLQ%CG")
            (dead,) = (await tool.pull(queue, 0)).messages
            assert dead.body == b"bad"


async def test_no_more_is_pulled_far_behind_a_message_that_keeps_failing(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 1)
        seen: list[bytes] = []
        healed = False

        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            body = messages[0].body
            if body == b"0" and not healed:
                return LATER
            seen.append(body)
            return SUCCESS

        bounded = settings(
            message_model=MessageModel.BROADCASTING,
            held_span_max=5,
            pull_batch_max=2,
            reconsume_times_max=1_000,
        )
        consumer = PushConsumer("CG", broker.name_servers, listen, settings=bounded)
        consumer.subscribe("T")
        async with Producer("PG", broker.name_servers) as producer, consumer:
            for number in range(20):
                await producer.send(Message(topic="T", body=b"%d" % number))
            await until(lambda: len(seen) >= 4)
            await asyncio.sleep(0.1)
            assert 4 <= len(seen) <= 5, "the last pull may bring two"
            healed = True
            await until(lambda: len(seen) == 20)


async def test_a_listener_that_hangs_is_ended_and_called_again(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        await make_topic(broker, "T", 1)
        calls: list[int] = []

        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            calls.append(messages[0].reconsume_times)
            if len(calls) == 1:
                await asyncio.Event().wait()
            return SUCCESS

        impatient = settings(message_model=MessageModel.BROADCASTING, consume_timeout_ms=50)
        consumer = PushConsumer("CG", broker.name_servers, listen, settings=impatient)
        consumer.subscribe("T")
        async with Producer("PG", broker.name_servers) as producer, consumer:
            await producer.send(Message(topic="T", body=b"a"))
            await until(lambda: calls == [0, 1])
