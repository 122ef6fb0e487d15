"""Bodies that their producer calls compressed and that nobody can decompress, on a real broker of
ours: whoever reads gets the messages around them, and them as they are stored."""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from campaigns.rig.waiting import until
from client.administer.admin import Admin
from client.connection.heartbeat import ConsumeFrom
from client.connection.send_codec import prepare_message
from client.consume.listener import ConsumeStatus, PushConsumerSettings
from client.consume.lite_pull_consumer import LitePullConsumer, LitePullSettings
from client.consume.pop_consumer import PopConsumer
from client.consume.pull_consumer import PullConsumer
from client.consume.push_consumer import PushConsumer
from client.delivery import delivered_message
from client.message import DeliveredMessage, Message, MessageQueue
from client.produce.producer import Producer
from remoting.records import sys_flag
from remoting.records.message import MessageRecord
from tests.client.push_setup import Listener, setup
from tests.client.real_broker import RealBroker, make_topic, real_broker, settings

QUEUE = MessageQueue("T", "broker-a", 0)
CUT_SHORT = zlib.compress(b"much " * 1_000)[:-3]
UNREADABLE = (
    (b"no zlib at all", sys_flag.COMPRESSED),
    (CUT_SHORT, sys_flag.COMPRESSED | sys_flag.COMPRESSION_ZLIB),
    (b"no frame", sys_flag.COMPRESSED | sys_flag.COMPRESSION_LZ4),
    (b"no frame", sys_flag.COMPRESSED | sys_flag.COMPRESSION_ZSTD),
    (b"of a type to come", sys_flag.COMPRESSED | 0x400),
)
SENT = [b"first", *(body for body, _ in UNREADABLE), b"last"]
FROM_FIRST = PushConsumerSettings(consume_from=ConsumeFrom.FIRST, suspend_ms=1_000)

Read = Callable[[RealBroker], Awaitable[list[DeliveredMessage]]]


async def send(producer: Producer, address: str, number: int, body: bytes, flag: int) -> None:
    message = Message(
        topic="T", body=body, uniq_key=f"K{number}", born_timestamp_ms=time.time_ns() // 1_000_000
    )
    prepared = prepare_message(message, group="PG", compression=None)
    prepared.fields["f"] = str(flag)
    answer = await producer.instance.rpc.request(address, prepared.command(QUEUE), 3_000)
    assert answer.code == 0


@contextlib.asynccontextmanager
async def filled_broker(root: Path) -> AsyncIterator[RealBroker]:
    async with real_broker(root) as broker:
        await make_topic(broker, "T", 1)
        async with Producer("PG", broker.name_servers) as producer:
            for number, (body, flag) in enumerate([(b"first", 0), *UNREADABLE, (b"last", 0)]):
                await send(producer, broker.address, number, body, flag)
        yield broker


async def push(broker: RealBroker, **changes: Any) -> list[DeliveredMessage]:
    got: list[DeliveredMessage] = []

    async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        got.extend(messages)
        return ConsumeStatus.CONSUME_SUCCESS

    consumer = PushConsumer("CG", broker.name_servers, listen, settings=settings(**changes))
    consumer.subscribe("T")
    async with consumer:
        await until(lambda: len(got) >= len(SENT))
    async with PullConsumer("CG", broker.name_servers) as reader:
        assert await reader.fetch_offset(QUEUE) == len(SENT)
    return got


async def push_in_order(broker: RealBroker) -> list[DeliveredMessage]:
    return await push(broker, ordered=True)


async def lite_pull(broker: RealBroker) -> list[DeliveredMessage]:
    got: list[DeliveredMessage] = []
    consumer = LitePullConsumer(
        "CG", broker.name_servers, settings=LitePullSettings(consumer=FROM_FIRST)
    )
    consumer.subscribe("T")
    async with consumer:

        async def all_came() -> bool:
            got.extend(await consumer.poll(1_000))
            return len(got) >= len(SENT)

        await until(all_came)
    return got


async def pull(broker: RealBroker) -> list[DeliveredMessage]:
    async with PullConsumer("CG", broker.name_servers) as consumer:
        await consumer.queues("T")
        return (await consumer.pull(QUEUE, 0)).messages


async def pop(broker: RealBroker) -> list[DeliveredMessage]:
    async with PopConsumer("CG", broker.name_servers) as consumer:
        popped = await consumer.pop("T", poll_ms=5_000)
        await consumer.ack_all(popped)
    return [each.message for each in popped]


async def view(broker: RealBroker) -> list[DeliveredMessage]:
    async with Admin(broker.name_servers) as admin:
        return [await admin.view_message(each.offset_msg_id) for each in await pull(broker)]


@pytest.mark.parametrize("read", [push, push_in_order, lite_pull, pull, pop, view])
async def test_every_reader_gets_past_them(tmp_path: Path, read: Read) -> None:
    async with filled_broker(tmp_path) as broker:
        got = await read(broker)
        assert [message.body for message in got] == SENT
        errors = [message.body_error for message in got]
        assert errors[0] is None
        assert errors[-1] is None
        assert all(errors[1:-1]), errors


async def test_one_that_fails_comes_again_as_it_is(tmp_path: Path) -> None:
    """The broker keeps it for its retry as it keeps any other."""
    got: list[tuple[bytes, int, bool]] = []

    async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        (message,) = messages
        is_readable = message.body_error is None
        got.append((message.body, message.reconsume_times, is_readable))
        if is_readable or message.reconsume_times:
            return ConsumeStatus.CONSUME_SUCCESS
        return ConsumeStatus.RECONSUME_LATER

    async with filled_broker(tmp_path) as broker:
        consumer = PushConsumer("CG", broker.name_servers, listen, settings=settings())
        consumer.subscribe("T")
        async with consumer:
            await until(lambda: len(got) == len(SENT) + len(UNREADABLE), seconds=30)
        again = sorted(each for each in got if each[1])
        assert again == sorted((body, 1, False) for body, _ in UNREADABLE)


async def test_a_copy_that_the_client_sends_is_called_compressed_too() -> None:
    """Where the broker does not take a message back. It is stored as it was, and not deflated."""
    body, flag = b"no zlib at all " * 1_000, sys_flag.COMPRESSED | sys_flag.COMPRESSION_ZLIB
    async with setup() as cluster:
        listener = Listener()
        listener.answer = lambda _: ConsumeStatus.RECONSUME_LATER
        await cluster.consumer(listener)
        await send(cluster.producer, cluster.group.address(0), 0, body, flag)
        await until(lambda: len(cluster.group.sends()) == 2)
        copy = cluster.group.sends()[1].command
        assert copy.ext_fields["b"] == "%RETRY%CG"
        assert copy.ext_fields["f"] == str(flag)
        assert copy.body == body


def test_properties_that_are_not_utf_8_hide_nothing_else() -> None:
    """Brokers of RocketMQ store the properties of a batch's messages as they come."""
    block = b"TAGS\x01caf\xe9\x02UNIQ_KEY\x01K\x02"
    message = delivered_message(
        MessageRecord(topic="T", queue_id=0, body=b"b", properties=block), QUEUE
    )
    assert (message.tags, message.uniq_key, message.body) == ("caf\ufffd", "K", b"b")
