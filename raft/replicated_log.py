"""The seam between a broker and whatever replicates its log.

Behind it stand `raft.node` (default), `raft.pysyncobj_log`, and `broker.ha`'s sync and async
master-slave replication. The broker proposes payloads and hears of committed ones; it never sees
terms change hands or sockets.

Contract:
- `propose` appends at once (the payload is asked for synchronously, with the slot it will have)
  and answers later. Proposals are committed in the order in which they were made.
- committed entries reach `StateMachine.apply` exactly once per incarnation, in index order,
  before the future of the proposal resolves.
- a proposal's outcome is COMMITTED, a definite refusal (nothing will ever be stored), or unknown;
  `ProposalStatus.definite` tells which.

Times are milliseconds of the caller's clock; positions are bytes from the log's beginning.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from raft.events import Role
from raft.messages import EntryKind, Index, NodeId, Term

__all__ = [
    "CommittedEntry",
    "LogStatus",
    "NotLeaderError",
    "ProposalResult",
    "ProposalStatus",
    "ReplicatedLog",
    "Slot",
    "StateMachine",
]


class ProposalStatus(enum.Enum):
    """How a proposal ended. The flush and slave statuses come from master-slave engines."""

    COMMITTED = "committed"
    LOST_LEADERSHIP = "lost_leadership"  # unknown: a later leader may still commit it
    STOPPED = "stopped"  # unknown: this node stopped first
    TRUNCATED = "truncated"  # definite: another entry was committed in its place
    FLUSH_DISK_TIMEOUT = "flush_disk_timeout"  # stored in memory, fsync unknown
    FLUSH_SLAVE_TIMEOUT = "flush_slave_timeout"  # stored here, replicas unknown
    SLAVE_NOT_AVAILABLE = "slave_not_available"  # stored here, no replica to ask

    @property
    def definite(self) -> bool:
        """True where the entry surely is, or surely never will be, in the committed log."""
        return self in {ProposalStatus.COMMITTED, ProposalStatus.TRUNCATED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """Where a proposed entry will stand. `position` is that of the payload's first byte."""

    index: Index
    term: Term
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalResult:
    status: ProposalStatus
    index: Index
    term: Term


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedEntry:
    """An entry that will never be taken back. `position` as in Slot; `chain` as in the header."""

    index: Index
    term: Term
    kind: EntryKind
    position: int
    payload: bytes
    chain: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStatus:
    role: Role
    term: Term
    leader_id: NodeId | None
    ready: bool  # leader, its no-op applied: it may propose and read
    first_index: Index
    last_index: Index
    commit_index: Index
    applied_index: Index
    voters: tuple[NodeId, ...]


class NotLeaderError(Exception):
    """This node can't take the request: definite, nothing was appended. Ask `leader_id`."""

    def __init__(self, leader_id: NodeId | None) -> None:
        super().__init__(f"not the leader; leader is {leader_id or 'unknown'}")
        self.leader_id = leader_id


class StateMachine(Protocol):
    """The replicated application. Called on the event loop, never concurrently."""

    def apply(self, entries: Sequence[CommittedEntry]) -> None:
        """Committed entries in order, no-ops and configurations included. Must not fail: an
        exception stops the node."""

    def on_role_change(self, status: LogStatus) -> None:
        """Role, term, leader or readiness changed. After a loss of leadership every proposal
        still open has been, or is about to be, answered."""


class ReplicatedLog(Protocol):
    async def start(self) -> None:
        """Recover, join the group. Raises OSError or CorruptLogError with what was found."""

    async def stop(self) -> None:
        """Leave cleanly: everything appended is fsynced, the checkpoint written."""

    def status(self) -> LogStatus: ...

    def propose(self, fill: Callable[[Slot], bytes]) -> asyncio.Future[ProposalResult]:
        """Append one entry whose payload `fill` makes for its slot.

        Raises NotLeaderError (also while not `ready`), and ValueError where the payload is
        larger than `entry_size_max`. The future never raises.
        """

    async def read_index(self) -> Index:
        """Linearizable read point: returns once everything up to it is applied here.

        Raises NotLeaderError. Concurrent calls share one round of confirmation.
        """

    def read(self, position: int, size: int) -> bytes:
        """`size` bytes of the log at `position`, as stored.

        Raises LookupError where the log no longer, or not yet, has them.
        """

    async def wait_failed(self) -> BaseException:
        """Returns when the node had to stop by itself, with the reason (a failed persist)."""
