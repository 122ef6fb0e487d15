"""One node whose disk and peers are scripted, and the order of what it asks of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path

from campaigns.rig.waiting import until
from raft.events import Role
from raft.log.disk import OsDisk
from raft.log.hard_state import HardStateFile
from raft.membership import Member
from raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    EntryKind,
    NodeId,
    PeerMessage,
    RequestVote,
    RequestVoteReply,
)
from raft.node.node import RaftNode
from raft.replicated_log import (
    CommittedEntry,
)
from raft.storage import DiskFile, OnSynced
from raft.store.identity import IdentityFile, StoreIdentity
from tests.raft.node_group import Recorder, node_config


class RecordingDisk(OsDisk):
    """The real disk, telling what is written and synced, and failing when it is told to."""

    def __init__(self, root: Path, record: Callable[..., None]) -> None:
        super().__init__(root)
        self.record = record
        self.fail: dict[str, OSError] = {}

    def open(self, path: str, *, create: bool) -> DiskFile:  # type: ignore[override]  # a wrapper
        return RecordingFile(super().open(path, create=create), path.partition("/")[0], self)


class RecordingFile:
    def __init__(self, file: DiskFile, name: str, disk: RecordingDisk) -> None:
        self.file, self.name, self.disk = file, name, disk
        self.size, self.pread, self.close = file.size, file.pread, file.close
        self.truncate, self.allocate = file.truncate, file.allocate
        self.drop_cache = file.drop_cache

    def pwritev(self, buffers: Sequence[bytes], offset: int) -> int:
        if "write" in self.disk.fail and self.name == "commitlog":
            raise self.disk.fail["write"]
        self.disk.record("write", self.name)
        return self.file.pwritev(buffers, offset)

    def sync(self) -> None:
        if "sync" in self.disk.fail and self.name == "commitlog":
            raise self.disk.fail["sync"]
        self.file.sync()
        self.disk.record("sync", self.name)

    def begin_sync(self, on_done: OnSynced) -> bool:
        if "sync" in self.disk.fail and self.name == "commitlog":
            asyncio.get_running_loop().call_soon(on_done, self.disk.fail["sync"])
            return True

        def told(error: OSError | None) -> None:
            self.disk.record("sync", self.name)
            on_done(error)

        return self.file.begin_sync(told)


class RecordingTransport:
    """A network of which the test holds the other end."""

    def __init__(self, record: Callable[..., None]) -> None:
        self.record = record
        self.sent: list[PeerMessage] = []
        self.queued: list[PeerMessage] = []

    async def start(
        self,
        on_message: Callable[[PeerMessage], None],
        on_unreachable: Callable[[NodeId], None],
        *,
        store_id: str,
    ) -> None:
        self.deliver = on_message

    def set_members(self, members: Iterable[Member]) -> None:
        self.members = tuple(members)

    async def run(self) -> None:
        await asyncio.Event().wait()

    def send(self, message: PeerMessage) -> None:
        self.queued.append(message)

    def flush(self) -> None:
        for message in self.queued:
            self.record("send", type(message).__name__)
        self.sent += self.queued
        self.queued = []

    async def stop(self) -> None:
        self.queued = []


def born(store: Path) -> None:
    """A store that may take part although its peers are played by the test."""
    identity = StoreIdentity(
        group="broker-a", node=NodeId("n0"), store_id="0" * 32, born=True, roster=b""
    )
    HardStateFile(OsDisk(store)).load()
    IdentityFile(OsDisk(store)).save(identity)


class Bench(Recorder):
    """n0 of a group of three, with a record of what it did in which order."""

    def __init__(self, store: Path) -> None:
        super().__init__()
        self.events: list[tuple[str, str]] = []
        self.pause_s = 0.0
        record = lambda *event: self.events.append(event)  # noqa: E731 - one line, one use
        (store / "n0").mkdir(exist_ok=True)
        born(store / "n0")
        self.disk = RecordingDisk(store / "n0", record)
        self.transport = RecordingTransport(record)
        peers = {NodeId(f"n{i}"): f"127.0.0.1:{i + 1}" for i in range(3)}
        self.node = RaftNode(
            node_config(store, "n0", peers, trace=False),
            self,
            clock=lambda: time.monotonic() + self.pause_s,
            disk=self.disk,
            transport=self.transport,
        )

    def apply(self, entries: Sequence[CommittedEntry]) -> None:
        super().apply(entries)
        self.events += [("apply", entry.kind.name) for entry in entries]

    async def until(self, *event: str) -> None:
        await until(lambda: event in self.events, str(event))

    async def become_leader(self) -> int:
        """With n1's votes; returns the term."""
        await self.until("send", "RequestVote")
        term = 0
        for pre_vote in (True, False):
            requests = lambda p=pre_vote: [  # noqa: E731 - asked twice
                m for m in self.transport.sent if isinstance(m, RequestVote) and m.pre_vote is p
            ]
            await until(lambda r=requests: bool(r()), "a request for votes")
            term = requests()[-1].term
            self.transport.deliver(
                RequestVoteReply(
                    sender=NodeId("n1"),
                    receiver=NodeId("n0"),
                    term=term,
                    granted=True,
                    pre_vote=pre_vote,
                )
            )
        await until(lambda: self.node.status().role is Role.LEADER, "leadership")
        return term

    def acknowledge(self, term: int, index: int) -> None:
        self.transport.deliver(
            AppendEntriesReply(
                sender=NodeId("n1"),
                receiver=NodeId("n0"),
                term=term,
                success=True,
                match_index=index,
                rejected_prev_index=0,
                conflict_index=0,
                conflict_term=0,
                read_round=0,
                writable=True,
            )
        )

    def append(self, term: int, index: int, prev_term: int, commit: int = 0) -> None:
        entry = Entry(index=index, term=term, kind=EntryKind.DATA, payload=b"data")
        self.transport.deliver(
            AppendEntries(
                sender=NodeId("n1"),
                receiver=NodeId("n0"),
                term=term,
                prev_log_index=index - 1,
                prev_log_term=prev_term,
                entries=(entry,),
                leader_commit=commit,
                read_round=0,
            )
        )


@contextlib.asynccontextmanager
async def bench(store: Path) -> AsyncIterator[Bench]:
    made = Bench(store)
    try:
        await made.node.start()
        yield made
    finally:
        await made.node.stop()
