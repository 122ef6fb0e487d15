"""Three real nodes in one loop over real sockets, with a state machine that remembers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgpack

from campaigns.rig.ports import free_ports
from campaigns.rig.waiting import until
from raft.config import RaftConfig
from raft.messages import (
    EntryKind,
    Index,
    NodeId,
)
from raft.node.node import RaftNode
from raft.node.node_config import NodeConfig
from raft.replicated_log import (
    CommittedEntry,
    LogStatus,
    NotLeaderError,
    Slot,
)
from raft.snapshots.snapshot import BLOCK_SIZE_BYTES_MAX

SECRET = b"a secret of the group"


class Recorder:
    """A state machine whose state is all that it was given; `indexed` is its derived file."""

    def __init__(self) -> None:
        self.entries: list[CommittedEntry] = []
        self.indexed: set[Index] = set()
        self.statuses: list[LogStatus] = []
        self.restored_index: Index = 0
        self.applied_count = 0
        self.trimmed_to = 0
        self.synced_count = 0
        self.prepared_on: list[threading.Thread] = []
        self.restored_on: list[threading.Thread] = []

    def apply(self, entries: Sequence[CommittedEntry]) -> None:
        assert entries
        for entry in entries:
            assert entry.index == len(self.entries) + 1, "each once, in order"
            self.entries.append(entry)
            self.indexed.add(entry.index)
            self.applied_count += 1

    def on_role_change(self, status: LogStatus) -> None:
        self.statuses.append(status)

    def data(self) -> list[bytes]:
        return [entry.payload for entry in self.entries if entry.kind is EntryKind.DATA]

    def capture(self) -> RecorderImage:
        return RecorderImage(tuple(self.entries))

    def prepare_restore(self, index: Index, chunks: Iterable[bytes]) -> Callable[[], None]:
        self.prepared_on.append(threading.current_thread())
        unpacker = msgpack.Unpacker()
        for chunk in chunks:
            unpacker.feed(chunk)
        entries = [
            CommittedEntry(
                index=row[0],
                term=row[1],
                kind=EntryKind(row[2]),
                position=row[3],
                payload=row[4],
                chain=row[5],
            )
            for row in unpacker
        ]
        if len(entries) != index:
            raise ValueError(f"{len(entries)} entries in the state at {index}")
        return partial(self._become, entries)

    def _become(self, entries: list[CommittedEntry]) -> None:
        self.entries = entries
        self.restored_index = len(entries)
        self.restored_on.append(threading.current_thread())
        self.indexed = {index for index in self.indexed if index <= self.restored_index}

    @property
    def needs_indexing(self) -> bool:
        return False  # its derived file is kept nowhere

    def index_only(self, entries: Sequence[CommittedEntry]) -> None:
        for entry in entries:
            assert self.entries[entry.index - 1] == entry, "the state contains it"
            self.indexed.add(entry.index)

    def trim(self, position: int) -> None:
        self.trimmed_to = position

    def sync_derived(self) -> None:
        self.synced_count += 1


@dataclass(frozen=True, slots=True)
class RecorderImage:
    entries: tuple[CommittedEntry, ...]

    def encode(self) -> Iterator[bytes]:
        for e in self.entries:
            row = msgpack.packb([e.index, e.term, int(e.kind), e.position, e.payload, e.chain])
            for begin in range(0, len(row), BLOCK_SIZE_BYTES_MAX):
                yield row[begin : begin + BLOCK_SIZE_BYTES_MAX]


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


class Group:
    """n0..n2; `start` and `crash` by name."""

    def __init__(self, store: Path, count: int = 3, **changes: object) -> None:
        self.store = store
        ports = free_ports(count)
        self.peers = {NodeId(f"n{i}"): f"127.0.0.1:{port}" for i, port in enumerate(ports)}
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
        await until(lambda: self._leader() is not None, "a ready leader")
        name = self._leader()
        assert name is not None
        return name

    async def read_index(self) -> tuple[str, Index]:
        """Return a leader and what it answers, of the first that is still one when it does."""
        while True:
            name = await self.leader()
            with contextlib.suppress(NotLeaderError):
                return name, await self.nodes[name].read_index()

    def _leader(self) -> str | None:
        ready = [name for name, node in self.nodes.items() if node.status().ready]
        # A deposed one may not know yet: the highest term counts.
        return max(ready, key=lambda name: self.nodes[name].status().term, default=None)


@contextlib.asynccontextmanager
async def running(store: Path, count: int = 3, **changes: object) -> AsyncIterator[Group]:
    group = Group(store, count, **changes)
    try:
        await group.start()
        yield group
    finally:
        await group.stop()


def trace_of(store: Path, name: str) -> list[dict[str, object]]:
    events: list[dict[str, object]] = []
    for path in sorted((store / name / "trace").iterdir()):
        with path.open("rb") as file:
            events += list(msgpack.Unpacker(file))
    return events
