"""This node's link to one peer: the address to dial, and the messages that wait to be sent.

Place in the data path: `raft.peers.transport` keeps one for each peer, sets what the configuration
says of the peer, and passes it the bytes of messages.

A link leads to the store that the configuration names where any of the peer's two addresses does,
the one of the settings first. Where none does, a connection to another store serves meanwhile (the
known configuration may be an old one), and the named store is dialled beside it now and then: it is
found without having to call.

Invariants: there is at most one connection for sending; a connected store is not dialled again,
since it would close the first connection for the second; the queue is bounded, and dropped with the
connection that it waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from raft.messages import NodeId
from raft.peers.connection import AcceptedConnection, DialledConnection
from raft.peers.handshake import Credentials

__all__ = ["PeerLink", "TransportLimits", "parse_address"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportLimits:
    """Limits of a transport. Times in milliseconds, sizes in bytes."""

    connect_timeout_ms: int = 1_000
    handshake_timeout_ms: int = 1_500
    redial_delay_ms_min: int = 20
    redial_delay_ms_max: int = 500
    named_store_interval_ms: int = 1_000  # between its dials while another store is connected
    write_queue_size_bytes_max: int = 32 << 20
    accepted_count_max: int = 64
    guests_count_max: int = 8
    other_stores_count_max: int = 4  # per name, beside the one that the configuration names


class PeerLink:
    """Link to `peer`. `store_id`: the store that the configuration names for it, "" for any.
    `other_address`: dialled where the first does not lead to that store; "" for none. `is_guest`:
    no configuration names the peer.

    `identity` returns this node's credentials, `on_unreachable` is called when a connection was
    lost or is too slow. `task` is the task of `keep_connected`.
    """

    def __init__(
        self,
        peer: NodeId,
        address: str,
        *,
        identity: Callable[[], Credentials],
        on_unreachable: Callable[[NodeId], None],
        limits: TransportLimits,
        is_guest: bool = False,
    ) -> None:
        """Check the address. Raises ValueError where it is invalid."""
        parse_address(address)
        self.peer = peer
        self.address = address
        self.other_address = ""
        self.store_id = ""
        self.is_guest = is_guest
        self.task: asyncio.Task[None] | None = None
        self.connection: DialledConnection | None = None
        self._identity = identity
        self._on_unreachable = on_unreachable
        self._limits = limits
        self._buffers: list[bytes] = []
        self._buffers_size = 0
        self._dropped_count = 0  # since messages were last accepted
        self._redial = asyncio.Event()
        # By address, as last logged, so that a dead peer is one line and not a flood.
        self._failures: dict[str, str] = {}

    def speaks_for(self, connection: AcceptedConnection | DialledConnection) -> bool:
        """Return whether the other side's store is the one that the configuration names."""
        return not self.store_id or connection.peer_store_id == self.store_id

    def close_if_other(self, reason: str) -> None:
        """Close the connection if it leads to another store."""
        if self.connection is not None and not self.speaks_for(self.connection):
            self.connection.close(reason)

    def redial(self) -> None:
        """Dial now, not after the delay: the peer is up."""
        self._redial.set()

    def end(self, reason: str) -> None:
        if self.task is not None:
            self.task.cancel()
        if self.connection is not None:
            self.connection.close(reason)

    # --- sending -------------------------------------------------------------------------------

    def queue(self, buffers: list[bytes]) -> None:
        """Queue for `flush`. Lost, and counted, where the peer is not connected or too slow."""
        if self.connection is None:
            return
        size = sum([len(buffer) for buffer in buffers])
        queued = self._buffers_size + self.connection.write_buffer_size()
        if queued + size > self._limits.write_queue_size_bytes_max:
            if not self._dropped_count:
                _log.warning("%s reads too slowly: %d bytes wait", self.peer, queued)
                asyncio.get_running_loop().call_soon(self._on_unreachable, self.peer)
            self._dropped_count += 1
            return
        if self._dropped_count:
            _log.warning("%s reads again, %d messages lost", self.peer, self._dropped_count)
            self._dropped_count = 0
        self._buffers += buffers
        self._buffers_size += size

    def flush(self) -> None:
        """Send all that was queued since the last flush in one write."""
        if self._buffers:
            buffers, size = self._buffers, self._buffers_size
            self._buffers, self._buffers_size = [], 0
            if self.connection is not None:
                self.connection.write(buffers, size)

    # --- dialling ------------------------------------------------------------------------------

    async def keep_connected(self) -> None:
        """Dial again and again, and send, until cancelled."""
        limits = self._limits
        delay_ms = limits.redial_delay_ms_min
        while True:
            self._redial.clear()
            connection = await self._dial_store()
            while connection is not None:
                delay_ms = limits.redial_delay_ms_min
                connection = await self._serve(connection)
            try:
                async with asyncio.timeout(delay_ms / 1000):
                    await self._redial.wait()
            except TimeoutError:
                delay_ms = min(2 * delay_ms, limits.redial_delay_ms_max)

    async def _serve(self, connection: DialledConnection) -> DialledConnection | None:
        """Send on it until it closes, or until the returned one to the named store replaces it."""
        if self.speaks_for(connection):
            self._failures.clear()
        self.connection = connection
        _log.info("connected to %s", self.peer)
        better = await self._until_closed(connection)
        if better is not None:
            connection.close("the store that the configuration names answers again")
        self.connection = None
        self._buffers, self._buffers_size = [], 0
        _log.info("connection to %s lost: %s", self.peer, connection.close_reason)
        self._on_unreachable(self.peer)
        return better

    async def _until_closed(self, connection: DialledConnection) -> DialledConnection | None:
        """Wait until it closes, or, where it leads to another store, until a connection to the
        named store is up, and return that."""
        interval_s = self._limits.named_store_interval_ms / 1000
        while connection.close_reason is None and not self.speaks_for(connection):
            try:
                async with asyncio.timeout(interval_s):
                    await connection.wait_closed()
            except TimeoutError:
                better = await self._dial_beside(connection)
                if better is not None and self.speaks_for(better):
                    return better
                if better is not None:
                    better.close("the configuration names another store by now")
        await connection.wait_closed()
        return None

    async def _dial_beside(self, connection: DialledConnection) -> DialledConnection | None:
        """Dial the named store for as long as the other connection is up."""
        if self.speaks_for(connection):
            return None  # the configuration names this one by now
        async with asyncio.TaskGroup() as tasks:
            dial = tasks.create_task(self._dial_named())
            closed = tasks.create_task(connection.wait_closed())
            closed.add_done_callback(lambda _: dial.cancel())
            await asyncio.wait([dial])
            closed.cancel()
        return None if dial.cancelled() else dial.result()

    async def _dial_named(self) -> DialledConnection | None:
        store_id = self.store_id
        for address in (self.address, self.other_address):
            connection = await self.dial(address, store_id) if address else None
            if connection is not None:
                return connection
        return None

    async def _dial_store(self) -> DialledConnection | None:
        """Connect to the store that the configuration names, if either address leads to it; else to
        the one that answers, since the known configuration may be an old one."""
        while True:
            named = self.store_id, self.other_address
            connection = await self._dial_either()
            if connection is None or self.speaks_for(connection):
                return connection
            if named == (self.store_id, self.other_address):
                return connection
            connection.close("the configuration names another store by now")

    async def _dial_either(self) -> DialledConnection | None:
        connection = await self.dial(self.address)
        if not self.other_address or (connection is not None and self.speaks_for(connection)):
            return connection
        # Where one store answers already, only the named one is of use.
        wanted = "" if connection is None else self.store_id
        other = await self.dial(self.other_address, wanted)
        if other is None:
            return connection
        if connection is not None:
            connection.close("another store answers there")
        return other

    async def dial(self, address: str, wanted_store_id: str = "") -> DialledConnection | None:
        """Dial and complete the handshake, or return None with the failure logged.
        `wanted_store_id`: connect to no other store; "" for any."""
        loop = asyncio.get_running_loop()
        limits = self._limits
        host, port = parse_address(address)
        try:
            async with asyncio.timeout(limits.connect_timeout_ms / 1000):
                _, connection = await loop.create_connection(
                    lambda: DialledConnection(
                        self._identity(),
                        self.peer,
                        limits.handshake_timeout_ms,
                        wanted_store_id=wanted_store_id,
                    ),
                    host,
                    port,
                )
        except TimeoutError:
            self._note_failure(address, f"no connection in {limits.connect_timeout_ms} ms")
            return None
        except OSError as error:
            self._note_failure(address, error.strerror or str(error))
            return None
        try:
            ready = await connection.wait_ready()
        except asyncio.CancelledError:
            connection.close("not needed any more")
            raise
        if not ready:
            self._note_failure(address, connection.close_reason or "closed")
            return None
        return connection

    def _note_failure(self, address: str, failure: str) -> None:
        if failure != self._failures.get(address):
            known = {self.address, self.other_address}
            self._failures = {at: reason for at, reason in self._failures.items() if at in known}
            self._failures[address] = failure
            _log.warning("can't reach %s at %s: %s", self.peer, address, failure)


def parse_address(address: str) -> tuple[str, int]:
    """Split "HOST:PORT" (IPv6 hosts in brackets). Raises ValueError naming the address."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"address {address!r} is not HOST:PORT")
    return host, int(port)
