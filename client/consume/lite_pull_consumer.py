"""The lite pull consumer: a member of a consumer group whose application polls for messages.

Place in the data path: a push consumer inside shares queues, prefetches and commits; its listener
stages messages here, and `poll` returns them to the application.

Invariants:
- What `poll` has returned counts as consumed at the next `poll` or `commit`, or at `stop`; before
  that it is not committed, so that messages in the hands of a killed application are delivered
  again. So are those in the hands of one that leaves `async with` by an error.
- Once a queue is lost to another member, no more of its messages are returned, and those that the
  application still holds are delivered again by the new owner.
- Staged messages are bounded: one batch per queue, behind it what a queue may hold.

Source: RocketMQ DefaultLitePullConsumerImpl (subscribe mode), which commits what it has returned,
consumed or not. To choose queues and offsets oneself, use `client.consume.pull_consumer`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from client.connection.heartbeat import ALL_TAGS, ExpressionType
from client.connection.instance import ClientInstance
from client.connection.lifecycle import Lifecycle
from client.consume.listener import ConsumerObserver, ConsumeStatus, PushConsumerSettings
from client.consume.push_consumer import PushConsumer
from client.consume.queue_requests import QueueRequests
from client.errors import OffsetOutOfRangeError, QueueNotOwnedError
from client.message import DeliveredMessage, MessageQueue

__all__ = ["LitePullConsumer", "LitePullSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LitePullSettings:
    """Settings of a lite pull consumer.

    `consumer` are those of the push consumer inside; its retry and batch settings, and its time
    limit of a listener call, have no effect.
    `release_timeout_ms` is how long a queue that goes to another member waits for the next poll.
    """

    poll_batch_max: int = 32
    poll_timeout_ms: int = 5_000
    release_timeout_ms: int = 1_000
    consumer: PushConsumerSettings = field(default_factory=PushConsumerSettings)

    def __post_init__(self) -> None:
        for name in ("poll_batch_max", "poll_timeout_ms", "release_timeout_ms"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, not {getattr(self, name)}")


@dataclass(slots=True, eq=False)
class _Batch:
    """Messages of one queue, staged until they are consumed."""

    messages: Sequence[DeliveredMessage]
    consumed: asyncio.Future[None]


class LitePullConsumer(Lifecycle):
    """A member of consumer group `group`. Subscribe first, then `start`, then `poll`."""

    def __init__(
        self,
        group: str,
        name_servers: str | Sequence[str],
        dial: Mapping[str, str] | None = None,
        *,
        settings: LitePullSettings | None = None,
        observer: ConsumerObserver | None = None,
    ) -> None:
        self.settings = settings or LitePullSettings()
        self._consumer = PushConsumer(
            group,
            name_servers,
            self._lay_out,
            dial,
            settings=dataclasses.replace(
                self.settings.consumer,
                consume_batch_max=self.settings.poll_batch_max,
                # What waits to be polled, or is worked on, has not failed.
                consume_timeout_ms=None,
                stop_timeout_ms=self.settings.release_timeout_ms,
            ),
            observer=observer,
        )
        self._requests = QueueRequests(
            self.instance,
            self.instance.namespace.wrap(group),
            timeout_ms=self.settings.consumer.timeout_ms,
            policy=self.settings.consumer.retry,
        )
        self._laid_out: list[_Batch] = []
        self._returned: list[_Batch] = []
        self._arrived = asyncio.Event()

    @property
    def instance(self) -> ClientInstance:
        return self._consumer.instance

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this member owns now."""
        return self._consumer.queues

    def subscribe(
        self,
        topic: str,
        expression: str = ALL_TAGS,
        kind: ExpressionType = ExpressionType.TAG,
    ) -> None:
        """See `PushConsumer.subscribe`."""
        self._consumer.subscribe(topic, expression, kind)

    def unsubscribe(self, topic: str) -> None:
        """See `PushConsumer.unsubscribe`."""
        self._consumer.unsubscribe(topic)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pause pulls from these queues until `resume`; prefetched messages are still returned."""
        self._consumer.suspend(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        self._consumer.resume(queues)

    async def start(self) -> None:
        """See `PushConsumer.start`."""
        await self._consumer.start()

    async def stop(self) -> None:
        """Mark what was polled as consumed, commit, and leave the group."""
        await self._mark_consumed()
        await self._consumer.stop()

    async def stop_after_error(self) -> None:
        """Leave the group; what the last poll returned is not consumed, and is delivered again.

        This takes `release_timeout_ms`.
        """
        await self._consumer.stop()

    async def crash(self) -> None:
        """Stop as a killed process would: nothing is committed, connections are dropped."""
        await self._consumer.crash()

    async def poll(self, timeout_ms: int | None = None) -> list[DeliveredMessage]:
        """Return the next messages, at most `poll_batch_max`; empty where none come in time.

        Messages of a queue come in its order. Those of the last poll are marked as consumed. With
        a `timeout_ms` of 0 only what is there already is returned.
        """
        self._consumer.instance.check_running()
        await self._mark_consumed()
        if timeout_ms is None:
            timeout_ms = self.settings.poll_timeout_ms
        if not self._laid_out:
            self._arrived.clear()
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._arrived.wait()
            except TimeoutError:
                return []
        messages: list[DeliveredMessage] = []
        while self._laid_out:
            batch = self._laid_out[0]
            if messages and len(messages) + len(batch.messages) > self.settings.poll_batch_max:
                break
            self._returned.append(self._laid_out.pop(0))
            messages += batch.messages
        return messages

    async def commit(self) -> None:
        """Mark what was polled as consumed and commit it now, not only at the next interval."""
        await self._mark_consumed()
        await self._consumer.commit()

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at `offset` in a queue that this member owns, for the whole group.

        Raises QueueNotOwnedError, also between `start` and the first rebalance;
        OffsetOutOfRangeError where `offset` is not from the queue's first one to its next one; and
        ClientError where its broker can't be asked for these. Nothing has changed then.
        """
        self._check_owned(queue)
        begin = await self._requests.min_offset(queue)
        end = await self._requests.max_offset(queue)
        if not begin <= offset <= end:
            raise OffsetOutOfRangeError(f"{queue} has {begin} to {end}, not {offset}")
        await self._mark_consumed()
        self._check_owned(queue)  # a rebalance may have taken it away meanwhile
        for batch in [each for each in self._laid_out if each.messages[0].queue == queue]:
            self._laid_out.remove(batch)
            batch.consumed.set_result(None)  # the reset below sets where the queue continues
        await self._consumer.reset({queue: offset})

    def _check_owned(self, queue: MessageQueue) -> None:
        """Raises ClientClosedError, QueueNotOwnedError."""
        self._consumer.instance.check_running()
        if queue not in self._consumer.queues:
            raise QueueNotOwnedError(f"{queue} is not a queue of this member, for now at least")

    async def _lay_out(self, messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
        """Stage messages of the inner consumer; return when the application has consumed them."""
        batch = _Batch(messages, asyncio.get_running_loop().create_future())
        self._laid_out.append(batch)
        self._arrived.set()
        try:
            await batch.consumed
        finally:  # the queue may also be released before they are consumed
            for batches in (self._laid_out, self._returned):
                if batch in batches:
                    batches.remove(batch)
        return ConsumeStatus.CONSUME_SUCCESS

    async def _mark_consumed(self) -> None:
        """Mark the returned messages as consumed."""
        returned, self._returned = self._returned, []
        for batch in returned:
            if not batch.consumed.done():
                batch.consumed.set_result(None)
        if returned:
            await asyncio.sleep(0)  # let the queues' tasks record it
