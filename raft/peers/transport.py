"""Raft messages between the nodes of a group, over TCP.

Place in the data path: `raft.node.node` sends what the core emits and is called for what arrives.
Every node dials every peer; this node's messages, replies included, leave on the connection that it
dialled itself, and peers' messages arrive on those that they dialled. So a link is a directed pair
(from, to), and one direction can break without the other.

This node dials the peers of its settings until a configuration is known, then the members of that,
and, for as long as they are connected, callers that are no members (guests: this node may not know
yet that they are members). The address of its settings comes first, for it may have moved since the
configuration was written.

Where the configuration names another store for a peer than the handshake proved, that peer was
wiped, or is a disk from before it was replaced, or this node does not know of a replacement yet.
Its votes and acknowledgements are those of another store: they are dropped. Everything else passes,
for a replaced member may lead the group by now. The stores of one name have a connection each: a
caller replaces an earlier one of its own store, and of no other. What this node sends goes to the
store that the configuration names, where any of the member's addresses leads to it; while none
does, that store is searched for (`raft.peers.peer_link`).

Messages of one loop turn leave in one write. A message is lost, which Raft tolerates, where there
is no connection or where the send queue is full; a lost connection is reported as a hint. Dialling
is repeated after 20 ms, then after twice as long each time up to 500 ms, and at once when the peer
has called.

Limits: write queue per peer, connections accepted, stores of one name, guests, time for a
handshake, frame size.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from raft.membership import Member
from raft.messages import (
    AppendEntriesReply,
    InstallSnapshotReply,
    NodeId,
    PeerMessage,
    RequestVoteReply,
)
from raft.peers.connection import AcceptedConnection, DialledConnection
from raft.peers.handshake import Credentials
from raft.peers.peer_link import PeerLink, TransportLimits, parse_address
from raft.peers.wire import encode_message
from raft.turn import Turn

__all__ = ["TcpTransport", "Transport", "TransportLimits", "parse_address"]

_COUNTED = frozenset({AppendEntriesReply, InstallSnapshotReply, RequestVoteReply})
"""Messages that count towards majorities."""

_log = logging.getLogger(__name__)


class Transport(Protocol):
    """The transport as `raft.node.node` uses it; callbacks run on the loop's thread."""

    async def start(
        self,
        on_message: Callable[[PeerMessage], None],
        on_unreachable: Callable[[NodeId], None],
        *,
        store_id: str,
    ) -> None:
        """Start to listen; `store_id` is the store that this node speaks for."""

    def set_members(self, members: Iterable[Member]) -> None:
        """Set the members of the configuration in force, this node included or not."""

    async def run(self) -> None:
        """Keep connections up until cancelled."""

    def send(self, message: PeerMessage) -> None:
        """Queue for `flush`; may lose the message, never blocks."""

    def flush(self) -> None: ...

    async def stop(self) -> None: ...


class TcpTransport:
    """`Transport` over TCP. `peers` maps every other node of the settings to its table address;
    `dial` maps a table address to the address really dialled where it differs (a proxy)."""

    def __init__(
        self,
        identity: Credentials,
        *,
        listen: str,
        peers: Mapping[NodeId, str],
        dial: Mapping[str, str] | None = None,
        limits: TransportLimits | None = None,
        turn: Turn | None = None,
    ) -> None:
        """`turn` is entered while the messages of one read are passed on."""
        assert identity.node_id not in peers, "a node does not dial itself"
        self._identity = identity
        self._listen = parse_address(listen)
        self._peers = dict(peers)
        self._dial_map = dict(dial or {})
        for address in (*self._peers.values(), *self._dial_map.values()):
            parse_address(address)
        self._links: dict[NodeId, PeerLink] = {}
        self._limits = limits or TransportLimits()
        self._turn = turn
        self._queued: list[PeerLink] = []  # those with messages for `flush`, some maybe twice
        self._server: asyncio.Server | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._accepted: dict[AcceptedConnection, None] = {}  # the oldest first
        # The newest connection of each store of each peer, in the order of arrival.
        self._current: dict[tuple[NodeId, str], AcceptedConnection] = {}
        self._stopped = False
        for peer, address in self._peers.items():
            self._links[peer] = self._make_link(peer, self._to_dial(address))

    async def start(
        self,
        on_message: Callable[[PeerMessage], None],
        on_unreachable: Callable[[NodeId], None],
        *,
        store_id: str = "",
    ) -> None:
        """Listen. Raises OSError (the address is taken). `run` dials."""
        self._identity = dataclasses.replace(self._identity, store_id=store_id)
        self._on_message = on_message
        self._on_unreachable = on_unreachable
        host, port = self._listen
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._accept, host, port)
        except OSError as error:
            # The loop's own text differs between loops and names the address as a tuple.
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise OSError(
                error.errno, f"can't listen on {host}:{port} for Raft: {reason}"
            ) from error

    def set_members(self, members: Iterable[Member]) -> None:
        """Dial these members, and no others but guests; count only their stores."""
        wanted: dict[NodeId, Member] = {member.node_id: member for member in members}
        wanted.pop(self._identity.node_id, None)
        for peer in [peer for peer, link in self._links.items() if peer not in wanted]:
            if self._calls_of(peer):
                self._links[peer].is_guest = True  # until it disconnects
                self._links[peer].store_id = ""
            else:
                self._drop_link(peer)
        for peer, member in wanted.items():
            address = self._to_dial(self._peers.get(peer, member.address))
            other = self._to_dial(member.address)
            link = self._links.get(peer)
            if link is None or (address and link.address != address):
                if not address:
                    continue
                self._drop_link(peer)
                link = self._make_link(peer, address)
                self._add_link(link)
            link.is_guest, link.store_id = False, member.store_id
            link.other_address = "" if other == address else other
            link.close_if_other("the configuration names another store")

    @property
    def port(self) -> int:
        """Port that is listened at; the system chose it if port 0 was configured."""
        assert self._server is not None, "start() comes first"
        return int(self._server.sockets[0].getsockname()[1])

    async def run(self) -> None:
        """Keep a connection to every peer until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for link in self._links.values():
                link.task = tasks.create_task(link.keep_connected())
            self._tasks = tasks
            try:
                await asyncio.Event().wait()  # links come and go
            finally:
                self._tasks = None

    def send(self, message: PeerMessage) -> None:
        """Queue for `flush`. Lost, and counted, where the peer is not connected or too slow."""
        link = self._links.get(message.receiver)
        if link is not None and link.connection is not None:
            link.queue(encode_message(message))
            self._queued.append(link)

    def flush(self) -> None:
        """Send all that was queued since the last flush, in one write per peer."""
        queued = self._queued
        while queued:
            queued.pop(0).flush()

    async def stop(self) -> None:
        """Close everything. `run` must have been cancelled."""
        self._stopped = True
        server, self._server = self._server, None
        if server is not None:
            server.close()
        connections: list[AcceptedConnection | DialledConnection] = [*self._accepted]
        connections += [link.connection for link in self._links.values() if link.connection]
        for connection in connections:
            connection.close("this node stops")
        for connection in connections:
            await connection.wait_closed()
        if server is not None:
            await server.wait_closed()

    # --- links ---------------------------------------------------------------------------------

    def _to_dial(self, address: str) -> str:
        return self._dial_map.get(address, address)

    def _make_link(self, peer: NodeId, address: str, *, is_guest: bool = False) -> PeerLink:
        """Make a link to `address` as it is to be dialled. Raises ValueError if it is invalid."""
        return PeerLink(
            peer,
            address,
            identity=lambda: self._identity,
            on_unreachable=self._report_unreachable,
            limits=self._limits,
            is_guest=is_guest,
        )

    def _add_link(self, link: PeerLink) -> None:
        self._links[link.peer] = link
        if self._tasks is not None:
            link.task = self._tasks.create_task(link.keep_connected())

    def _drop_link(self, peer: NodeId) -> None:
        link = self._links.pop(peer, None)
        if link is not None:
            link.end(f"{peer} is no member")

    def _report_unreachable(self, peer: NodeId) -> None:
        if not self._stopped:
            self._on_unreachable(peer)

    # --- accepting -----------------------------------------------------------------------------

    def _accept(self) -> AcceptedConnection:
        connection = AcceptedConnection(
            self._identity,
            self._limits.handshake_timeout_ms,
            on_established=self._on_accepted,
            on_message=self._on_accepted_message,
            on_closed=self._on_accepted_closed,
            turn=self._turn,
        )
        self._accepted[connection] = None
        if len(self._accepted) > self._limits.accepted_count_max:
            # Only strangers can be that many: of each peer's store one connection is kept. The
            # oldest has had the longest time for its handshake; the newest may be a member.
            stranger = next(c for c in self._accepted if not c.established)
            del self._accepted[stranger]
            asyncio.get_running_loop().call_soon(stranger.close, "too many connections")
        return connection

    def _on_accepted(self, connection: AcceptedConnection) -> None:
        peer = connection.peer
        assert peer is not None
        key = peer, connection.peer_store_id
        older = self._current.pop(key, None)
        self._current[key] = connection
        if older is not None:
            older.close("the peer has called again")
        link = self._links.get(peer)
        if link is None:
            self._add_guest(peer, connection.peer_address)
            return
        self._close_surplus(peer, link)
        if not link.speaks_for(connection):
            _log.warning(
                "%s calls with the store %s, not with its own (%s): it does not count",
                peer,
                connection.peer_store_id,
                link.store_id,
            )
        else:
            link.close_if_other("the store that the configuration names has called")
        link.redial()

    def _calls_of(self, peer: NodeId) -> list[AcceptedConnection]:
        """Return the connections of all stores of this name, oldest first."""
        return [connection for (name, _), connection in self._current.items() if name == peer]

    def _close_surplus(self, peer: NodeId, link: PeerLink) -> None:
        """Close the oldest connections of other stores: any holder of the secret may call with any
        store. The one that counts always stays."""
        others = [
            connection
            for connection in self._calls_of(peer)
            if not link.store_id or not link.speaks_for(connection)
        ]
        for connection in others[: -self._limits.other_stores_count_max]:
            connection.close("too many stores of this name")

    def _add_guest(self, peer: NodeId, address: str) -> None:
        """Answer a caller that no known configuration names."""
        guests = sum(link.is_guest for link in self._links.values())
        if guests >= self._limits.guests_count_max:
            _log.warning(
                "%s called and is not answered: %d others who are no members", peer, guests
            )
            return
        try:
            self._add_link(self._make_link(peer, self._to_dial(address), is_guest=True))
        except ValueError as error:
            _log.warning("%s called and can't be answered: %s", peer, error)

    def _on_accepted_message(self, connection: AcceptedConnection, message: PeerMessage) -> None:
        link = self._links.get(message.sender)
        if type(message) in _COUNTED and link is not None and not link.speaks_for(connection):
            return  # another store's votes and acknowledgements are not this member's
        self._on_message(message)

    def _on_accepted_closed(self, connection: AcceptedConnection) -> None:
        self._accepted.pop(connection, None)
        peer = connection.peer
        if not connection.established or peer is None:
            return
        key = peer, connection.peer_store_id
        if self._current.get(key) is not connection:
            return  # another one of the same store has replaced it
        del self._current[key]
        link, left = self._links.get(peer), self._calls_of(peer)
        if link is not None and link.is_guest and not left:
            self._drop_link(peer)
        if link is not None and link.store_id:
            if link.speaks_for(connection):
                self._report_unreachable(peer)
        elif not left:
            self._report_unreachable(peer)
