"""A push consumer before scripted brokers, what it is given, and what it tells."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from client.connection.heartbeat import ConsumeFrom
from client.connection.instance import InstanceSettings
from client.connection.retry import RetryPolicy
from client.connection.routes import RouteSettings
from client.consume.listener import (
    ConsumeListener,
    ConsumerObserver,
    ConsumeStatus,
    PushConsumerSettings,
)
from client.consume.push_consumer import PushConsumer
from client.errors import ClientError
from client.message import DeliveredMessage, Message, MessageQueue
from client.produce.producer import Producer
from tests.client.fake_cluster import FakeGroup, FakeNameServer

QUICK: dict[str, Any] = {
    "consume_from": ConsumeFrom.FIRST,
    "suspend_ms": 300,
    "answer_slack_ms": 200,
    "rebalance_interval_ms": 2_000,
    "commit_interval_ms": 50,
    "redelivery_ms_min": 30,
    "redelivery_ms_max": 30,
    "timeout_ms": 1_000,
    "retry": RetryPolicy(attempt_timeout_ms=150, backoff_ms_max=20),
    "instance": InstanceSettings(routes=RouteSettings(refresh_interval_ms_min=20)),
}


class Recorder(ConsumerObserver):
    def __init__(self) -> None:
        self.assignments: list[tuple[MessageQueue, ...]] = []
        self.commits: list[tuple[MessageQueue, int, ClientError | None]] = []
        self.fetches: list[tuple[MessageQueue, int | None, ClientError | None]] = []
        self.deliveries: list[ConsumeStatus | None] = []

    def assigned(self, queues: Sequence[MessageQueue], *, t: int) -> None:
        self.assignments.append(tuple(queues))

    def delivered(self, messages, status, *, t_invoke, t_complete):  # type: ignore[no-untyped-def]
        assert t_invoke <= t_complete
        self.deliveries.append(status)

    def committed(self, queue, offset, error, *, t_invoke, t_complete):  # type: ignore[no-untyped-def]
        self.commits.append((queue, offset, error))

    def offset_fetched(self, queue, offset, error, *, t_invoke, t_complete):  # type: ignore[no-untyped-def]
        self.fetches.append((queue, offset, error))


class Listener:
    """Collects what it gets; `answer` decides."""

    def __init__(self) -> None:
        self.got: list[DeliveredMessage] = []
        self.seen: list[tuple[bytes, int]] = []
        self.answer: Callable[[DeliveredMessage], ConsumeStatus] = lambda _: (
            ConsumeStatus.CONSUME_SUCCESS
        )

    async def __call__(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        assert len(messages) == 1
        self.got.extend(messages)
        self.seen.append((messages[0].body, messages[0].reconsume_times))
        return self.answer(messages[0])

    @property
    def bodies(self) -> list[bytes]:
        return [body for body, _ in self.seen]


class Setup:
    def __init__(self, group: FakeGroup, name_server: FakeNameServer, producer: Producer) -> None:
        self.group = group
        self.name_server = name_server
        self.producer = producer
        self.consumers: list[PushConsumer] = []

    async def consumer(
        self,
        listener: ConsumeListener,
        recorder: Recorder | None = None,
        *,
        expression: str = "*",
        **changes: Any,
    ) -> PushConsumer:
        consumer = PushConsumer(
            "CG",
            [self.name_server.address],
            listener,
            settings=PushConsumerSettings(**{**QUICK, **changes}),
            observer=recorder,
        )
        consumer.subscribe("T", expression)
        await consumer.start()
        self.consumers.append(consumer)
        return consumer

    async def send(self, body: bytes, queue_id: int = 0, **fields: Any) -> None:
        queue = MessageQueue("T", "broker-a", queue_id)
        await self.producer.send(Message(topic="T", body=body, **fields), queue=queue)


@asynccontextmanager
async def setup() -> AsyncIterator[Setup]:
    group = FakeGroup("broker-a")
    await group.start()
    name_server = FakeNameServer([group], ["T"])
    await name_server.start()
    producer = Producer("PG", [name_server.address])
    await producer.start()
    cluster = Setup(group, name_server, producer)
    try:
        yield cluster
    finally:
        for consumer in cluster.consumers:
            await consumer.stop()
        await producer.stop()
        await name_server.stop()
        await group.stop()
