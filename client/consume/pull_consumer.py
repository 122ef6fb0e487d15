"""The pull consumer: reads queues that its caller names, at offsets that its caller tracks.

Place in the data path: tools, the laboratory's readers and applications that assign queues
themselves; brokers know the group by heartbeat, but it takes part in no rebalance here.

Invariant: nothing is committed unless the caller commits it.

Source: RocketMQ DefaultMQPullConsumer, DefaultLitePullConsumer's assign.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from client.connection.heartbeat import (
    ConsumeFrom,
    ConsumerGroup,
    ExpressionType,
    MessageModel,
    Subscription,
)
from client.connection.instance import ClientInstance, InstanceSettings
from client.connection.lifecycle import Lifecycle
from client.connection.retry import RetryPolicy
from client.consume.queue_requests import PullResult, PullStatus, QueueRequests
from client.message import MessageQueue

__all__ = ["PullConsumer", "PullConsumerSettings", "PullResult", "PullStatus"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PullConsumerSettings:
    """`timeout_ms` bounds each request, its attempts at moving leaders included."""

    timeout_ms: int = 5_000
    register: bool = True
    """Whether heartbeats report the group to brokers."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    instance: InstanceSettings = field(default_factory=InstanceSettings)

    def __post_init__(self) -> None:
        if self.timeout_ms < 1:
            raise ValueError(f"timeout_ms must be positive, not {self.timeout_ms}")


class PullConsumer(Lifecycle):
    """Reads on behalf of consumer group `group`. All requests raise ClientError."""

    def __init__(
        self,
        group: str,
        name_servers: str | Sequence[str],
        dial: Mapping[str, str] | None = None,
        *,
        settings: PullConsumerSettings | None = None,
    ) -> None:
        self.group = group
        self.settings = settings or PullConsumerSettings()
        self.instance = ClientInstance(name_servers, dial=dial, settings=self.settings.instance)
        self._version = time.time_ns() // 1_000_000
        wire_group = self.instance.namespace.group(group)
        if self.settings.register:
            self.instance.set_consumer_groups(
                [
                    ConsumerGroup(
                        name=wire_group,
                        push=False,
                        message_model=MessageModel.CLUSTERING,
                        consume_from=ConsumeFrom.FIRST,
                        subscriptions=(),
                    )
                ]
            )
        self._requests = QueueRequests(
            self.instance,
            wire_group,
            timeout_ms=self.settings.timeout_ms,
            policy=self.settings.retry,
        )

    @property
    def client_id(self) -> str:
        return self.instance.client_id

    async def start(self) -> None:
        await self.instance.start()

    async def stop(self) -> None:
        """Close. Commits nothing."""
        await self.instance.stop()

    async def crash(self) -> None:
        """Stop as a killed process would."""
        await self.instance.abort()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the topic's readable queues, in (broker, queue id) order."""
        self.instance.check_running()
        route = await self.instance.routes.route(topic, timeout_ms=self.settings.timeout_ms)
        return route.read_queues

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int = 32,
        timeout_ms: int | None = None,
        *,
        suspend_ms: int = 0,
        expression: str = "*",
        kind: ExpressionType = ExpressionType.TAG,
        commit_offset: int | None = None,
    ) -> PullResult:
        """Return up to `max_count` messages from `offset` on.

        With `suspend_ms` above 0 the broker holds the request up to that long while there is
        nothing new; `timeout_ms` bounds the whole call and must leave room for that. `expression`
        names tags (`A || B`), which the broker compares by hash only: messages may come that have
        another tag with the same hash. With `kind` SQL92 it is an expression over properties.
        `commit_offset` is the group's offset, which the broker stores by the way if it can: only
        `commit_offset` as a request of its own says whether it did.
        """
        return await self._requests.pull(
            queue,
            offset,
            count_max=max_count,
            suspend_ms=suspend_ms,
            subscription=Subscription(
                topic=queue.topic, expression=expression, kind=kind, version=self._version
            ),
            timeout_ms=self.settings.timeout_ms + suspend_ms if timeout_ms is None else timeout_ms,
            commit_offset=commit_offset,
        )

    async def max_offset(self, queue: MessageQueue, timeout_ms: int | None = None) -> int:
        """Return the next offset to be written in `queue`."""
        return await self._requests.max_offset(queue, timeout_ms=timeout_ms)

    async def min_offset(self, queue: MessageQueue, timeout_ms: int | None = None) -> int:
        """Return the first offset retained in `queue`."""
        return await self._requests.min_offset(queue, timeout_ms=timeout_ms)

    async def search_offset(
        self, queue: MessageQueue, timestamp_ms: int, timeout_ms: int | None = None
    ) -> int:
        """Return the first offset stored at Unix time `timestamp_ms` or later."""
        return await self._requests.search_offset(queue, timestamp_ms, timeout_ms=timeout_ms)

    async def fetch_offset(self, queue: MessageQueue, timeout_ms: int | None = None) -> int | None:
        """Return the group's committed offset; None where nothing is stored."""
        return await self._requests.fetch_offset(queue, timeout_ms=timeout_ms)

    async def commit_offset(
        self, queue: MessageQueue, offset: int, timeout_ms: int | None = None
    ) -> None:
        """Commit `offset`, the next to be consumed, for the group; returns when it is stored."""
        await self._requests.commit_offset(queue, offset, timeout_ms=timeout_ms)
