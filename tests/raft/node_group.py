"""Three real nodes in one loop over real sockets, with a state machine that remembers."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from raft.config import RaftConfig
from raft.messages import EntryKind, NodeId
from raft.node import RaftNode
from raft.node_config import NodeConfig
from raft.replicated_log import CommittedEntry, LogStatus, Slot

SECRET = b"a secret of the group"


class Recorder:
    """A state machine that keeps what it was given."""

    def __init__(self) -> None:
        self.entries: list[CommittedEntry] = []
        self.statuses: list[LogStatus] = []

    def apply(self, entries: Sequence[CommittedEntry]) -> None:
        assert entries
        for entry in entries:
            assert entry.index == len(self.entries) + 1, "each once, in order"
            self.entries.append(entry)

    def on_role_change(self, status: LogStatus) -> None:
        self.statuses.append(status)

    def data(self) -> list[bytes]:
        return [entry.payload for entry in self.entries if entry.kind is EntryKind.DATA]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def node_config(store: Path, name: str, peers: dict[NodeId, str], **changes: object) -> NodeConfig:
    node_id = NodeId(name)
    values: dict[str, object] = {
        "group": "broker-a",
        "raft": RaftConfig(node_id=node_id, voters=tuple(peers)),
        "peers": peers,
        "listen": peers[node_id],
        "store": store / name,
        "secret": SECRET,
        "trace": True,
        "segment_size_bytes_max": 1 << 16,
    }
    return NodeConfig(**{**values, **changes})  # type: ignore[arg-type]  # test's free choice


def payload(data: bytes) -> Callable[[Slot], bytes]:
    return lambda _: data


async def eventually(condition: Callable[[], bool], what: str, timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        await asyncio.sleep(0.005)


class Group:
    """n0..n2; `start` and `crash` by name."""

    def __init__(self, store: Path, count: int = 3, **changes: object) -> None:
        self.store = store
        self.peers = {NodeId(f"n{i}"): f"127.0.0.1:{free_port()}" for i in range(count)}
        self.changes = changes
        self.nodes: dict[str, RaftNode] = {}
        self.machines: dict[str, Recorder] = {}

    async def start(self, *names: str) -> None:
        for name in names or tuple(self.peers):
            config = node_config(self.store, name, self.peers, **self.changes)
            machine = Recorder()
            node = RaftNode(config, machine)
            await node.start()
            self.nodes[name], self.machines[name] = node, machine

    async def crash(self, name: str) -> None:
        """As a killed process: no checkpoint, no hand-over, connections break."""
        node = self.nodes.pop(name)
        del self.machines[name]
        node.fail(RuntimeError("crashed by the test"))
        await node.stop()

    async def stop(self) -> None:
        for node in self.nodes.values():
            await node.stop()

    async def leader(self) -> str:
        """The one ready leader."""
        await eventually(lambda: self._leader() is not None, "a ready leader")
        name = self._leader()
        assert name is not None
        return name

    def _leader(self) -> str | None:
        ready = [name for name, node in self.nodes.items() if node.status().ready]
        # A deposed one may not know yet: the highest term counts.
        return max(ready, key=lambda name: self.nodes[name].status().term, default=None)
