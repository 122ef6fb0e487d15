"""One proxy: a listener, its live connections, and the toxics that hit them.

`listen` is shown as given while the proxy is disabled and as resolved once it listens. Each
accepted client is dialled for on its own, so a slow upstream holds up nobody else. Disabling drops
every connection; the toxics stay. Source: Toxiproxy 2.12.

Invariants: `enabled` is true exactly while the listener is open; a toxic's name is unique over both
directions; every live connection carries the toxics in the order in which they were added.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from toxiproxy.address import BACKLOG, AddressError, bind, format_address, parse_listen, resolve
from toxiproxy.connection import Connection, Side
from toxiproxy.errors import ApiError
from toxiproxy.event_log import EventLog
from toxiproxy.frames.frame_counts import FrameCounts
from toxiproxy.toxic import Direction, Toxic
from toxiproxy.toxics import TOXIC_TYPES, FrameStage

__all__ = ["Proxy"]

_DIAL_TIMEOUT_S = 60.0
_CONNECTIONS_MAX = 10_000

logger = logging.getLogger(__name__)


class Proxy:
    """A named listener in front of one upstream.

    `tasks` outlives the proxy and runs its dials; `seed` is the server's.
    """

    def __init__(
        self, *, name: str, listen: str, upstream: str, seed: int, tasks: asyncio.TaskGroup
    ) -> None:
        self.name = name
        self.listen = listen
        self.upstream = upstream
        self.enabled = False
        self._seed = seed
        self._tasks = tasks
        self._toxics: dict[Direction, list[Toxic]] = {direction: [] for direction in Direction}
        self._server: asyncio.Server | None = None
        self._connections: dict[Connection, asyncio.Task[None] | None] = {}
        self._accepted_count = 0
        self.frames = FrameCounts(self._untouched)
        self.events = EventLog(lambda: time.time_ns() // 1_000_000)

    @property
    def toxics(self) -> list[Toxic]:
        """The toxics, upstream chain first, then downstream, each in the order of adding."""
        return [*self._toxics[Direction.UPSTREAM], *self._toxics[Direction.DOWNSTREAM]]

    def to_json(self) -> dict[str, object]:
        """Return members in Toxiproxy's order, its empty `Logger` included."""
        return {
            "name": self.name,
            "listen": self.listen,
            "upstream": self.upstream,
            "enabled": self.enabled,
            "Logger": {},
            "toxics": [toxic.to_json() for toxic in self.toxics],
        }

    async def start(self) -> None:
        """Listen; raises ApiError 500 where the address can't be bound, 409 if it listens."""
        if self.enabled:
            raise ApiError(409, "Proxy already started")
        try:
            address = await resolve(self.listen)
        except AddressError as error:
            raise ApiError(500, f"listen tcp: {error}") from None
        try:
            listener, bound = bind(address)
        except AddressError as error:
            raise ApiError(500, str(error)) from None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, sock=listener, backlog=BACKLOG)
        self.listen = format_address(bound)
        self.enabled = True
        self.events.note("enabled", listen=self.listen, upstream=self.upstream)

    def stop(self) -> None:
        """Close the listener and drop every connection; without effect on a disabled proxy."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self.enabled:
            self.events.note("disabled", dropped=len(self._connections))
        self.enabled = False
        for connection, dial in list(self._connections.items()):
            if dial is not None:
                dial.cancel()
            connection.abort()

    async def update(self, *, listen: str, upstream: str, enabled: bool) -> None:
        """Change the proxy; a changed address drops its connections.

        Raises ApiError 500: before anything changed where `listen` is no address, with the proxy
        disabled under the new address where it can't be bound.
        """
        if await self.differs(listen=listen, upstream=upstream):
            self.stop()
            self.listen = listen
            self.upstream = upstream
        if enabled and not self.enabled:
            await self.start()
        elif not enabled:
            self.stop()

    async def differs(self, *, listen: str, upstream: str) -> bool:
        """Return whether the proxy has other addresses; raises ApiError 500 for a bad `listen`.

        A disabled proxy shows its listen text unresolved, so a name in it always differs.
        """
        resolved = await self._resolved(listen)
        return self.upstream != upstream or self.listen != resolved

    def toxic(self, name: str) -> Toxic:
        """Return the toxic of that name; raises ApiError 404."""
        for toxic in self.toxics:
            if toxic.name == name:
                return toxic
        raise ApiError(404, "toxic not found")

    def has_toxic(self, name: str) -> bool:
        """Return whether a toxic of that name exists, in either direction."""
        return any(toxic.name == name for toxic in self.toxics)

    def add_toxic(self, toxic: Toxic) -> None:
        """Add a toxic whose name is free, to live connections too."""
        assert not self.has_toxic(toxic.name)
        if issubclass(TOXIC_TYPES[toxic.type_name], FrameStage):
            self.frames.begin(toxic.name, toxic.type_name, toxic.direction)
        self._toxics[toxic.direction].append(toxic)
        self._on_all(lambda connection: connection.add(toxic))
        self._note_toxic("toxic added", toxic)

    def update_toxic(self, toxic: Toxic) -> None:
        """Replace the toxic of that name by this one of the same kind and direction."""
        chain = self._toxics[toxic.direction]
        chain[chain.index(self.toxic(toxic.name))] = toxic
        self._on_all(lambda connection: connection.update(toxic))
        self._note_toxic("toxic updated", toxic)

    def remove_toxic(self, name: str) -> None:
        """Remove a toxic, from live connections too; raises ApiError 404."""
        toxic = self.toxic(name)
        self._note_toxic("toxic removed", toxic)
        self._toxics[toxic.direction].remove(toxic)
        self._on_all(lambda connection: connection.remove(toxic))

    def remove_all_toxics(self) -> None:
        """Remove every toxic."""
        for toxic in self.toxics:
            self.remove_toxic(toxic.name)

    async def _resolved(self, listen: str) -> str:
        try:
            parse_listen(listen)
            return format_address(await resolve(listen))
        except AddressError as error:
            raise ApiError(500, str(error)) from None

    def _note_connected(self, connection: Connection) -> None:
        hit = [toxic.name for toxic in self.toxics if connection.hit_by(toxic)]
        self.events.note("connected", connection.number, hit=hit)

    def _note_toxic(self, kind: str, toxic: Toxic) -> None:
        hit = sum(connection.hit_by(toxic) for connection in self._connections)
        self.events.note(kind, toxic=toxic.to_json(), hit=hit, connections=len(self._connections))

    def _untouched(self, toxic: str, stream: str) -> None:
        self.events.note("no frames", toxic=toxic, stream=stream)
        logger.info(
            "proxy %s: a connection carries no frames %s, toxic %s passes it on untouched",
            self.name,
            stream,
            toxic,
        )

    def _on_all(self, change: Callable[[Connection], None]) -> None:
        for connection in list(self._connections):
            change(connection)

    def _accept(self) -> Side:
        self._accepted_count += 1
        connection = Connection(
            seed=f"{self._seed}/{self.name}",
            number=self._accepted_count,
            counts=self.frames,
            on_accepted=self._accepted,
            on_closed=self._closed,
        )
        return connection.client

    def _accepted(self, connection: Connection) -> None:
        self._connections[connection] = None
        self.events.note("accepted", connection.number)
        if not self.enabled or len(self._connections) > _CONNECTIONS_MAX:
            connection.abort()  # the listener was closed meanwhile, or is full
            return
        self._connections[connection] = self._tasks.create_task(self._dial(connection))

    def _closed(self, connection: Connection) -> None:
        dial = self._connections.pop(connection, None)
        self.events.note("closed", connection.number)
        if dial is not None:
            dial.cancel()

    async def _dial(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        try:
            host, port = parse_listen(self.upstream)
            async with asyncio.timeout(_DIAL_TIMEOUT_S):
                await loop.create_connection(lambda: connection.upstream, host or "localhost", port)
        except (OSError, AddressError, UnicodeError) as error:
            logger.info("proxy %s: upstream %s: %s", self.name, self.upstream, error)
            self.events.note("dial failed", connection.number, reason=str(error))
            connection.client.close()
            return
        if connection in self._connections:
            self._connections[connection] = None
        toxics: dict[Direction, Sequence[Toxic]] = dict(self._toxics)
        connection.connected(toxics, lambda: self._note_connected(connection))
