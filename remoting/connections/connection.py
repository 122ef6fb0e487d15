"""One TCP connection that carries RemotingCommands both ways.

Place in the data path: the thin shell between a socket and `remoting.protocol.frame`;
`remoting.connections.server` makes one per accepted socket, `remoting.connections.rpc` one per
address.

Invariants:
- frames sent within one turn, of the event loop or of the process, leave in one write;
- every request ends once: answered, timed out, or lost with the connection;
- memory is bounded: one unfinished frame, `pending_requests_max` open requests, and
  `write_buffer_size_max` unsent bytes, beyond which the connection is aborted. While more than
  `write_buffer_size_high` bytes are unsent, new requests wait, and an accepted connection neither
  reads nor dispatches requests that were read; a dialled one goes on reading (were both ends to
  stop reading, neither could ever continue);
- an accepted connection dispatches at most `_REQUESTS_PER_TURN_MAX` requests in one turn of the
  loop, and none after `_TURN_S`, so that one client's flood delays neither others nor heartbeats.

Source: RocketMQ NettyRemotingAbstract; an answer carries its request's opaque.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, cast

from remoting.errors import (
    ConnectError,
    ConnectionLostError,
    FrameError,
    OverloadedError,
    RemotingError,
    RequestTimeoutError,
)
from remoting.protocol.codes import ResponseCode
from remoting.protocol.command import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand
from remoting.protocol.frame import FRAME_SIZE_MAX, FrameDecoder, encode_head
from remoting.records.message_id import join_host

__all__ = ["CloseHandler", "Connection", "ConnectionLimits", "ReadTurn", "RequestHandler"]

_log = logging.getLogger(__name__)
_OPAQUE_MASK: Final = 0x7FFF_FFFF
# A body at least this large is passed to the transport as it is instead of being copied.
_BODY_APART_SIZE_MIN: Final = 16_384
_REQUESTS_PER_TURN_MAX: Final = 256
_TURN_S: Final = 0.01

RequestHandler: TypeAlias = Callable[["Connection", RemotingCommand], None]
CloseHandler: TypeAlias = Callable[["Connection"], None]


class ReadTurn(Protocol):
    """What a process does once for all requests of one read (`raft.turn` implements it)."""

    def enter(self) -> None:
        """Begin to pass requests on."""

    def leave(self) -> None:
        """Do what they have asked for."""

    def at_end(self, callback: Callable[[], object]) -> None:
        """Call back when `leave` does that; in the loop's next turn, if there is nothing to
        leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Bounds of one connection, in bytes and counts."""

    frame_size_max: int = FRAME_SIZE_MAX
    pending_requests_max: int = 65_536
    write_buffer_size_high: int = 4 * 1024 * 1024
    """Unsent bytes above which requests wait and an accepted connection is not read from."""
    write_buffer_size_max: int = 64 * 1024 * 1024
    """Unsent bytes above which the connection is aborted."""

    def __post_init__(self) -> None:
        if not 8 <= self.frame_size_max <= FRAME_SIZE_MAX:
            raise ValueError(f"frame_size_max {self.frame_size_max} is outside 8..{FRAME_SIZE_MAX}")
        if self.pending_requests_max < 1:
            raise ValueError("pending_requests_max must be at least 1")
        if not 0 < self.write_buffer_size_high <= self.write_buffer_size_max:
            raise ValueError("write_buffer_size_high must be within 1..write_buffer_size_max")


class Connection(asyncio.Protocol):
    """A connection, made only by this package's server and client.

    `on_request` is called for each request as it is decoded and must not block; it answers with
    `send(command.response(...))`, now or later, unless the request is oneway. `on_close` is called
    exactly once, also for a connection that the server refuses in `on_open`. `on_unfinished` is
    called with the number of bytes by which the unfinished frame grew or shrank, `on_unsent` after
    each write that leaves more than `write_buffer_size_high` bytes unsent.
    """

    def __init__(
        self,
        on_request: RequestHandler | None = None,
        on_close: CloseHandler | None = None,
        *,
        on_open: Callable[[Connection], None] | None = None,
        on_unfinished: Callable[[int], None] | None = None,
        on_unsent: CloseHandler | None = None,
        accepted: bool = False,
        peer: str | None = None,
        limits: ConnectionLimits | None = None,
        turn: ReadTurn | None = None,
    ) -> None:
        self._turn = turn
        self._on_request = on_request
        self._on_close = on_close
        self._on_open = on_open
        self._on_unfinished = on_unfinished
        self._on_unsent = on_unsent
        self._accepted = accepted
        self._limits = limits or ConnectionLimits()
        self._loop = asyncio.get_running_loop()
        self._decoder = FrameDecoder(self._limits.frame_size_max)
        self._transport: asyncio.Transport | None = None
        self._closed = False
        self._close_reason: str | None = None
        self._unsent: list[bytes] = []
        self._unsent_size = 0
        self._flush_is_due = False
        self._is_write_paused = False
        self._is_read_paused = False
        self._read: deque[RemotingCommand] = deque()  # of an accepted one: not dispatched yet
        self._waiting_for_turn: list[asyncio.Future[None]] = []
        self._opaque = 0
        self._pending: dict[int, tuple[asyncio.Future[RemotingCommand], asyncio.TimerHandle]] = {}
        self._announced_peer = peer
        self.peer = peer or "?"
        """Address of the other end, "ip:port"; the client's where a proxy named it by `peer`."""
        self.unfinished_size = 0
        """Bytes held of a frame that is not complete yet."""
        self.has_requested = False
        """Whether a complete frame was ever received."""
        self.last_active = self._loop.time()
        """Loop time, in seconds, at which bytes were last received or a frame was last sent."""

    @property
    def closed(self) -> bool:
        """True once closing has begun, by either end."""
        return self._closed

    @property
    def unsent_size(self) -> int:
        """Bytes that the peer has not taken yet."""
        waiting = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._unsent_size + waiting

    def send(self, command: RemotingCommand) -> None:
        """Queue a frame; does nothing on a closed connection.

        Raises UnencodableError where the command can't be a frame; nothing was sent then.
        """
        if self._closed:
            return
        head = encode_head(command, self._limits.frame_size_max)
        body = command.body
        if len(body) < _BODY_APART_SIZE_MIN:
            self.send_frame(head + body if body else head)
        else:
            self._unsent.append(head)
            self._unsent_size += len(head)
            self.send_frame(body)

    def send_frame(self, frame: bytes) -> None:
        """Queue a frame that is encoded already; does nothing on a closed connection."""
        if self._closed:
            return
        self._unsent.append(frame)
        self._unsent_size += len(frame)
        if self._unsent_size > self._limits.write_buffer_size_high:
            self._flush()
        elif not self._flush_is_due:
            self._flush_is_due = True
            if self._turn is None:
                self._loop.call_soon(self._flush)
            else:
                self._turn.at_end(self._flush)

    async def request(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send a request and await its answer. `command.opaque` is overwritten.

        While the peer takes no more bytes the request waits its turn, within the deadline. Raises
        ConnectError (closed already), OverloadedError (no turn, or too many open) and
        UnencodableError, all definite, and RequestTimeoutError and ConnectionLostError, both
        unknown.
        """
        if self._is_write_paused:
            timeout_ms = await self._wait_for_turn(timeout_ms)
        if self._closed:
            raise ConnectError(f"connection to {self.peer} is closed")
        if len(self._pending) >= self._limits.pending_requests_max:
            raise OverloadedError(f"{len(self._pending)} requests to {self.peer} are open already")
        opaque = (self._opaque + 1) & _OPAQUE_MASK
        while opaque in self._pending:
            opaque = (opaque + 1) & _OPAQUE_MASK
        self._opaque = opaque
        command.opaque = opaque
        self.send(command)
        answer: asyncio.Future[RemotingCommand] = self._loop.create_future()
        timer = self._loop.call_later(
            timeout_ms / 1000, self._expire, opaque, command.code, timeout_ms
        )
        self._pending[opaque] = (answer, timer)
        try:
            return await answer
        finally:
            timer.cancel()
            self._pending.pop(opaque, None)

    def oneway(self, command: RemotingCommand) -> None:
        """Send a request that is never answered. Raises ConnectError where closed, and
        UnencodableError: both definite."""
        if self._closed:
            raise ConnectError(f"connection to {self.peer} is closed")
        self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        command.opaque = self._opaque
        command.flag |= FLAG_ONEWAY
        self.send(command)

    def hand_requests_to(self, on_request: RequestHandler | None) -> RequestHandler | None:
        """Change the request handler, also for read requests that wait; return the one before."""
        before, self._on_request = self._on_request, on_request
        return before

    def close(self) -> None:
        """Send what is queued, then close. Open requests end with ConnectionLostError."""
        if self._transport is None or self._closed:
            return
        self._flush()
        self._close_reason = self._close_reason or "closed here"
        self._closed = True
        self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once and drop unsent bytes; open requests end with `reason`.

        Also ends a `close` that waits for a peer that doesn't read.
        """
        if self._transport is None:
            return
        self._close_reason = self._close_reason or reason
        self._closed = True
        self._unsent.clear()
        self._unsent_size = 0
        self._transport.abort()

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, since uvloop's transports do not derive from asyncio.Transport.
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._limits.write_buffer_size_high)
        self.peer = self._announced_peer or _address_text(transport.get_extra_info("peername"))
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        turn = self._turn
        if turn is None:
            self._receive(data)
            return
        turn.enter()
        try:
            self._receive(data)
        finally:
            turn.leave()

    def _receive(self, data: bytes) -> None:
        self.last_active = self._loop.time()
        try:
            commands = self._decoder.feed(data)
        except FrameError as error:
            _log.warning("closing the connection to %s: %s", self.peer, error)
            self.abort(f"the peer sent no frame: {error}")
            return
        if self._decoder.pending_size != self.unfinished_size:
            self._note_unfinished(self._decoder.pending_size)
        if self._accepted:
            self.has_requested = self.has_requested or bool(commands)
            self._read += commands
            if not self._is_read_paused:
                self._dispatch()
            return
        for command in commands:
            if self._closed:
                return
            self._take(command)

    def pause_writing(self) -> None:
        self._is_write_paused = True
        if self._accepted:
            self._pause_reading()

    def resume_writing(self) -> None:
        self._end_write_pause()
        if self._is_read_paused:
            self._loop.call_soon(self._dispatch)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self._transport = None
        self._end_write_pause()
        self._unsent.clear()
        self._unsent_size = 0
        self._read.clear()
        self._note_unfinished(0)
        reason = self._close_reason or (str(exc) if exc is not None else "closed by the peer")
        pending = list(self._pending.values())
        self._pending.clear()
        for answer, timer in pending:
            timer.cancel()
            self._fail(answer, ConnectionLostError(f"connection to {self.peer} lost: {reason}"))
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close(self)

    # Internals.

    def _dispatch(self) -> None:
        """Dispatch requests in order, as many as a turn allows; then resume reading, or wait."""
        read = self._read
        left = _REQUESTS_PER_TURN_MAX
        end = time.monotonic() + _TURN_S  # the loop's own clock stands still within a turn
        while read and left and not self._is_write_paused and not self._closed:
            left -= 1
            self._take(read.popleft())
            if time.monotonic() > end:
                break
        if self._closed or self._is_write_paused:
            return  # read requests wait for `resume_writing`, or end with the connection
        if read:
            self._pause_reading()
            self._loop.call_soon(self._dispatch)
        elif self._is_read_paused and self._transport is not None:
            self._is_read_paused = False
            self._transport.resume_reading()

    def _pause_reading(self) -> None:
        if not self._is_read_paused and self._transport is not None and not self._closed:
            self._is_read_paused = True
            self._transport.pause_reading()

    def _note_unfinished(self, size: int) -> None:
        grown = size - self.unfinished_size
        self.unfinished_size = size
        if self._on_unfinished is not None:
            self._on_unfinished(grown)

    def _take(self, command: RemotingCommand) -> None:
        if command.flag & FLAG_RESPONSE:
            self._take_answer(command)
        elif self._on_request is not None:
            self._on_request(self, command)
        elif not command.is_oneway:
            self.send(
                command.response(
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    f"request code {command.code} is not supported here",
                )
            )

    async def _wait_for_turn(self, timeout_ms: int) -> int:
        """Wait until the peer takes bytes again; return the time left, in ms."""
        deadline = self._loop.time() + timeout_ms / 1000
        if len(self._waiting_for_turn) >= self._limits.pending_requests_max:
            raise OverloadedError(f"too many requests to {self.peer} wait for their turn")
        try:
            async with asyncio.timeout_at(deadline):
                while self._is_write_paused:
                    turn = self._loop.create_future()
                    self._waiting_for_turn.append(turn)
                    await turn
        except TimeoutError as error:
            raise OverloadedError(
                f"{self.peer} took no bytes for {timeout_ms} ms; the request was not sent"
            ) from error
        return max(1, round((deadline - self._loop.time()) * 1000))

    def _end_write_pause(self) -> None:
        self._is_write_paused = False
        waiting, self._waiting_for_turn = self._waiting_for_turn, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)

    def _flush(self) -> None:
        self._flush_is_due = False
        if not self._unsent or self._closed or self._transport is None:
            return
        parts, self._unsent = self._unsent, []
        self._unsent_size = 0
        self.last_active = self._loop.time()
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)
        waiting = self._transport.get_write_buffer_size()
        if waiting > self._limits.write_buffer_size_max:
            _log.warning("closing the connection to %s: %d bytes unsent", self.peer, waiting)
            self.abort(f"the peer did not read: {waiting} bytes unsent")
        elif waiting > self._limits.write_buffer_size_high and self._on_unsent is not None:
            self._on_unsent(self)

    def _take_answer(self, command: RemotingCommand) -> None:
        entry = self._pending.pop(command.opaque, None)
        if entry is None:  # It came after its deadline, or answers a oneway request.
            return
        answer, timer = entry
        timer.cancel()
        if not answer.done():
            answer.set_result(command)

    def _expire(self, opaque: int, code: int, timeout_ms: int) -> None:
        entry = self._pending.pop(opaque, None)
        if entry is not None:
            self._fail(
                entry[0],
                RequestTimeoutError(
                    f"no answer from {self.peer} to request {code} within {timeout_ms} ms"
                ),
            )

    @staticmethod
    def _fail(answer: asyncio.Future[RemotingCommand], error: RemotingError) -> None:
        if not answer.done():
            answer.set_exception(error)


def _address_text(address: object) -> str:
    """Format an address of asyncio: (ip, port) or (ip, port, flow, scope)."""
    if isinstance(address, tuple) and len(address) >= 2:
        return join_host(str(address[0]), int(address[1]))
    return "?"
