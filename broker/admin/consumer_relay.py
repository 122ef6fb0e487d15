"""Requests that a broker relays to a connected consumer, whose answer it relays back.

Place in the data path: none; an administrator reaches a consumer through the broker that it is
connected to. The client's code, remark, fields and body are relayed unchanged.

Invariants: at most `_RELAYS_MAX` are in flight, each until its timeout; a consumer that doesn't
answer is reported as 207 (CONSUME_MSG_TIMEOUT), which says nothing about what it did.
Source: RocketMQ AdminBrokerProcessor.callConsumer, Broker2Client.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from broker.request.clients import Client
from broker.request.desk import Desk
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.request.stored_topic import topic_of
from broker.request.tasks import TaskOwner
from remoting.errors import BodyError, RecordError, RemotingError, RequestTimeoutError
from remoting.protocol import fastjson
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.protocol.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from remoting.protocol.queue_table import encode_queue_table, parse_queue_name
from remoting.records.message import decode_record
from remoting.records.message_id import parse_offset_msg_id

__all__ = ["ConsumerRelayProcessor"]

_RELAYS_MAX: Final = 64
_RELAY_TIMEOUT_MS: Final = 10_000
_STATUS_TIMEOUT_MS: Final = 5_000
_STATUS_CLIENTS_MAX: Final = 256
_BODIES_SIZE_MAX: Final = 8 << 20


class _MemberOffsets(msgspec.Struct):
    messageQueueTable: dict[str, int] = {}


class ConsumerRelayProcessor:
    """Requests that consumers answer. Handlers raise RefusedError; else the answer follows."""

    def __init__(self, replica: Replica, desk: Desk, tasks: TaskOwner) -> None:
        self._replica = replica
        self._desk = desk
        self._tasks = tasks
        self._in_flight = 0

    def running_info(self, header: GetConsumerRunningInfoRequestHeader, request: Request) -> None:
        """Relay GET_CONSUMER_RUNNING_INFO."""
        group = header.consumer_group
        client = self._client(group, header.client_id)
        relayed = _copy(request, request.fields, request.command.body)
        self._take_turn()
        self._tasks.answer(request, lambda: self._relay(request, group, client, relayed))

    def consume_directly(
        self, header: ConsumeMessageDirectlyResultRequestHeader, request: Request
    ) -> None:
        """Relay CONSUME_MESSAGE_DIRECTLY with the record that the message id names."""
        group, message_id = header.consumer_group, header.msg_id
        client = self._client(group, header.client_id or "")
        try:
            record = self._replica.committed_record(parse_offset_msg_id(message_id)[2])
        except (LookupError, RecordError) as error:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"no message of the id {message_id[:64]}: {error}"
            ) from error
        request.require(topic_of(decode_record(record, check_crc=False)))
        named = msgspec.structs.replace(header, broker_name=self._replica.config.group)
        relayed = _copy(request, request.fields | named.to_ext_fields(), record)
        self._take_turn()
        self._tasks.answer(request, lambda: self._relay(request, group, client, relayed))

    def consumer_status(self, header: GetConsumerStatusRequestHeader, request: Request) -> None:
        """Answer INVOKE_BROKER_TO_GET_CONSUMER_STATUS with the offsets in a topic that members of
        a group report."""
        topic, group = header.topic, header.group
        members = self._desk.clients.consumers(group)
        if not members:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{group}]",
            )
        wanted = header.client_addr or ""
        chosen = [client for client in members.values() if wanted in {"", client.client_id}]
        if len(chosen) > _STATUS_CLIENTS_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"{len(chosen)} members; name one of them, or ask at most {_STATUS_CLIENTS_MAX}",
            )
        self._take_turn()
        self._tasks.answer(request, lambda: self._status(request, topic, group, chosen))

    # Parts -------------------------------------------------------------------------------------

    def _client(self, group: str, client_id: str) -> Client:
        """Return a connected member of the group. Raises RefusedError."""
        client = self._desk.clients.consumers(group).get(client_id)
        if client is None or client.connection.closed:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        return client

    def _take_turn(self) -> None:
        """Count one more in flight, until `_end_turn`. Raises RefusedError above the limit."""
        if self._in_flight >= _RELAYS_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY, f"{_RELAYS_MAX} consumers are being asked already"
            )
        self._in_flight += 1

    def _end_turn(self) -> None:
        self._in_flight -= 1
        assert self._in_flight >= 0

    async def _relay(
        self, request: Request, group: str, client: Client, relayed: RemotingCommand
    ) -> None:
        try:
            answer = await client.connection.request(relayed, _RELAY_TIMEOUT_MS)
        except RequestTimeoutError as error:
            request.reply(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client.client_id}> Timeout: {error}",
            )
        except RemotingError as error:
            request.reply(
                ResponseCode.SYSTEM_ERROR,
                f"invoke consumer <{group}> <{client.client_id}> Exception: {error}",
            )
        else:
            request.reply(answer.code, answer.remark, answer.ext_fields, answer.body)
        finally:
            self._end_turn()

    async def _status(self, request: Request, topic: str, group: str, chosen: list[Client]) -> None:
        try:
            tables = await asyncio.gather(
                *(self._table_of(client, topic, group) for client in chosen)
            )
        finally:
            self._end_turn()
        table_of_clients = {
            client.client_id: table
            for client, table in zip(chosen, tables, strict=True)
            if table is not None
        }
        body = msgspec.json.encode({"consumerTable": table_of_clients, "messageQueueTable": {}})
        if len(body) > _BODIES_SIZE_MAX:
            request.reply(
                ResponseCode.SYSTEM_ERROR, f"{len(body)} bytes of offsets: name one of the members"
            )
        else:
            request.reply(ResponseCode.SUCCESS, body=body)

    async def _table_of(self, client: Client, topic: str, group: str) -> msgspec.Raw | None:
        """Return the offsets that one member reports, or None if it doesn't: those of the others
        are useful without it."""
        relayed = RemotingCommand(
            code=RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            ext_fields=GetConsumerStatusRequestHeader(topic=topic, group=group).to_ext_fields(),
        )
        try:
            answer = await client.connection.request(relayed, _STATUS_TIMEOUT_MS)
            if answer.code != ResponseCode.SUCCESS:
                return None
            offsets = fastjson.decode_answer(answer.body, _MemberOffsets).messageQueueTable
            return encode_queue_table(
                (parse_queue_name(name), offset) for name, offset in offsets.items()
            )
        except (RemotingError, BodyError):
            return None


def _copy(request: Request, fields: dict[str, str], body: bytes) -> RemotingCommand:
    """Return the request as the client gets it: fields that this broker doesn't know included."""
    return RemotingCommand(code=request.command.code, ext_fields=dict(fields), body=body)
