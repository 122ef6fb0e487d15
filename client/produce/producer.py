"""The producer: sends messages and reports their outcome without guessing.

Place in the data path: the application's `Message` enters here, is stamped (UNIQ_KEY,
bornTimestamp), encoded by `client.connection.send_codec`, sent to the leader of a broker group over
`client.connection.instance`, and retried as `client.connection.retry` decides.

Invariants:
- A `SendResult` means that a broker confirmed the message. An error with `definite` means that no
  broker has it; any other error means that the outcome is unknown.
- After an attempt without an answer, all further ones go to the same queue of the same group with
  the same UNIQ_KEY, wherever its leader moves, so that the group stores the message once.
- Sends in flight through `send_async` are bounded by `in_flight_max`.

Source: RocketMQ DefaultMQProducerImpl; differences are listed in docs/DIVERGENCE.md.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from typing import TypeAlias

from client.connection.answers import error_of, error_of_remoting
from client.connection.broker_call import call_group, learn
from client.connection.drain_gate import DrainGate
from client.connection.instance import ClientInstance
from client.connection.lifecycle import Lifecycle
from client.connection.retry import Place, Retries
from client.connection.send_codec import (
    MessageRefusedError,
    PreparedSend,
    prepare_batch,
    prepare_message,
    send_result,
    send_status,
)
from client.errors import ClientError, NoRouteError, NotLeaderError
from client.message import DeliveredMessage, Message, MessageQueue, PropertyName, SendResult
from client.produce.latency_faults import LatencyFaults
from client.produce.producer_settings import ProducerSettings
from client.produce.queue_choice import QueueChoice
from client.produce.request_reply import NoReplyError, Replies, reply_message
from client.trace.send_trace import send_trace
from client.trace.tracer import Tracer, trace_group
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand

__all__ = ["Producer", "ProducerSettings", "QueueSelector"]

QueueSelector: TypeAlias = Callable[[Sequence[MessageQueue], Message], MessageQueue]


class Producer(Lifecycle):
    """Sends on behalf of a producer group.

    `name_servers` are table addresses (a list, or one string separated by `;`); `dial` maps a table
    address to the one to connect to. Use as an async context manager, or `start`/`stop`.
    """

    def __init__(
        self,
        group: str,
        name_servers: str | Sequence[str],
        dial: Mapping[str, str] | None = None,
        *,
        settings: ProducerSettings | None = None,
    ) -> None:
        self.group = group
        self.settings = settings or ProducerSettings()
        self.instance = ClientInstance(name_servers, dial=dial, settings=self.settings.instance)
        self.instance.add_producer_group(group)
        self._slots = asyncio.Semaphore(self.settings.in_flight_max)
        self._replies = Replies(self.instance)
        self._choice = QueueChoice(
            self.instance.random.randrange(1 << 16),
            LatencyFaults() if self.settings.latency_faults else None,
        )
        self._tracer: Tracer | None = None
        if self.settings.trace is not None:
            plain = replace(self.settings, trace=None)
            trace_producers = trace_group(self.instance.namespace, group)
            sender = Producer(trace_producers, name_servers, dial, settings=plain)
            self._tracer = Tracer(sender, self.settings.trace)
        self._under_way = DrainGate()

    @property
    def client_id(self) -> str:
        return self.instance.client_id

    async def start(self) -> None:
        """Start the background work. Connections to brokers are opened at the first send.

        A start that is cancelled leaves nothing behind. Raises ClientError at a second one.
        """
        await self.instance.start()
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self.stop)
            if self._tracer is not None:
                await self._tracer.start(self.instance.scope)
            undo.pop_all()

    async def stop(self) -> None:
        """Let calls in progress end and send their traces, all for as long as a send may take;
        unregister and close.

        New calls raise ClientClosedError meanwhile. A stop that is cancelled waits no longer, and
        closes all the same.
        """
        now_ms = self.instance.now_ms
        deadline_ms = now_ms() + self.settings.timeout_ms
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self.instance.stop)
            if self._tracer is not None:
                closing.push_async_callback(self._tracer.crash)  # nothing is left behind a stop
            await self.instance.scope.drain(max(0, deadline_ms - now_ms()))
            await self._under_way.close(max(0, deadline_ms - now_ms()))
            if self._tracer is not None:
                await self._tracer.stop(max(0, deadline_ms - now_ms()))

    async def crash(self) -> None:
        """Stop as a killed process would: nothing more is sent, connections are dropped."""
        await self.instance.abort()
        if self._tracer is not None:
            await self._tracer.crash()

    # Sending.

    async def send(
        self,
        message: Message,
        timeout_ms: int | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> SendResult:
        """Store one message and return where.

        With an explicit `queue`, or one that `selector` chooses, every attempt stays in that group.
        Raises ClientError; its `definite` says whether the message is certain not to be stored. The
        same object may be sent again: it keeps its UNIQ_KEY, and its time where it may be stored.
        """
        with self._under_way, self._stamped([message]):
            prepared = self._prepare(message)
            return await self._deliver(prepared, message, timeout_ms, queue, selector)

    async def send_async(
        self,
        message: Message,
        timeout_ms: int | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> asyncio.Future[SendResult]:
        """Start a send; the future gets what `send` would have returned or raised.

        Waits only while `in_flight_max` sends are in progress already.
        """
        await self._slots.acquire()
        try:
            future = self.instance.scope.launch(
                self.send(message, timeout_ms, queue=queue, selector=selector)
            )
        except ClientError:
            self._slots.release()
            raise
        future.add_done_callback(self._free_slot)
        return future

    async def send_batch(
        self,
        messages: Sequence[Message],
        timeout_ms: int | None = None,
        *,
        queue: MessageQueue | None = None,
    ) -> SendResult:
        """Store several messages of one topic in one queue, all or none. Raises as `send`."""
        namespace = self.instance.namespace
        with self._under_way, self._stamped(messages):
            prepared = prepare_batch(
                messages, group=namespace.wrap(self.group), namespace=namespace
            )
            return await self._deliver(prepared, messages[0], timeout_ms, queue, None)

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> None:
        """Send without an answer: one attempt, outcome unknown.

        Raises ClientError, definite, where the message could not even be sent.
        """
        self.instance.check_running()
        self._stamp(message)
        prepared = self._prepare(message)
        timeout_ms = self.settings.timeout_ms
        target = await self._choose(
            message, queue=queue, selector=selector, avoid=None, timeout_ms=timeout_ms
        )
        address = await self._address(target, timeout_ms)
        try:
            await self.instance.rpc.oneway(address, prepared.command(target))
        except RemotingError as error:
            raise error_of_remoting(error, address) from error

    async def request(
        self,
        message: Message,
        timeout_ms: int | None = None,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
    ) -> DeliveredMessage:
        """Send `message` and return its consumer's reply, all within `timeout_ms`.

        Each request has a UNIQ_KEY of its own, unless the message came with one: the same message
        may be requested again. Raises ClientError where it was not sent, and NoReplyError where no
        reply came in time.
        """
        if message.uniq_key is None:
            message = replace(message, born_timestamp_ms=None)
        timeout_ms = self.settings.timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = self.instance.now_ms() + timeout_ms
        with self._under_way:
            self.instance.check_running()
            self._stamp(message)
            await self.instance.routes.route(message.topic, timeout_ms=timeout_ms, or_default=True)
            # A reply needs a connection to come back on; a node that hangs may not cost it all.
            half_ms = max(1.0, deadline_ms - self.instance.now_ms()) / 2
            await self.instance.greet_all(within_ms=half_ms)
            correlation_id, reply = self._replies.expect()
            try:
                prepared = self._prepare(
                    message,
                    extra={
                        PropertyName.CORRELATION_ID: correlation_id,
                        PropertyName.REPLY_TO_CLIENT: self.client_id,
                        PropertyName.TTL: str(timeout_ms),
                    },
                )
                left_ms = round(deadline_ms - self.instance.now_ms())  # none: it is not sent
                sent = await self._deliver(prepared, message, left_ms, queue, selector)
                left_ms = max(1, round(deadline_ms - self.instance.now_ms()))
                try:
                    return await asyncio.wait_for(reply, left_ms / 1000)
                except TimeoutError as error:
                    raise NoReplyError(
                        f"no reply to {sent.msg_id} of topic {message.topic} in {timeout_ms} ms"
                    ) from error
            finally:
                self._replies.forget(correlation_id)

    async def reply(
        self, request: DeliveredMessage, body: bytes, timeout_ms: int | None = None
    ) -> SendResult:
        """Send a reply to a consumed `request`; returns once the requesting client has it.

        Raises ClientError. The reply goes through the broker group that the request came from,
        since the requesting client is connected to it.
        """

        def same_group(queues: Sequence[MessageQueue], _: Message) -> MessageQueue:
            ours = [queue for queue in queues if queue.broker_name == request.queue.broker_name]
            return (ours or queues)[0]

        message = reply_message(request, body)
        return await self.send(message, timeout_ms, selector=same_group)

    async def recall(self, sent: SendResult, timeout_ms: int | None = None) -> str:
        """Recall a timer message before its time; return its message id.

        Success means that it will not be delivered. Raises ClientError: MessageRefusedError where
        it is no timer message, NotRecalledError where it is too late, and OutcomeUnknownError where
        an attempt without an answer may have recalled it before that.
        """
        if sent.recall_handle is None:
            raise MessageRefusedError(f"{sent.msg_id} is no timer message of a broker that recalls")
        namespace = self.instance.namespace
        fields = {
            "producerGroup": namespace.wrap(self.group),
            "topic": namespace.wrap(sent.queue.topic),
            "recallHandle": sent.recall_handle,
            "bname": sent.queue.broker_name,
        }
        answer, _ = await call_group(
            self.instance,
            sent.queue.broker_name,
            lambda: RemotingCommand(code=RequestCode.RECALL_MESSAGE, ext_fields=dict(fields)),
            topic=sent.queue.topic,
            timeout_ms=self.settings.timeout_ms if timeout_ms is None else timeout_ms,
            policy=self.settings.retry,
        )
        return answer.ext_fields.get("msgId", "")

    async def queues(self, topic: str, timeout_ms: int | None = None) -> tuple[MessageQueue, ...]:
        """Return the queues that a send may go to. Raises NoRouteError, NameServerError."""
        self.instance.check_running()
        route = await self.instance.routes.route(
            topic,
            timeout_ms=self.settings.timeout_ms if timeout_ms is None else timeout_ms,
            or_default=True,
        )
        return route.write_queues

    # Internals.

    def _free_slot(self, _: asyncio.Future[SendResult]) -> None:
        self._slots.release()

    @contextmanager
    def _stamped(self, messages: Sequence[Message]) -> Iterator[None]:
        """Stamp the messages; a time is taken back where its message is certain not to be stored:
        what is sent again hours later is not older than all that brokers remember."""
        fresh = [message for message in messages if message.born_timestamp_ms is None]
        for message in messages:
            self._stamp(message)
        try:
            yield
        except ClientError as error:
            if error.definite:
                for message in fresh:
                    message.born_timestamp_ms = None
            raise

    def _stamp(self, message: Message) -> None:
        if message.born_timestamp_ms is None:
            message.born_timestamp_ms = time.time_ns() // 1_000_000
        if message.uniq_key is None:
            message.uniq_key = self.instance.next_uniq_key(message.born_timestamp_ms)

    def _prepare(
        self,
        message: Message,
        *,
        transactional: bool = False,
        extra: Mapping[str, str] | None = None,
    ) -> PreparedSend:
        namespace = self.instance.namespace
        return prepare_message(
            message,
            group=namespace.wrap(self.group),
            compression=self.settings.compression,
            transactional=transactional,
            extra=extra,
            namespace=namespace,
        )

    async def _deliver(
        self,
        prepared: PreparedSend,
        message: Message,
        timeout_ms: int | None,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
    ) -> SendResult:
        """Make the attempts of one send. Raises ClientError."""
        instance = self.instance
        timeout_ms = self.settings.timeout_ms if timeout_ms is None else timeout_ms
        retries = Retries(
            self.settings.retry,
            deadline_ms=instance.now_ms() + timeout_ms,
            may_move=queue is None and selector is None,
        )
        target: MessageQueue | None = None
        avoid: str | None = None
        last: ClientError | None = None
        while True:
            budget_ms = retries.begin_attempt(instance.now_ms())
            if budget_ms <= 0:
                raise retries.out_of_time(last) from last
            address = None
            try:
                instance.check_running()
                if target is None or avoid is not None:
                    target = await self._choose(
                        message, queue=queue, selector=selector, avoid=avoid, timeout_ms=budget_ms
                    )
                address = await self._address(target, budget_ms)
                began_ms = instance.now_ms()
                result = await self._attempt(prepared, target, address, budget_ms, retries.attempts)
            except ClientError as error:
                last = error
            else:
                self._sent(prepared, message, result, began_ms)
                return result
            if target is not None:
                # A group between two leaders is not slow, so it is not isolated.
                if not isinstance(last, NotLeaderError):
                    self._choice.failed(target.broker_name, instance.now_ms())
                learn(instance, target.broker_name, address, last)
            now_ms = instance.now_ms()
            again = retries.after(last, now_ms=now_ms, luck=instance.random.random())
            if isinstance(again, ClientError):
                raise again from last
            if again.refresh_route:
                instance.routes.want_refresh(prepared.topic)
            moves = again.place is Place.ANOTHER_GROUP and target is not None
            avoid = target.broker_name if moves and target is not None else None
            if again.wait_ms:
                await asyncio.sleep(again.wait_ms / 1000)

    async def _attempt(
        self,
        prepared: PreparedSend,
        target: MessageQueue,
        address: str,
        timeout_ms: float,
        attempts: int,
    ) -> SendResult:
        instance = self.instance
        try:
            answer = await instance.rpc.request(
                address, prepared.command(target), max(1, round(timeout_ms))
            )
        except RemotingError as error:
            raise error_of_remoting(error, address) from error
        status = send_status(answer.code)
        if status is None:
            raise error_of(answer.code, answer.remark, address)
        instance.routes.confirm(target.broker_name, address)
        return send_result(
            answer,
            status=status,
            prepared=prepared,
            queue=target,
            attempts=attempts,
            address=address,
        )

    async def _choose(
        self,
        message: Message,
        *,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        avoid: str | None,
        timeout_ms: float,
    ) -> MessageQueue:
        """Choose the queue for the next attempt; not of group `avoid` where there is another."""
        if queue is not None:
            if queue.topic != message.topic:
                raise MessageRefusedError(f"{queue} is no queue of topic {message.topic}")
            return queue
        routes = self.instance.routes
        route = routes.cached(message.topic) or await routes.route(
            message.topic, timeout_ms=timeout_ms, or_default=True
        )
        queues = route.write_queues
        if not queues:
            raise NoRouteError(f"topic {message.topic} has no queue that takes messages")
        if selector is not None:
            chosen = selector(queues, message)
            if chosen not in queues:
                raise MessageRefusedError(f"the selector chose {chosen}, no queue of the topic")
            return chosen
        return self._choice.next(queues, avoid, self.instance.now_ms())

    def _sent(
        self, prepared: PreparedSend, message: Message, result: SendResult, began_ms: float
    ) -> None:
        now_ms = self.instance.now_ms()
        self._choice.succeeded(result.queue.broker_name, now_ms - began_ms, now_ms)
        if self._tracer is not None and result.is_traced:
            trace = send_trace(
                self.group,
                message,
                result,
                is_half=prepared.is_half,
                cost_ms=round(now_ms - began_ms),
                wall_ms=time.time_ns() // 1_000_000,
            )
            self._tracer.add([trace])

    async def _address(self, queue: MessageQueue, timeout_ms: float) -> str:
        routes = self.instance.routes
        leader = routes.leader(queue.broker_name)
        if leader is None:
            await routes.route(queue.topic, timeout_ms=timeout_ms, or_default=True)
            leader = routes.leader(queue.broker_name)
        if leader is None or leader.address is None:
            raise NoRouteError(f"no node of broker group {queue.broker_name} is known")
        return leader.address
