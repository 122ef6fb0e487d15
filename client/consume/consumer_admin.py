"""Requests of administrators, relayed by brokers, to a push consumer: state, reset, one message.

Place in the data path: outside the message path. `mqadmin consumerStatus`, `consumeMessage` by id,
`getConsumerStatus` and RocketMQ 4.9's offset reset reach a member through a broker, over the
connection that carries its heartbeats.

Invariants: a request about another group is refused; a malformed request is answered with what is
wrong with it; a message that is consumed for an administrator is neither committed nor retried.

Source: RocketMQ ClientRemotingProcessor (requests 220, 221, 307, 309), ConsumerRunningInfo,
ConsumeMessageDirectlyResult.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Final, Protocol

import msgspec

from client.connection.heartbeat import Subscription, subscription_data
from client.connection.instance import ClientInstance
from client.consume.listener import ConsumeListener, ConsumeStatus, PushConsumerSettings
from client.consume.queue_consumer import QueueState
from client.delivery import delivered_message
from client.errors import ClientClosedError
from client.listener_guard import ListenerGuard
from client.message import DeliveredMessage, MessageQueue
from remoting.connections.connection import Connection
from remoting.errors import BodyError, RecordError
from remoting.protocol import fastjson
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.queue_table import QueueName, encode_queue_table, parse_queue_name
from remoting.records.message import decode_record

__all__ = ["ConsumerAdmin"]

_log = logging.getLogger(__name__)
_VERSION: Final = "V5_3_3"
_MIB: Final = 1024 * 1024
_DIRECTLY_MAX: Final = 64


class _Offsets(msgspec.Struct):
    offsetTable: dict[str, int] = {}


class _Consumer(Protocol):
    """The part of the push consumer that these requests use."""

    @property
    def settings(self) -> PushConsumerSettings: ...

    @property
    def started_ms(self) -> int: ...

    @property
    def listener(self) -> ConsumeListener: ...

    @property
    def subscriptions(self) -> tuple[Subscription, ...]: ...

    def states(self) -> list[QueueState]: ...

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None: ...


class ConsumerAdmin:
    """Answers administrators for one consumer; `wire_group` is the group's name at brokers."""

    def __init__(self, instance: ClientInstance, wire_group: str, consumer: _Consumer) -> None:
        self._instance = instance
        self._wire_group = wire_group
        self._consumer = consumer
        self._under_way = 0

    def listen(self) -> None:
        """Register the handlers of these requests."""
        instance = self._instance
        instance.listen(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, self._reset)
        instance.listen(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, self._offsets)
        instance.listen(RequestCode.GET_CONSUMER_RUNNING_INFO, self._running_info)
        instance.listen(RequestCode.CONSUME_MESSAGE_DIRECTLY, self._consume)

    # Requests.

    def _reset(self, connection: Connection, command: RemotingCommand) -> None:
        """Handle RESET_CONSUMER_CLIENT_OFFSET; RocketMQ sends it oneway."""
        if not self._is_ours(connection, command, "group"):
            return
        try:
            table = fastjson.decode(command.body, _Offsets).offsetTable
            offsets = {self._queue(key): offset for key, offset in table.items()}
        except BodyError as error:
            _refuse(connection, command, f"offsets to go on at: {error}")
            return
        if any(offset < 0 for offset in offsets.values()):
            _refuse(connection, command, "an offset to go on at is below 0")
            return
        _log.warning("an administrator resets offsets: %s", offsets)
        self._spawn(self._consumer.reset(offsets))
        _answer(connection, command, b"")

    def _offsets(self, connection: Connection, command: RemotingCommand) -> None:
        """Handle GET_CONSUMER_STATUS_FROM_CLIENT: this member's offsets in a topic's queues."""
        if not self._is_ours(connection, command, "group"):
            return
        topic = command.ext_fields.get("topic")
        table = encode_queue_table(
            (self._name(state.queue), state.commit_offset)
            for state in self._consumer.states()
            if self._instance.namespace.wrap(state.queue.topic) == topic
            and state.commit_offset >= 0
        )
        _answer(connection, command, msgspec.json.encode({"messageQueueTable": table}))

    def _running_info(self, connection: Connection, command: RemotingCommand) -> None:
        """Handle GET_CONSUMER_RUNNING_INFO."""
        if not self._is_ours(connection, command, "consumerGroup"):
            return
        consumer, wrap = self._consumer, self._instance.namespace.wrap
        info: dict[str, Any] = {
            "properties": {
                "PROP_NAMESERVER_ADDR": ";".join(self._instance.routes.name_servers),
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
                "PROP_CONSUME_ORDERLY": "true" if consumer.settings.ordered else "false",
                "PROP_CLIENT_VERSION": _VERSION,
                "PROP_CONSUMER_START_TIMESTAMP": str(consumer.started_ms),
            },
            "subscriptionSet": [
                subscription_data(each, wrap(each.topic)) for each in consumer.subscriptions
            ],
            "mqTable": encode_queue_table(
                (self._name(state.queue), _described(state)) for state in consumer.states()
            ),
            "statusTable": {},
            "userConsumerInfo": {},
        }
        _answer(connection, command, msgspec.json.encode(info))

    def _consume(self, connection: Connection, command: RemotingCommand) -> None:
        """Handle CONSUME_MESSAGE_DIRECTLY: deliver one message that an administrator chose."""
        if not self._is_ours(connection, command, "consumerGroup"):
            return
        if self._under_way >= _DIRECTLY_MAX:
            _refuse(connection, command, f"{_DIRECTLY_MAX} messages are consumed so already")
            return
        self._under_way += 1
        self._spawn(self._consume_one(connection, command))

    async def _consume_one(self, connection: Connection, command: RemotingCommand) -> None:
        began = time.monotonic()
        try:
            try:
                message = self._message(command)
            except RecordError as error:
                _refuse(connection, command, f"the message to consume: {error}")
                return
            status = None
            with ListenerGuard("a message that an administrator had consumed") as guard:
                status = await self._consumer.listener([message])
            result = {
                "order": self._consumer.settings.ordered,
                "autoCommit": True,
                "consumeResult": _result(status, failed=guard.failed),
                "spentTimeMills": round((time.monotonic() - began) * 1000),
            }
            _answer(connection, command, msgspec.json.encode(result))
        finally:
            self._under_way -= 1

    # Parts.

    def _is_ours(self, connection: Connection, command: RemotingCommand, field: str) -> bool:
        group = command.ext_fields.get(field)
        if group == self._wire_group:
            return True
        _refuse(connection, command, f"this client is no member of consumer group {group}")
        return False

    def _message(self, command: RemotingCommand) -> DeliveredMessage:
        """Decode the message to consume. Raises RecordError."""
        record = decode_record(command.body)
        topic = self._instance.namespace.unwrap(record.topic)
        queue = MessageQueue(topic, command.ext_fields.get("brokerName", ""), record.queue_id)
        return delivered_message(record, queue, self._instance.namespace)

    def _queue(self, key: str) -> MessageQueue:
        """Parse a queue's name. Raises BodyError."""
        name = parse_queue_name(key)
        return MessageQueue(
            self._instance.namespace.unwrap(name.topic), name.broker_name, name.queue_id
        )

    def _name(self, queue: MessageQueue) -> QueueName:
        topic = self._instance.namespace.wrap(queue.topic)
        return QueueName(queue.broker_name, queue.queue_id, topic)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        with contextlib.suppress(ClientClosedError):  # the client is stopping
            self._instance.scope.spawn(work, "client-asked")


def _described(state: QueueState) -> dict[str, object]:
    """Return RocketMQ's ProcessQueueInfo."""
    return {
        "commitOffset": state.commit_offset,
        "cachedMsgMinOffset": state.commit_offset if state.held else 0,
        "cachedMsgMaxOffset": state.next_offset - 1 if state.held else 0,
        "cachedMsgCount": state.held,
        "cachedMsgSizeInMiB": state.held_bytes // _MIB,
        "locked": state.locked,
        "droped": False,
        "lastPullTimestamp": state.pulled_ms,
        "lastConsumeTimestamp": state.delivered_ms,
    }


def _result(status: ConsumeStatus | None, *, failed: bool) -> str:
    if failed:
        return "CR_THROW_EXCEPTION"
    if status is ConsumeStatus.CONSUME_SUCCESS:
        return "CR_SUCCESS"
    return "CR_RETURN_NULL" if status is None else "CR_LATER"


def _answer(connection: Connection, command: RemotingCommand, body: bytes) -> None:
    if not command.is_oneway and not connection.closed:
        connection.send(command.response(ResponseCode.SUCCESS, body=body))


def _refuse(connection: Connection, command: RemotingCommand, why: str) -> None:
    _log.info("request %d of %s: %s", command.code, connection.peer, why)
    if not command.is_oneway and not connection.closed:
        connection.send(command.response(ResponseCode.SYSTEM_ERROR, why))
