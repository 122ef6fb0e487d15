"""Two ends of a connection between nodes, each with what it was told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from campaigns.rig.ports import free_port
from campaigns.rig.waiting import until
from raft.messages import (
    NodeId,
    PeerMessage,
    TimeoutNow,
)
from raft.peers.handshake import Credentials
from raft.peers.transport import TcpTransport, TransportLimits
from tests.raft.node_group import SECRET

A, B = NodeId("a"), NodeId("b")


def identity(
    name: NodeId, group: str = "g", secret: bytes = SECRET, address: str = "", store_id: str = ""
) -> Credentials:
    return Credentials(group=group, node_id=name, secret=secret, address=address, store_id=store_id)


class Side:
    """A transport with what it was told."""

    def __init__(
        self,
        me: Credentials,
        port: int,
        peers: dict[NodeId, str],
        limits: TransportLimits | None = None,
        dial: dict[str, str] | None = None,
    ) -> None:
        self.store_id = me.store_id
        self.messages: list[PeerMessage] = []
        self.unreachable: list[NodeId] = []
        self.transport = TcpTransport(
            me, listen=f"127.0.0.1:{port}", peers=peers, limits=limits, dial=dial
        )
        self.task: asyncio.Task[None] | None = None

    async def start(self, store_id: str = "") -> None:
        await self.transport.start(
            self.messages.append, self.unreachable.append, store_id=store_id or self.store_id
        )
        self.task = asyncio.create_task(self.transport.run())

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task
            self.task = None
        await self.transport.stop()

    async def send_until(self, message: PeerMessage, other: Side) -> None:
        """Messages are lost while there is no connection."""

        def arrived() -> bool:
            self.transport.send(message)
            self.transport.flush()
            return message in other.messages

        await until(arrived, "the message")


@contextlib.asynccontextmanager
async def running(*sides: Side) -> AsyncIterator[None]:
    try:
        for side in sides:
            await side.start()
        yield
    finally:
        for side in sides:
            await side.stop()


def pair(secret_b: bytes = SECRET, group_b: str = "g") -> tuple[Side, Side]:
    port_a, port_b = free_port(), free_port()
    return (
        Side(identity(A), port_a, {B: f"127.0.0.1:{port_b}"}),
        Side(identity(B, group_b, secret_b), port_b, {A: f"127.0.0.1:{port_a}"}),
    )


def timeout_now(sender: NodeId, receiver: NodeId, term: int = 1) -> TimeoutNow:
    return TimeoutNow(sender=sender, receiver=receiver, term=term)
