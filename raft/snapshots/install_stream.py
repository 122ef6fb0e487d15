"""Sends snapshots to followers and stores those of a leader: the asyncio side of `install`.

Place in the data path: `raft.node.node` passes the core's requests and the chunks that arrive, and
runs it beside the transport. Reading, writing and checking run on threads; chunks leave within the
configured rate.

Invariants: chunks for one follower leave one at a time and in the order of their requests; stored
chunks are reported to the core in the order of their arrival. More chunks than a leader has under
way at once are dropped, like any message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from raft.events import InstallChunk
from raft.messages import InstallSnapshot, LogBase, NodeId, Term
from raft.snapshots.install import Accept, InstallReceiver, InstallSender, RateLimit, Received
from raft.snapshots.snapshot import SnapshotFiles

__all__ = ["InstallStream"]

_RECEIVED_COUNT_MAX = 4

_log = logging.getLogger(__name__)


class InstallStream:
    """Transfers of one node. `send` flushes by itself; `accept(header, chunks)` is called, on a
    thread, with each whole snapshot, `stored(chunk, received)` with the result of each chunk."""

    def __init__(
        self,
        node_id: NodeId,
        files: SnapshotFiles,
        base: Callable[[], LogBase],
        *,
        chunk_size_bytes: int,
        rate_bytes_per_s: int,
        size_bytes_max: int,
        now_ms: Callable[[], int],
        send: Callable[[InstallSnapshot], None],
        accept: Accept,
        stored: Callable[[InstallSnapshot, Received], None],
    ) -> None:
        self._sender = InstallSender(node_id, files, base, chunk_size_bytes=chunk_size_bytes)
        self._receiver = InstallReceiver(files, size_bytes_max=size_bytes_max, accept=accept)
        self._rate = RateLimit(rate_bytes_per_s)
        self._now_ms = now_ms
        self._send = send
        self._stored = stored
        self._term: Term = 0
        self._wanted = asyncio.Event()
        self._received: asyncio.Queue[InstallSnapshot] = asyncio.Queue(_RECEIVED_COUNT_MAX)

    def want(self, chunk: InstallChunk) -> None:
        """Queue a chunk that the leader's core requests."""
        self._term = max(self._term, chunk.term)
        self._sender.want(chunk)
        self._wanted.set()

    def receive(self, chunk: InstallSnapshot) -> None:
        """Queue a chunk that the follower's core has received."""
        try:
            self._received.put_nowait(chunk)
        except asyncio.QueueFull:
            _log.warning("%s sends pieces of a snapshot faster than asked for", chunk.sender)

    async def run(self) -> None:
        """Run until cancelled. Raises OSError, and what `accept` raises."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send_wanted())
                group.create_task(self._store_received())
        finally:
            self._receiver.close()

    async def _send_wanted(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while (wanted := self._sender.next(self._term)) is not None:
                await asyncio.sleep(self._rate.delay_ms(self._now_ms()) / 1000)
                message = await asyncio.to_thread(self._sender.read, wanted)
                if message is None:
                    _log.error("%s lacks the log's beginning, no snapshot", wanted.receiver)
                    continue
                self._rate.spent(self._now_ms(), len(message.data))
                self._send(message)

    async def _store_received(self) -> None:
        while True:
            chunk = await self._received.get()
            received = await asyncio.to_thread(self._receiver.store, chunk)
            self._stored(chunk, received)
