"""The first bytes of a connection on a port that accepts TLS or PROXY preambles.

Place in the data path: used by `remoting.connections.server` in place of the loop's own listening
when either is on. The first byte decides and is only peeked at: 0x16 starts a TLS handshake, `P` or
CR a preamble, anything else is plain text. After that it is an ordinary `Connection`.

Invariants: at most `greetings_max` connections are in this phase; a silent one is closed after
`first_byte_timeout`, one that has started gets `_BEGIN_TIMEOUT_S` for its preamble and as long for
its handshake; a preamble is accepted only from the configured networks; plain text on an enforcing
port is answered with a refusal and closed; a connection that fails is closed with a line in the
log, and nothing else ends with it.

Source: RocketMQ NettyRemotingServer (HandshakeHandler, TlsModeHandler).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from remoting.connections.connection import Connection
from remoting.connections.proxy_preamble import (
    PREAMBLE_SIZE_MAX,
    PreambleError,
    ProxyPreamble,
    begins_preamble,
)
from remoting.connections.tls import ServerTls
from remoting.protocol.codes import ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message_id import join_host

__all__ = ["Greeter", "Greeting", "parse_networks", "refuse_plain_text"]

_log = logging.getLogger(__name__)
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_BEGIN_TIMEOUT_S: Final = 5.0
_SHUTDOWN_TIMEOUT_S: Final = 1.0
_TLS_HANDSHAKE: Final = 0x16
_OUT_OF_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """Settings of a port before frames. `proxies`: networks whose preambles it accepts."""

    tls: ServerTls | None = None
    proxies: tuple[_Network, ...] = ()

    @property
    def is_needed(self) -> bool:
        return self.tls is not None or bool(self.proxies)


def parse_networks(texts: tuple[str, ...]) -> tuple[_Network, ...]:
    """Parse addresses or networks ("10.0.0.0/8"). Raises ValueError naming the invalid one."""
    return tuple(ipaddress.ip_network(text) for text in texts)


def refuse_plain_text(connection: Connection, command: RemotingCommand) -> None:
    """Refuse a request and close; the handler for plain text where a port takes TLS only."""
    if not command.is_oneway:
        connection.send(
            command.response(ResponseCode.NO_PERMISSION, "this port takes TLS connections only")
        )
    connection.close()


class Greeter:
    """Accepts on `listeners`, which are bound and listen, until `stop`.

    `make_connection(peer, is_refused)` makes the protocol: `peer` is the source that a preamble
    names, and `is_refused` is true for plain text where it is not accepted.
    """

    def __init__(
        self,
        listeners: list[socket.socket],
        greeting: Greeting,
        make_connection: Callable[[str | None, bool], Connection],
        *,
        greetings_max: int,
        first_byte_timeout: float,
    ) -> None:
        self._listeners = listeners
        self._greeting = greeting
        self._make_connection = make_connection
        self._greetings_max = greetings_max
        self._first_byte_timeout = first_byte_timeout
        self._loop = asyncio.get_running_loop()
        self._greeted: dict[asyncio.Task[None], None] = {}  # oldest first
        self._accepting = [self._loop.create_task(self._accept(listener)) for listener in listeners]

    async def stop(self) -> None:
        """Stop accepting, and close the connections that are still in this phase."""
        tasks = [*self._accepting, *self._greeted]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self._listeners:
            listener.close()

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                accepted, address = await self._loop.sock_accept(listener)
            except OSError as error:
                if error.errno in _OUT_OF_FILES:
                    _log.warning("can't accept connections: %s", error)
                    await asyncio.sleep(1)
                continue  # the peer closed before it was accepted
            peer = join_host(str(address[0]), int(address[1]))
            if len(self._greeted) >= self._greetings_max:
                # Silent connections keep nobody out.
                oldest = next(iter(self._greeted))
                del self._greeted[oldest]
                _log.warning(
                    "ending the oldest of %d connections that begin, for %s",
                    self._greetings_max,
                    peer,
                )
                oldest.cancel()
            accepted.setblocking(False)
            task = self._loop.create_task(self._greet(accepted, peer))
            self._greeted[task] = None
            task.add_done_callback(lambda done: self._greeted.pop(done, None))

    async def _greet(self, accepted: socket.socket, peer: str) -> None:
        """Make a connection of an accepted socket; the socket is closed where that fails."""
        handed_over = False
        try:
            first = await self._first_byte(accepted, self._first_byte_timeout)
            announced: str | None = None
            if first is not None and begins_preamble(first):
                async with asyncio.timeout(_BEGIN_TIMEOUT_S):
                    announced = await self._preamble(accepted, peer)
                    first = await self._first_byte(accepted, self._first_byte_timeout)
            if first is None:
                return  # it closed, or sent nothing
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            handed_over = True
            await self._connect(accepted, peer, announced, is_tls=first == _TLS_HANDSHAKE)
        except TimeoutError:
            _log.warning("closing the connection to %s: it took too long to begin", peer)
        except PreambleError as error:
            _log.warning("closing the connection to %s: %s", peer, error)
        except OSError as error:  # SSLError is one
            _log.warning("closing the connection to %s: %s", peer, error)
        finally:
            if not handed_over:
                accepted.close()

    async def _connect(
        self, accepted: socket.socket, peer: str, announced: str | None, *, is_tls: bool
    ) -> None:
        tls = self._greeting.tls
        if is_tls and tls is not None:
            try:
                await self._loop.connect_accepted_socket(
                    lambda: self._make_connection(announced, False),
                    accepted,
                    ssl=tls.context,
                    ssl_handshake_timeout=_BEGIN_TIMEOUT_S,
                    ssl_shutdown_timeout=_SHUTDOWN_TIMEOUT_S,
                )
            except (ssl.SSLError, ConnectionError) as error:
                # A peer that rejects our certificate often just closes, without an alert.
                why = str(error) or "ended by the other side"
                _log.warning("refusing %s: its TLS handshake failed: %s", announced or peer, why)
            return
        is_refused = tls is not None and tls.is_enforcing
        if is_refused:
            _log.warning("refusing %s: plain text, and this port takes TLS only", announced or peer)
        await self._loop.connect_accepted_socket(
            lambda: self._make_connection(announced, is_refused), accepted
        )

    async def _preamble(self, accepted: socket.socket, peer: str) -> str | None:
        """Read a preamble, exactly its bytes, and return the source that it names."""
        self._check_trusted(peer)
        preamble = ProxyPreamble()
        while not preamble.is_complete:
            await self._readable(accepted)
            seen = accepted.recv(PREAMBLE_SIZE_MAX, socket.MSG_PEEK)
            if not seen:
                raise PreambleError("closed within its PROXY preamble")
            accepted.recv(preamble.take(seen))
        return preamble.source

    def _check_trusted(self, peer: str) -> None:
        """Raise PreambleError for an untrusted peer: it could name any address as its own."""
        host = peer.rpartition(":")[0].strip("[]").partition("%")[0]
        address = ipaddress.ip_address(host)
        mapped = getattr(address, "ipv4_mapped", None)
        if not any((mapped or address) in network for network in self._greeting.proxies):
            raise PreambleError("a PROXY preamble is not taken from there")

    async def _first_byte(self, accepted: socket.socket, wait_s: float) -> int | None:
        """Peek at the first byte without consuming it; None on timeout or EOF."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._readable(accepted)
                seen = accepted.recv(1, socket.MSG_PEEK)
                return seen[0] if seen else None
        return None

    async def _readable(self, accepted: socket.socket) -> None:
        """Wait until there are bytes, or EOF."""
        ready = self._loop.create_future()
        number = accepted.fileno()
        self._loop.add_reader(number, _set, ready)
        try:
            await ready
        finally:
            self._loop.remove_reader(number)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
