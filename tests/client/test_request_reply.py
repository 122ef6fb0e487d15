"""Requests and replies through a real broker, and what becomes of replies that nobody awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from campaigns.rig.waiting import until
from client.administer.admin import Admin
from client.connection.heartbeat import ConsumeFrom
from client.connection.instance import ClientInstance
from client.connection.send_codec import MessageRefusedError
from client.consume.listener import ConsumeStatus, PushConsumerSettings
from client.consume.push_consumer import PushConsumer
from client.message import DeliveredMessage, Message
from client.produce.latency_faults import FAILURE_MS, LatencyFaults
from client.produce.producer import Producer, ProducerSettings
from client.produce.request_reply import NoReplyError, reply_message
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from tests.client.fake_cluster import Act, FakeGroup, FakeNameServer, Seen
from tests.client.real_broker import real_broker


async def test_each_request_gets_its_own_reply(tmp_path: Path) -> None:
    async with real_broker(tmp_path) as broker:
        async with Admin(broker.name_servers) as admin:
            await admin.create_topic("Q", queues=2)
        asker, answerer = (Producer(name, broker.name_servers) for name in ("ASK", "ANSWER"))
        heard: list[bytes] = []

        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            for message in messages:
                heard.append(message.body)
                if message.body != b"silence":
                    await answerer.reply(message, b"re: " + message.body * 2_000)
            return ConsumeStatus.CONSUME_SUCCESS

        consumer = PushConsumer(
            "CG",
            broker.name_servers,
            listen,
            settings=PushConsumerSettings(consume_from=ConsumeFrom.FIRST),
        )
        consumer.subscribe("Q")
        async with asker, answerer, consumer:
            bodies = [b"%d" % number for number in range(10)]
            replies = await asyncio.gather(
                *(asker.request(Message(topic="Q", body=body), 15_000) for body in bodies)
            )
            assert [reply.body for reply in replies] == [b"re: " + body * 2_000 for body in bodies]
            silence = Message(topic="Q", body=b"silence")
            for _ in range(2):  # the second is another request
                with pytest.raises(NoReplyError) as silent:
                    await asker.request(silence, 500)
                assert not silent.value.definite
            await until(lambda: heard.count(b"silence") == 2)


def request_message(**properties: str) -> DeliveredMessage:
    return DeliveredMessage(
        topic="Q",
        queue=None,  # type: ignore[arg-type] # not looked at
        queue_offset=0,
        body=b"",
        properties=properties,
        uniq_key="U",
        offset_msg_id="",
        physical_offset=0,
        born_timestamp_ms=0,
        store_timestamp_ms=0,
        flag=0,
        sys_flag=0,
        reconsume_times=0,
        prepared_transaction_offset=0,
    )


def test_a_reply_says_where_it_belongs() -> None:
    request = request_message(
        CORRELATION_ID="c", REPLY_TO_CLIENT="client", CLUSTER="DefaultCluster", TTL="500", OTHER="x"
    )
    reply = reply_message(request, b"yes")
    assert reply.topic == "DefaultCluster_REPLY_TOPIC"
    assert reply.properties == {
        "MSG_TYPE": "reply",
        "CORRELATION_ID": "c",
        "REPLY_TO_CLIENT": "client",
        "TTL": "500",
    }
    with pytest.raises(MessageRefusedError, match="CLUSTER"):
        reply_message(request_message(CORRELATION_ID="c", REPLY_TO_CLIENT="client"), b"")


async def test_a_reply_that_nobody_awaits_is_taken_and_a_garbled_one_is_not() -> None:
    group = FakeGroup("broker-a", node_count=1)
    await group.start()
    name_server = FakeNameServer([group], ["T"])
    await name_server.start()
    async with Producer("PG", [name_server.address]) as producer:
        await producer.send(Message(topic="T", body=b"a"))
        await producer.instance.greet_all(within_ms=2_000)
        (connection,) = group.producers["PG"]
        fields = {
            "topic": "R",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": "1",
            "flag": "0",
            "properties": "CORRELATION_ID\x01gone\x02",
        }
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        late = await connection.request(RemotingCommand(code=code, ext_fields=fields), 2_000)
        assert late.code == 0
        for name, value in (("queueId", "x"), ("sysFlag", "1"), ("properties", "CORRELATION_ID")):
            garbled = RemotingCommand(code=code, ext_fields={**fields, name: value}, body=b"?")
            answer = await connection.request(garbled, 2_000)
            assert answer.code == (0 if name == "properties" else 1)
    await name_server.stop()
    await group.stop()


async def test_a_request_waits_for_no_heartbeat_beyond_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hang(instance: ClientInstance, address: str) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(ClientInstance, "_greet_quietly", hang)
    group = FakeGroup("broker-a", node_count=1)
    await group.start()
    name_server = FakeNameServer([group], ["T"])
    await name_server.start()
    async with Producer("PG", [name_server.address]) as producer, asyncio.timeout(30):
        with pytest.raises(NoReplyError):  # so it was sent
            await producer.request(Message(topic="T", body=b"a"), 400)
    await name_server.stop()
    await group.stop()


def test_slow_groups_are_isolated_for_as_long_as_rocketmq_says() -> None:
    faults = LatencyFaults()
    assert faults.is_available("a", 0)
    faults.note("a", 549, 0)
    assert faults.is_available("a", 0)
    for took_ms, isolated_ms in (
        (550, 2_000),
        (1_800, 5_000),
        (3_000, 6_000),
        (5_000, 10_000),
        (15_000, 30_000),
        (FAILURE_MS, 10_000),
    ):
        faults.note("a", took_ms, 1_000)
        assert not faults.is_available("a", 999 + isolated_ms)
        assert faults.is_available("a", 1_000 + isolated_ms)
    faults.note("a", FAILURE_MS, 0)
    faults.note("a", 10, 1)
    assert faults.is_available("a", 1)


@pytest.mark.parametrize("latency_faults", [True, False])
async def test_a_group_that_failed_is_left_alone(latency_faults: bool) -> None:
    groups = [FakeGroup(f"broker-{name}", queue_count=2) for name in "ab"]
    for group in groups:
        await group.start()
    name_server = FakeNameServer(groups, ["T"])
    await name_server.start()

    def busy(seen: Seen) -> Act | tuple[int, str]:
        return (2, "busy") if seen.command.code == RequestCode.SEND_MESSAGE_V2 else Act.ANSWER

    groups[0].script = busy
    settings = ProducerSettings(latency_faults=latency_faults)
    async with Producer("PG", [name_server.address], settings=settings) as producer:
        for number in range(12):
            await producer.send(Message(topic="T", body=b"%d" % number))
    assert len(groups[1].stored("T")) == 12
    asked = len(groups[0].sends())
    assert asked <= 1 if latency_faults else asked >= 3
    await name_server.stop()
    for group in groups:
        await group.stop()
