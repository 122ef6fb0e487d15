"""Accounts, compression, namespaces and SQL subscriptions against a real broker of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from campaigns.rig.waiting import until
from client.administer.admin import Admin, AdminSettings
from client.connection.heartbeat import ConsumeFrom, ExpressionType
from client.connection.instance import InstanceSettings
from client.connection.send_codec import Compression, CompressionType
from client.consume.listener import ConsumeStatus, PushConsumerSettings
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings, PullStatus
from client.consume.push_consumer import PushConsumer
from client.errors import InvalidParameterError, NoPermissionError
from client.message import DeliveredMessage, Message, MessageQueue, SendStatus
from client.produce.producer import Producer, ProducerSettings
from client.produce.transaction_producer import (
    Decision,
    EndOutcome,
    HalfMessage,
    TransactionProducer,
    TransactionSettings,
)
from remoting.protocol.acl_signature import Signer
from remoting.records import sys_flag
from tests.client.real_broker import real_broker

ACCOUNTS = """
accounts:
  - accessKey: the-writer
    secretKey: "12345678"
    defaultTopicPerm: PUB
    defaultGroupPerm: DENY
  - accessKey: the-chief
    secretKey: "87654321"
    admin: true
"""


class Collector:
    def __init__(self) -> None:
        self.got: list[DeliveredMessage] = []

    async def __call__(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        self.got.extend(messages)
        return ConsumeStatus.CONSUME_SUCCESS


def consumer_settings(**changes: Any) -> PushConsumerSettings:
    return PushConsumerSettings(
        consume_from=ConsumeFrom.FIRST, suspend_ms=1_000, commit_interval_ms=100, **changes
    )


async def test_accounts_sign_what_they_ask(tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    async with real_broker(tmp_path, acl_enable=True, acl_file=accounts) as broker:
        chief = InstanceSettings(signer=Signer("the-chief", "87654321"))
        writer = InstanceSettings(signer=Signer("the-writer", "12345678"))
        forger = InstanceSettings(signer=Signer("the-writer", "87654321"))
        async with Admin(broker.name_servers, settings=AdminSettings(instance=chief)) as admin:
            await admin.create_topic("T", queues=1)
        queue = MessageQueue("T", "broker-a", 0)
        for settings in (forger, InstanceSettings()):
            producer = Producer(
                "PG", broker.name_servers, settings=ProducerSettings(instance=settings)
            )
            async with producer:
                with pytest.raises(NoPermissionError) as refused:
                    await producer.send(Message(topic="T", body=b"never"))
                assert refused.value.definite
        async with Producer(
            "PG", broker.name_servers, settings=ProducerSettings(instance=writer)
        ) as producer:
            sent = await producer.send(Message(topic="T", body=b"signed"))
            assert sent.status is SendStatus.SEND_OK
        async with PullConsumer(
            "CG", broker.name_servers, settings=PullConsumerSettings(instance=writer)
        ) as consumer:
            with pytest.raises(NoPermissionError):
                await consumer.pull(queue, 0)
        async with PullConsumer(
            "CG", broker.name_servers, settings=PullConsumerSettings(instance=chief)
        ) as consumer:
            await consumer.queues("T")
            result = await consumer.pull(queue, 0)
            assert [message.body for message in result.messages] == [b"signed"]


async def test_each_type_of_compression_comes_back_inflated(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        body = b"compress me " * 1_000
        queue = MessageQueue("T", "broker-a", 0)
        for kind in CompressionType:
            settings = ProducerSettings(compression=Compression(kind=kind))
            async with Producer("PG", broker.name_servers, settings=settings) as producer:
                await producer.send(Message(topic="T", body=body), queue=queue)
        async with PullConsumer("CG", broker.name_servers) as consumer:
            await consumer.queues("T")
            result = await consumer.pull(queue, 0)
            assert [message.body for message in result.messages] == [body] * 3
            assert [message.sys_flag & 0x701 for message in result.messages] == [
                sys_flag.COMPRESSED | kind.value for kind in CompressionType
            ]


class Commits:
    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        assert half.topic == message.topic == "T"
        return Decision.COMMIT

    async def check_local(self, message: DeliveredMessage) -> Decision:
        return Decision.UNKNOWN


async def test_a_namespace_keeps_topics_and_groups_apart(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        inside = InstanceSettings(namespace="ns")
        got, other = Collector(), Collector()
        async with Admin(broker.name_servers, settings=AdminSettings(instance=inside)) as admin:
            await admin.create_topic("T", queues=2)
        async with Admin(broker.name_servers) as admin:
            await admin.create_topic("T", queues=2)
            assert len((await admin.topic_route("ns%T")).read_queues) == 2
        consumer = PushConsumer(
            "CG", broker.name_servers, got, settings=consumer_settings(instance=inside)
        )
        consumer.subscribe("T")
        stranger = PushConsumer("CG", broker.name_servers, other, settings=consumer_settings())
        stranger.subscribe("T")
        producer = TransactionProducer(
            "PG",
            broker.name_servers,
            Commits(),
            settings=TransactionSettings(producer=ProducerSettings(instance=inside)),
        )
        async with consumer, stranger, producer:
            sent = await producer.send(Message(topic="T", body=b"plain"))
            assert sent.queue.topic == "T"
            ended = await producer.send_in_transaction(Message(topic="T", body=b"committed"))
            assert ended.end is not None
            assert ended.end.outcome is EndOutcome.OK
            await until(lambda: len(got.got) == 2)
            assert {message.body for message in got.got} == {b"plain", b"committed"}
            assert {message.topic for message in got.got} == {"T"}
            assert {message.queue.topic for message in got.got} == {"T"}
            assert len([queue for queue in consumer.queues if queue.topic == "T"]) == 2
        assert other.got == []
        async with PullConsumer(
            "CG", broker.name_servers, settings=PullConsumerSettings(instance=inside)
        ) as tool:
            offsets = [await tool.fetch_offset(queue) for queue in await tool.queues("T")]
            assert sum(offset or 0 for offset in offsets) == 2


async def test_sql_subscriptions_get_what_their_expression_wants(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        async with Admin(broker.name_servers) as admin:
            await admin.create_topic("T", queues=1)
        got = Collector()
        consumer = PushConsumer("CG", broker.name_servers, got, settings=consumer_settings())
        consumer.subscribe("T", "size > 3 AND color IN ('red', 'blue')", ExpressionType.SQL92)
        async with consumer, Producer("PG", broker.name_servers) as producer:
            for number, color in enumerate(["red", "green", "blue", "red", "blue", "red"]):
                await producer.send(
                    Message(
                        topic="T",
                        body=b"%d" % number,
                        tags="any",
                        properties={"size": str(number), "color": color},
                    )
                )
            await until(lambda: len(got.got) == 2)
            assert [message.body for message in got.got] == [b"4", b"5"]
        async with PullConsumer("PULL", broker.name_servers) as tool:
            (queue,) = await tool.queues("T")
            result = await tool.pull(
                queue, 0, expression="color = 'green'", kind=ExpressionType.SQL92
            )
            assert result.status is PullStatus.FOUND
            assert [message.body for message in result.messages] == [b"1"]


async def test_an_expression_with_a_mistake_fails_the_start(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        async with Admin(broker.name_servers) as admin:
            await admin.create_topic("T", queues=1)
        consumer = PushConsumer(
            "CG", broker.name_servers, Collector(), settings=consumer_settings()
        )
        consumer.subscribe("T", "size >", ExpressionType.SQL92)
        with pytest.raises(InvalidParameterError) as refused:
            await consumer.start()
        assert refused.value.code == 23
        assert consumer.instance.closed
        await asyncio.wait_for(consumer.stop(), 5)
