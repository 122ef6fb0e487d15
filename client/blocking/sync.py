"""The clients for scripts: the same calls, blocking, without asyncio.

Place in the data path: a `Session` runs one event loop in a thread of its own and opens the asyncio
producers and consumers on it; each blocking call here submits the asyncio call to that loop and
waits for its result.

    with Session("127.0.0.1:9876") as session:
        producer = session.producer("orders")
        print(producer.send(Message(topic="Orders", body=b"hello")))

Invariants: errors are those of the asyncio clients, unchanged; a session stops the clients that it
opened in reverse order when it ends, and then its thread; listeners run in threads of their own, so
that they may block. A call from the loop's own thread is refused, since it would wait for itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias, TypeVar

from client.administer.admin import Admin, AdminSettings
from client.blocking.listener_threads import ListenerThreads
from client.blocking.sync_clients import (
    LoopThread,
    Opened,
    Stoppable,
    SyncAdmin,
    SyncLitePullConsumer,
    SyncPopConsumer,
    SyncProducer,
    SyncPullConsumer,
    SyncPushConsumer,
    SyncTransactionProducer,
)
from client.connection.heartbeat import ExpressionType
from client.consume.listener import ConsumerObserver, ConsumeStatus, PushConsumerSettings
from client.consume.lite_pull_consumer import LitePullConsumer, LitePullSettings
from client.consume.pop_consumer import PopConsumer, PopConsumerSettings
from client.consume.pull_consumer import PullConsumer, PullConsumerSettings
from client.consume.push_consumer import PushConsumer
from client.message import DeliveredMessage, Message
from client.produce.producer import Producer, ProducerSettings
from client.produce.transaction_producer import (
    Decision,
    HalfMessage,
    TransactionProducer,
    TransactionSettings,
)

__all__ = [
    "BlockingListener",
    "BlockingTransactionListener",
    "Session",
    "SyncAdmin",
    "SyncLitePullConsumer",
    "SyncPopConsumer",
    "SyncProducer",
    "SyncPullConsumer",
    "SyncPushConsumer",
    "SyncTransactionProducer",
]

BlockingListener: TypeAlias = Callable[[Sequence[DeliveredMessage]], ConsumeStatus]


class BlockingTransactionListener(Protocol):
    """Like `client.produce.transaction_producer.TransactionListener`, but its methods may block."""

    def execute_local(self, message: Message, half: HalfMessage) -> Decision: ...

    def check_local(self, message: DeliveredMessage) -> Decision: ...


_C = TypeVar("_C", bound=Stoppable)


class Session:
    """Opens clients for one cluster. Use as a context manager, or `close` it.

    `name_servers` and `dial` are as for the asyncio clients. `listener_threads` bounds how many
    listeners run at a time, over all consumers of the session; likewise local transactions, and
    checks of them.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        dial: Mapping[str, str] | None = None,
        *,
        listener_threads: int = 20,
    ) -> None:
        self._name_servers = name_servers
        self._dial = dial
        # A listener that sends in a transaction waits for the local one, and whoever runs that may
        # wait for long, while checks have to be answered: none may wait for the others' threads.
        self._listeners = ListenerThreads(listener_threads, "ledgermq-listener")
        self._transactions = ListenerThreads(listener_threads, "ledgermq-transaction")
        self._checks = ListenerThreads(listener_threads, "ledgermq-check")
        self._loop = LoopThread()  # behind what refuses a number of threads: it runs at once
        self._opened: list[Opened[Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(after_error=error is not None)

    def close(self) -> None:
        """Stop all open clients, the last one first, then the thread. A second call does nothing.

        Raises what stopping a client raised, once everything is stopped.
        """
        self._close(after_error=False)

    def _close(self, *, after_error: bool) -> None:
        # An ExitStack runs its callbacks in reverse order, and all of them even if one raises.
        with contextlib.ExitStack() as stack:
            for threads in (self._listeners, self._transactions, self._checks):
                stack.callback(threads.shutdown)
            stack.callback(self._loop.close)
            for opened in list(self._opened):
                stack.callback(self._stop_one, opened, after_error)

    def producer(self, group: str, *, settings: ProducerSettings | None = None) -> SyncProducer:
        """Return a started producer."""

        def make() -> Producer:
            return Producer(group, self._name_servers, self._dial, settings=settings)

        return self._open(SyncProducer, make)

    def transaction_producer(
        self,
        group: str,
        listener: BlockingTransactionListener,
        *,
        settings: TransactionSettings | None = None,
    ) -> SyncTransactionProducer:
        """Return a started transactional producer."""
        transactions, checks = self._transactions, self._checks

        class Listener:
            async def execute_local(self, message: Message, half: HalfMessage) -> Decision:
                return await transactions.call(listener.execute_local, message, half)

            async def check_local(self, message: DeliveredMessage) -> Decision:
                return await checks.call(listener.check_local, message)

        def make() -> TransactionProducer:
            return TransactionProducer(
                group, self._name_servers, Listener(), self._dial, settings=settings
            )

        return self._open(SyncTransactionProducer, make)

    def pop_consumer(
        self, group: str, *, settings: PopConsumerSettings | None = None
    ) -> SyncPopConsumer:
        """Return a started POP consumer."""

        def make() -> PopConsumer:
            return PopConsumer(group, self._name_servers, self._dial, settings=settings)

        return self._open(SyncPopConsumer, make)

    def pull_consumer(
        self, group: str, *, settings: PullConsumerSettings | None = None
    ) -> SyncPullConsumer:
        """Return a started pull consumer."""

        def make() -> PullConsumer:
            return PullConsumer(group, self._name_servers, self._dial, settings=settings)

        return self._open(SyncPullConsumer, make)

    def lite_pull_consumer(
        self,
        group: str,
        subscriptions: Mapping[str, str | tuple[str, ExpressionType]],
        *,
        settings: LitePullSettings | None = None,
    ) -> SyncLitePullConsumer:
        """Return a started lite pull consumer. `subscriptions`: as for a push consumer."""

        def make() -> LitePullConsumer:
            consumer = LitePullConsumer(group, self._name_servers, self._dial, settings=settings)
            for topic, wanted in subscriptions.items():
                consumer.subscribe(topic, *_expression(wanted))
            return consumer

        return self._open(SyncLitePullConsumer, make)

    def push_consumer(
        self,
        group: str,
        listener: BlockingListener,
        subscriptions: Mapping[str, str | tuple[str, ExpressionType]],
        *,
        settings: PushConsumerSettings | None = None,
        observer: ConsumerObserver | None = None,
    ) -> SyncPushConsumer:
        """Return a started push consumer.

        `subscriptions`: topic -> expression, or (expression, kind).
        """
        chosen = settings or PushConsumerSettings()
        limit_ms = chosen.consume_timeout_ms

        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            return await self._listeners.call(listener, messages, limit_ms=limit_ms)

        def make() -> PushConsumer:
            consumer = PushConsumer(
                group,
                self._name_servers,
                listen,
                self._dial,
                # The consumer would also count the time that a call waits for a thread.
                settings=dataclasses.replace(chosen, consume_timeout_ms=None),
                observer=observer,
            )
            for topic, wanted in subscriptions.items():
                consumer.subscribe(topic, *_expression(wanted))
            return consumer

        return self._open(SyncPushConsumer, make)

    def admin(self, *, settings: AdminSettings | None = None) -> SyncAdmin:
        """Return a started administrator client."""
        return self._open(
            SyncAdmin, lambda: Admin(self._name_servers, self._dial, settings=settings)
        )

    # Internals.

    def _open(
        self,
        kind: Callable[[LoopThread, _C, Callable[[Opened[Any], bool], None]], _O],
        make: Callable[[], _C],
    ) -> _O:
        async def start() -> _C:
            client = make()
            await client.start()
            return client

        opened = kind(self._loop, self._loop.call(start()), self._stop_one)
        self._opened.append(opened)
        return opened

    def _stop_one(self, opened: Opened[_C], after_error: bool) -> None:
        if opened in self._opened:
            self._opened.remove(opened)
            client = opened.client
            self._loop.call(client.stop_after_error() if after_error else client.stop())


_O = TypeVar("_O", bound=Opened[Any])


def _expression(wanted: str | tuple[str, ExpressionType]) -> tuple[str, ExpressionType]:
    return (wanted, ExpressionType.TAG) if isinstance(wanted, str) else wanted
