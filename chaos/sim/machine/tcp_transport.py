"""The two ends of a simulated connection, and the listener for new ones.

Place in the data path: the product's protocols (`remoting.connections.connection`,
`raft.peers.connection`) write to and are fed by these transports; `chaos.sim.machine.tcp` carries
the bytes between them.

Invariants: `connection_made` comes before anything else and `connection_lost` exactly once after
it; bytes that arrive while reading is paused, or before the protocol knows of the connection, wait
in order.

Source: asyncio.Transport; its contract with protocols.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

from chaos.sim.machine.current_process import ProcessLoop

__all__ = ["Address", "Carrier", "SimServer", "SimTransport"]

Address: TypeAlias = tuple[str, int]


class Carrier(Protocol):
    """Carries bytes from one end to the other; `chaos.sim.machine.tcp.SimTcp` implements it."""

    def transmit(self, sender: SimTransport, data: bytes | None) -> None:
        """Carry bytes, or None for the end of them."""

    def send_reset(self, sender: SimTransport) -> None: ...

    def forget(self, transport: SimTransport) -> None: ...

    def stop_listening(self, server: SimServer) -> None: ...

    def is_listening(self, server: SimServer) -> bool: ...


class _Socket:
    """The socket interface that the product uses of a transport."""

    __slots__ = ("_name",)

    def __init__(self, name: Address) -> None:
        self._name = name

    def setsockopt(self, *_: object) -> None:
        """Do nothing: options have no effect here."""

    def getsockname(self) -> Address:
        return self._name


class SimServer(asyncio.AbstractServer):
    """A listener; connections that it accepted outlive it."""

    def __init__(
        self,
        tcp: Carrier,
        loop: ProcessLoop,
        factory: Callable[[], asyncio.BaseProtocol],
        address: Address,
    ) -> None:
        self._tcp = tcp
        self.loop = loop
        self.factory = factory
        self.address = address
        self.sockets = (_Socket(address),)

    def close(self) -> None:
        self._tcp.stop_listening(self)

    async def wait_closed(self) -> None:
        """Return at once: there is nothing to wait for."""

    def get_loop(self) -> ProcessLoop:
        return self.loop

    def is_serving(self) -> bool:
        return self._tcp.is_listening(self)

    async def start_serving(self) -> None:
        """Do nothing: it serves from the start."""

    async def serve_forever(self) -> None:
        """Wait until cancelled."""
        await self.loop.create_future()


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self, tcp: Carrier, loop: ProcessLoop, own: Address, peer: Address, peer_host: str
    ) -> None:
        super().__init__()
        self._tcp = tcp
        self.loop = loop
        self._own = own
        self._peer_address = peer
        self.peer_host = peer_host
        self.peer: SimTransport | None = None
        self.protocol: asyncio.BaseProtocol | None = None
        self._closing = False
        self.lost = False  # connection_lost has been called, or is about to be
        self.connected = False  # the protocol knows of it
        self._reading = True
        self._unread: deque[bytes | None] = deque()  # None: the other side has closed
        self.arrival_us = 0  # of the last bytes sent

    @property
    def name(self) -> str:
        """Both ports, for a trace."""
        return f"{self._own[1]}->{self._peer_address[1]}"

    @property
    def own_address(self) -> Address:
        return self._own

    @property
    def has_unread(self) -> bool:
        """Whether bytes have arrived that the process has not read yet."""
        return bool(self._unread)

    # --- interface of the product --------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        match name:
            case "peername":
                return self._peer_address
            case "sockname":
                return self._own
            case "socket":
                return _Socket(self._own)
            case _:
                return default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self.protocol is not None
        return self.protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self.lost or self.loop.dead:
            return
        self._tcp.transmit(self, bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: kernel buffers are unbounded here."""

    def is_closing(self) -> bool:
        return self._closing or self.lost

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.loop.call_soon(self._read_on)

    def close(self) -> None:
        """Send what was written, then FIN."""
        if self._closing or self.lost:
            return
        self._closing = True
        self._tcp.transmit(self, None)
        self.lose(None)

    def abort(self) -> None:
        if self.lost:
            return
        self._closing = True
        self._tcp.send_reset(self)
        self.lose(None)

    # --- interface of the network --------------------------------------------------------------

    def open(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol
        self.connected = True
        protocol.connection_made(self)
        self._read_on()

    def lose(self, error: Exception | None) -> None:
        """End the connection on this side."""
        if self.lost:
            return
        self.lost = True
        self._tcp.forget(self)
        self.loop.call_soon(self._notify_lost, error)

    def _notify_lost(self, error: Exception | None) -> None:
        if self.connected:
            assert self.protocol is not None
            self.protocol.connection_lost(error)

    def arrive(self, data: bytes | None) -> None:
        """Take bytes into the kernel of this machine; the process reads them in its turn."""
        if not self.lost and not self.loop.dead:
            self._unread.append(data)
            self.loop.post(self._read_on)

    def _read_on(self) -> None:
        while self._unread and self._reading and self.connected and not self.lost:
            data = self._unread.popleft()
            if data is None:
                self._on_eof()
            else:
                self._feed(data)

    def _on_eof(self) -> None:
        assert self.protocol is not None
        keeps_open = False
        if isinstance(self.protocol, asyncio.Protocol | asyncio.BufferedProtocol):
            keeps_open = bool(self.protocol.eof_received())
        if not keeps_open:
            self.close()

    def _feed(self, data: bytes) -> None:
        protocol = self.protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            view = memoryview(data)
            while view and not self.lost:
                buffer = memoryview(protocol.get_buffer(len(view)))
                size = min(len(buffer), len(view))
                buffer[:size] = view[:size]
                view = view[size:]
                protocol.buffer_updated(size)
        else:
            assert isinstance(protocol, asyncio.Protocol)
            protocol.data_received(data)
