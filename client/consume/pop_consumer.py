"""The POP consumer: pops messages for a time, and acknowledges each one.

Place in the data path: consumers own no queues here; the broker delivers each message to one of the
group's consumers and hides it for the requested time. An acknowledged message is never delivered to
the group again; one that is not acknowledged is delivered again when its time is over, through
`%RETRY%group_topic`, and after its last attempt goes to `%DLQ%group`.

Invariants: only `ack` marks a message as consumed; an unanswered pop costs only time, since the
messages it hid are delivered again.

Source: RocketMQ 5's PopConsumer requests (200050, 200051, 200053, 200151), MQClientAPIImpl.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from client.connection.broker_call import call_group
from client.connection.heartbeat import (
    ALL_TAGS,
    ConsumeFrom,
    ConsumerGroup,
    ExpressionType,
    MessageModel,
    Subscription,
)
from client.connection.instance import ClientInstance, InstanceSettings
from client.connection.lifecycle import Lifecycle
from client.connection.retry import RetryPolicy
from client.consume.batch_ack import batch_ack_body
from client.consume.pop_answer import PopAnswer
from client.delivery import delivered_message, matches_tags
from client.errors import ClientError, MalformedAnswerError, NoRouteError
from client.message import DeliveredMessage, MessageQueue
from remoting.errors import RecordError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.pop_handle import PopHandle, PopHandleError
from remoting.records.message import decode_records
from remoting.records.property_names import PropertyName

__all__ = ["PopConsumer", "PopConsumerSettings", "PoppedMessage"]

_ANY_QUEUE: Final = -1
_FOUND_NOTHING: Final = frozenset(
    {
        ResponseCode.PULL_NOT_FOUND.value,
        ResponseCode.PULL_RETRY_IMMEDIATELY.value,
        ResponseCode.POLLING_FULL.value,
        ResponseCode.POLLING_TIMEOUT.value,
    }
)
_ANSWERS: Final = _FOUND_NOTHING | {ResponseCode.SUCCESS.value}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PopConsumerSettings:
    """`timeout_ms` bounds each request; for a pop, the time beyond its `poll_ms`."""

    timeout_ms: int = 5_000
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    instance: InstanceSettings = field(default_factory=InstanceSettings)

    def __post_init__(self) -> None:
        if self.timeout_ms < 1:
            raise ValueError(f"timeout_ms must be positive, not {self.timeout_ms}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoppedMessage:
    """A message, and the handle to acknowledge it or change its invisible time by."""

    message: DeliveredMessage
    handle: PopHandle


class PopConsumer(Lifecycle):
    """Consumes on behalf of group `group`. All requests raise ClientError."""

    def __init__(
        self,
        group: str,
        name_servers: str | Sequence[str],
        dial: Mapping[str, str] | None = None,
        *,
        settings: PopConsumerSettings | None = None,
    ) -> None:
        self.group = group
        self.settings = settings or PopConsumerSettings()
        self.instance = ClientInstance(name_servers, dial=dial, settings=self.settings.instance)
        self._wire_group = self.instance.namespace.group(group)
        self._turn = self.instance.random.randrange(1 << 16)
        self._attempts = 0
        self._subscriptions: dict[str, Subscription] = {}

    @property
    def client_id(self) -> str:
        return self.instance.client_id

    async def start(self) -> None:
        await self.instance.start()

    async def stop(self) -> None:
        """Close. Unacknowledged messages are delivered again when their time is over."""
        await self.instance.stop()

    async def crash(self) -> None:
        """Stop as a killed process would."""
        await self.instance.abort()

    async def pop(
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
        """Return up to `count_max` messages, hidden from the rest of the group for `invisible_ms`.

        Each call goes to one broker group, `broker_name` or the next in turn, which holds the
        request up to `poll_ms` while it has no message. A new group starts at the topic's start, or
        with `from_end` at its end. Messages whose other tag has the same hash are left out, and
        acknowledged, as far as the broker takes that. With `in_order` a queue delivers no further
        message until those before it are acknowledged or visible again; those come again in their
        places, and a pop whose answer was lost gets the same messages when it is repeated. Raises
        ValueError where brokers refuse the topic's name.
        """
        subscription = self._subscribe(topic, expression, kind)
        if broker_name is None:
            broker_name = await self._next_broker(topic)
        policy = dataclasses.replace(
            self.settings.retry,
            attempt_timeout_ms=poll_ms + self.settings.retry.attempt_timeout_ms,
        )
        fields = {
            "consumerGroup": self._wire_group,
            "topic": self.instance.namespace.wrap(topic),
            "queueId": str(_ANY_QUEUE),
            "maxMsgNums": str(count_max),
            "invisibleTime": str(invisible_ms),
            "pollTime": str(poll_ms),
            "initMode": "1" if from_end else "0",
            "expType": kind.value,
            "exp": expression,
            "order": "true" if in_order else "false",
            "bname": broker_name,
        }
        if in_order:
            self._attempts += 1
            fields["attemptId"] = f"{self.client_id}#{self._attempts}"
        answer, address = await call_group(
            self.instance,
            broker_name,
            lambda: RemotingCommand(
                code=RequestCode.POP_MESSAGE,
                ext_fields={**fields, "bornTime": str(time.time_ns() // 1_000_000)},
            ),
            topic=topic,
            timeout_ms=poll_ms + self.settings.timeout_ms,
            policy=policy,
            accept=_ANSWERS,
        )
        if answer.code in _FOUND_NOTHING:
            return []
        try:
            popped = self._popped(answer, topic, broker_name)
        except (PopHandleError, RecordError) as error:
            raise MalformedAnswerError(f"pop from {address}: {error}") from error
        tags = frozenset(subscription.tags)
        wanted = [each for each in popped if not tags or matches_tags(each.message, tags)]
        await self._ack_unwanted(each for each in popped if each not in wanted)
        return wanted

    async def ack(self, popped: PoppedMessage) -> None:
        """Acknowledge the message; returns when the broker has stored that."""
        await self._request(RequestCode.ACK_MESSAGE, popped, {})

    async def ack_all(self, popped: Sequence[PoppedMessage]) -> None:
        """Acknowledge messages of one broker group in one request: all of them, or none.

        Raises ValueError where there is none, or they are of several broker groups.
        """
        names = {each.handle.broker_name for each in popped}
        if len(names) != 1:
            raise ValueError(f"one request goes to one broker group, not to {sorted(names)}")
        (broker_name,) = names
        body = batch_ack_body(
            broker_name,
            self._wire_group,
            [
                (self.instance.namespace.wrap(each.message.queue.topic), each.handle)
                for each in popped
            ],
        )
        await call_group(
            self.instance,
            broker_name,
            lambda: RemotingCommand(code=RequestCode.BATCH_ACK_MESSAGE, body=body),
            topic=popped[0].message.queue.topic,
            timeout_ms=self.settings.timeout_ms,
            policy=self.settings.retry,
        )

    async def change_invisible(self, popped: PoppedMessage, invisible_ms: int) -> PoppedMessage:
        """Make the message visible again `invisible_ms` from now; the result replaces `popped`."""
        answer, address = await self._request(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME, popped, {"invisibleTime": str(invisible_ms)}
        )
        try:
            handle = dataclasses.replace(
                popped.handle,
                start_offset=popped.handle.offset,
                pop_ms=int(answer.ext_fields["popTime"]),
                invisible_ms=int(answer.ext_fields["invisibleTime"]),
                revive_queue=int(answer.ext_fields["reviveQid"]),
            )
        except (KeyError, ValueError) as error:
            raise MalformedAnswerError(f"{address}: the answer lacks or garbles {error}") from error
        return dataclasses.replace(popped, handle=handle)

    # Internals.

    async def _ack_unwanted(self, unwanted: Iterable[PoppedMessage]) -> None:
        """Acknowledge the messages, as long as the broker takes it."""
        for each in unwanted:
            try:
                await self.ack(each)
            except ClientError as error:
                # Its time runs out and it comes again, to be acknowledged then. To raise would lose
                # the wanted messages for just as long, and to wait for the rest would delay them.
                _log.info("%s: an unwanted message stays unacknowledged: %s", self.group, error)
                return

    def _subscribe(self, topic: str, expression: str, kind: ExpressionType) -> Subscription:
        """Record the subscription for heartbeats, by which brokers learn of the group. Raises
        ValueError where they refuse the topic's name."""
        known = self._subscriptions.get(topic)
        if known is not None and (known.expression, known.kind) == (expression, kind):
            return known
        self.instance.namespace.check_topic(topic)
        made = Subscription(
            topic=topic, expression=expression, kind=kind, version=time.time_ns() // 1_000_000
        )
        self._subscriptions[topic] = made
        self.instance.set_consumer_groups(
            [
                ConsumerGroup(
                    name=self._wire_group,
                    push=False,
                    message_model=MessageModel.CLUSTERING,
                    consume_from=ConsumeFrom.FIRST,
                    subscriptions=tuple(self._subscriptions.values()),
                )
            ]
        )
        return made

    async def _next_broker(self, topic: str) -> str:
        self.instance.check_running()
        route = await self.instance.routes.route(topic, timeout_ms=self.settings.timeout_ms)
        names = sorted({queue.broker_name for queue in route.read_queues})
        if not names:
            raise NoRouteError(f"topic {topic} has no queue that can be read")
        self._turn = (self._turn + 1) & 0x7FFF_FFFF
        return names[self._turn % len(names)]

    def _popped(self, answer: RemotingCommand, topic: str, broker_name: str) -> list[PoppedMessage]:
        """Pair the answer's records with their handles. Raises PopHandleError, RecordError."""
        answered = PopAnswer(answer.ext_fields, broker_name)
        found = []
        for record in decode_records(answer.body):
            queue = MessageQueue(topic, broker_name, record.queue_id)
            message = delivered_message(record, queue, self.instance.namespace)
            # A record may carry its handle as a property; others get one from the answer's fields.
            own = message.properties.get(PropertyName.POP_CK)
            handle = (
                answered.handle(record.topic, record.queue_id, record.queue_offset)
                if own is None
                else PopHandle.parse(own)
            )
            found.append(PoppedMessage(message=message, handle=handle))
        return found

    async def _request(
        self, code: RequestCode, popped: PoppedMessage, more: Mapping[str, str]
    ) -> tuple[RemotingCommand, str]:
        handle = popped.handle
        topic = popped.message.queue.topic
        fields = {
            "consumerGroup": self._wire_group,
            "topic": handle.topic_read(self.instance.namespace.wrap(topic), self._wire_group),
            "queueId": str(handle.queue_id),
            "extraInfo": handle.text(),
            "offset": str(handle.offset),
            "bname": handle.broker_name,
            **more,
        }
        return await call_group(
            self.instance,
            handle.broker_name,
            lambda: RemotingCommand(code=code, ext_fields=fields),
            topic=topic,
            timeout_ms=self.settings.timeout_ms,
            policy=self.settings.retry,
        )
