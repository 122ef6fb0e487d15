"""The clients for scripts: the same calls, blocking, without asyncio.

Place in the data path: a `Session` runs one event loop in a thread of its own; the producers and
consumers that it opens are the asyncio ones; each call here hands theirs to that loop and waits.

    with Session("127.0.0.1:9876") as session:
        producer = session.producer("orders")
        print(producer.send(Message(topic="Orders", body=b"hello")))

Invariants: errors are those of the asyncio clients, unchanged; what a session has opened is stopped
in reverse order when it ends, and its thread with it; listeners run in threads of their own, so
that they may block. A call from the loop's own thread is refused instead of waiting for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar

from client.admin import Admin, AdminSettings, QueueProgress
from client.consume import ConsumerObserver, ConsumeStatus, PushConsumerSettings
from client.errors import ClientClosedError
from client.heartbeat import ALL_TAGS, ExpressionType
from client.message import DeliveredMessage, Message, MessageQueue, SendResult
from client.producer import Producer, ProducerSettings, QueueSelector
from client.pull_consumer import PullConsumer, PullConsumerSettings, PullResult
from client.push_consumer import PushConsumer
from client.route_view import TopicRoute
from remoting.route import PERM_READ, PERM_WRITE, ClusterInfo

__all__ = [
    "BlockingListener",
    "Session",
    "SyncAdmin",
    "SyncProducer",
    "SyncPullConsumer",
    "SyncPushConsumer",
]

BlockingListener: TypeAlias = Callable[[Sequence[DeliveredMessage]], ConsumeStatus]
_T = TypeVar("_T")


class _Client(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...


_C = TypeVar("_C", bound=_Client)


class _LoopThread:
    """An event loop that runs in a thread from construction to `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="ledgermq-client", daemon=True
        )
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """The coroutine's result or error. Interrupted, it is cancelled on the loop."""
        if threading.current_thread() is self._thread or self._loop.is_closed():
            coroutine.close()
            if self._loop.is_closed():
                raise ClientClosedError("the session has ended")
            raise RuntimeError("a blocking call on the loop's own thread would wait for itself")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except CancelledError as error:
            raise ClientClosedError("the session ended meanwhile") from error
        except KeyboardInterrupt:
            future.cancel()
            raise

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class _Opened(Generic[_C]):
    """A client that runs on the session's loop; a context manager that stops it."""

    def __init__(self, session: Session, loop: _LoopThread, client: _C) -> None:
        self._session = session
        self._call = loop.call
        self.client = client
        """The asyncio client; to be used on the session's loop only."""

    def stop(self) -> None:
        """Stop it before the session ends. Again: nothing."""
        self._session._stop_one(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class SyncProducer(_Opened[Producer]):
    """See `client.producer.Producer`."""

    def send(
        self,
        message: Message,
        timeout_ms: int | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> SendResult:
        """Store one message and return where. Raises ClientError."""
        return self._call(self.client.send(message, timeout_ms, queue=queue, selector=selector))

    def send_batch(
        self,
        messages: Sequence[Message],
        timeout_ms: int | None = None,
        *,
        queue: MessageQueue | None = None,
    ) -> SendResult:
        """Store several messages of one topic, all or none. Raises ClientError."""
        return self._call(self.client.send_batch(messages, timeout_ms, queue=queue))

    def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send and forget. Raises ClientError where it could not even be sent."""
        self._call(self.client.send_oneway(message, queue=queue))

    def request(self, message: Message, timeout_ms: int | None = None) -> DeliveredMessage:
        """Send `message` and return its reply. Raises ClientError, NoReplyError among them."""
        return self._call(self.client.request(message, timeout_ms))

    def reply(
        self, request: DeliveredMessage, body: bytes, timeout_ms: int | None = None
    ) -> SendResult:
        """Answer a consumed `request`. Raises ClientError."""
        return self._call(self.client.reply(request, body, timeout_ms))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        return self._call(self.client.queues(topic))


class SyncPullConsumer(_Opened[PullConsumer]):
    """See `client.pull_consumer.PullConsumer`."""

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        return self._call(self.client.queues(topic))

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        max_count: int = 32,
        timeout_ms: int | None = None,
        *,
        suspend_ms: int = 0,
        expression: str = ALL_TAGS,
        kind: ExpressionType = ExpressionType.TAG,
    ) -> PullResult:
        return self._call(
            self.client.pull(
                queue,
                offset,
                max_count,
                timeout_ms,
                suspend_ms=suspend_ms,
                expression=expression,
                kind=kind,
            )
        )

    def max_offset(self, queue: MessageQueue) -> int:
        return self._call(self.client.max_offset(queue))

    def min_offset(self, queue: MessageQueue) -> int:
        return self._call(self.client.min_offset(queue))

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return self._call(self.client.search_offset(queue, timestamp_ms))

    def fetch_offset(self, queue: MessageQueue) -> int | None:
        return self._call(self.client.fetch_offset(queue))

    def commit_offset(self, queue: MessageQueue, offset: int) -> None:
        self._call(self.client.commit_offset(queue, offset))


class SyncPushConsumer(_Opened[PushConsumer]):
    """See `client.push_consumer.PushConsumer`; its listener runs in threads."""

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues owned now."""
        return self.client.queues

    def commit(self) -> None:
        self._call(self.client.commit())


class SyncAdmin(_Opened[Admin]):
    """See `client.admin.Admin`."""

    def cluster_info(self) -> ClusterInfo:
        return self._call(self.client.cluster_info())

    def topic_route(self, topic: str) -> TopicRoute:
        return self._call(self.client.topic_route(topic))

    def create_topic(
        self, topic: str, *, queues: int = 4, perm: int = PERM_READ | PERM_WRITE
    ) -> None:
        self._call(self.client.create_topic(topic, queues=queues, perm=perm))

    def delete_topic(self, topic: str) -> None:
        self._call(self.client.delete_topic(topic))

    def create_group(self, group: str, *, retry_times_max: int = 16, retry_queues: int = 1) -> None:
        self._call(
            self.client.create_group(
                group, retry_times_max=retry_times_max, retry_queues=retry_queues
            )
        )

    def delete_group(self, group: str, *, clean_offsets: bool = False) -> None:
        self._call(self.client.delete_group(group, clean_offsets=clean_offsets))

    def consumer_progress(
        self, group: str, topic: str | None = None
    ) -> dict[MessageQueue, QueueProgress]:
        return self._call(self.client.consumer_progress(group, topic))

    def reset_offsets(self, group: str, topic: str, timestamp_ms: int) -> dict[MessageQueue, int]:
        return self._call(self.client.reset_offsets(group, topic, timestamp_ms))


class Session:
    """Opens clients for one cluster. Use as a context manager, or `close` it.

    `name_servers` and `dial` as for the asyncio clients. `listener_threads` bounds how many
    listeners run at a time, over all consumers of the session.
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
        self._loop = _LoopThread()
        self._listeners = ThreadPoolExecutor(listener_threads, "ledgermq-listener")
        self._opened: list[_Opened[Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop what is still open, the last one first; then end the thread. Again: nothing.

        Raises what stopping raised, once everything is stopped.
        """
        with contextlib.ExitStack() as stack:
            stack.callback(self._listeners.shutdown)
            stack.callback(self._loop.close)
            for opened in list(self._opened):
                stack.callback(opened.stop)

    def producer(self, group: str, *, settings: ProducerSettings | None = None) -> SyncProducer:
        """A started producer."""

        def make() -> Producer:
            return Producer(group, self._name_servers, self._dial, settings=settings)

        return self._open(SyncProducer, make)

    def pull_consumer(
        self, group: str, *, settings: PullConsumerSettings | None = None
    ) -> SyncPullConsumer:
        """A started pull consumer."""

        def make() -> PullConsumer:
            return PullConsumer(group, self._name_servers, self._dial, settings=settings)

        return self._open(SyncPullConsumer, make)

    def push_consumer(
        self,
        group: str,
        listener: BlockingListener,
        subscriptions: Mapping[str, str | tuple[str, ExpressionType]],
        *,
        settings: PushConsumerSettings | None = None,
        observer: ConsumerObserver | None = None,
    ) -> SyncPushConsumer:
        """A started push consumer. `subscriptions`: topic -> expression, or (expression, kind)."""

        async def listen(messages: Sequence[DeliveredMessage]) -> ConsumeStatus:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._listeners, listener, messages)

        def make() -> PushConsumer:
            consumer = PushConsumer(
                group,
                self._name_servers,
                listen,
                self._dial,
                settings=settings,
                observer=observer,
            )
            for topic, wanted in subscriptions.items():
                expression, kind = (
                    (wanted, ExpressionType.TAG) if isinstance(wanted, str) else wanted
                )
                consumer.subscribe(topic, expression, kind)
            return consumer

        return self._open(SyncPushConsumer, make)

    def admin(self, *, settings: AdminSettings | None = None) -> SyncAdmin:
        """A started administrator."""
        return self._open(
            SyncAdmin, lambda: Admin(self._name_servers, self._dial, settings=settings)
        )

    # Internals.

    def _open(
        self,
        kind: Callable[[Session, _LoopThread, _C], _O],
        make: Callable[[], _C],
    ) -> _O:
        async def start() -> _C:
            client = make()
            await client.start()
            return client

        opened = kind(self, self._loop, self._loop.call(start()))
        self._opened.append(opened)
        return opened

    def _stop_one(self, opened: _Opened[Any]) -> None:
        if opened in self._opened:
            self._opened.remove(opened)
            self._loop.call(opened.client.stop())


_O = TypeVar("_O", bound=_Opened[Any])
