"""Sending a failed message back to the broker, for the group's retry topic or dead letters.

Place in the data path: `client.consume.queue_consumer` passes a failed message in; only a message
that a broker has certainly stored again counts as consumed, every other stays with the consumer and
is delivered again from there.

Invariants: a request whose outcome is unknown is followed by no other, of whatever kind, so that no
second copy comes of it; a copy sent by the client keeps the message's UNIQ_KEY and its count of
attempts, by which the broker chooses between `%RETRY%group` and `%DLQ%group`.

Source: RocketMQ DefaultMQPushConsumerImpl.sendMessageBack (request 36, or else a send to the retry
topic), ConsumeMessageOrderlyService.sendMessageBack. RocketMQ's client sends its copy after any
error, timeouts included.
"""

from __future__ import annotations

import logging
from typing import Final

from client.connection.answers import error_of, error_of_remoting
from client.connection.broker_call import call_group
from client.connection.instance import ClientInstance
from client.connection.send_codec import Compression, PreparedSend, prepare_message, send_status
from client.consume.listener import PushConsumerSettings
from client.errors import ClientError, NoRouteError, RequestNotSupportedError
from client.message import DeliveredMessage, Message, PropertyName
from remoting.errors import RemotingError
from remoting.protocol.codes import RequestCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.group_topics import retry_topic
from remoting.protocol.headers import ConsumerSendMsgBackRequestHeader
from remoting.records import sys_flag

__all__ = ["SendBack"]

_log = logging.getLogger(__name__)

_PAUSE_MS: Final = 60_000
_LEVEL_FIRST: Final = 3  # ten seconds
_LEVEL_MAX: Final = 18
_INNER_GROUP: Final = "CLIENT_INNER_PRODUCER"
_COMPRESSION: Final = sys_flag.COMPRESSED | sys_flag.COMPRESSION_MASK
_DROPPED: Final = frozenset(
    {
        PropertyName.TRAN_MSG,
        PropertyName.UNIQ_KEY,
        PropertyName.TAGS,
        PropertyName.KEYS,
        PropertyName.SHARDING_KEY,
        PropertyName.PGROUP,
        PropertyName.REAL_TOPIC,
        PropertyName.REAL_QUEUE_ID,
        PropertyName.MIN_OFFSET,
        PropertyName.MAX_OFFSET,
        PropertyName.CONSUME_START_TIME,
        PropertyName.MSG_REGION,
        PropertyName.TRACE_ON,
        PropertyName.CLUSTER,
    }
)
"""Properties that are set anew on the copy, or that it must not have."""


class SendBack:
    """Sends messages that a group could not consume back to the broker, for a retry.

    `wire_group` is the group's name at brokers, with its namespace. Where the broker refuses
    CONSUMER_SEND_MSG_BACK, a copy is sent to the group's retry topic; where the outcome is unknown
    none is, since the message may be stored already.
    """

    def __init__(
        self, instance: ClientInstance, wire_group: str, settings: PushConsumerSettings
    ) -> None:
        self._instance = instance
        self._wire_group = wire_group
        self._settings = settings
        self._no_request_until_ms = 0.0

    async def again(self, message: DeliveredMessage) -> bool:
        """Send `message` back for a later retry; False where it is not certainly stored."""
        if self._instance.now_ms() >= self._no_request_until_ms:
            try:
                await self._request(message)
            except RequestNotSupportedError:
                self._no_request_until_ms = self._instance.now_ms() + _PAUSE_MS
            except ClientError as error:
                _log.info("%s was not taken back: %s", message.uniq_key, error)
                # An unknown outcome may have stored the message: a copy could be the second one.
                if not error.definite:
                    return False
            else:
                return True
        return await self._copy(message)

    async def to_dead_letters(self, message: DeliveredMessage) -> bool:
        """Send `message` to the dead letters; False where it is not certainly stored.

        A copy with that many attempts goes to `%DLQ%group`, by the broker's own rule.
        """
        return await self._copy(message)

    async def _request(self, message: DeliveredMessage) -> None:
        """Send CONSUMER_SEND_MSG_BACK. Raises ClientError."""
        queue = message.queue
        fields = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=self._wire_group,
            delay_level=self._settings.retry_delay_level,
            origin_msg_id=message.offset_msg_id,
            origin_topic=self._instance.namespace.wrap(message.topic),
            max_reconsume_times=self._settings.reconsume_limit,
        ).to_ext_fields()
        fields["bname"] = queue.broker_name
        await call_group(
            self._instance,
            queue.broker_name,
            lambda: RemotingCommand(code=RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=fields),
            topic=queue.topic,
            timeout_ms=self._settings.timeout_ms,
            policy=self._settings.retry,
            is_idempotent=False,  # the broker stores a copy for each that it takes
        )

    async def _copy(self, message: DeliveredMessage) -> bool:
        """Store the message again in the group's retry topic; one attempt."""
        try:
            await self._send_copy(message)
        except ClientError as error:
            _log.info("%s is kept here for its retry: %s", message.uniq_key, error)
            return False
        return True

    async def _send_copy(self, message: DeliveredMessage) -> None:
        instance, settings = self._instance, self._settings
        broker_name = message.queue.broker_name
        command = self._prepared(message).command(message.queue)
        command.ext_fields["e"] = "0"  # a retry topic has at least one queue
        leader = instance.routes.leader(broker_name)
        if leader is None or leader.address is None:
            raise NoRouteError(f"no node of broker group {broker_name} is known")
        try:
            answer = await instance.rpc.request(leader.address, command, settings.timeout_ms)
        except RemotingError as error:
            raise error_of_remoting(error, leader.address) from error
        if send_status(answer.code) is None:
            raise error_of(answer.code, answer.remark, leader.address)

    def _prepared(self, message: DeliveredMessage) -> PreparedSend:
        """Prepare the copy. Raises MessageRefusedError."""
        limit, attempts = self._settings.reconsume_limit, message.reconsume_times + 1
        level = self._settings.retry_delay_level or _LEVEL_FIRST + message.reconsume_times
        properties = {
            name: value for name, value in message.properties.items() if name not in _DROPPED
        }
        wire_topic = self._instance.namespace.wrap(message.topic)
        properties.setdefault(PropertyName.RETRY_TOPIC, wire_topic)
        properties.setdefault(PropertyName.ORIGIN_MESSAGE_ID, message.offset_msg_id)
        properties[PropertyName.DELAY] = str(min(level, _LEVEL_MAX))
        copy = Message(
            topic=retry_topic(self._wire_group),
            body=message.body,
            tags=message.tags,
            keys=message.keys,
            shard=message.shard,
            flag=message.flag,
            properties=properties,
            uniq_key=message.uniq_key,
            born_timestamp_ms=message.born_timestamp_ms,
        )
        has_stored_body = message.body_error is not None
        compression = None if has_stored_body else Compression()
        prepared = prepare_message(copy, group=_INNER_GROUP, compression=compression)
        if has_stored_body:  # compressed, for all that is known, and for somebody else to inflate
            prepared.fields["f"] = str(message.sys_flag & _COMPRESSION)
        # At level -1 the message goes to the dead letters whatever its number of attempts.
        prepared.fields["j"] = str(limit + 1 if self._settings.retry_delay_level < 0 else attempts)
        prepared.fields["l"] = str(limit)
        return prepared
