"""The client against a real group of three ledgermq brokers and a real name server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker.config.config import BrokerConfig
from broker.process.server import Broker
from campaigns.rig.ports import free_ports
from campaigns.rig.waiting import until
from client.administer.admin import Admin, AdminSettings
from client.connection.heartbeat import ConsumeFrom
from client.connection.instance import InstanceSettings
from client.connection.retry import RetryPolicy
from client.connection.routes import RouteSettings
from client.consume.listener import ConsumeStatus, PushConsumerSettings
from client.consume.pull_consumer import PullConsumer, PullStatus
from client.consume.push_consumer import PushConsumer
from client.errors import ContraryDecisionError
from client.message import DeliveredMessage, Message
from client.produce.producer import Producer, ProducerSettings
from client.produce.transaction_producer import (
    Decision,
    EndOutcome,
    HalfMessage,
    TransactionProducer,
    TransactionSettings,
    half_message,
)
from namesrv.config import NameServerConfig
from namesrv.server import NameServer

NODES = ("n0", "n1", "n2")
RETRY = RetryPolicy(attempt_timeout_ms=500)
INSTANCE = InstanceSettings(routes=RouteSettings(poll_interval_ms=1_000))


class Cluster:
    """Three brokers in this process; a node that is stopped stays down."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.name_server = NameServer(NameServerConfig(listen="127.0.0.1:0"))
        self.brokers: dict[str, Broker] = {}
        self._serving: dict[str, asyncio.Task[None]] = {}

    async def start(self) -> None:
        await self.name_server.start()
        ports = free_ports(6)
        addresses = {node: f"127.0.0.1:{port}" for node, port in zip(NODES, ports[:3], strict=True)}
        peers = {node: f"127.0.0.1:{port}" for node, port in zip(NODES, ports[3:], strict=True)}
        secret = self._root / "secret"
        secret.write_text("a secret of the group")
        secret.chmod(0o600)
        for node in NODES:
            broker = Broker(
                BrokerConfig(
                    group="broker-a",
                    node=node,
                    listen=addresses[node],
                    raft_listen=peers[node],
                    store=self._root / node,
                    name_servers=(self.name_server.address,),
                    secret_file=secret,
                    peers=peers,
                    brokers=addresses,
                    transaction_timeout_ms=300,
                    transaction_check_interval_ms=200,
                )
            )
            await broker.start()
            self.brokers[node] = broker
            self._serving[node] = asyncio.create_task(broker.serve())
        await until(lambda: self.leader is not None)

    @property
    def leader(self) -> str | None:
        for node, broker in self.brokers.items():
            if broker.log.status().ready:
                return node
        return None

    async def stop_node(self, node: str) -> None:
        serving, broker = self._serving.pop(node), self.brokers.pop(node)
        serving.cancel()
        await asyncio.wait([serving])
        await broker.stop()

    async def stop(self) -> None:
        for node in list(self.brokers):
            await self.stop_node(node)
        await self.name_server.stop()


@asynccontextmanager
async def cluster_of_three(root: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(root)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.stop()


class Listener:
    """Commits values with `c`, rolls back those with `r`, leaves the rest to checks (commit)."""

    async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
        words = {"c": Decision.COMMIT, "r": Decision.ROLLBACK, "u": Decision.UNKNOWN}
        return words[message.body.decode()[0]]

    async def check_local(self, message: DeliveredMessage) -> Decision:
        assert message.body.startswith(b"u")
        return Decision.COMMIT


async def read_all(consumer: PullConsumer, topic: str) -> Counter[bytes]:
    seen: Counter[bytes] = Counter()
    for queue in await consumer.queues(topic):
        offset, end = await consumer.min_offset(queue), await consumer.max_offset(queue)
        while offset < end:
            result = await consumer.pull(queue, offset)
            assert result.status is PullStatus.FOUND
            seen.update(message.body for message in result.messages)
            offset = result.next_begin_offset
    return seen


async def test_nothing_is_lost_or_doubled_when_the_leader_goes(tmp_path: Path) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        name_servers = [cluster.name_server.address]
        async with Admin(name_servers) as admin:
            await admin.create_topic("T", queues=4)
        delivered: Counter[bytes] = Counter()

        async def consume(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            delivered.update(message.body for message in messages)
            return ConsumeStatus.CONSUME_SUCCESS

        settings = PushConsumerSettings(
            consume_from=ConsumeFrom.FIRST,
            suspend_ms=1_000,
            answer_slack_ms=500,
            commit_interval_ms=100,
            retry=RETRY,
            instance=INSTANCE,
        )
        consumer = PushConsumer("CG", name_servers, consume, settings=settings)
        consumer.subscribe("T")
        producer = Producer(
            "PG", name_servers, settings=ProducerSettings(timeout_ms=10_000, retry=RETRY)
        )
        reader = PullConsumer("RG", name_servers)
        async with consumer, producer, reader:
            sent: set[bytes] = set()
            stop = asyncio.Event()

            async def send(name: int) -> None:
                number = 0
                while not stop.is_set():
                    body = b"%d-%d" % (name, number)
                    await producer.send(Message(topic="T", body=body))
                    sent.add(body)
                    number += 1

            async with asyncio.TaskGroup() as group:
                for name in range(4):
                    group.create_task(send(name))
                await until(lambda: len(sent) > 200)
                assert cluster.leader is not None
                await cluster.stop_node(cluster.leader)
                before = len(sent)
                await until(lambda: len(sent) > before + 200)
                stop.set()
            assert await read_all(reader, "T") == Counter(sent)
            await until(lambda: set(delivered) >= sent, seconds=20)
            assert delivered == Counter(sent)
        async with PullConsumer("CG", name_servers) as tool:
            for queue in await tool.queues("T"):
                assert await tool.fetch_offset(queue) == await tool.max_offset(queue)


async def test_transactions_end_as_their_producer_says(tmp_path: Path) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        name_servers = [cluster.name_server.address]
        settings = TransactionSettings(
            producer=ProducerSettings(timeout_ms=10_000, retry=RETRY, instance=INSTANCE)
        )
        producer = TransactionProducer("PG", name_servers, Listener(), settings=settings)
        async with producer, PullConsumer("RG", name_servers) as reader:
            for number in range(5):
                for kind in "cru":
                    body = f"{kind}{number}".encode()
                    result = await producer.send_in_transaction(Message(topic="T", body=body))
                    assert kind == "u" or (result.end and result.end.outcome is EndOutcome.OK)
            half = half_message(await producer.send_half(Message(topic="T", body=b"c5")))
            assert (await producer.end(half, Decision.COMMIT)).outcome is EndOutcome.OK
            again = await producer.end(half, Decision.COMMIT)
            assert again.outcome is EndOutcome.OK
            contrary = await producer.end(half, Decision.ROLLBACK)
            assert contrary.outcome is EndOutcome.FAIL
            assert cluster.leader is not None
            await producer.send_half(Message(topic="T", body=b"u5"))
            await cluster.stop_node(cluster.leader)
            expected = Counter(f"{kind}{number}".encode() for kind in "cu" for number in range(6))
            async with asyncio.timeout(20):
                while (seen := await read_all(reader, "T")) != expected:
                    assert not any(body.startswith(b"r") for body in seen)
                    await asyncio.sleep(0.1)


class Undecided(Listener):
    """Answers no check before `knows` is set."""

    def __init__(self) -> None:
        self.knows = False

    async def check_local(self, message: DeliveredMessage) -> Decision:
        return Decision.COMMIT if self.knows else Decision.UNKNOWN


async def test_what_an_operator_did_to_a_half_outlives_the_leader(tmp_path: Path) -> None:
    async with cluster_of_three(tmp_path) as cluster:
        name_servers = [cluster.name_server.address]
        settings = TransactionSettings(
            producer=ProducerSettings(timeout_ms=10_000, retry=RETRY, instance=INSTANCE)
        )
        listener = Undecided()
        producer = TransactionProducer("PG", name_servers, listener, settings=settings)
        tools = AdminSettings(timeout_ms=10_000, retry=RETRY, instance=INSTANCE)
        admin = Admin(name_servers, settings=tools)
        async with admin, producer, PullConsumer("RG", name_servers) as reader:
            sent = await producer.send_half(Message(topic="T", body=b"u1"))
            half = half_message(sent)
            (listed,) = (await admin.list_halves("broker-a", topic="T", group="PG")).halves
            assert listed.msg_id == sent.offset_msg_id
            copy = await admin.discard_half(listed.msg_id)
            assert copy is not None
            assert cluster.leader is not None
            await cluster.stop_node(cluster.leader)
            await until(lambda: cluster.leader is not None, seconds=20)

            shown = await admin.show_half(listed.msg_id, "broker-a")
            assert (shown.state, shown.topic) == ("discarded", "T")
            assert await admin.discard_half(listed.msg_id, "broker-a") is None
            late = await producer.end(half, Decision.COMMIT)
            assert isinstance(late.error, ContraryDecisionError)
            page = await admin.list_halves("broker-a", state="discarded")
            assert [(each.uniq_key, each.resumed) for each in page.halves] == [(half.msg_id, False)]
            listener.knows = True
            await admin.resume_half(page.halves[0].msg_id, "broker-a")
            async with asyncio.timeout(20):
                while await read_all(reader, "T") != Counter([b"u1"]):
                    await asyncio.sleep(0.1)
            with pytest.raises(ContraryDecisionError):
                await admin.discard_half(page.halves[0].msg_id, "broker-a")
            assert (await admin.list_halves("broker-a")).undecided == 0
