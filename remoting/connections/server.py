"""The server of remoting connections.

Place in the data path: brokers and name servers run on it; each request of each connection is
passed to their `on_request`.

Invariants: at most `connections_max` connections at a time and a reserve for operators and members
beyond, both together no more than half of the files that the process may open
(`remoting.connections.admission` decides which are aborted or refused, with a log line); a
connection idle for `idle_timeout_ms` is closed; TLS and PROXY preambles are accepted where
`greeting` says so; unfinished frames take at most about `unfinished_size_max` bytes in all, answers
that peers don't read `unsent_size_max` (the connection with the most is closed); after `stop` no
connection is left.

Source: RocketMQ NettyRemotingServer (120 s idle rule).
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
from collections.abc import Set as AbstractSet
from typing import Final

from remoting.connections.admission import Admission, Place
from remoting.connections.connection import (
    CloseHandler,
    Connection,
    ConnectionLimits,
    ReadTurn,
    RequestHandler,
)
from remoting.connections.greeting import Greeter, Greeting, refuse_plain_text
from remoting.connections.open_files import connections_share
from remoting.protocol.codes import ResponseCode
from remoting.protocol.command import RemotingCommand
from remoting.records.message_id import join_host

__all__ = ["RemotingServer"]

_log = logging.getLogger(__name__)
_BACKLOG = 1024
_RESERVED_OF_A_SMALL_SHARE: Final = 8  # one in so many places, where files are few
_REFUSALS_LOG_S: Final = 1.0


class RemotingServer:
    """Accepts connections and calls `on_request(connection, command)` for each request, and
    `on_close(connection)` once for each connection, both on the event loop; neither may block.

    `reserved_codes`: the requests for which there are `reserved_max` connections beyond
    `connections_max`; where the process may open few files, both are smaller. Sizes are bytes of
    all connections together. The caller starts it once, and stops it.
    """

    def __init__(
        self,
        host: str,
        port: int,
        on_request: RequestHandler,
        on_close: CloseHandler | None = None,
        *,
        connections_max: int = 4096,
        reserved_max: int = 64,
        reserved_codes: AbstractSet[int] = frozenset(),
        idle_timeout_ms: int = 120_000,
        unfinished_size_max: int = 256 << 20,
        unsent_size_max: int = 512 << 20,
        greeting: Greeting | None = None,
        limits: ConnectionLimits | None = None,
        turn: ReadTurn | None = None,
    ) -> None:
        self._turn = turn
        self._greeting = greeting or Greeting()
        self._greeter: Greeter | None = None
        self._listens = False
        self._host = host
        self._port = port
        self._on_request = on_request
        self._on_close = on_close
        reserved_max = reserved_max if reserved_codes else 0
        share = connections_share(connections_max + reserved_max)
        if share < connections_max + reserved_max:
            reserved_max = min(reserved_max, share // _RESERVED_OF_A_SMALL_SHARE)
        self._admission = Admission[Connection](
            connections_max=share - reserved_max,
            reserved_max=reserved_max,
            reserved_codes=reserved_codes,
        )
        self._reserved: dict[Connection, RequestHandler | None] = {}  # -> handler once promoted
        self._refused_count = 0  # since the last log line about it
        self._refused_logged_at = -math.inf
        self._idle_timeout = idle_timeout_ms / 1000
        self._limits = limits or ConnectionLimits()
        self._unfinished_size_max = unfinished_size_max
        self._unfinished_size = 0
        self._unsent_size_max = unsent_size_max
        self._slow: set[Connection] = set()  # those that had much unsent when last checked
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._all_closed = asyncio.Event()

    @property
    def port(self) -> int:
        """The port listened on; after `start` the actual one where 0 was configured."""
        return self._port

    @property
    def address(self) -> str:
        """The "host:port" listened on."""
        return join_host(self._host, self._port)

    @property
    def connections(self) -> frozenset[Connection]:
        """The connections open now."""
        return frozenset(self._connections)

    async def start(self) -> None:
        """Bind and listen. Raises OSError naming the address, e.g. where the port is in use."""
        assert not self._listens, "started twice"
        loop = asyncio.get_running_loop()
        try:
            if self._greeting.is_needed:
                self._listen_with_greeting()
            else:
                self._server = await loop.create_server(
                    self._make_connection, self._host, self._port, backlog=_BACKLOG
                )
                self._port = self._server.sockets[0].getsockname()[1]
        except OSError as error:
            # The loop's own text differs between loops and gives the address as a tuple; that of a
            # host without an address is plain, and its number is one of the resolver's.
            reason = error.strerror or str(error)
            if error.errno and not isinstance(error, socket.gaierror):
                reason = os.strerror(error.errno)
            raise OSError(
                error.errno, f"can't listen on {self.address} for remoting: {reason}"
            ) from error
        self._listens = True
        self._idle_timer = loop.call_later(self._idle_timeout / 4, self._check_idle)

    async def stop(self) -> None:
        """Stop listening, close every connection and wait until `on_close` was called for each.

        What is queued is still sent to peers that read within a second.
        """
        if not self._listens:
            return
        self._listens = False
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._greeter is not None:
            await self._greeter.stop()
            self._greeter = None
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for connection in list(self._connections):
            connection.close()
        if not self._connections:
            return
        self._all_closed.clear()
        try:
            async with asyncio.timeout(1):
                await self._all_closed.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort("the server stops")
            await self._all_closed.wait()

    def _listen_with_greeting(self) -> None:
        listener = socket.create_server(
            (self._host, self._port),
            family=socket.AF_INET6 if ":" in self._host else socket.AF_INET,
            backlog=_BACKLOG,
        )
        listener.setblocking(False)
        self._port = listener.getsockname()[1]
        self._greeter = Greeter(
            [listener],
            self._greeting,
            self._make_connection,
            greetings_max=self._admission.connections_max,
            first_byte_timeout=self._idle_timeout,
        )

    def _make_connection(self, peer: str | None = None, is_refused: bool = False) -> Connection:
        return Connection(
            refuse_plain_text if is_refused else self._on_request,
            self._forget,
            on_open=self._admit,
            on_unfinished=self._note_unfinished,
            on_unsent=self._note_unsent,
            accepted=True,
            peer=peer,
            limits=self._limits,
            turn=self._turn,
        )

    def _admit(self, connection: Connection) -> None:
        self._connections.add(connection)
        if not self._listens:
            connection.abort("the server stops")
            return
        place, evicted = self._admission.admit(connection, asyncio.get_running_loop().time())
        if place is Place.RESERVE:
            # The handler is stored, since it may be the one that refuses plain text.
            self._reserved[connection] = connection.hand_requests_to(self._on_reserved_request)
        if evicted is not None:
            self._log_refusal(evicted, "it asked for nothing, and others want its place")
            evicted.abort("others want its place")
        elif place is Place.NONE:
            self._log_refusal(connection, "no place is left")
            connection.abort("too many connections")

    def _on_reserved_request(self, connection: Connection, command: RemotingCommand) -> None:
        handler = self._reserved[connection]
        if handler is not None and self._admission.takes(connection, command.code):
            handler(connection, command)
        elif not command.is_oneway:
            connection.send(
                command.response(
                    ResponseCode.SYSTEM_BUSY,
                    f"{self._admission.connections_max} connections are open already: only"
                    " operators and members are served on further ones",
                )
            )

    def _log_refusal(self, connection: Connection, why: str) -> None:
        """Log at most one line a second: a flood of connections must not flood the log."""
        self._refused_count += 1
        now = asyncio.get_running_loop().time()
        if now - self._refused_logged_at < _REFUSALS_LOG_S:
            return
        _log.warning(
            "refusing %s: %d connections are open already; %s (%d refused since the last line)",
            connection.peer,
            self._admission.connections_max,
            why,
            self._refused_count,
        )
        self._refused_count = 0
        self._refused_logged_at = now

    def _note_unfinished(self, grown: int) -> None:
        self._unfinished_size += grown
        if grown <= 0 or self._unfinished_size <= self._unfinished_size_max:
            return
        open_ones = [connection for connection in self._connections if not connection.closed]
        if open_ones:  # closed ones release their bytes in this turn or the next
            largest = max(open_ones, key=lambda connection: connection.unfinished_size)
            _log.warning(
                "closing the connection to %s: its unfinished frame holds %d bytes, all of them"
                " together %d",
                largest.peer,
                largest.unfinished_size,
                self._unfinished_size,
            )
            largest.abort("unfinished frames take too much memory")

    def _note_unsent(self, connection: Connection) -> None:
        self._slow.add(connection)
        high = self._limits.write_buffer_size_high
        sizes = {slow: slow.unsent_size for slow in self._slow if not slow.closed}
        self._slow = {slow for slow, size in sizes.items() if size > high}
        total = sum(sizes.values())
        if total > self._unsent_size_max:
            largest = max(sizes, key=lambda slow: sizes[slow])
            _log.warning(
                "closing the connection to %s: %d bytes wait for it, for all slow ones together %d",
                largest.peer,
                sizes[largest],
                total,
            )
            largest.abort("answers that nobody reads take too much memory")

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._reserved.pop(connection, None)
        promoted = self._admission.forget(connection, asyncio.get_running_loop().time())
        if promoted is not None:
            promoted.hand_requests_to(self._reserved.pop(promoted))
        self._slow.discard(connection)
        if not self._connections:
            self._all_closed.set()
        if self._on_close is not None:
            self._on_close(connection)

    def _check_idle(self) -> None:
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(self._idle_timeout / 4, self._check_idle)
        # A process that stood still finds requests in its sockets, and uvloop calls timers before
        # it reads: only the second callback from here runs behind a read of every socket.
        loop.call_soon(loop.call_soon, self._close_idle)

    def _close_idle(self) -> None:
        if not self._listens:  # stopped in between, which closes all
            return
        oldest = asyncio.get_running_loop().time() - self._idle_timeout
        for connection in list(self._connections):
            if connection.last_active >= oldest:
                continue
            if connection.closed:  # the peer has not read what was queued before the close
                connection.abort("idle")
            else:
                _log.info("closing the idle connection to %s", connection.peer)
                connection.close()
