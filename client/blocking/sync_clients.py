"""The asyncio clients with blocking calls, one class each.

Place in the data path: `client.blocking.sync` opens them; a blocking call submits the asyncio call
to the session's loop and waits for it. The invariants are stated there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from client.administer.admin import Admin, QueueProgress, ReplicaStatus
from client.administer.halves import HalfPage, ShownHalf
from client.connection.heartbeat import ALL_TAGS, ExpressionType
from client.connection.route_view import TopicRoute
from client.consume.lite_pull_consumer import LitePullConsumer
from client.consume.pop_consumer import PopConsumer, PoppedMessage
from client.consume.pull_consumer import PullConsumer, PullResult
from client.consume.push_consumer import PushConsumer
from client.errors import ClientClosedError
from client.message import DeliveredMessage, Message, MessageQueue, SendResult
from client.produce.producer import Producer, QueueSelector
from client.produce.transaction_producer import TransactionProducer, TransactionResult
from remoting.protocol.route import PERM_READ, PERM_WRITE, ClusterInfo

__all__ = [
    "LoopThread",
    "Opened",
    "Stoppable",
    "SyncAdmin",
    "SyncLitePullConsumer",
    "SyncPopConsumer",
    "SyncProducer",
    "SyncPullConsumer",
    "SyncPushConsumer",
    "SyncTransactionProducer",
]

_T = TypeVar("_T")


class Stoppable(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def stop_after_error(self) -> None: ...


_C = TypeVar("_C", bound=Stoppable)


class LoopThread:
    """An event loop that runs in a thread from construction to `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._ends = threading.Lock()
        self._has_ended = False  # under the lock: nothing is submitted behind the end
        self._thread = threading.Thread(target=self._run, name="ledgermq-client", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run `coroutine` on the loop and return its result or raise its error.

        A KeyboardInterrupt while waiting cancels it. Raises ClientClosedError where the session has
        ended.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a blocking call on the loop's own thread would wait for itself")
        with self._ends:
            if self._has_ended:
                coroutine.close()
                raise ClientClosedError("the session has ended")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except CancelledError as error:
            raise ClientClosedError("the session ended meanwhile") from error
        except KeyboardInterrupt:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and its thread; calls of other threads that wait end with
        ClientClosedError."""
        with self._ends:
            if self._has_ended:
                return
            self._has_ended = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        """Run the loop until `close` stops it, and end in the same thread what is left of it: the
        one that closes may run a loop itself, as a notebook's does."""
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class Opened(Generic[_C]):
    """A client that runs on the session's loop; a context manager that stops it.

    `stop` is told whether the body of a `with` raised.
    """

    def __init__(
        self, loop: LoopThread, client: _C, stop: Callable[[Opened[Any], bool], None]
    ) -> None:
        self._stop = stop
        self._call = loop.call
        self.client = client
        """The asyncio client; use it on the session's loop only."""

    def stop(self) -> None:
        """Stop the client before the session ends. A second call does nothing."""
        self._stop(self, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop(self, error is not None)


class SyncProducer(Opened[Producer]):
    """See `client.produce.producer.Producer`."""

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

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> None:
        """Send without waiting for an answer. Raises ClientError where it could not be sent."""
        self._call(self.client.send_oneway(message, queue=queue, selector=selector))

    def request(
        self,
        message: Message,
        timeout_ms: int | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> DeliveredMessage:
        """Send `message` and return its reply. Raises ClientError, NoReplyError among them."""
        return self._call(self.client.request(message, timeout_ms, queue=queue, selector=selector))

    def reply(
        self, request: DeliveredMessage, body: bytes, timeout_ms: int | None = None
    ) -> SendResult:
        """Send a reply to a consumed `request`. Raises ClientError."""
        return self._call(self.client.reply(request, body, timeout_ms))

    def recall(self, sent: SendResult, timeout_ms: int | None = None) -> str:
        """Recall a timer message before its time. Raises ClientError."""
        return self._call(self.client.recall(sent, timeout_ms))

    def queues(self, topic: str, timeout_ms: int | None = None) -> tuple[MessageQueue, ...]:
        return self._call(self.client.queues(topic, timeout_ms))


class SyncTransactionProducer(Opened[TransactionProducer]):
    """See `TransactionProducer`; its listener runs in threads."""

    def send_in_transaction(
        self,
        message: Message,
        timeout_ms: int | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> TransactionResult:
        """Send a half message, run the local transaction, send the decision.

        Raises ClientError where the half is not known to be stored, and whatever the listener
        raises.
        """
        return self._call(
            self.client.send_in_transaction(message, timeout_ms, queue=queue, selector=selector)
        )


class SyncPopConsumer(Opened[PopConsumer]):
    """See `client.consume.pop_consumer.PopConsumer`. All calls raise ClientError."""

    def pop(
        self,
        topic: str,
        *,
        count_max: int = 32,
        invisible_ms: int = 60_000,
        poll_ms: int = 0,
        expression: str = ALL_TAGS,
        kind: ExpressionType = ExpressionType.TAG,
        from_end: bool = False,
        in_order: bool = False,
        broker_name: str | None = None,
    ) -> list[PoppedMessage]:
        return self._call(
            self.client.pop(
                topic,
                count_max=count_max,
                invisible_ms=invisible_ms,
                poll_ms=poll_ms,
                expression=expression,
                kind=kind,
                from_end=from_end,
                in_order=in_order,
                broker_name=broker_name,
            )
        )

    def ack(self, popped: PoppedMessage) -> None:
        """Acknowledge the message, so that no consumer of the group receives it again."""
        self._call(self.client.ack(popped))

    def ack_all(self, popped: Sequence[PoppedMessage]) -> None:
        """Acknowledge messages of one broker group in one request: all of them, or none."""
        self._call(self.client.ack_all(popped))

    def change_invisible(self, popped: PoppedMessage, invisible_ms: int) -> PoppedMessage:
        """Hide the message for `invisible_ms` from now; the returned one is to be acknowledged."""
        return self._call(self.client.change_invisible(popped, invisible_ms))


class SyncPullConsumer(Opened[PullConsumer]):
    """See `client.consume.pull_consumer.PullConsumer`."""

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
        commit_offset: int | None = None,
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
                commit_offset=commit_offset,
            )
        )

    def max_offset(self, queue: MessageQueue, timeout_ms: int | None = None) -> int:
        return self._call(self.client.max_offset(queue, timeout_ms))

    def min_offset(self, queue: MessageQueue, timeout_ms: int | None = None) -> int:
        return self._call(self.client.min_offset(queue, timeout_ms))

    def search_offset(
        self, queue: MessageQueue, timestamp_ms: int, timeout_ms: int | None = None
    ) -> int:
        return self._call(self.client.search_offset(queue, timestamp_ms, timeout_ms))

    def fetch_offset(self, queue: MessageQueue, timeout_ms: int | None = None) -> int | None:
        return self._call(self.client.fetch_offset(queue, timeout_ms))

    def commit_offset(
        self, queue: MessageQueue, offset: int, timeout_ms: int | None = None
    ) -> None:
        self._call(self.client.commit_offset(queue, offset, timeout_ms))


class SyncLitePullConsumer(Opened[LitePullConsumer]):
    """See `client.consume.lite_pull_consumer.LitePullConsumer`."""

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this member owns now."""
        return self.client.queues

    def poll(self, timeout_ms: int | None = None) -> list[DeliveredMessage]:
        """Return the next messages, and mark those of the last poll as consumed."""
        return self._call(self.client.poll(timeout_ms))

    def commit(self) -> None:
        self._call(self.client.commit())

    def seek(self, queue: MessageQueue, offset: int) -> None:
        self._call(self.client.seek(queue, offset))


class SyncPushConsumer(Opened[PushConsumer]):
    """See `client.consume.push_consumer.PushConsumer`; its listener runs in threads."""

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        """The queues that this member owns now."""
        return self.client.queues

    def commit(self) -> None:
        self._call(self.client.commit())


class SyncAdmin(Opened[Admin]):
    """See `client.administer.admin.Admin`."""

    def cluster_info(self) -> ClusterInfo:
        return self._call(self.client.cluster_info())

    def topic_route(self, topic: str) -> TopicRoute:
        return self._call(self.client.topic_route(topic))

    def create_topic(
        self,
        topic: str,
        *,
        queues: int = 4,
        perm: int = PERM_READ | PERM_WRITE,
        broker_names: Sequence[str] = (),
    ) -> None:
        self._call(
            self.client.create_topic(topic, queues=queues, perm=perm, broker_names=broker_names)
        )

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

    def reset_offsets(
        self,
        group: str,
        topic: str,
        timestamp_ms: int,
        *,
        is_force: bool = True,
        broker_names: Sequence[str] = (),
    ) -> dict[MessageQueue, int]:
        return self._call(
            self.client.reset_offsets(
                group, topic, timestamp_ms, is_force=is_force, broker_names=broker_names
            )
        )

    def reset_queue(
        self, group: str, queue: MessageQueue, *, offset: int = -1, timestamp_ms: int = -1
    ) -> int:
        return self._call(
            self.client.reset_queue(group, queue, offset=offset, timestamp_ms=timestamp_ms)
        )

    def view_message(self, offset_msg_id: str) -> DeliveredMessage:
        return self._call(self.client.view_message(offset_msg_id))

    def query_messages(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = 32,
        begin_ms: int = 0,
        end_ms: int = (1 << 63) - 1,
        unique: bool = False,
    ) -> list[DeliveredMessage]:
        return self._call(
            self.client.query_messages(
                topic, key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms, unique=unique
            )
        )

    def list_halves(
        self,
        broker_name: str,
        *,
        state: str = "undecided",
        offset: int = 0,
        count_max: int = 32,
        topic: str | None = None,
        group: str | None = None,
    ) -> HalfPage:
        """Return a page of a broker group's halves. Raises ClientError, as the next three do."""
        return self._call(
            self.client.list_halves(
                broker_name,
                state=state,
                offset=offset,
                count_max=count_max,
                topic=topic,
                group=group,
            )
        )

    def show_half(self, message_id: str, broker_name: str | None = None) -> ShownHalf:
        return self._call(self.client.show_half(message_id, broker_name))

    def discard_half(self, message_id: str, broker_name: str | None = None) -> str | None:
        """Discard an undecided half; return the id of its copy, None where it was discarded."""
        return self._call(self.client.discard_half(message_id, broker_name))

    def resume_half(self, message_id: str, broker_name: str | None = None) -> None:
        """Make a discarded half undecided again, once."""
        self._call(self.client.resume_half(message_id, broker_name))

    def replica_status(self, address: str, timeout_ms: int | None = None) -> ReplicaStatus:
        """Return the status of the broker at table address `address`; it may be outdated."""
        return self._call(self.client.replica_status(address, timeout_ms))
