"""The administrator against a real name server and a real broker of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from campaigns.rig.waiting import until
from client.administer.admin import Admin, AdminSettings
from client.connection.heartbeat import ConsumeFrom
from client.connection.instance import InstanceSettings
from client.connection.route_view import TopicRoute
from client.consume.listener import ConsumeStatus, PushConsumerSettings
from client.consume.push_consumer import PushConsumer
from client.errors import BrokerRefusedError, NoRouteError
from client.message import DeliveredMessage, Message
from client.produce.producer import Producer, ProducerSettings
from remoting.protocol.command import RemotingCommand
from remoting.records.message import MessageRecord, encode_properties, encode_record
from tests.client.real_broker import real_broker


@pytest.mark.parametrize("namespace", ["", "ns"])
async def test_progress_is_told_and_offsets_are_reset(tmp_path: Path, namespace: str) -> None:
    async with real_broker(tmp_path) as broker:
        instance = InstanceSettings(namespace=namespace)
        seen: list[bytes] = []

        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            seen.extend(message.body for message in messages)
            return ConsumeStatus.CONSUME_SUCCESS

        consumer = PushConsumer(
            "CG",
            broker.name_servers,
            listen,
            settings=PushConsumerSettings(
                consume_from=ConsumeFrom.FIRST, commit_interval_ms=50, instance=instance
            ),
        )
        consumer.subscribe("T")
        producer = Producer("PG", broker.name_servers, settings=ProducerSettings(instance=instance))
        settings = AdminSettings(instance=instance)
        async with Admin(broker.name_servers, settings=settings) as admin, producer:
            await admin.create_topic("T", queues=2)
            await admin.create_group("CG", retry_times_max=3)
            async with consumer:
                for number in range(6):
                    await producer.send(Message(topic="T", body=b"%d" % number))
                async with asyncio.timeout(20):
                    while True:
                        progress = await admin.consumer_progress("CG", "T")
                        if progress and all(each.lag == 0 for each in progress.values()):
                            break
                        await asyncio.sleep(0.05)
                assert sum(each.broker_offset for each in progress.values()) == 6
                assert {queue.topic for queue in progress} == {"T"}
                offsets = await admin.reset_offsets("CG", "T", 0)
                assert set(offsets) == set(progress)
                assert set(offsets.values()) == {0}
                await until(lambda: len(seen) == 12)
            assert sorted(seen) == sorted([b"%d" % number for number in range(6)] * 2)


async def test_progress_behind_a_reset_is_committed_again(tmp_path: Path) -> None:
    """The group comes to the offset that it had committed before; the broker has the reset's."""
    async with real_broker(tmp_path) as broker, Admin(broker.name_servers) as admin:
        seen: list[bytes] = []

        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            seen.extend(message.body for message in messages)
            return ConsumeStatus.CONSUME_SUCCESS

        await admin.create_topic("T", queues=1)
        settings = PushConsumerSettings(
            consume_from=ConsumeFrom.FIRST, commit_interval_ms=3_600_000
        )
        consumer = PushConsumer("CG", broker.name_servers, listen, settings=settings)
        consumer.subscribe("T")

        def has_consumed(times: int) -> bool:
            offsets = [state.commit_offset for state in consumer.states()]
            return len(seen) == 3 * times and 3 in offsets

        async with Producer("PG", broker.name_servers) as producer, consumer:
            for number in range(3):
                await producer.send(Message(topic="T", body=b"%d" % number))
            await until(lambda: has_consumed(1))
            await consumer.commit()
            await admin.reset_offsets("CG", "T", 0)
            await until(lambda: has_consumed(2))
            await consumer.commit()
            progress = await admin.consumer_progress("CG", "T")
            assert [each.lag for each in progress.values()] == [0]


async def test_a_topic_and_a_group_are_deleted(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker, Admin(broker.name_servers) as admin:
        await admin.create_topic("T", queues=1)
        await admin.create_group("CG")
        await admin.delete_topic("T")
        with pytest.raises(NoRouteError):
            await admin.topic_route("T")
        await admin.delete_group("CG", clean_offsets=True)
        with pytest.raises((BrokerRefusedError, NoRouteError)):
            await admin.reset_offsets("CG", "T", 0)


async def test_of_many_matches_the_newest_of_all_groups_are_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each group answers its newest; those of one group may all be older than the other's."""
    stored_ms = {"broker-a": (10, 40), "broker-b": (20, 30)}

    async def route(topic: str) -> TopicRoute:
        groups = {name: {0: "127.0.0.1:1"} for name in stored_ms}  # closed for all clients
        return TopicRoute(topic=topic, groups=groups, write_queues=(), read_queues=())

    async def answers(*_: object, names: Sequence[str], **__: object) -> list[RemotingCommand]:
        return [
            RemotingCommand(code=0, body=b"".join(record(at) for at in stored_ms[name]))
            for name in names
        ]

    def record(at_ms: int) -> bytes:
        return encode_record(
            MessageRecord(
                topic="T",
                queue_id=0,
                body=b"%d" % at_ms,
                properties=encode_properties({"KEYS": "k"}),
                store_timestamp_ms=at_ms,
            )
        )

    admin = Admin("127.0.0.1:1")
    monkeypatch.setattr(admin, "topic_route", route)
    monkeypatch.setattr(admin, "_query_leaders", answers)
    for count_max, bodies in ((0, []), (2, [b"30", b"40"]), (9, [b"10", b"20", b"30", b"40"])):
        found = await admin.query_messages("T", "k", count_max=count_max)
        assert [message.body for message in found] == bodies


async def test_a_topic_that_nobody_may_use_is_made(tmp_path: Path) -> None:
    async with (
        real_broker(tmp_path) as broker,
        Admin(broker.name_servers, settings=AdminSettings(timeout_ms=2_000)) as admin,
    ):
        await admin.create_topic("closed", perm=0)
        await admin.create_topic("T", queues=2)
        await admin.create_topic("T", queues=2, perm=0)
        for topic in ("closed", "T"):
            route = await admin.topic_route(topic)
            assert (route.read_queues, route.write_queues) == ((), ())
            assert set(route.groups) == {"broker-a"}
