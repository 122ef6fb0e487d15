"""SEND_REPLY_MESSAGE and its V2: the reply to a request that was sent as a message.

Place in the data path: the consumer of a request sends its reply here; it is pushed to the
requesting client (PUSH_REPLY_MESSAGE_TO_CLIENT, to the producer that the property REPLY_TO_CLIENT
names) and stored in the reply topic like any message.

Rules: "sent" means that the requesting client has accepted the reply, whatever became of storing
it; a reply that it has not accepted is refused with 1, RocketMQ's words, and may be stored all the
same. At most `_PUSHES_MAX` pushes are under way. Beyond RocketMQ: a reply that is sent again is
pushed again and stored once, and only the ready leader accepts replies, as it does messages.

Source: RocketMQ ReplyMessageProcessor, Broker2Client.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final

from broker.request.desk import Desk
from broker.request.replica import Replica
from broker.request.request import RefusedError, Request
from broker.request.tasks import TaskOwner
from broker.send.send import SendProcessor
from broker.send.send_names import FULL, LETTERS, SendNames
from remoting.connections.connection import Connection
from remoting.errors import FrameError, RemotingError
from remoting.protocol.codes import RequestCode, ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.properties import PROPERTIES_SIZE_MAX, parse_properties_text, properties_text
from remoting.records.property_names import PropertyName

__all__ = ["ReplyProcessor"]

_PUSHES_MAX: Final = 4_096
_PUSH_TIMEOUT_MS: Final = 10_000


class ReplyProcessor:
    """Handler of replies: pushes each, and stores it as a send would."""

    def __init__(self, replica: Replica, desk: Desk, tasks: TaskOwner, send: SendProcessor) -> None:
        self._replica = replica
        self._desk = desk
        self._tasks = tasks
        self._send = send
        self._push_count = 0

    def handle(self, request: Request) -> None:
        """Push and store the reply. Raises RefusedError where a send would; nothing was pushed
        then."""
        if self._push_count >= _PUSHES_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_BUSY,
                f"[REJECTREQUEST]{self._push_count} replies are being pushed already",
            )
        is_full = request.command.code == RequestCode.SEND_REPLY_MESSAGE
        names = FULL if is_full else LETTERS
        pushed_fields = self._pushed_fields(request, names)
        reply = _Reply(request, is_stored=self._replica.config.store_reply_message_enable)
        if reply.is_stored:
            code = RequestCode.SEND_MESSAGE if is_full else RequestCode.SEND_MESSAGE_V2
            command = dataclasses.replace(request.command, code=code)
            # Not the short way: that one answers the connection, not `reply`.
            self._send.store(_StoreRequest(request.connection, command, reply.on_stored))
        self._push_count += 1
        self._tasks.answer(request, lambda: self._push(request, pushed_fields, reply))

    def _pushed_fields(self, request: Request, names: SendNames) -> dict[str, str]:
        """Build the header of PUSH_REPLY_MESSAGE_TO_CLIENT. Raises RefusedError."""
        now_ms = self._replica.clock_ms()
        fields = {
            "producerGroup": request.fields.get(names.group) or "",
            "topic": request.text(names.topic),
            "defaultTopic": request.fields.get(names.default_topic) or "",
            "defaultTopicQueueNums": str(request.integer_or(names.default_queue_count, 0)),
            "queueId": str(request.integer(names.queue_id)),
            "sysFlag": str(request.integer(names.sys_flag)),
            "bornTimestamp": str(request.integer(names.born)),
            "flag": str(request.integer(names.flag)),
            "reconsumeTimes": str(request.integer_or(names.reconsume, 0)),
            "bornHost": request.connection.peer,
            "storeHost": self._replica.store_address,
            "storeTimestamp": str(now_ms),
        }
        text = request.fields.get(names.properties) or ""
        if len(text) > PROPERTIES_SIZE_MAX:
            raise RefusedError(
                ResponseCode.MESSAGE_ILLEGAL, f"{len(text)} characters of properties"
            )
        properties = parse_properties_text(text)
        properties[PropertyName.PUSH_REPLY_TIME] = str(now_ms)
        return {**fields, "properties": properties_text(properties)}

    async def _push(self, request: Request, fields: dict[str, str], reply: _Reply) -> None:
        try:
            reply.on_pushed(await self._failure_of_push(request, fields))
        finally:
            self._push_count -= 1

    async def _failure_of_push(self, request: Request, fields: dict[str, str]) -> str | None:
        """Push the reply; None once the requesting client has accepted it, else RocketMQ's words
        for the failure."""
        client_id = parse_properties_text(fields["properties"]).get(PropertyName.REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{PropertyName.REPLY_TO_CLIENT}] is null"
        connection = self._desk.clients.producer_named(client_id)
        if connection is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        command = RemotingCommand(
            code=RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            ext_fields=fields,
            body=request.command.body,
        )
        try:
            answer = await connection.request(command, _PUSH_TIMEOUT_MS)
        except FrameError as error:
            return f"push reply message to {client_id} fail: {error}"
        except RemotingError:
            return f"push reply message to {client_id}fail."
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id}fail."
        return None


class _Reply:
    """State of one reply: its sender is answered once the outcomes of push and store are known."""

    __slots__ = ("_failure", "_is_pushed", "_request", "_stored", "is_stored")

    def __init__(self, request: Request, *, is_stored: bool) -> None:
        self._request = request
        self.is_stored = is_stored
        self._is_pushed = False
        self._failure: str | None = None
        # Clients read these fields even where the reply was not stored.
        self._stored: dict[str, str] | None = None
        if not is_stored:
            self._stored = _nowhere()

    def on_stored(self, code: int, fields: dict[str, str] | None) -> None:
        self._stored = fields if code == ResponseCode.SUCCESS and fields else _nowhere()
        self._answer_when_known()

    def on_pushed(self, failure: str | None) -> None:
        self._is_pushed = True
        self._failure = failure
        self._answer_when_known()

    def _answer_when_known(self) -> None:
        if not self._is_pushed or self._request.answered:
            return
        if self._failure is not None:
            self._request.reply(ResponseCode.SYSTEM_ERROR, self._failure)
        elif self._stored is not None:
            self._request.reply(ResponseCode.SUCCESS, None, self._stored)


class _StoreRequest(Request):
    """The send of a reply to its topic; its outcome goes to `on_stored`, not to the connection."""

    __slots__ = ("_on_stored",)

    def __init__(
        self,
        connection: Connection,
        command: RemotingCommand,
        on_stored: Callable[[int, dict[str, str] | None], None],
    ) -> None:
        super().__init__(connection, command)
        self._on_stored = on_stored

    def reply(
        self,
        code: int,
        remark: str | None = None,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        frame: bytes | None = None,
    ) -> None:
        assert not self.answered
        assert frame is None, "the long way answers by fields"
        self.answered = True
        self._on_stored(code, fields)


def _nowhere() -> dict[str, str]:
    """Return RocketMQ's fields for a reply that is not known to be stored."""
    return {"msgId": "0", "queueId": "0", "queueOffset": "0"}
