"""What one client does in the background, and how it ends, before scripted broker groups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from campaigns.rig.waiting import turns, until
from client.connection.heartbeat import ExpressionType
from client.connection.instance import InstanceSettings
from client.connection.routes import RouteSettings
from client.consume.listener import ConsumeStatus, PushConsumerSettings
from client.consume.pop_consumer import PopConsumer
from client.consume.pull_consumer import PullConsumer
from client.consume.push_consumer import PushConsumer
from client.errors import ClientError, UnencodableRequestError
from client.message import DeliveredMessage, Message
from client.produce.producer import Producer, ProducerSettings
from client.trace.tracer import TraceSettings
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from tests.client.fake_cluster import Act, FakeGroup, FakeNameServer
from tests.client.push_setup import QUICK, Listener, setup


async def test_a_node_whose_name_no_resolver_takes_ends_no_client() -> None:
    async with setup() as cluster:
        brokers = cluster.name_server.brokers
        misnamed = {
            "brokerName": "broker-b",
            "cluster": "DefaultCluster",
            "brokerAddrs": {"0": "broker-b..svc.local:10911"},
        }
        cluster.name_server.brokers = lambda: [*brokers(), misnamed]  # type: ignore[method-assign]
        listener = Listener()
        consumer = await cluster.consumer(listener)
        await until(lambda: "broker-b..svc.local:10911" in consumer.instance.routes.nodes())
        await cluster.send(b"x")
        await until(lambda: listener.bodies == [b"x"])
        peer = consumer.instance.rpc._peers
        await until(lambda: peer["broker-b..svc.local:10911"].failures)
        assert consumer.instance.scope.running
        assert cluster.producer.instance.scope.running


def ended(client: Producer | PushConsumer) -> bool:
    """Whether nothing of the client is left."""
    return not client.instance.scope.running and not client.instance.rpc._open


async def cut_short(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_stop_that_is_cut_short_as_it_unregisters_has_closed_the_client() -> None:
    async with setup() as cluster:
        producer = Producer("G", [cluster.name_server.address])
        await producer.start()
        await producer.send(Message(topic="T", body=b"x"))
        await until(lambda: len(cluster.group.producers.get("G", [])) == 3)
        cluster.group.script = lambda seen: (
            Act.IGNORE if seen.command.code == RequestCode.UNREGISTER_CLIENT else Act.ANSWER
        )
        stopping = asyncio.create_task(producer.stop())
        await until(lambda: cluster.group.sends(RequestCode.UNREGISTER_CLIENT))
        await cut_short(stopping)
        assert ended(producer)


async def test_a_stop_that_waits_for_sends_and_is_cut_short_has_closed_the_tracer_too() -> None:
    async with setup() as cluster:
        settings = ProducerSettings(timeout_ms=60_000, trace=TraceSettings())
        producer = Producer("G", [cluster.name_server.address], settings=settings)
        await producer.start()
        cluster.group.lead(None)
        sending = await producer.send_async(Message(topic="T", body=b"x"))
        await until(cluster.group.sends)
        stopping = asyncio.create_task(producer.stop())
        await turns()
        await cut_short(stopping)
        assert ended(producer)
        assert producer._tracer is not None
        assert isinstance(producer._tracer._sender, Producer)
        assert ended(producer._tracer._sender)
        assert sending.done()


async def test_a_stop_that_waits_for_a_listener_and_is_cut_short_has_left_the_group() -> None:
    async with setup() as cluster:
        called = asyncio.Event()

        async def work(_: Sequence[DeliveredMessage]) -> ConsumeStatus:
            called.set()
            await asyncio.Event().wait()
            return ConsumeStatus.CONSUME_SUCCESS

        consumer = await cluster.consumer(work, stop_timeout_ms=60_000)
        await cluster.send(b"x")
        await called.wait()
        stopping = asyncio.create_task(consumer.stop())
        await turns()
        await cut_short(stopping)
        assert ended(consumer)
        await until(lambda: not cluster.group.members["CG"])


async def test_a_start_that_is_cut_short_leaves_no_member() -> None:
    async with setup() as cluster:
        cluster.group.script = lambda seen: (
            Act.IGNORE if seen.command.code == RequestCode.CHECK_CLIENT_CONFIG else Act.ANSWER
        )
        settings = PushConsumerSettings(**QUICK, trace=TraceSettings())
        consumer = PushConsumer("CG", [cluster.name_server.address], Listener(), settings=settings)
        consumer.subscribe("T", "a > 1", ExpressionType.SQL92)
        starting = asyncio.create_task(consumer.start())
        await until(lambda: cluster.group.members.get("CG"))
        await until(lambda: cluster.group.sends(RequestCode.CHECK_CLIENT_CONFIG))
        await cut_short(starting)
        assert ended(consumer)
        await until(lambda: not cluster.group.members["CG"])


@pytest.mark.parametrize("turn_count", range(1, 4))
async def test_a_producer_s_start_that_is_cut_short_leaves_nothing(turn_count: int) -> None:
    before = asyncio.all_tasks()
    settings = ProducerSettings(trace=TraceSettings())
    producer = Producer("PG", ["127.0.0.1:1"], settings=settings)
    starting = asyncio.create_task(producer.start())
    await turns(turn_count)
    await cut_short(starting)
    assert asyncio.all_tasks() == before


async def test_a_client_starts_once_and_a_second_start_does_not_end_it() -> None:
    async with setup() as cluster:
        consumer = await cluster.consumer(Listener())
        for client in (cluster.producer, consumer):
            with pytest.raises(ClientError, match="a client starts once"):
                await client.start()
            assert client.instance.scope.running
            await client.stop()
            with pytest.raises(ClientError, match="a client starts once"):
                await client.start()


async def test_names_that_brokers_refuse_are_refused_where_they_are_given() -> None:
    servers = ["127.0.0.1:1"]
    for bad in ("", "bad group!", "x" * 248):
        with pytest.raises(ValueError, match="group '"):
            Producer(bad, servers)
        with pytest.raises(ValueError, match="group '"):
            PushConsumer(bad, servers, Listener())
        with pytest.raises(ValueError, match="group '"):
            PopConsumer(bad, servers)
        with pytest.raises(ValueError, match="group '"):
            PullConsumer(bad, servers)
    consumer = PushConsumer("CG", servers, Listener())
    for topic in ("", "bad topic!", "\udcff"):
        with pytest.raises(ValueError, match="topic '"):
            consumer.subscribe(topic)
        with pytest.raises(ValueError, match="topic '"):
            await PopConsumer("CG", servers).pop(topic)
    with pytest.raises(UnencodableRequestError, match="not UTF-8"):
        consumer.subscribe("T", "\udcff")
    assert [each.topic for each in consumer.subscriptions] == ["%RETRY%CG"]


async def test_a_refused_heartbeat_is_told_once_and_sent_again_in_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client.connection.instance._HEARTBEAT_RETRY_MS", 100)
    async with setup() as cluster:
        cluster.group.script = lambda seen: (
            (16, "no permission") if seen.command.code == RequestCode.HEART_BEAT else Act.ANSWER
        )
        instance = cluster.producer.instance
        await cluster.send(b"x")
        leader = cluster.group.address(0)

        def heartbeats() -> list[float]:
            seen = cluster.group.sends(RequestCode.HEART_BEAT)
            return [each.at_s for each in seen if each.node == 0]

        await until(lambda: leader in instance._refusals)
        for _ in range(5):
            instance.greet_soon(leader)
            await turns()
            await instance.greet_all(within_ms=1_000)
        await until(lambda: len(heartbeats()) >= 3)
        first, second, third = heartbeats()[:3]
        assert second - first > 0.09
        assert third - second > 0.18
        told = [text for text in caplog.messages if "refused" in text and leader in text]
        assert len(told) == 1
        assert "16: no permission" in told[0]
        cluster.group.script = lambda _: Act.ANSWER
        await until(lambda: cluster.group.producers.get("PG"))
        await until(lambda: leader not in instance._refusals)


@pytest.mark.parametrize("by", ["subscribe", "greet_soon"])
async def test_what_is_wanted_while_a_heartbeat_is_under_way_is_told_by_the_next(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with setup() as cluster:
        consumer = await cluster.consumer(Listener())
        instance, group = consumer.instance, cluster.group
        nodes = {group.address(node) for node in range(3)}
        await until(lambda: instance._greeted == nodes)
        answered, go_on = set[str](), asyncio.Event()
        request = instance.rpc.request

        async def late(address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
            answer = await request(address, command, timeout_ms)
            if command.code == RequestCode.HEART_BEAT:
                answered.add(address)
                await go_on.wait()
            return answer

        monkeypatch.setattr(instance.rpc, "request", late)
        consumer.subscribe("T2")
        await until(lambda: answered == nodes)
        if by == "subscribe":
            consumer.subscribe("T3")
        else:
            instance.greet_soon(group.address(1))
        await turns()
        before = len(group.seen)
        go_on.set()

        def told() -> set[int]:
            seen = [each for each in group.seen[before:] if b'"T2"' in each.command.body]
            return {each.node for each in seen if by != "subscribe" or b'"T3"' in each.command.body}

        await until(lambda: told() == ({0, 1, 2} if by == "subscribe" else {1}), seconds=10)
        await until(lambda: instance._greeted == nodes, seconds=10)


async def test_a_group_that_was_taken_out_of_service_gets_no_heartbeats() -> None:
    stays, goes = FakeGroup("broker-a", node_count=1), FakeGroup("broker-b", node_count=1)
    for group in (stays, goes):
        await group.start()
    name_server = FakeNameServer([stays, goes], ["T"])
    await name_server.start()
    routes = RouteSettings(poll_interval_ms=20, refresh_interval_ms_min=1)
    settings = ProducerSettings(instance=InstanceSettings(routes=routes))
    async with Producer("PG", [name_server.address], settings=settings) as producer:
        instance = producer.instance
        await producer.send(Message(topic="T", body=b"x"))
        gone = goes.address(0)
        await until(lambda: gone in instance._greeted)
        await goes.stop()
        name_server.groups = [stays]
        await until(lambda: gone not in instance.routes.nodes())
        await until(lambda: gone not in instance._greeted)
        await until(lambda: gone not in instance._wanted)
        await producer.send(Message(topic="T", body=b"x"))
        assert gone not in instance.routes.nodes()
    await name_server.stop()
    await stays.stop()
