"""One request on its way through a processor: typed fields in, one answer out.

Place in the data path: `broker.process.server` wraps each incoming command; handlers reject a
request by raising `RefusedError`, and answer it with `reply`. A oneway request is never answered.
An answer that fits no frame becomes a refusal: what clients have sent must not stop a broker.

Sends and replies read their fields here one by one (a send needs nine of twenty, and is counted in
microseconds); every other request comes with its header (`broker.request.row`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from remoting.connections.connection import Connection
from remoting.errors import FrameError, RemotingError
from remoting.protocol.codes import ResponseCode
from remoting.protocol.command import RemotingCommand

__all__ = ["UNFORESEEN", "RefusedError", "Request"]

_log = logging.getLogger(__name__)
_INT64_MAX = (1 << 63) - 1
_REMARK_SIZE_MAX = 4_096  # it may quote the request, which may have 16 MiB
_RETAINED_SIZE_MAX = 4_096
UNFORESEEN: Final = (
    *(ArithmeticError, LookupError, RecursionError, TypeError, ValueError),
    RemotingError,
)
"""What a malformed request, or a stored message that is strange, may raise where no check stands
before it. A broken invariant (AssertionError) or a failed disk (OSError) is none of these."""


class RefusedError(Exception):
    """The request is answered with `code` and `remark`; nothing was stored."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class Request:
    __slots__ = ("account", "answered", "command", "connection", "fields", "permit")

    def __init__(self, connection: Connection, command: RemotingCommand) -> None:
        self.connection = connection
        self.command = command
        self.fields = command.ext_fields
        self.answered = False
        self.account: str | None = None
        """Who asks, where access control has judged it by an account; None: it may do all."""
        self.permit: Callable[[str, bool], None] | None = None

    def require(self, topic: str, *, to_write: bool = False) -> None:
        """Check that the requester may read (or write) a topic that the header does not name.

        Raises RefusedError where access control is on and forbids it.
        """
        if self.permit is not None:
            self.permit(topic, to_write)

    def text(self, name: str) -> str:
        """Return the value of a required field. Raises RefusedError that names the field."""
        value = self.fields.get(name)
        if value is None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"the field {name} is missing")
        return value

    def integer(self, name: str) -> int:
        """Return a required decimal field as a number of 64 bits. Raises RefusedError naming it."""
        value = self.text(name)
        try:
            number = int(value)
        except ValueError:
            number = _INT64_MAX + 1
        if not -_INT64_MAX - 1 <= number <= _INT64_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"the field {name} is {value[:40]!r}, not a number"
            )
        return number

    def integer_or(self, name: str, default: int) -> int:
        return default if self.fields.get(name) is None else self.integer(name)

    def boolean_or(self, name: str, default: bool) -> bool:
        value = self.fields.get(name)
        return default if value is None else value.lower() == "true"

    def shrink(self, *retained: str) -> bool:
        """Release the body and all fields before a long wait; False where `retained`, the texts
        that the handler needs meanwhile, are too long: then the request must not wait."""
        if sum(map(len, retained)) > _RETAINED_SIZE_MAX:
            return False
        self.command.body = b""
        self.fields = self.command.ext_fields = {}
        return True

    def reply(
        self,
        code: int,
        remark: str | None = None,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        frame: bytes | None = None,
    ) -> None:
        """Answer the request. Caller's duty: once only.

        Nothing is sent for a oneway request or over a closed connection. `frame`: the same answer,
        encoded already.
        """
        assert not self.answered, f"request {self.command.opaque} answered twice"
        self.answered = True
        if frame is not None:
            if not self.command.is_oneway:
                self.connection.send_frame(frame)
            return
        if not self.command.is_oneway and not self.connection.closed:
            if remark is not None and len(remark) > _REMARK_SIZE_MAX:
                remark = f"{remark[:_REMARK_SIZE_MAX]}..."
            try:
                self.connection.send(self.command.response(code, remark, fields, body))
            except FrameError as error:  # too large, or text of a stranger that is none
                _log.warning("the answer to %s can't be sent: %s", self.connection.peer, error)
                remark = f"the answer can't be sent: {error}"
                self.connection.send(self.command.response(ResponseCode.SYSTEM_ERROR, remark))

    def refuse(self, refused: RefusedError) -> None:
        self.reply(refused.code, refused.remark)

    def refuse_unforeseen(self, error: Exception) -> None:
        """Answer a request whose handler raised an unexpected error, and log the traceback.

        The broker goes on: a client that got no answer would send the request to the next leader,
        and stop one broker after the other.
        """
        _log.error("request %d of %s", self.command.code, self.connection.peer, exc_info=error)
        if not self.answered:
            self.reply(
                ResponseCode.SYSTEM_ERROR,
                f"request {self.command.code} could not be handled: {type(error).__name__}",
            )
