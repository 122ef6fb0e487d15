"""Requests to addresses: keeps one connection per address and opens it where there is none.

Place in the data path: clients, brokers (to name servers) and the laboratory send requests here.

Invariants: one connection per address at a time; requests that wait for the same connection attempt
share its failure; a failure before a connection stands is a ConnectError, definite, since nothing
was sent.

Source: RocketMQ NettyRemotingClient (connect timeout 3 s).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Final

from remoting.connections.connection import (
    CloseHandler,
    Connection,
    ConnectionLimits,
    RequestHandler,
)
from remoting.errors import ConnectError, RecordError
from remoting.protocol.command import RemotingCommand, SerializeType
from remoting.records.message_id import split_host

__all__ = ["CONNECT_TIMEOUT_MS", "RemotingClient"]

CONNECT_TIMEOUT_MS: Final = 3_000
_PEERS_MAX: Final = 4096
_SHUTDOWN_TIMEOUT_S: Final = 1.0


class _Peer:
    """The connection to one address, and its last failure."""

    __slots__ = ("connection", "failure", "failures", "lock")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.lock = asyncio.Lock()
        self.failures = 0
        self.failure = ""


class RemotingClient:
    """Sends requests to addresses; `dial` maps a table address to the one to connect to (a proxy).

    `tls` is the context to connect with; None: plain text. `sign` completes every request that is
    sent through here; `serialize_type` is the encoding of their headers, None: each its own.
    `on_request` handles the requests that peers send over these connections; without it they are
    answered with code 3.
    """

    def __init__(
        self,
        dial: Mapping[str, str] | None = None,
        on_request: RequestHandler | None = None,
        on_close: CloseHandler | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        sign: Callable[[RemotingCommand], None] | None = None,
        limits: ConnectionLimits | None = None,
        serialize_type: SerializeType | None = None,
    ) -> None:
        self._tls = tls
        self._serialize_type = serialize_type
        self._sign = sign
        self._dial = dict(dial or {})
        self._on_request = on_request
        self._on_close = on_close
        self._limits = limits or ConnectionLimits()
        self._peers: dict[str, _Peer] = {}
        self._open: set[Connection] = set()
        self._none_open = asyncio.Event()
        self._closed = False

    async def request(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Send a request to `address`; `timeout_ms` covers connecting and the answer together.

        Raises ConnectError, OverloadedError and UnencodableError (definite), RequestTimeoutError
        and ConnectionLostError (unknown).
        """
        if self._serialize_type is not None:
            command.serialize_type = self._serialize_type
        if self._sign is not None:
            self._sign(command)
        peer = self._peers.get(address)
        if peer is not None and (connection := peer.connection) and not connection.closed:
            return await connection.request(command, timeout_ms)
        loop = asyncio.get_running_loop()
        began = loop.time()
        connection = await self.connect(address, timeout_ms)
        left_ms = timeout_ms - round((loop.time() - began) * 1000)
        if left_ms <= 0:
            raise ConnectError(f"no time was left after dialling {address}")
        return await connection.request(command, left_ms)

    async def oneway(
        self, address: str, command: RemotingCommand, timeout_ms: int = CONNECT_TIMEOUT_MS
    ) -> None:
        """Send without awaiting an answer, connecting first where needed.

        Raises ConnectError and UnencodableError (definite).
        """
        if self._serialize_type is not None:
            command.serialize_type = self._serialize_type
        if self._sign is not None:
            self._sign(command)
        (await self.connect(address, timeout_ms)).oneway(command)

    async def connect(self, address: str, timeout_ms: int = CONNECT_TIMEOUT_MS) -> Connection:
        """Return the connection to `address`, opened where there is none. Raises ConnectError."""
        peer = self._peer(address)
        failures_seen = peer.failures
        try:
            async with asyncio.timeout(min(timeout_ms, CONNECT_TIMEOUT_MS) / 1000), peer.lock:
                if peer.connection is not None and not peer.connection.closed:
                    return peer.connection
                if peer.failures != failures_seen:  # the attempt that this one waited for failed
                    raise ConnectError(peer.failure)
                return await self._dial_peer(address, peer)
        except TimeoutError as error:
            peer.failures += 1
            peer.failure = f"dialling {self._target_text(address)} took too long"
            raise ConnectError(peer.failure) from error

    def connection(self, address: str) -> Connection | None:
        """Return the open connection to `address`, if there is one."""
        peer = self._peers.get(address)
        if peer is None or peer.connection is None or peer.connection.closed:
            return None
        return peer.connection

    async def close(self) -> None:
        """Close every connection and wait until `on_close` was called for each."""
        self._closed = True
        for connection in list(self._open):
            connection.close()
        if not self._open:
            return
        self._none_open.clear()
        try:
            async with asyncio.timeout(1):
                await self._none_open.wait()
        except TimeoutError:
            for connection in list(self._open):
                connection.abort("the client stops")
            await self._none_open.wait()

    def _peer(self, address: str) -> _Peer:
        if self._closed:
            raise ConnectError("the client is closed")
        peer = self._peers.get(address)
        if peer is None:
            if len(self._peers) >= _PEERS_MAX:
                self._forget_unused_peers()
            peer = self._peers[address] = _Peer()
        return peer

    def _forget_unused_peers(self) -> None:
        unused = [
            address
            for address, peer in self._peers.items()
            if not peer.lock.locked() and (peer.connection is None or peer.connection.closed)
        ]
        for address in unused:
            del self._peers[address]
        if len(self._peers) >= _PEERS_MAX:
            raise ConnectError(f"connections to {_PEERS_MAX} addresses are open already")

    def _target_text(self, address: str) -> str:
        target = self._dial.get(address, address)
        return address if target == address else f"{address} (through {target})"

    async def _dial_peer(self, address: str, peer: _Peer) -> Connection:
        loop = asyncio.get_running_loop()
        connection = self._make_connection()
        try:
            host, port = split_host(self._dial.get(address, address))
            if self._tls is None:
                await loop.create_connection(lambda: connection, host, port)
            else:
                await loop.create_connection(
                    lambda: connection,
                    host,
                    port,
                    ssl=self._tls,
                    ssl_handshake_timeout=CONNECT_TIMEOUT_MS / 1000,
                    ssl_shutdown_timeout=_SHUTDOWN_TIMEOUT_S,
                )
        except (OSError, RecordError) as error:
            peer.failures += 1
            peer.failure = f"can't connect to {self._target_text(address)}: {error}"
            raise ConnectError(peer.failure) from error
        except asyncio.CancelledError:
            # uvloop closes the transport of a cancelled attempt and does not notify an opened
            # protocol.
            if connection in self._open:
                connection.connection_lost(None)
            raise
        if self._closed:
            connection.abort("the client stops")
            raise ConnectError("the client is closed")
        peer.connection = connection
        return connection

    def _make_connection(self) -> Connection:
        return Connection(
            self._on_request, self._forget, on_open=self._open.add, limits=self._limits
        )

    def _forget(self, connection: Connection) -> None:
        self._open.discard(connection)
        if not self._open:
            self._none_open.set()
        if self._on_close is not None:
            self._on_close(connection)
