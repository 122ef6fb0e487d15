"""One client connection of a proxy: its two sockets and the two links between them.

The client is accepted first. Either side may send before the links are connected: the client while
the upstream is being dialled, the upstream between its accept and the end of the dial. The first
read of such a side is held, its reading then pauses, and both sides read on once the links are
connected. A dial that fails closes the client. The end of either side's stream goes through that
direction's toxics and then closes the other socket whole: as in Toxiproxy, a half-close becomes a
full close.

Invariants: a side reads exactly while it neither holds an early read nor is paused by its link;
each `Side` reports its loss once; when both are lost, `on_closed` is called once and no timer of
the connection is left.
"""

import asyncio
import math
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import cast

from toxiproxy.frames.frame_counts import FrameCounts
from toxiproxy.frames.link_frames import LinkFrames, OpenRequests
from toxiproxy.link import Link
from toxiproxy.toxic import Direction, Toxic

__all__ = ["Connection", "Side"]

_WRITE_BUFFER_HIGH = 1024 * 1024
_WRITE_BUFFER_LOW = 256 * 1024
_LINGER_RESET = struct.pack("ii", 1, 0)
_TIMER_S_MAX = 1e8


class LoopTimers:
    """Timers of the running loop on the system's monotonic clock.

    The loop's own clock is not used: uvloop's stands still while a callback runs, and its timers
    count whole milliseconds from there. Times to wait are rounded up, so no timer rings early.
    """

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        """Return seconds of the system's monotonic clock."""
        return time.monotonic()

    def call_at(self, when: float, callback: Callable[[], None]) -> "_Timer":
        """Call back once the clock has reached `when`."""
        return _Timer(self._loop, min(when, time.monotonic() + _TIMER_S_MAX), callback)


class _Timer:
    __slots__ = ("_callback", "_handle", "_loop", "_when")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, when: float, callback: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._when = when
        self._callback = callback
        self._handle = loop.call_later(self._wait_s(), self._ring)

    def cancel(self) -> None:
        self._handle.cancel()

    def _wait_s(self) -> float:
        return max(0.0, math.ceil((self._when - time.monotonic()) * 1000) / 1000)

    def _ring(self) -> None:
        if time.monotonic() + 0.0005 < self._when:
            self._handle = self._loop.call_later(self._wait_s(), self._ring)
        else:
            self._callback()


class Side(asyncio.Protocol):
    """One socket of a connection, and the endpoint that its links use."""

    __slots__ = (
        "_connection",
        "_early",
        "_early_end",
        "_link_full",
        "incoming",
        "lost",
        "outgoing",
        "route",
        "transport",
    )

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._early: list[bytes] = []
        self._early_end = False
        self._link_full = False
        self.transport: asyncio.Transport | None = None
        self.outgoing: Link | None = None
        self.incoming: Link | None = None
        self.route: Callable[[bytes], None] = self._hold_early
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # TCP in either loop implementation
        self.transport.set_write_buffer_limits(high=_WRITE_BUFFER_HIGH, low=_WRITE_BUFFER_LOW)
        self._connection.side_made(self)

    def data_received(self, data: bytes) -> None:
        self.route(data)

    def eof_received(self) -> bool:
        if self.outgoing is None:
            self._early_end = True
        else:
            self.outgoing.finish()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self.outgoing is None:
            self._early_end = True
        else:
            self.outgoing.finish()
        self._connection.side_lost(self)

    def pause_writing(self) -> None:
        if self.incoming is not None:
            self.incoming.destination_full(True)

    def resume_writing(self) -> None:
        if self.incoming is not None:
            self.incoming.destination_full(False)

    def _hold_early(self, data: bytes) -> None:
        """Hold what is read before the links are connected: one read, since reading then pauses.

        Pausing in `connection_made` is not enough: uvloop starts to read after it.
        """
        self._early.append(data)
        self._set_reading()

    def start(self) -> None:
        """Feed what was held to the outgoing link, now connected, then read on.

        Both sides of a connection need this call, since either may have been held.
        """
        assert self.outgoing is not None
        early, self._early = self._early, []
        for data in early:
            self.route(data)
        if self._early_end:
            self.outgoing.finish()
        self._set_reading()

    def write(self, data: bytes) -> None:
        """Queue bytes, unless the socket is going away."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def close(self) -> None:
        """Close once what is queued has been sent."""
        if self.transport is not None:
            self.transport.close()

    def pause(self) -> None:
        """Stop reading: the outgoing link is full."""
        self._link_full = True
        self._set_reading()

    def resume(self) -> None:
        """Resume reading, as far as the outgoing link is concerned."""
        self._link_full = False
        self._set_reading()

    def _set_reading(self) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        if self._link_full or self._early:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def abort(self, *, reset: bool) -> None:
        """Close at once; with a TCP reset if `reset`."""
        if self.transport is None or self.lost:
            return
        if reset:
            raw = self.transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
        self.transport.abort()


class Connection:
    """The two sides and links of one accepted client.

    `number` counts the proxy's connections, `seed` names server seed and proxy; frames are counted
    in `counts`. `on_accepted` is called when the client is accepted: the proxy then dials and calls
    `connected` with the upstream's side or closes the client. `on_closed` is called when nothing of
    the connection is left.
    """

    __slots__ = (
        "_frames",
        "_links",
        "_on_accepted",
        "_on_closed",
        "_seed",
        "client",
        "closing",
        "number",
        "upstream",
    )

    def __init__(
        self,
        *,
        seed: str,
        number: int,
        counts: FrameCounts,
        on_accepted: Callable[["Connection"], None],
        on_closed: Callable[["Connection"], None],
    ) -> None:
        self._seed = f"{seed}/{number}"
        self.number = number
        self._on_accepted = on_accepted
        self._on_closed = on_closed
        self._links: dict[Direction, Link] = {}
        from_client, from_server = OpenRequests(), OpenRequests()
        self._frames = {
            Direction.UPSTREAM: LinkFrames(
                Direction.UPSTREAM, counts, own=from_client, opposite=from_server
            ),
            Direction.DOWNSTREAM: LinkFrames(
                Direction.DOWNSTREAM, counts, own=from_server, opposite=from_client
            ),
        }
        self.client = Side(self)
        self.upstream = Side(self)
        self.closing = False

    def side_made(self, side: Side) -> None:
        """Note that a socket is connected."""
        if side is self.client:
            self._on_accepted(self)

    def side_lost(self, side: Side) -> None:
        """Note that a socket is lost."""
        if self.client.lost and (self.upstream.lost or self.upstream.transport is None):
            for link in self._links.values():
                link.close()
            self._on_closed(self)

    def connected(
        self,
        toxics: dict[Direction, Sequence[Toxic]],
        on_connected: Callable[[], None] | None = None,
    ) -> None:
        """Connect the links to the dialled upstream, call `on_connected`, let the bytes flow.

        Nothing but the upstream's end happens where the client is gone meanwhile.
        """
        if self.closing or self.client.lost or self.client.transport is None:
            self.upstream.abort(reset=False)
            return
        self._tie(Direction.UPSTREAM, self.client, self.upstream, toxics)
        self._tie(Direction.DOWNSTREAM, self.upstream, self.client, toxics)
        if on_connected is not None:
            on_connected()
        self.client.start()
        self.upstream.start()

    def hit_by(self, toxic: Toxic) -> bool:
        """Return whether the toxic is at work on this connection."""
        link = self._links.get(toxic.direction)
        return link is not None and link.hits(toxic.name)

    def abort(self, *, reset: bool = False) -> None:
        """Close both sockets at once; what is queued is dropped."""
        self.closing = True
        for link in self._links.values():
            link.close()
        self.client.abort(reset=reset)
        self.upstream.abort(reset=reset)

    def add(self, toxic: Toxic) -> None:
        """Apply a toxic that was added to the proxy."""
        if toxic.direction in self._links:
            self._links[toxic.direction].add(toxic)

    def update(self, toxic: Toxic) -> None:
        """Apply a change of a toxic of the proxy."""
        if toxic.direction in self._links:
            self._links[toxic.direction].update(toxic)

    def remove(self, toxic: Toxic) -> None:
        """Remove a toxic that was removed from the proxy."""
        if toxic.direction in self._links:
            self._links[toxic.direction].remove(toxic.name)

    def _tie(
        self,
        direction: Direction,
        source: Side,
        destination: Side,
        toxics: dict[Direction, Sequence[Toxic]],
    ) -> None:
        def route(way: Callable[[bytes], None]) -> None:
            source.route = way

        link = Link(
            source=source,
            destination=destination,
            toxics=toxics[direction],
            timers=LoopTimers(asyncio.get_running_loop()),
            seed=f"{self._seed}/{direction}",
            on_reset=lambda: self.abort(reset=True),
            on_route=route,
            frames=self._frames[direction],
        )
        source.outgoing = destination.incoming = link
        self._links[direction] = link
