"""One TCP connection between two nodes: handshake first, then Raft frames in one direction.

Place in the data path: `raft.peers.transport` creates one per dialled peer (`DialledConnection`, on
which this node's messages leave) and one per peer that called (`AcceptedConnection`, on which its
messages arrive). Bytes that are no frame, a message in another node's name, a handshake that fails
or takes too long: each closes the connection with a reason.

Invariant: `on_message` is only called with messages whose sender the handshake has proved and whose
receiver is this node.
"""

from __future__ import annotations

import abc
import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import cast

from raft.messages import NodeId, PeerMessage
from raft.peers.handshake import (
    HANDSHAKE_FRAME_SIZE_MAX,
    NONCE_SIZE,
    Acceptor,
    Credentials,
    Dialler,
    HandshakeError,
)
from raft.peers.wire import FRAME_SIZE_BYTES_MAX, FrameReader, WireError, decode_message
from raft.turn import Turn

__all__ = ["AcceptedConnection", "DialledConnection"]

_COPIED_SIZE_BYTES_MAX = 16 << 10  # to copy them costs less than to write from several places
_TCP_USER_TIMEOUT_MS = 5_000  # unacknowledged bytes this old mean that the peer is gone

_log = logging.getLogger(__name__)


class _Connection(asyncio.BufferedProtocol, abc.ABC):
    """Common part of both directions."""

    def __init__(self, handshake: Dialler | Acceptor, timeout_ms: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._handshake = handshake
        self._timeout_ms = timeout_ms
        self._reader = FrameReader(HANDSHAKE_FRAME_SIZE_MAX)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.established = False
        self.close_reason: str | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def peer(self) -> NodeId | None:
        """Name of the other node: claimed, and proved once `established`."""
        return self._handshake.peer

    @property
    def peer_store_id(self) -> str:
        """Store of the other node, as `peer`."""
        return self._handshake.peer_store_id

    @property
    def peer_address(self) -> str:
        """Address at which the other node is dialled, as `peer`."""
        return self._handshake.peer_address

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Both asyncio and uvloop pass a Transport to a stream protocol.
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TCP_USER_TIMEOUT_MS)
        self._timer = self._loop.call_later(self._timeout_ms / 1000, self._on_timeout)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._reader.received(nbytes)
            for frame in frames:
                if self.close_reason is not None:
                    return
                if self.established:
                    self._on_frame(frame)
                else:
                    self._on_handshake_frame(frame)
        except (WireError, HandshakeError) as error:
            self._on_refused(error)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.close_reason is None:
            self.close_reason = str(exc) if exc is not None else "closed by the other side"
        self._cancel_timer()
        self._transport = None
        self._closed.set_result(None)

    async def wait_closed(self) -> None:
        """Wait for the socket to close. `asyncio.wait` leaves the future to others if cancelled."""
        await asyncio.wait([self._closed])

    def close(self, reason: str) -> None:
        """Close at once, without waiting for what is still to be sent."""
        if self.close_reason is None:
            self.close_reason = reason
        if self._transport is not None:
            self._transport.abort()

    def _on_handshake_frame(self, frame: memoryview) -> None:
        assert self._transport is not None
        answer = self._handshake.receive(frame)
        if answer:
            self._transport.write(answer)
        if self._handshake.done:
            self.established = True
            self._reader.size_bytes_max = FRAME_SIZE_BYTES_MAX
            self._cancel_timer()
            self._on_established()

    @abc.abstractmethod
    def _on_established(self) -> None:
        """Start to send or receive messages: the handshake is done."""

    @abc.abstractmethod
    def _on_frame(self, frame: memoryview) -> None:
        """Process a frame after the handshake. Raises WireError for an illegal one."""

    def _on_refused(self, error: WireError | HandshakeError) -> None:
        self.close(str(error))

    def _on_timeout(self) -> None:
        self._on_refused(HandshakeError(f"no handshake within {self._timeout_ms} ms"))

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()


class DialledConnection(_Connection):
    """Carries this node's messages to `peer`; nothing but the handshake comes back."""

    def __init__(
        self, identity: Credentials, peer: NodeId, timeout_ms: int, *, wanted_store_id: str = ""
    ) -> None:
        dialler = Dialler(identity, peer, os.urandom(NONCE_SIZE), wanted_store_id=wanted_store_id)
        super().__init__(dialler, timeout_ms)
        self._ready: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self._transport is not None
        assert isinstance(self._handshake, Dialler)
        self._transport.write(self._handshake.hello())

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self._ready.done():
            self._ready.set_result(None)

    async def wait_ready(self) -> bool:
        """Wait until the handshake is done; False where the connection was closed before."""
        await asyncio.wait([self._ready])
        return self.established

    def write(self, buffers: list[bytes], size_bytes: int) -> None:
        """Write buffers that have so many bytes together."""
        assert self.established
        if self._transport is None:
            return
        if size_bytes <= _COPIED_SIZE_BYTES_MAX:
            self._transport.write(b"".join(buffers))
        else:
            self._transport.writelines(buffers)

    def write_buffer_size(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _on_established(self) -> None:
        self._ready.set_result(None)

    def _on_frame(self, frame: memoryview) -> None:
        raise WireError(f"{len(frame)} bytes on a connection that only sends")


class AcceptedConnection(_Connection):
    """Receives a peer's messages. Refusals are logged here, for an operator to act on."""

    def __init__(
        self,
        identity: Credentials,
        timeout_ms: int,
        *,
        on_established: Callable[[AcceptedConnection], None],
        on_message: Callable[[AcceptedConnection, PeerMessage], None],
        on_closed: Callable[[AcceptedConnection], None],
        turn: Turn | None = None,
    ) -> None:
        super().__init__(Acceptor(identity, os.urandom(NONCE_SIZE)), timeout_ms)
        self._node_id = identity.node_id
        self._on_established_callback = on_established
        self._on_message = on_message
        self._on_closed = on_closed
        self._turn = turn
        self._address = "?"
        self._sender: NodeId | None = None  # once it is proved

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._address = str(transport.get_extra_info("peername"))

    def buffer_updated(self, nbytes: int) -> None:
        turn = self._turn
        if turn is None:
            super().buffer_updated(nbytes)
            return
        turn.enter()
        try:
            super().buffer_updated(nbytes)
        finally:
            turn.leave()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._on_closed(self)

    def _on_established(self) -> None:
        self._sender = self.peer
        self._on_established_callback(self)

    def _on_frame(self, frame: memoryview) -> None:
        message = decode_message(frame)
        if message.sender != self._sender:
            raise WireError(f"sender: {message.sender} on the connection of {self.peer}")
        if message.receiver != self._node_id:
            raise WireError(f"receiver: {message.receiver}, this is {self._node_id}")
        self._on_message(self, message)

    def _on_refused(self, error: WireError | HandshakeError) -> None:
        _log.warning("connection from %s (%s) refused: %s", self._address, self.peer or "?", error)
        if not self.established and self._transport is not None:
            # The refusal tells an honest dialler what is wrong; close() flushes it, abort() not.
            self._transport.write(Acceptor.refusal(HandshakeError(str(error))))
            self.close_reason = str(error)
            self._transport.close()
        else:
            self.close(str(error))
