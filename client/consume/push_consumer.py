"""The push consumer: a member of a consumer group whose listener receives messages as they arrive.

Place in the data path: heartbeats carry the subscriptions to the brokers; a rebalance shares the
topics' queues among the group's members; each owned queue has a `client.consume.queue_consumer`.

Invariants:
- In clustering mode a queue is consumed only while this member owns it by its own last rebalance;
  it is released (listener ended, offset committed) before the next assignment is announced.
- A member that a broker does not know (yet) keeps its queues: the heartbeat that registers it is on
  its way, and dropping everything would only move queues back and forth.
- Broadcasting members own all queues and store their offsets in a file of their own, or nowhere.
- Ordered members take a queue only once its broker has granted the lock, and drop it when the lock
  is lost; then nothing of it is committed, since another member may own it.

Source: RocketMQ DefaultMQPushConsumerImpl, RebalanceImpl.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final

import msgspec

from client.connection.broker_call import call_group
from client.connection.heartbeat import (
    ALL_TAGS,
    ConsumerGroup,
    ExpressionType,
    MessageModel,
    Subscription,
)
from client.connection.instance import ClientInstance
from client.connection.lifecycle import Lifecycle
from client.connection.retry import RetryPolicy
from client.consume.consume_trace import ConsumeTrace
from client.consume.consumer_admin import ConsumerAdmin
from client.consume.listener import (
    ConsumeListener,
    ConsumerObserver,
    ConsumeStatus,
    PushConsumerSettings,
)
from client.consume.local_offsets import LocalOffsets, OffsetFileError
from client.consume.queue_consumer import QueueConsumer, QueueState
from client.consume.queue_locks import QueueLocks
from client.consume.rebalance import allocate, ownership_change
from client.consume.subscription_check import check_subscription
from client.errors import ClientError, MalformedAnswerError, NameServerError, NoRouteError
from client.listener_guard import guarded_hooks
from client.message import MessageQueue
from client.produce.producer import Producer, ProducerSettings
from client.trace.tracer import Tracer, trace_group
from remoting.connections.connection import Connection
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.group_topics import retry_topic

__all__ = ["ConsumeStatus", "PushConsumer", "PushConsumerSettings"]

_log = logging.getLogger(__name__)

_UNSETTLED_REBALANCE_MS: Final = 300
_NO_RETRY_TOPIC_MS: Final = 1_000
_MEMBERS_TIMEOUT_MS: Final = 1_000


class _ConsumerList(msgspec.Struct):
    consumerIdList: list[str] = []


class PushConsumer(Lifecycle):
    """A member of consumer group `group`. Subscribe first, then `start`."""

    def __init__(
        self,
        group: str,
        name_servers: str | Sequence[str],
        listener: ConsumeListener,
        dial: Mapping[str, str] | None = None,
        *,
        settings: PushConsumerSettings | None = None,
        observer: ConsumerObserver | None = None,
    ) -> None:
        self.group = group
        self.settings = settings or PushConsumerSettings()
        self.instance = ClientInstance(
            name_servers, dial=dial, settings=self.settings.instance, on_leader=self._on_leader
        )
        self._wire_group = self.instance.namespace.group(group)
        self._listener = listener
        self._observer = guarded_hooks(observer or ConsumerObserver())
        self._subscriptions: dict[str, Subscription] = {}
        self._owned: dict[MessageQueue, QueueConsumer] = {}
        self._leaving: set[QueueConsumer] = set()
        self._rebalance_wanted = asyncio.Event()
        self._lacks_retry_topic = False
        self._started_ms = 0
        self._suspended = False
        self._has_company = False  # other members, as of the last rebalance
        self._loops: list[asyncio.Task[None]] = []
        self._locks: QueueLocks | None = None
        self._local: LocalOffsets | None = None
        if self.settings.takes_locks:
            self._locks = QueueLocks(
                self.instance,
                self._wire_group,
                timeout_ms=self.settings.timeout_ms,
                policy=self.settings.retry,
                held_ms=self.settings.lock_held_ms,
                observer=self._observer,
            )
        elif self.settings.message_model is MessageModel.BROADCASTING:
            self._local = LocalOffsets(self.settings.offset_file)
        self._tracer: Tracer | None = None
        if self.settings.trace is not None:
            plain = ProducerSettings(instance=self.settings.instance, retry=self.settings.retry)
            trace_producers = trace_group(self.instance.namespace, group)
            sender = Producer(trace_producers, name_servers, dial, settings=plain)
            self._tracer = Tracer(sender, self.settings.trace)
        self.instance.listen(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, self._on_members_changed)
        ConsumerAdmin(self.instance, self._wire_group, self).listen()
        if self.settings.message_model is MessageModel.CLUSTERING:
            self.subscribe(retry_topic(group))

    @property
    def client_id(self) -> str:
        return self.instance.client_id

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this member owns now."""
        return tuple(sorted(self._owned))

    def subscribe(
        self,
        topic: str,
        expression: str = ALL_TAGS,
        kind: ExpressionType = ExpressionType.TAG,
    ) -> None:
        """Subscribe to `topic`: to all messages, or to those with one of the tags in `A || B`.

        With `kind` SQL92, to those for which the expression over their properties is true; `start`
        requests the brokers to check it. Once started, a change takes effect from the next pull on.
        Raises ValueError where brokers refuse the topic's name.
        """
        self.instance.namespace.check_topic(topic)
        subscription = Subscription(
            topic=topic, expression=expression, kind=kind, version=time.time_ns() // 1_000_000
        )
        self._subscriptions[topic] = subscription
        for queue, consumer in self._owned.items():
            if queue.topic == topic:
                consumer.resubscribe(subscription)
        self._announce_subscriptions()

    def unsubscribe(self, topic: str) -> None:
        """End the subscription to `topic`; its queues are released soon, offsets committed."""
        self._subscriptions.pop(topic, None)
        self._announce_subscriptions()

    def suspend(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Pull nothing more, from `queues` or from all, until `resume`.

        What was pulled is delivered, queues stay owned. One of `queues` that is lost and gained
        again is no longer suspended.
        """
        self._suspended |= queues is None
        for queue in self._owned if queues is None else queues:
            if queue in self._owned:
                self._owned[queue].pause()

    def resume(self, queues: Iterable[MessageQueue] | None = None) -> None:
        self._suspended &= queues is not None
        for queue in self._owned if queues is None else queues:
            if queue in self._owned:
                self._owned[queue].resume()

    def _announce_subscriptions(self) -> None:
        self.instance.set_consumer_groups(
            [
                ConsumerGroup(
                    name=self._wire_group,
                    push=True,
                    message_model=self.settings.message_model,
                    consume_from=self.settings.consume_from,
                    subscriptions=tuple(self._subscriptions.values()),
                )
            ]
        )
        self._rebalance_wanted.set()

    async def start(self) -> None:
        """Join the group in the background; brokers may be down for now.

        With a subscription by SQL92 they must be up: raises ClientError where one of them refuses
        the expression or can't be reached; the consumer is stopped then, as where the start is
        cancelled. Raises OffsetFileError where a broadcasting consumer's file can't be read or is
        in use, and ClientError at a second start.
        """
        self.instance.check_unstarted()
        if self._local is not None:
            await self._local.open()
        # Heartbeats make it a member at once: one that was left so would own queues that it never
        # consumes.
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.stop)
            self._started_ms = time.time_ns() // 1_000_000
            await self.instance.start()
            await self._check_subscriptions()
            scope = self.instance.scope
            if self._tracer is not None:
                await self._tracer.start(scope)
            self._loops = [
                scope.spawn(self._rebalance_periodically(), "client-rebalance"),
                scope.spawn(self._commit_periodically(), "client-commit"),
            ]
            if self._locks is not None:
                self._loops.append(scope.spawn(self._renew_locks(self._locks), "client-locks"))
            undo.pop_all()

    async def stop(self) -> None:
        """Leave: end the listeners, commit every queue and await the answers, unlock, unregister.

        A stop that is cancelled leaves out what is not done yet, but unregisters and closes. Raises
        OffsetFileError where a broadcasting consumer's offsets could not be written.
        """
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self.instance.stop)
            if self._local is not None:
                closing.push_async_callback(self._local.close)
            if self._tracer is not None:
                closing.push_async_callback(self._tracer.crash)  # nothing is left behind a stop
            for loop in self._loops:
                loop.cancel()
            if self._loops:
                await asyncio.wait(self._loops)
            await self._release([*self._owned.values(), *self._leaving])
            self._owned = {}
            if self._locks is not None:
                await self._locks.unlock_all()
            if self._tracer is not None:
                await self._tracer.stop(self.settings.timeout_ms)

    async def crash(self) -> None:
        """Stop as a killed process would: nothing is committed, connections are dropped."""
        self._owned = {}
        try:
            await self.instance.abort()
            if self._tracer is not None:
                await self._tracer.crash()
        finally:
            if self._local is not None:
                self._local.abandon()

    # Requests of administrators, see `client.consume.consumer_admin`.

    @property
    def started_ms(self) -> int:
        return self._started_ms

    @property
    def listener(self) -> ConsumeListener:
        return self._listener

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        return tuple(self._subscriptions.values())

    def states(self) -> list[QueueState]:
        """Return the state of each owned queue."""
        return [self._owned[queue].state() for queue in sorted(self._owned)]

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at these offsets in those of the queues that are owned here."""
        reset = [consumer for queue, consumer in self._owned.items() if queue in offsets]
        for consumer in reset:
            consumer.reset(offsets[consumer.queue])
        await asyncio.gather(*(consumer.commit() for consumer in reset))

    async def commit(self) -> None:
        """Commit all queues now; the observer is notified of each outcome."""
        await asyncio.gather(*(consumer.commit() for consumer in list(self._owned.values())))
        if self._local is not None:
            try:
                await self._local.flush()
            except OffsetFileError as error:
                _log.warning("%s; the next commit tries again", error)

    async def _check_subscriptions(self) -> None:
        for subscription in self._subscriptions.values():
            if subscription.kind is ExpressionType.TAG:
                continue
            await check_subscription(
                self.instance,
                self._wire_group,
                subscription,
                timeout_ms=self.settings.timeout_ms,
                policy=self.settings.retry,
            )

    # Rebalance.

    async def _rebalance_periodically(self) -> None:
        while True:
            self._rebalance_wanted.clear()
            self._lacks_retry_topic = False
            complete = await self._rebalance()
            wait_ms = self.settings.rebalance_interval_ms if complete else _UNSETTLED_REBALANCE_MS
            if self._lacks_retry_topic:
                wait_ms = min(wait_ms, _NO_RETRY_TOPIC_MS)
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._rebalance_wanted.wait()
            except TimeoutError:
                continue

    async def _rebalance(self) -> bool:
        """Apply this member's share of every topic; False where a share or lock is missing."""
        complete = True
        self._has_company = False
        allocated: set[MessageQueue] = set()
        for topic in list(self._subscriptions):
            share = await self._share(topic)
            if share is None:
                complete = False
                # The share is unknown: keep the topic's queues rather than move them back and
                # forth.
                allocated.update(queue for queue in self._owned if queue.topic == topic)
            else:
                allocated.update(share)
        change = ownership_change(self._owned, allocated)
        if not change.lost and not change.gained:
            return complete
        # Without queues whose lock was lost while the listener was at work: it would be called
        # twice at once. They are wanted again when they are released.
        leaving = {consumer.queue for consumer in self._leaving}
        wanted = tuple(queue for queue in change.gained if queue not in leaving)
        released = [self._owned.pop(queue) for queue in change.lost]
        await self._release(released)
        if self._locks is not None:
            await self._locks.unlock(change.lost)
            granted = (await self._locks.lock(wanted)).granted
            complete = complete and len(granted) == len(wanted)
            wanted = tuple(queue for queue in wanted if queue in granted)
            if not change.lost and not wanted:
                return complete
        elif wanted and self._has_company:
            if change.lost:
                self._observer.assigned(self.queues, t=time.monotonic_ns())
            # The previous owners are notified of the change as well; give them time to commit their
            # offsets.
            await asyncio.sleep(self.settings.handover_ms / 1000)
        # Topics may have been left while this waited for other members, or for locks.
        left = [queue for queue in wanted if queue.topic not in self._subscriptions]
        gained = [self._queue_consumer(queue) for queue in wanted if queue not in left]
        self._owned.update((consumer.queue, consumer) for consumer in gained)
        self._observer.assigned(self.queues, t=time.monotonic_ns())
        for consumer in gained:
            consumer.start()
        if left and self._locks is not None:
            await self._locks.unlock(left)
        return complete

    async def _release(self, consumers: Sequence[QueueConsumer], *, commit: bool = True) -> None:
        # Recorded until done, so that a `stop` that interrupts a rebalance still commits.
        self._leaving.update(consumers)
        await asyncio.gather(*(consumer.release(commit=commit) for consumer in consumers))
        self._leaving.difference_update(consumers)

    async def _share(self, topic: str) -> Sequence[MessageQueue] | None:
        """Return this member's queues of `topic`; None where the share can't be determined now."""
        try:
            route = await self.instance.routes.route(topic, timeout_ms=self.settings.timeout_ms)
        except NoRouteError:
            if topic != retry_topic(self.group):
                return None
            # The topic is created once a broker knows the group, or with the first failed message.
            self._lacks_retry_topic = True
            return ()
        except NameServerError as error:
            _log.info("no rebalance of %s: %s", topic, error)
            return None
        if self.settings.message_model is MessageModel.BROADCASTING:
            return route.read_queues
        for broker_name in sorted({queue.broker_name for queue in route.read_queues}):
            try:
                members = await self._members(broker_name, topic)
            except ClientError as error:
                _log.info("no members of %s from %s: %s", self.group, broker_name, error)
                continue
            if self.client_id not in members:
                # This broker does not know the member (yet): send it a heartbeat and keep the
                # queues.
                leader = self.instance.routes.leader(broker_name)
                if leader is not None and leader.address is not None:
                    self.instance.greet_soon(leader.address)
                return None
            self._has_company |= len(members) > 1
            return allocate(self.client_id, members, route.read_queues)
        return None

    async def _members(self, broker_name: str, topic: str) -> list[str]:
        """Return the group's members known to the leader of `broker_name`. Raises ClientError."""
        answer, address = await call_group(
            self.instance,
            broker_name,
            lambda: RemotingCommand(
                code=RequestCode.GET_CONSUMER_LIST_BY_GROUP,
                ext_fields={"consumerGroup": self._wire_group, "bname": broker_name},
            ),
            topic=topic,
            timeout_ms=_MEMBERS_TIMEOUT_MS,
            policy=RetryPolicy(attempt_timeout_ms=_MEMBERS_TIMEOUT_MS // 2),
            accept=(0, 1),  # 1: nobody is registered there
        )
        if answer.code == 1:
            return []
        try:
            return msgspec.json.decode(answer.body, type=_ConsumerList).consumerIdList
        except msgspec.DecodeError as error:
            raise MalformedAnswerError(f"member list of {address}: {error}") from error

    def _queue_consumer(self, queue: MessageQueue) -> QueueConsumer:
        consumer = QueueConsumer(
            self.instance,
            self._wire_group,
            queue,
            subscription=self._subscriptions[queue.topic],
            listener=self._listener,
            observer=self._observer,
            settings=self.settings,
            locks=self._locks,
            local=self._local,
            trace=(
                None
                if self._tracer is None
                else ConsumeTrace(self._tracer, self.group, self.instance.next_uniq_key)
            ),
        )
        if self._suspended:
            consumer.pause()
        return consumer

    # Background loops and notifications.

    async def _commit_periodically(self) -> None:
        while True:
            await asyncio.sleep(self.settings.commit_interval_ms / 1000)
            await self.commit()

    async def _renew_locks(self, locks: QueueLocks) -> None:
        while True:
            await asyncio.sleep(self.settings.lock_interval_ms / 1000)
            answer = await locks.lock(list(self._owned))
            lost = [self._owned.pop(queue) for queue in answer.refused if queue in self._owned]
            if not lost:
                continue
            _log.warning("locks were lost: %s", ", ".join(str(item.queue) for item in lost))
            await self._release(lost, commit=False)
            self._observer.assigned(self.queues, t=time.monotonic_ns())
            self._rebalance_wanted.set()

    def _on_members_changed(self, _: Connection, command: RemotingCommand) -> None:
        if command.ext_fields.get("consumerGroup") == self._wire_group:
            self._rebalance_wanted.set()

    def _on_leader(self, broker_name: str, address: str) -> None:
        for queue, consumer in self._owned.items():
            if queue.broker_name == broker_name:
                consumer.leader_moved(address)
