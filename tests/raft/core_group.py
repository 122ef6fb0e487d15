"""A group of real cores on hand-made time, network and disks, for the tests of the core.

Nothing moves by itself: a test ticks, delivers, drops, syncs, crashes and restarts. Each `Node`
carries its Readys out in the order of `raft.events`; with `auto_sync` every Ready is durable at
once, else what is written stays volatile until `sync`, and a crash takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from raft.config import RaftConfig
from raft.core import Core
from raft.events import (
    Event,
    LogDurable,
    PeerUnreachable,
    Propose,
    ReadIndexRequest,
    ReadState,
    Ready,
    Receive,
    Role,
    Tick,
    TransferLeadership,
)
from raft.messages import (
    Entry,
    EntryKind,
    HardState,
    Index,
    LogBase,
    Message,
    NodeId,
    RequestVote,
    RequestVoteReply,
    Term,
)

__all__ = ["FirstOfRange", "Group", "MemoryStorage", "Node", "make_entries", "node_names"]


class FirstOfRange(Random):
    """Draws the least of each range, so that scripts can tell times."""

    def randint(self, a: int, b: int) -> int:
        del b
        return a


class MemoryStorage:
    """A LogStorage over a list; `first_index` may be raised as if the rest were compacted."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.stored = list(entries)
        self.reads_count = 0

    @property
    def base(self) -> LogBase:
        return LogBase()

    @property
    def first_index(self) -> Index:
        return 1

    @property
    def config_indexes(self) -> list[Index]:
        return [entry.index for entry in self.stored if entry.kind is EntryKind.CONFIG]

    @property
    def last_index(self) -> Index:
        return len(self.stored)

    def term(self, index: Index) -> Term:
        if not 0 <= index <= len(self.stored):
            raise IndexError(f"index {index} is outside 0..{len(self.stored)}")
        return self.stored[index - 1].term if index else 0

    def entries(self, low: Index, high: Index, size_max: int) -> tuple[Entry, ...]:
        self.reads_count += 1
        taken: list[Entry] = []
        size = 0
        for entry in self.stored[low - 1 : high - 1]:
            size += len(entry.payload)
            if taken and size > size_max:
                break
            taken.append(entry)
        return tuple(taken)


class Node:
    """One core, its log and hard state, volatile and durable."""

    def __init__(self, config: RaftConfig, rng: Random, now_ms: int) -> None:
        self.config = config
        self.rng = rng
        self.storage = MemoryStorage()
        self.hard_state = HardState(current_term=0, voted_for=None)
        self.durable_entries: list[Entry] = []
        self.durable_hard_state = self.hard_state
        self.unsynced: list[Ready] = []
        self.read_states: list[ReadState] = []
        self.readies: list[Ready] = []
        self.is_up = True
        self.core = Core(config, self.storage, self.hard_state, rng, now_ms)

    def crash(self) -> None:
        self.is_up = False
        self.unsynced.clear()
        self.storage = MemoryStorage(self.durable_entries)
        self.hard_state = self.durable_hard_state

    def restart(self, now_ms: int) -> None:
        assert not self.is_up
        self.is_up = True
        self.core = Core(self.config, self.storage, self.hard_state, self.rng, now_ms)

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
        **config: int,
    ) -> None:
        self.now_ms = 0
        self.auto_sync = auto_sync
        self.network: list[Message] = []
        names = node_names(count)
        self.nodes = {
            name: Node(
                RaftConfig(node_id=name, voters=names, preferred_leader=preferred_leader, **config),
                rng(number),
                0,
            )
            for number, name in enumerate(names, start=1)
        }
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
        node.is_up = True
        node.core = Core(
            node.config, node.storage, node.hard_state, node.rng, self.now_ms, commit_index=commit
        )

    # Events.

    def step(self, name: str, event: Event) -> Ready:
        node = self.node(name)
        ready = node.core.step(event)
        if ready.truncate_from is not None:
            del node.storage.stored[ready.truncate_from - 1 :]
        node.storage.stored.extend(ready.entries)
        node.readies.append(ready)
        node.read_states.extend(ready.read_states)
        self._send(ready.messages)
        node.unsynced.append(ready)
        self.on_ready(NodeId(name), ready)
        if self.auto_sync:
            self.sync(name)
        return ready

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

    def read(self, name: str, request_id: int) -> Ready:
        return self.step(name, ReadIndexRequest(now_ms=self.now_ms, request_id=request_id))

    def unreachable(self, name: str, peer: str) -> Ready:
        return self.step(name, PeerUnreachable(now_ms=self.now_ms, peer=NodeId(peer)))

    def transfer(self, name: str, target: str) -> Ready:
        return self.step(name, TransferLeadership(now_ms=self.now_ms, target=NodeId(target)))

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


def make_entries(terms: Iterable[Term]) -> list[Entry]:
    """A log with these terms; equal index and term mean equal entries."""
    return [
        Entry(index=index, term=term, kind=EntryKind.DATA, payload=b"%d.%d" % (index, term))
        for index, term in enumerate(terms, start=1)
    ]
