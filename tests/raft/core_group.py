"""A group of real cores on hand-made time, network and disks, for the tests of the core.

Nothing moves by itself: a test ticks, delivers, drops, syncs, crashes and restarts. Each `Node`
carries its Readys out in the order of `raft.events`; with `auto_sync` every Ready is durable at
once, else what is written stays volatile until `sync`, and a crash takes it.

The application of a node is the list of its committed entries, so a snapshot is a prefix of the
log. `MemoryStorage` remembers compacted entries for the tests to look at; the core can't reach
them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from raft.config import RaftConfig
from raft.core.core import Core
from raft.events import (
    ChangeMembership,
    ChunkStored,
    Event,
    Install,
    InstallChunk,
    LogDurable,
    PeerUnreachable,
    Propose,
    ReadIndexRequest,
    ReadState,
    Ready,
    Receive,
    ReplayChanged,
    Role,
    RoomChanged,
    SnapshotStored,
    Tick,
    TransferLeadership,
)
from raft.membership import (
    AddLearner,
    Configuration,
    Member,
    Membership,
    MembershipChange,
    PromoteLearner,
    RemoveMember,
    make_membership,
)
from raft.messages import (
    Entry,
    EntryKind,
    HardState,
    Index,
    InstallSnapshot,
    LogBase,
    Message,
    NodeId,
    RequestVote,
    RequestVoteReply,
    Term,
)

__all__ = [
    "SNAPSHOT_SIZE",
    "FirstOfRange",
    "Group",
    "MemoryStorage",
    "Node",
    "Snapshot",
    "make_entries",
    "member",
    "node_names",
]

SNAPSHOT_SIZE = 3
"""Bytes of every snapshot, sent one at a time: their number is what is tested, not their sense."""


class FirstOfRange(Random):
    """Draws the least of each range, so that scripts can tell times."""

    def randint(self, a: int, b: int) -> int:
        del b
        return a


class MemoryStorage:
    """A LogStorage over a list; what lies at or before `base` is out of the core's reach."""

    def __init__(self, entries: Iterable[Entry] = (), base_index: Index = 0) -> None:
        self.stored = list(entries)
        self.base_index = base_index
        self.reads_count = 0

    @property
    def base(self) -> LogBase:
        index = self.base_index
        return LogBase(index=index, term=self.stored[index - 1].term if index else 0)

    @property
    def first_index(self) -> Index:
        return self.base_index + 1

    @property
    def last_index(self) -> Index:
        return len(self.stored)

    @property
    def config_indexes(self) -> list[Index]:
        return [
            entry.index
            for entry in self.stored[self.base_index :]
            if entry.kind is EntryKind.CONFIG
        ]

    def term(self, index: Index) -> Term:
        if not self.base_index <= index <= len(self.stored):
            raise IndexError(f"index {index} is outside {self.base_index}..{len(self.stored)}")
        return self.stored[index - 1].term if index else 0

    def entries(self, low: Index, high: Index, size_max: int) -> tuple[Entry, ...]:
        assert low > self.base_index, f"{low} was compacted"
        self.reads_count += 1
        taken: list[Entry] = []
        size = 0
        for entry in self.stored[low - 1 : high - 1]:
            size += len(entry.payload)
            if taken and size > size_max:
                break
            taken.append(entry)
        return tuple(taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the applied entries up to `index` made, which is these entries."""

    index: Index
    configuration: Configuration
    entries: tuple[Entry, ...]


@dataclass(slots=True, kw_only=True)
class Partial:
    """What a follower has of a snapshot."""

    key: tuple[NodeId, Index, Index]
    size: int = 0


class Node:
    """One core, its log, hard state and snapshot, volatile and durable."""

    def __init__(
        self, config: RaftConfig, rng: Random, now_ms: int, first: Configuration | None = None
    ) -> None:
        self.config = config
        self.rng = rng
        self.first = first
        self.store_id = store_id(config.node_id, 0)
        self.storage = MemoryStorage()
        self.hard_state = HardState(current_term=0, voted_for=None)
        self.durable_entries: list[Entry] = []
        self.durable_base_index: Index = 0
        self.durable_hard_state = self.hard_state
        self.snapshot: Snapshot | None = None
        self.partial: Partial | None = None
        self.unsynced: list[Ready] = []
        self.told: list[Callable[[int], Event]] = []  # what the shell will tell the core
        self.read_states: list[ReadState] = []
        self.readies: list[Ready] = []
        self.is_up = True
        self.core = self._make_core(now_ms)

    def _make_core(self, now_ms: int, commit_index: Index = 0) -> Core:
        return Core(
            self.config,
            self.storage,
            self.hard_state,
            self.rng,
            now_ms,
            commit_index=commit_index,
            configuration=self.first if self.snapshot is None else self.snapshot.configuration,
            store_id=self.store_id,
        )

    def crash(self, *, last_index: Index | None = None) -> None:
        """The node and its volatile state are gone; `last_index`: the disk lied, and also loses
        what it had reported as durable behind that."""
        self.is_up = False
        if last_index is not None:
            del self.durable_entries[last_index:]
        self.unsynced.clear()
        self.told.clear()
        self.storage = MemoryStorage(self.durable_entries, self.durable_base_index)
        self.hard_state = self.durable_hard_state

    def restart(self, now_ms: int, commit_index: Index = 0) -> None:
        assert not self.is_up
        self.is_up = True
        if self.snapshot is not None:
            commit_index = max(commit_index, self.snapshot.index)
        self.core = self._make_core(now_ms, commit_index)

    def wipe(self, number: int = 1) -> None:
        """The disk is lost for the `number`th time; whoever starts on the new one belongs to no
        group."""
        self.store_id = store_id(self.config.node_id, number)
        self.crash()
        self.storage = MemoryStorage()
        self.durable_entries, self.durable_base_index = [], 0
        self.hard_state = self.durable_hard_state = HardState(current_term=0, voted_for=None)
        self.snapshot = self.partial = None
        self.first = Configuration(index=0, membership=Membership())

    def take_snapshot(self, index: Index | None = None) -> None:
        """Of what is committed here and durable."""
        index = min(self.core.commit_index, self.core.durable_index) if index is None else index
        if index and (self.snapshot is None or self.snapshot.index < index):
            self.snapshot = Snapshot(
                index=index,
                configuration=self.core.configuration_at(index),
                entries=tuple(self.storage.stored[:index]),
            )

    def compact(self, index: Index) -> None:
        """Drop the log up to `index`, which the snapshot holds."""
        assert self.snapshot is not None
        assert index <= min(self.snapshot.index, self.core.commit_index)
        self.storage.base_index = self.durable_base_index = max(index, self.storage.base_index)

    def log_terms(self) -> list[Term]:
        return [entry.term for entry in self.storage.stored]


class Group:
    """`network` holds what was sent and not yet delivered, in order."""

    def __init__(
        self,
        count: int,
        *,
        auto_sync: bool = True,
        rng: Callable[[int], Random] = lambda _: FirstOfRange(),
        preferred_leader: NodeId | None = None,
        joiners: int = 0,
        has_roster: bool = False,
        **config: int,
    ) -> None:
        """`joiners` more nodes belong to no group yet; with a roster the members' addresses are
        known, and the first leader writes them into the log."""
        self.now_ms = 0
        self.auto_sync = auto_sync
        self.network: list[Message] = []
        self.snapshots: dict[tuple[NodeId, Index, Index], Snapshot] = {}  # as they were sent
        names = node_names(count)
        roster = Configuration(index=0, membership=make_membership(map(member, names)))
        nobody = Configuration(index=0, membership=Membership())
        self.nodes: dict[NodeId, Node] = {}
        for number, name in enumerate(node_names(count + joiners), start=1):
            first = roster if has_roster else None
            if number > count:
                first = nobody
            raft_config = RaftConfig(
                node_id=name, voters=names, preferred_leader=preferred_leader, **config
            )
            self.nodes[name] = Node(raft_config, rng(number), 0, first)
        self.on_ready: Callable[[NodeId, Ready], None] = lambda _name, _ready: None
        self.on_send: Callable[[Message], None] = lambda _message: None

    def node(self, name: str) -> Node:
        return self.nodes[NodeId(name)]

    def core(self, name: str) -> Core:
        return self.nodes[NodeId(name)].core

    def set_up(
        self, name: str, *, terms: list[Term], current_term: Term, commit: Index = 0
    ) -> None:
        """Restart a node with this log and term, as if it had lived through them."""
        node = self.node(name)
        node.durable_entries = make_entries(terms)
        node.durable_hard_state = HardState(current_term=current_term, voted_for=None)
        node.crash()
        node.restart(self.now_ms, commit)

    # Events.

    def step(self, name: str, event: Event) -> Ready:
        node = self.node(name)
        ready = node.core.step(event)
        if ready.install is not None:
            self._install(node, ready.install)
        if ready.truncate_from is not None:
            del node.storage.stored[ready.truncate_from - 1 :]
        node.storage.stored.extend(ready.entries)
        node.readies.append(ready)
        node.read_states.extend(ready.read_states)
        self._send(ready.messages)
        node.unsynced.append(ready)
        for chunk in ready.install_chunks:
            self._send_chunk(node, chunk)
        if ready.received_chunk is not None:
            self.store_chunk(node, ready.received_chunk)
        self.on_ready(NodeId(name), ready)
        if self.auto_sync:
            self.sync(name)
            self.tell(name)
        return ready

    def tell(self, name: str) -> None:
        """Tell the core what its shell has done meanwhile."""
        node = self.node(name)
        while node.told:
            self.step(name, node.told.pop(0)(self.now_ms))

    def sync(self, name: str) -> Ready | None:
        """Make durable what the node has written, send what waited for it, report it."""
        node = self.node(name)
        readies, node.unsynced = node.unsynced, []
        wrote_entries = False
        to_send: list[Message] = []
        for ready in readies:
            if ready.hard_state is not None:
                node.hard_state = ready.hard_state
            wrote_entries = wrote_entries or bool(ready.entries)
            to_send.extend(ready.messages_after_sync)
        node.durable_hard_state = node.hard_state
        node.durable_entries = list(node.storage.stored)
        self._send(to_send)
        if not wrote_entries:
            return None
        last = node.storage.stored[-1]
        return self.step(name, LogDurable(now_ms=self.now_ms, index=last.index, term=last.term))

    def _install(self, node: Node, install: Install) -> None:
        snapshot = node.snapshot
        assert snapshot is not None
        assert snapshot.index >= install.snapshot_index, "the snapshot was stored before"
        node.storage.stored = list(snapshot.entries[: install.base.index])
        node.storage.base_index = install.base.index
        assert node.storage.base == install.base
        node.durable_entries = list(node.storage.stored)
        node.durable_base_index = install.base.index

    def _send_chunk(self, node: Node, chunk: InstallChunk) -> None:
        """What the shell reads and sends: its newest snapshot, at the offset if that is asked."""
        snapshot = node.snapshot
        if snapshot is None:
            return
        offset = chunk.offset if chunk.snapshot_index == snapshot.index else 0
        data = b"x" if offset < SNAPSHOT_SIZE else b""
        base = node.storage.base
        self.snapshots[node.config.node_id, snapshot.index, base.index] = snapshot
        self._send(
            [
                InstallSnapshot(
                    sender=node.config.node_id,
                    receiver=chunk.receiver,
                    term=chunk.term,
                    base=base,
                    configuration=snapshot.configuration,
                    snapshot_index=snapshot.index,
                    snapshot_size=SNAPSHOT_SIZE,
                    offset=offset,
                    data=data,
                    crc=zlib.crc32(data),
                )
            ]
        )

    def store_chunk(self, node: Node, message: InstallSnapshot) -> None:
        key = (message.sender, message.snapshot_index, message.base.index)
        if node.partial is None or node.partial.key != key:
            node.partial = Partial(key=key)
        partial = node.partial
        if message.offset == partial.size:
            partial.size += len(message.data)
        size = partial.size
        if size < SNAPSHOT_SIZE:
            node.told.append(
                lambda now_ms: ChunkStored(
                    now_ms=now_ms,
                    leader=message.sender,
                    base_index=message.base.index,
                    snapshot_index=message.snapshot_index,
                    next_offset=size,
                )
            )
            return
        node.partial = None
        snapshot = self.snapshots[key]
        if node.snapshot is None or node.snapshot.index < snapshot.index:
            node.snapshot = snapshot
        node.told.append(
            lambda now_ms: SnapshotStored(
                now_ms=now_ms,
                leader=message.sender,
                base=message.base,
                configuration=message.configuration,
                snapshot_index=message.snapshot_index,
                next_offset=size,
            )
        )

    def _send(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.on_send(message)
            self.network.append(message)

    def tick(self, name: str) -> Ready:
        """Advance the time to the node's deadline, if it is not past it, and tick it."""
        self.now_ms = max(self.now_ms, self.core(name).next_deadline_ms)
        return self.step(name, Tick(now_ms=self.now_ms))

    def receive(self, message: Message) -> Ready:
        return self.step(message.receiver, Receive(now_ms=self.now_ms, message=message))

    def propose(self, name: str, payload: bytes = b"x") -> Ready:
        return self.step(name, Propose(now_ms=self.now_ms, payload=payload))

    def propose_if_ready(self, name: str) -> None:
        if self.core(name).ready:
            self.propose(name)

    def read(self, name: str, request_id: int) -> Ready:
        return self.step(name, ReadIndexRequest(now_ms=self.now_ms, request_id=request_id))

    def unreachable(self, name: str, peer: str) -> Ready:
        return self.step(name, PeerUnreachable(now_ms=self.now_ms, peer=NodeId(peer)))

    def transfer(self, name: str, target: str) -> Ready:
        return self.step(name, TransferLeadership(now_ms=self.now_ms, target=NodeId(target)))

    def change(self, name: str, change: MembershipChange) -> Ready:
        return self.step(name, ChangeMembership(now_ms=self.now_ms, change=change))

    def add(self, name: str, learner: str) -> Ready:
        node_id = NodeId(learner)
        return self.change(name, AddLearner(member=member(node_id, self.nodes[node_id].store_id)))

    def promote(self, name: str, learner: str) -> Ready:
        return self.change(name, PromoteLearner(node_id=NodeId(learner)))

    def remove(self, name: str, gone: str) -> Ready:
        return self.change(name, RemoveMember(node_id=NodeId(gone)))

    def room(self, name: str, *, writable: bool, can_begin: bool = True) -> Ready:
        event = RoomChanged(now_ms=self.now_ms, writable=writable, can_begin=can_begin)
        return self.step(name, event)

    def replay(self, name: str, *, replaying: bool) -> Ready:
        return self.step(name, ReplayChanged(now_ms=self.now_ms, replaying=replaying))

    # The network.

    def take(self, is_wanted: Callable[[Message], bool]) -> list[Message]:
        """Take messages off the network, in order."""
        taken = [message for message in self.network if is_wanted(message)]
        self.network = [message for message in self.network if not is_wanted(message)]
        return taken

    def deliver(self, is_wanted: Callable[[Message], bool] = lambda _: True) -> int:
        """Deliver what is on the network now, not what that sets off; to nodes that are up."""
        taken = self.take(is_wanted)
        for message in taken:
            if self.nodes[message.receiver].is_up:
                self.receive(message)
        return len(taken)

    def stabilize(self, names: Iterable[str] | None = None) -> None:
        """Deliver until nothing is left between `names`; what leaves them, or comes to them from
        others, is lost."""
        among = set(self.nodes if names is None else names)
        for _ in range(1000):
            self.network = [m for m in self.network if {m.sender, m.receiver} <= among]
            if not self.deliver():
                return
        raise AssertionError("the group does not come to rest")

    def elect(self, name: str, names: Iterable[str] | None = None) -> None:
        """Let the node win an election among `names` and commit its no-op."""
        among = list(self.nodes if names is None else names)
        self.tick(name)
        self.stabilize(among)
        assert self.core(name).role is Role.LEADER, f"{name} was not elected"

    def stabilize_votes(self) -> None:
        """Deliver only votes, and lose everything else."""
        while self.deliver(lambda m: isinstance(m, RequestVote | RequestVoteReply)):
            pass
        self.network.clear()

    def heartbeat(self, name: str) -> None:
        """Let a leader's next heartbeat go out and be answered."""
        self.tick(name)
        self.stabilize()


def node_names(count: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(f"n{number}") for number in range(1, count + 1))


def store_id(name: NodeId, number: int) -> str:
    """The identity of the `number`th store of that name."""
    return f"{zlib.crc32(name.encode()):08x}{number:024x}"


def member(name: NodeId, store: str | None = None) -> Member:
    return Member(
        node_id=name, address=f"{name}:1", store_id=store_id(name, 0) if store is None else store
    )


def make_entries(terms: Iterable[Term]) -> list[Entry]:
    """A log with these terms; equal index and term mean equal entries."""
    return [
        Entry(index=index, term=term, kind=EntryKind.DATA, payload=b"%d.%d" % (index, term))
        for index, term in enumerate(terms, start=1)
    ]
