"""Requests that another application answers: a message out, its reply back.

Place in the data path: a producer's `request` sends a message that names the client and an id; the
consumer of it answers with `reply`, through a broker, which pushes the reply to the requesting
client (PUSH_REPLY_MESSAGE_TO_CLIENT, 326) over the connection of its heartbeats.

Invariants: a reply reaches the one request that has its correlation id, once; a late or second one
is acknowledged to the broker and dropped; waiting requests are bounded. A missing reply says
nothing about the request: it is stored, and may have been carried out.

Source: RocketMQ RequestFutureHolder, MessageUtil.createReplyMessage, ClientRemotingProcessor.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Final

from client.connection.instance import ClientInstance
from client.connection.send_codec import MessageRefusedError
from client.errors import ClientError
from client.message import DeliveredMessage, Message, MessageQueue, PropertyName
from remoting.connections.connection import Connection
from remoting.errors import RecordError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message import decompress_body
from remoting.records.properties import parse_properties_text

__all__ = ["NoReplyError", "Replies", "reply_message"]

_log = logging.getLogger(__name__)

_WAITING_MAX: Final = 10_000
_NOWHERE: Final = -1
_REPLY: Final = "reply"


class NoReplyError(ClientError):
    """The request was stored, and no reply came in time."""

    definite = False


class Replies:
    """The requests of one client that wait for their replies."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self._waiting: dict[str, asyncio.Future[DeliveredMessage]] = {}
        instance.listen(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._take)

    def expect(self) -> tuple[str, asyncio.Future[DeliveredMessage]]:
        """Return a new correlation id and the future of its reply; `forget` the id in the end.

        Raises MessageRefusedError where too many requests wait.
        """
        if len(self._waiting) >= _WAITING_MAX:
            raise MessageRefusedError(f"{_WAITING_MAX} requests wait for their replies already")
        bits = self._instance.random.getrandbits(128)
        correlation_id = str(uuid.UUID(int=bits, version=4))
        future: asyncio.Future[DeliveredMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return correlation_id, future

    def forget(self, correlation_id: str) -> None:
        self._waiting.pop(correlation_id, None)

    def _take(self, connection: Connection, command: RemotingCommand) -> None:
        try:
            reply = self._decoded(connection, command)
        except (KeyError, ValueError, RecordError) as error:
            text = f"the reply can't be read: {error!r}"
            _log.warning("from %s: %s", connection.peer, text)
            if not command.is_oneway:
                connection.send(command.response(ResponseCode.SYSTEM_ERROR, text))
            return
        waiting = self._waiting.get(reply.properties.get(PropertyName.CORRELATION_ID, ""))
        if waiting is None or waiting.done():
            _log.info("the reply %s from %s is too late", reply.uniq_key, connection.peer)
        else:
            waiting.set_result(reply)
        if not command.is_oneway:
            connection.send(command.response(ResponseCode.SUCCESS))

    def _decoded(self, connection: Connection, command: RemotingCommand) -> DeliveredMessage:
        """Decode a pushed reply. Raises KeyError, ValueError and RecordError."""
        fields = command.ext_fields
        properties = parse_properties_text(fields.get("properties", ""))
        flags = int(fields["sysFlag"])
        address = self._instance.address_of(connection)
        broker_name = None if address is None else self._instance.routes.broker_name_of(address)
        topic = self._instance.namespace.unwrap(fields["topic"])
        return DeliveredMessage(
            topic=topic,
            queue=MessageQueue(topic, broker_name or "", int(fields["queueId"])),
            queue_offset=_NOWHERE,
            body=decompress_body(command.body, flags),
            properties=properties,
            uniq_key=properties.get(PropertyName.UNIQ_KEY, ""),
            offset_msg_id="",
            physical_offset=_NOWHERE,
            born_timestamp_ms=int(fields["bornTimestamp"]),
            store_timestamp_ms=int(fields.get("storeTimestamp", _NOWHERE)),
            flag=int(fields["flag"]),
            sys_flag=flags,
            reconsume_times=int(fields.get("reconsumeTimes", 0)),
            prepared_transaction_offset=0,
        )


def reply_message(request: DeliveredMessage, body: bytes) -> Message:
    """Make the reply to a consumed `request`. Raises MessageRefusedError where it is no request."""
    properties = {}
    for name in (PropertyName.CORRELATION_ID, PropertyName.REPLY_TO_CLIENT, PropertyName.CLUSTER):
        value = request.properties.get(name)
        if value is None:
            raise MessageRefusedError(f"message {request.uniq_key} is no request: it has no {name}")
        properties[name] = value
    cluster = properties.pop(PropertyName.CLUSTER)
    properties[PropertyName.MSG_TYPE] = _REPLY
    properties[PropertyName.TTL] = request.properties.get(PropertyName.TTL, "3000")
    return Message(topic=f"{cluster}_REPLY_TOPIC", body=body, properties=properties)
