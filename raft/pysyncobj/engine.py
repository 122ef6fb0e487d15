"""PySyncObj on a thread of its own: commands go in, committed commands come out in order.

Place in the data path: below `raft.pysyncobj.log`, which lives on the event loop. One thread makes
the SyncObj, ticks it and destroys it; all its reports go into one bounded stream that the loop
drains, so that a command and the change of role before it never change places.

PySyncObj by itself acknowledges what is only in the page cache: its journal is a memory map that it
never syncs, its vote a file that it never syncs. Where `flush` is set, a transport of this module
makes both durable before any message that depends on them leaves.

PySyncObj also replaces, without notifying its user, entries that it had applied: a state machine is
then left with what the group has lost, and never gets what came in its place. What was applied is
therefore remembered and compared with what a leader sends; StateDivergedError ends the thread, so
that the node computes its state anew from the journal, which is the leader's by then.

Invariants: other threads touch nothing of SyncObj but its queue of commands, which is made for
that; any exception on the thread, also of PySyncObj, ends it and is reported once.

PySyncObj reads its peers' messages with pickle, which executes their content: only loopback
addresses are accepted. Source: PySyncObj 0.3.17, docs/decisions/0011-what-the-seam-demands.md.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import pickle
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from isal.isal_zlib import crc32
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, SyncObjException, replicated
from pysyncobj.node import TCPNode
from pysyncobj.transport import TCPTransport

from raft.events import Role
from raft.messages import NodeId, Term
from raft.replicated_log import StateDivergedError

__all__ = [
    "Command",
    "EngineConfig",
    "EngineState",
    "Item",
    "PySyncObjEngine",
    "Refused",
    "Vote",
    "require_loopback",
]

_TICK_S = 0.01
_COMMANDS_MAX = 8192
_STREAM_SIZE_BYTES_MAX = 64 << 20
# A follower that processes one message reads no heartbeat meanwhile, so messages must stay small; a
# command above this is sent in pieces, whose end PySyncObj now and then mistakes by one.
_BATCH_SIZE_BYTES_MAX = 1 << 19
_REMEMBERED_MAX = 65_536  # applied commands
_META_SAVED_S = 1.5  # PySyncObj saves its commit index once a second
_NEVER_COMPACTED = 1 << 60  # entries, or seconds
_BIND_ATTEMPTS = 1
_RECONNECT_S = 0.1
_REGULAR = b"\0"  # PySyncObj's mark of a replicated call
_ROLES = (Role.FOLLOWER, Role.CANDIDATE, Role.LEADER)  # by PySyncObj's numbers
_NEVER_APPENDED = frozenset(
    {
        FAIL_REASON.QUEUE_FULL,
        FAIL_REASON.MISSING_LEADER,
        FAIL_REASON.DISCARDED,
        FAIL_REASON.REQUEST_DENIED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings of the engine. `peers`: table address of every node, this one's too. Times in ms."""

    node_id: NodeId
    peers: Mapping[NodeId, str]
    dial: Mapping[str, str]
    listen: str
    directory: Path
    heartbeat_ms: int
    election_timeout_ms_min: int
    election_timeout_ms_max: int
    flush: bool
    batch: bool
    password: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """PySyncObj's own status. The indexes of its log mean nothing outside of it."""

    role: Role
    term: Term
    leader_id: NodeId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A committed command: each once, in the order of the group."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The command with that ticket failed; `definite`: it surely was not appended."""

    ticket: int
    definite: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """This node votes for `peer` in `term`; made as durable as configured before this report."""

    term: Term
    peer: NodeId


Item: TypeAlias = Command | EngineState | Refused | Vote


def require_loopback(*addresses: str) -> None:
    """Check the addresses. Raises ValueError for one that strangers could reach."""
    for address in addresses:
        host = address.rpartition(":")[0].strip("[]")
        try:
            is_loopback = ipaddress.ip_address(host).is_loopback
        except ValueError:
            is_loopback = False
        if not is_loopback:
            raise ValueError(
                f"engine pysyncobj: {address} is not a loopback address; PySyncObj unpickles what"
                " it is sent, so nobody else may reach it"
            )


class PySyncObjEngine:
    """Engine of one node. `on_items` is called on the loop whenever `take` has something."""

    def __init__(self, config: EngineConfig, on_items: Callable[[], None]) -> None:
        require_loopback(config.listen, *config.peers.values(), *config.dial.values())
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._stream = _Stream(self._loop, on_items)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pysyncobj")
        self._calls: queue.SimpleQueue[Callable[[_Replica], None]] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._replica: _Replica | None = None

    async def start(self) -> None:
        """Bind, read the journal, start to tick. Raises OSError."""
        started: asyncio.Future[None] = self._loop.create_future()
        self._ended: Future[None] = self._thread.submit(self._run, started)
        ended = asyncio.wrap_future(self._ended)
        await asyncio.wait({started, ended}, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            await self.stop()
            await ended  # raises the thread's exception

    async def wait_ended(self) -> BaseException:
        """Return the reason when the thread has ended by itself."""
        ended = asyncio.wrap_future(self._ended)
        await asyncio.wait({ended})
        return ended.exception() or RuntimeError("PySyncObj's thread ended")

    async def stop(self) -> None:
        """End the thread; hands leadership over first. Safe to call twice."""
        self._stopping.set()
        self._stream.close()
        await asyncio.to_thread(self._thread.shutdown)

    def submit(self, data: bytes, ticket: int) -> None:
        """Replicate a command. A failure comes back as Refused with the ticket, a success as the
        Command itself."""
        replica = self._replica
        assert replica is not None, "started"
        put = self._stream.put

        def done(_: object, reason: int) -> None:
            if reason != FAIL_REASON.SUCCESS:
                put(Refused(ticket=ticket, definite=reason in _NEVER_APPENDED))

        replica.append(data, callback=done)

    def transfer(self, target: NodeId | None) -> None:
        """Request a leader other than this one; None: the node that has come furthest."""
        address = None if target is None else self._config.peers[target]
        self._calls.put(lambda replica: replica.transferLeadership(address))

    def take(self) -> Item | None:
        """Return the next item of the stream."""
        return self._stream.take()

    # --- on the thread -------------------------------------------------------------------------

    def _run(self, started: asyncio.Future[None]) -> None:
        config = self._config
        names = {address: name for name, address in config.peers.items()}
        files = _DurableFiles(config.directory) if config.flush else None
        replica = _Replica(config, names, files, self._stream.put)
        try:
            self._replica = replica
            self._loop.call_soon_threadsafe(started.set_result, None)
            reported = replica.state()
            self._stream.put(reported)
            while not self._stopping.is_set():
                replica.doTick(_TICK_S)
                replica.check()
                while not self._calls.empty():
                    self._calls.get()(replica)
                state = replica.state()
                if state != reported:
                    reported = state
                    self._stream.put(state)
        finally:
            replica.destroy()
            if files is not None:
                files.close()


class _Stream:
    """Items from the thread to the loop, in order, bounded in bytes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_items: Callable[[], None]) -> None:
        self._loop = loop
        self._on_items = on_items
        self._items: deque[Item] = deque()
        self._size_bytes = 0
        self._changed = threading.Condition()
        self._scheduled = False
        self._closed = False

    def put(self, item: Item) -> None:
        """Add an item; wait while the loop is too far behind, as PySyncObj's heartbeats then do."""
        with self._changed:
            while self._size_bytes > _STREAM_SIZE_BYTES_MAX and not self._closed:
                self._changed.wait()
            if self._closed:
                return
            self._items.append(item)
            self._size_bytes += _size_of(item)
            if not self._scheduled:
                self._scheduled = True
                self._loop.call_soon_threadsafe(self._on_items)

    def take(self) -> Item | None:
        with self._changed:
            if not self._items:
                self._scheduled = False
                return None
            item = self._items.popleft()
            self._size_bytes -= _size_of(item)
            self._changed.notify()
            return item

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify()


def _size_of(item: Item) -> int:
    return len(item.data) if isinstance(item, Command) else 0


class _DurableFiles:
    """Syncs the files that PySyncObj only writes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._journal: int | None = None

    def sync_journal(self) -> None:
        """Make the journal's memory map durable; the file is the map's."""
        if self._journal is None:
            self._journal = os.open(self._directory / "journal", os.O_RDWR | os.O_CLOEXEC)
            self._sync_directory()
        os.fdatasync(self._journal)

    def sync_vote(self) -> None:
        """Make term and vote durable: a file that was written beside and renamed."""
        descriptor = os.open(self._directory / "journal.meta", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._sync_directory()

    def close(self) -> None:
        journal, self._journal = self._journal, None
        if journal is not None:
            os.close(journal)

    def _sync_directory(self) -> None:
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _DialledNode(TCPNode):  # type: ignore[misc]  # PySyncObj has no types
    """A peer by its table address, dialled where a proxy stands between."""

    def __init__(self, address: str, dialled: str) -> None:
        super().__init__(address)
        self._dialled_host, _, port = dialled.rpartition(":")
        self._dialled_port = int(port)

    @property
    def ip(self) -> str:
        return self._dialled_host.strip("[]")

    @property
    def port(self) -> int:
        return self._dialled_port


class _FlushingTransport(TCPTransport):  # type: ignore[misc]  # PySyncObj has no types
    """PySyncObj's own transport, which first makes durable what a message depends on."""

    def __init__(
        self, replica: _Replica, own: TCPNode, others: set[TCPNode], files: _DurableFiles | None
    ) -> None:
        self._files = files
        self._is_dirty = True  # entries came since the last sync; a journal found at the start too
        self._synced_last: tuple[int, int] = (0, 0)  # index and term, of what was sent as leader
        self._replica = replica
        super().__init__(replica, own, others)

    def send(self, node: TCPNode, message: dict[str, Any]) -> bool:
        self._persist(node, message)
        return bool(super().send(node, message))

    def _onMessageReceived(self, node: TCPNode, message: dict[str, Any]) -> None:
        entries = message.get("entries")
        if entries or "transmission" in message:
            self._is_dirty = True
        if entries and message["term"] >= self._replica.raftCurrentTerm:
            self._replica.compare(entries)
        super()._onMessageReceived(node, message)

    def _persist(self, node: TCPNode, message: dict[str, Any]) -> None:
        files = self._files
        match message["type"]:
            case "next_node_idx":
                if files is not None and self._is_dirty:
                    files.sync_journal()
                self._is_dirty = False
            case "append_entries":
                entries = message.get("entries")
                last = (entries[-1][1], entries[-1][2]) if entries else self._synced_last
                if files is not None and last != self._synced_last:
                    files.sync_journal()
                self._synced_last = last
            case "request_vote":
                if files is not None:
                    files.sync_vote()
                self._replica.on_vote(message["term"], None)
            case "response_vote":
                if files is not None:
                    files.sync_vote()
                self._replica.on_vote(message["term"], node.id)
            case _:
                return


class _Replica(SyncObj):  # type: ignore[misc]  # PySyncObj has no types
    """The replicated object: one method, whose calls are the log."""

    def __init__(
        self,
        config: EngineConfig,
        names: Mapping[str, NodeId],
        files: _DurableFiles | None,
        put: Callable[[Item], None],
    ) -> None:
        self._names = names
        self._own_id = config.node_id
        self._files = files
        self._put = put
        self._applied: dict[int, int] = {}  # PySyncObj's index: CRC32 of the command
        self._diverged: StateDivergedError | None = None
        self._diverged_s = 0.0
        own = TCPNode(config.peers[config.node_id])
        others = [
            _DialledNode(address, config.dial.get(address, address))
            for name, address in config.peers.items()
            if name != config.node_id
        ]
        try:
            super().__init__(
                own,
                others,
                _conf(config),
                transportClass=lambda replica, own, others: _FlushingTransport(
                    replica, own, others, files
                ),
            )
        except SyncObjException as error:
            if error.errorCode != "BindError":
                raise
            raise OSError(f"{config.listen} can't be listened on") from error

    @replicated  # type: ignore[untyped-decorator]  # PySyncObj has no types
    def append(self, data: bytes) -> None:
        """Process a committed command; called in order, on the thread."""
        if self._files is not None and not self.otherNodes:
            self._files.sync_journal()  # nothing is sent to anybody, so nothing else has synced it
        index = self.raftLastApplied + 1  # it counts the entry once this returns
        self._applied[index] = crc32(data)
        if len(self._applied) > _REMEMBERED_MAX:
            del self._applied[next(iter(self._applied))]
        if self._diverged is None:
            self._put(Command(data=data))

    def compare(self, entries: Sequence[tuple[bytes, int, int]]) -> None:
        """Compare a leader's entries with applied ones of the same indexes, which they replace."""
        oldest = next(iter(self._applied), 0)
        for command, index, term in entries:
            if not oldest <= index <= self.raftLastApplied or self._diverged is not None:
                continue
            is_append = command[:1] == _REGULAR
            applied = self._applied.get(index)  # None: one of PySyncObj's own
            if applied != (crc32(_data_of(command)) if is_append else None):
                self._diverged_s = time.monotonic()
                self._diverged = StateDivergedError(
                    f"PySyncObj's entry {index} was applied here, and the leader of term {term}"
                    " has another one in its place"
                )

    def check(self) -> None:
        """Raise StateDivergedError after a divergence, once PySyncObj has saved its state."""
        if self._diverged is not None and time.monotonic() > self._diverged_s + _META_SAVED_S:
            raise self._diverged

    def state(self) -> EngineState:
        leader = self._getLeader()
        return EngineState(
            role=_ROLES[self.getStatus()["state"]],
            term=self.raftCurrentTerm,
            leader_id=None if leader is None else self._names.get(leader.id),
        )

    def on_vote(self, term: Term, address: str | None) -> None:
        """Report a vote about to be sent; `address` None: a candidate's own."""
        peer = self._own_id if address is None else self._names[address]
        self._put(Vote(term=term, peer=peer))


def _data_of(command: bytes) -> bytes:
    """Return the argument of `append` in a replicated call as PySyncObj pickles it."""
    _, arguments = pickle.loads(command[1:])  # noqa: S301 - PySyncObj will do the same next
    return bytes(arguments[0])


def _conf(config: EngineConfig) -> SyncObjConf:
    """Return the settings; all that compaction needs is off: see the decision for the cost."""
    low, high = config.election_timeout_ms_min / 1000, config.election_timeout_ms_max / 1000
    return SyncObjConf(
        autoTick=False,
        appendEntriesUseBatch=config.batch,
        appendEntriesPeriod=config.heartbeat_ms / 1000,
        raftMinTimeout=low,
        raftMaxTimeout=max(high, low + 0.001),
        leaderFallbackTimeout=high,
        connectionTimeout=2.5 * max(high, low + 0.001),  # as its own defaults stand to each other
        connectionRetryTime=_RECONNECT_S,
        commandsWaitLeader=False,
        commandsQueueSize=_COMMANDS_MAX,
        appendEntriesBatchSizeBytes=_BATCH_SIZE_BYTES_MAX,
        bindAddress=config.listen,
        maxBindRetries=_BIND_ATTEMPTS,
        journalFile=str(config.directory / "journal"),
        fullDumpFile=None,
        logCompactionMinEntries=_NEVER_COMPACTED,
        logCompactionMinTime=_NEVER_COMPACTED,
        password=config.password,
    )
