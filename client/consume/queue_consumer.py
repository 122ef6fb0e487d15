"""One queue of a push consumer, from its assignment to its release.

Place in the data path: `client.consume.push_consumer` makes one per owned queue. It fetches the
group's offset, pulls by long polling, delivers messages to the listener in offset order, and
commits the group's progress.

Invariants:
- It starts at the committed offset, or where the group's rule says if there is none (in a retry
  topic at its first message); never at a guess: an unanswered fetch is repeated.
- The offset committed never passes a message that the listener did not accept.
- After `release` nothing of the queue is delivered or committed any more.
- With locks nothing is delivered or committed unless the queue's lock is known to be held: else the
  committed offset may belong to another member, who is ahead or started behind.
- A broker that reports the position as too high is queried again before it is believed: it may be a
  replica that has not caught up, and going back would deliver messages twice.

Source: RocketMQ DefaultMQPushConsumerImpl.pullMessage, RebalancePushImpl.computePullFromWhere.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Final

from client.connection.broker_call import learn, request_once
from client.connection.heartbeat import ConsumeFrom, Subscription
from client.connection.instance import ClientInstance
from client.consume.consume_trace import ConsumeTrace
from client.consume.listener import (
    ConsumeListener,
    ConsumerObserver,
    ConsumeStatus,
    PushConsumerSettings,
)
from client.consume.local_offsets import LocalOffsets
from client.consume.process_queue import ProcessQueue
from client.consume.pull_in_progress import PullInProgress, failed_pull_wait_ms
from client.consume.queue_locks import QueueLocks
from client.consume.queue_requests import (
    PULL_CODES,
    PullResult,
    PullStatus,
    QueueRequests,
    pull_command,
    pull_result,
)
from client.consume.send_back import SendBack
from client.delivery import matches_tags
from client.errors import ClientError, NoRouteError, NotLeaderError, UnansweredError
from client.listener_guard import ListenerGuard
from client.message import DeliveredMessage, MessageQueue
from remoting.protocol.command import RemotingCommand
from remoting.protocol.group_topics import RETRY_PREFIX

__all__ = ["QueueConsumer", "QueueState"]

_log = logging.getLogger(__name__)

_HINTS_MAX: Final = 2
_EMPTY_PULL_WAIT_MS: Final = 50
_POSITION_DOUBTS_MAX: Final = 3
_POSITION_DOUBT_WAIT_MS: Final = 500
_LOCK_WAIT_MS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """The state of a queue's consumer. Offsets are -1 before they are known, times Unix ms."""

    queue: MessageQueue
    commit_offset: int
    next_offset: int
    held: int
    held_bytes: int
    locked: bool
    pulled_ms: int
    delivered_ms: int


class QueueConsumer:
    """Consumes `queue` on behalf of `group` (as brokers know it) between `start` and `release`.

    With `locks` the listener is called only while the queue's lock is held. With `local` offsets
    are stored there and not at a broker.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        queue: MessageQueue,
        *,
        subscription: Subscription,
        listener: ConsumeListener,
        observer: ConsumerObserver,
        settings: PushConsumerSettings,
        locks: QueueLocks | None = None,
        local: LocalOffsets | None = None,
        trace: ConsumeTrace | None = None,
    ) -> None:
        self.queue = queue
        self._instance = instance
        self._group = group
        self._subscription = subscription
        self._tags = frozenset(subscription.tags)
        self._listener = listener
        self._observer = observer
        self._settings = settings
        self._locks = locks
        self._local = local
        self._trace = trace
        self._requests = QueueRequests(
            instance, group, timeout_ms=settings.timeout_ms, policy=settings.retry
        )
        self._process: ProcessQueue | None = None
        self._reset_to: int | None = None
        self._committed: tuple[int, int | None] = (0, None)  # the process queue's moves, offset
        self._commit_lock = asyncio.Lock()
        self._committing: asyncio.Timeout | None = None
        self._released = False
        self._may_commit = True
        self._may_pull = asyncio.Event()
        self._may_pull.set()
        self._pulled_ms = 0  # Unix time
        self._delivered_ms = 0
        self._changed = asyncio.Event()  # messages came or were consumed, or the end
        self._pulling = PullInProgress(self._follow_late)
        self._pulled_from: str | None = None
        self._doubts = 0
        self._send_back = SendBack(instance, group, settings)
        self._pull_task: asyncio.Task[None] | None = None
        self._consume_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start in the background. Raises ClientClosedError."""
        name = f"{self.queue.topic}/{self.queue.broker_name}/{self.queue.queue_id}"
        self._pull_task = self._instance.scope.spawn(self._pull(), f"client-pull-{name}")
        self._consume_task = self._instance.scope.spawn(self._consume(), f"client-consume-{name}")

    async def release(self, *, commit: bool = True) -> None:
        """End: stop pulling, let the listener finish within a time limit, commit.

        Without `commit` for a queue that another member may own already: a commit in progress is
        cancelled.
        """
        self._released = True
        if not commit:
            self._may_commit = False
            _end_now(self._committing)
        self._changed.set()
        if self._pull_task is not None:
            self._pull_task.cancel()
        self._pulling.stop()
        if self._consume_task is not None:
            await asyncio.wait([self._consume_task], timeout=self._settings.stop_timeout_ms / 1000)
            if not self._consume_task.done():
                _log.warning("the listener did not end in time; %s is given up", self.queue)
                self._consume_task.cancel()
                await asyncio.wait([self._consume_task])
        if commit:
            await self.commit()

    def leader_moved(self, address: str) -> None:
        """End a pull that waits at another node: the group's leader is at `address` now."""
        if self._pulled_from != address:
            self._pulling.give_up()

    def resubscribe(self, subscription: Subscription) -> None:
        """Change the subscription from the next pull on; messages held are still delivered."""
        self._subscription = subscription
        self._tags = frozenset(subscription.tags)
        self._pulling.give_up()

    def pause(self) -> None:
        """Pull nothing more until `resume`; what is held is delivered."""
        self._may_pull.clear()
        self._pulling.give_up()

    def resume(self) -> None:
        self._may_pull.set()

    def reset(self, offset: int) -> None:
        """Continue at `offset`, as an administrator requested; a listener call may finish."""
        self._reset_to = offset  # where it has not begun, too
        if self._process is not None:
            self._process.reposition(offset)
            self._changed.set()
            self._pulling.give_up()

    def state(self) -> QueueState:
        process = self._process
        return QueueState(
            queue=self.queue,
            commit_offset=-1 if process is None else process.commit_offset,
            next_offset=-1 if process is None else process.next_offset,
            held=0 if process is None else process.held,
            held_bytes=0 if process is None else process.held_bytes,
            locked=self._locks is not None and self._locks.holds(self.queue),
            pulled_ms=self._pulled_ms,
            delivered_ms=self._delivered_ms,
        )

    async def commit(self) -> None:
        """Commit the progress, where it has changed and the queue's lock is held or not needed."""
        if self._process is None:
            return
        if self._local is not None:
            self._local.put(self._wire_queue(), self._process.commit_offset)
            return
        async with self._commit_lock:
            # 0 as well: a group may begin at the end. Behind a reset the broker has its offset.
            progress = self._process.moves, self._process.commit_offset
            if progress == self._committed:
                return
            # The lock may have been lost while this waited for the commit before it.
            if not self._may_commit or not self._is_locked():
                return
            began, (_, offset) = time.monotonic_ns(), progress
            error: ClientError | None = UnansweredError("cut short")
            try:
                async with asyncio.timeout(None) as self._committing:
                    await self._requests.commit_offset(self.queue, offset)
                error = None
                self._committed = progress
            except TimeoutError:
                error = UnansweredError("given up, since the queue's lock was lost")
            except ClientError as failure:
                error = failure
            finally:
                self._committing = None
                self._observer.committed(
                    self.queue, offset, error, t_invoke=began, t_complete=time.monotonic_ns()
                )

    # The first offset.

    async def _begin(self) -> ProcessQueue:
        failures = 0
        while True:
            try:
                offset = await self._first_offset()
            except ClientError as error:
                _log.info("no offset of %s yet: %s", self.queue, error)
                failures += 1
                await asyncio.sleep(failed_pull_wait_ms(failures) / 1000)
            else:
                if self._reset_to is not None:
                    offset, self._committed = self._reset_to, (0, None)
                return ProcessQueue(
                    offset,
                    count_max=self._settings.held_count_max,
                    bytes_max=self._settings.held_bytes_max,
                    span_max=self._settings.held_span_max,
                    ordered=self._settings.ordered,
                )

    async def _first_offset(self) -> int:
        if self._local is not None:
            stored = self._local.get(self._wire_queue())
        else:
            _, stored = self._committed = 0, await self._fetch_offset()
        if stored is not None:
            return stored
        if self.queue.topic.startswith(RETRY_PREFIX):
            # What lies there is for this group alone, and was not consumed: nothing of it is old.
            return await self._requests.min_offset(self.queue)
        match self._settings.consume_from:
            case ConsumeFrom.FIRST:
                return await self._requests.min_offset(self.queue)
            case ConsumeFrom.TIMESTAMP:
                return await self._requests.search_offset(
                    self.queue, self._settings.consume_from_timestamp_ms
                )
            case ConsumeFrom.LAST:
                # RocketMQ starts a new group at 0 where the topic is young: the broker's rule.
                young = await self._requests.fetch_offset(self.queue, zero_if_young=True)
                return await self._requests.max_offset(self.queue) if young is None else young

    async def _fetch_offset(self) -> int | None:
        began = time.monotonic_ns()
        offset: int | None = None
        error: ClientError | None = UnansweredError("cut short")
        try:
            offset = await self._requests.fetch_offset(self.queue)
            error = None
        except ClientError as failure:
            error = failure
            raise
        finally:
            self._observer.offset_fetched(
                self.queue, offset, error, t_invoke=began, t_complete=time.monotonic_ns()
            )
        return offset

    # Pulling.

    async def _pull(self) -> None:
        process = self._process = await self._begin()
        self._changed.set()
        failures = 0
        while True:
            while not process.has_room:
                self._changed.clear()
                await self._changed.wait()
            await self._may_pull.wait()
            began = self._instance.now_ms()
            offset = process.next_offset
            try:
                result = await self._pull_once(offset)
            except ClientError as error:
                _log.debug("pull of %s failed: %s", self.queue, error)
                failures += 1
                hinted = isinstance(error, NotLeaderError) and error.leader is not None
                # Hints are followed at once, unless nodes name each other in a circle.
                if not hinted or failures > _HINTS_MAX:
                    await asyncio.sleep(failed_pull_wait_ms(failures) / 1000)
            else:
                failures = 0
                self._pulled_ms = time.time_ns() // 1_000_000
                if process.next_offset == offset:  # else it was reset meanwhile
                    await self._take(process, result, self._instance.now_ms() - began)

    async def _pull_once(self, offset: int) -> PullResult:
        """Long-poll once, at the node last known to lead. Raises ClientError."""
        instance, queue = self._instance, self.queue
        leader = instance.routes.leader(queue.broker_name)
        if leader is None or leader.address is None:
            instance.routes.want_refresh(queue.topic)
            raise NoRouteError(f"no node of broker group {queue.broker_name} is known")
        address = self._pulled_from = leader.address
        try:
            answer = await self._interruptible_request(address, offset)
        except TimeoutError as error:
            raise UnansweredError(f"the pull from {address} was given up") from error
        except ClientError as error:
            learn(instance, queue.broker_name, address, error)
            instance.routes.want_refresh(queue.topic)
            raise
        return pull_result(answer, queue, address, instance.namespace)

    async def _interruptible_request(self, address: str, offset: int) -> RemotingCommand:
        """Send the pull. Raises TimeoutError where it was given up."""
        settings = self._settings
        command = pull_command(
            group=self._group,
            queue=self.queue,
            offset=offset,
            count_max=settings.pull_batch_max,
            suspend_ms=settings.suspend_ms,
            subscription=self._subscription,
            namespace=self._instance.namespace,
        )
        return await self._pulling.wait_for(
            offset,
            request_once(
                self._instance,
                self.queue.broker_name,
                address,
                command,
                settings.suspend_ms + settings.answer_slack_ms,
                accept=PULL_CODES,
            ),
        )

    def _follow_late(self, offset: int, moved_to: int) -> None:
        """Follow a reset of the group's offset, the answer of a pull which was given up."""
        process = self._process
        if process is not None and process.next_offset == offset:
            process.reposition(moved_to)
            self._changed.set()
            self._pulling.give_up()

    async def _take(self, process: ProcessQueue, result: PullResult, took_ms: float) -> None:
        """Process a pull's result: add the messages, or correct the position."""
        match result.status:
            case PullStatus.FOUND:
                self._doubts = 0
                wanted = [
                    message
                    for message in result.messages
                    if not self._tags or matches_tags(message, self._tags)
                ]
                process.add(wanted, result.next_begin_offset)
                self._changed.set()
            case PullStatus.NO_MATCHED_MSG:
                self._doubts = 0
                process.add([], result.next_begin_offset)
            case PullStatus.NO_NEW_MSG:
                self._doubts = 0
                if took_ms < _EMPTY_PULL_WAIT_MS:
                    # Not every broker holds pulls; ledgermq's and RocketMQ's may also be configured
                    # not to.
                    await asyncio.sleep(_EMPTY_PULL_WAIT_MS / 1000)
            case PullStatus.OFFSET_ILLEGAL:
                await self._correct(process, result)

    async def _correct(self, process: ProcessQueue, result: PullResult) -> None:
        # A replica that lags reports a lower end than the leader's: query again before going back.
        if result.next_begin_offset < process.next_offset and self._doubts < _POSITION_DOUBTS_MAX:
            self._doubts += 1
            await asyncio.sleep(_POSITION_DOUBT_WAIT_MS / 1000)
            return
        _log.warning(
            "%s has %d to %d; going on at %d instead of %d",
            self.queue,
            result.min_offset,
            result.max_offset,
            result.next_begin_offset,
            process.next_offset,
        )
        self._doubts = 0
        process.reposition(result.next_begin_offset)

    # Consuming.

    async def _consume(self) -> None:
        while not self._released:
            self._changed.clear()
            process = self._process
            now_ms = round(self._instance.now_ms())
            may_consume = self._is_locked()
            batch = (
                process.take(self._settings.consume_batch_max, now_ms)
                if process is not None and may_consume
                else []
            )
            if batch and process is not None:
                await self._deliver(process, batch)
                self._changed.set()
                continue
            due_ms = None if process is None else process.next_due_ms()
            if not may_consume:  # A renewal is in progress, or a rebalance takes the queue away.
                due_ms = now_ms + _LOCK_WAIT_MS
            try:
                async with asyncio.timeout(
                    None if due_ms is None else max(0.001, (due_ms - now_ms) / 1000)
                ):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _deliver(self, process: ProcessQueue, batch: list[DeliveredMessage]) -> None:
        began = time.monotonic_ns()
        returned: ConsumeStatus | None = None
        status: ConsumeStatus | None = None
        traced = None if self._trace is None else self._trace.begin(batch)
        guard = ListenerGuard(f"{len(batch)} messages of {self.queue} come again")
        try:
            with guard:
                limit_ms = self._settings.consume_timeout_ms
                async with asyncio.timeout(None if limit_ms is None else limit_ms / 1000):
                    returned = await self._listener(batch)
            status = guard.verdict(returned, ConsumeStatus.RECONSUME_LATER)
        finally:
            if self._trace is not None and traced is not None:
                self._trace.end(traced, batch, returned, raised=guard.failed)
            self._delivered_ms = time.time_ns() // 1_000_000
            self._observer.delivered(batch, status, t_invoke=began, t_complete=time.monotonic_ns())
        if status is ConsumeStatus.CONSUME_SUCCESS:
            process.done(batch)
            return
        for message in batch:
            if await self._put_aside(message):
                process.done([message])
                continue
            delay_ms = self._settings.redelivery_ms(message.reconsume_times)
            process.retry([message], round(self._instance.now_ms()) + delay_ms)

    async def _put_aside(self, message: DeliveredMessage) -> bool:
        """Hand a failed message over or drop it; return whether this queue is done with it."""
        is_last = self._settings.is_last_attempt(message.reconsume_times)
        if self._local is not None:
            if is_last:
                _log.warning(
                    "%s of %s is dropped after %d attempts",
                    message.uniq_key,
                    self.queue,
                    message.reconsume_times + 1,
                )
            return is_last
        if not self._settings.ordered:
            return await self._send_back.again(message)
        return is_last and await self._send_back.to_dead_letters(message)

    def _is_locked(self) -> bool:
        """Return whether the queue's lock is held, or none is needed."""
        return self._locks is None or self._locks.holds(self.queue)

    def _wire_queue(self) -> MessageQueue:
        topic = self._instance.namespace.wrap(self.queue.topic)
        return MessageQueue(topic, self.queue.broker_name, self.queue.queue_id)


def _end_now(waiting: asyncio.Timeout | None) -> None:
    # An expired timeout ends by itself and can't be rescheduled.
    if waiting is not None and not waiting.expired():
        waiting.reschedule(asyncio.get_running_loop().time())
