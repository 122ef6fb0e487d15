"""The interface between a broker and the engine that replicates its log.

It is implemented by `raft.node.node`, the default, `raft.pysyncobj.log`, and `broker.ha.engine`, a
master with slaves. The broker proposes payloads and is notified of committed ones; it sees neither
changes of term nor sockets.

Contract:
- `propose` appends at once (the payload is built synchronously, for the slot it will have; where
  it does not fit there, once more for another slot) and answers later. Proposals are committed in
  the order in which they were made.
- committed entries reach `StateMachine.apply` exactly once per incarnation, in index order, before
  the future of the proposal resolves.
- a proposal's outcome is COMMITTED, a definite refusal (nothing will ever be stored), or unknown;
  `ProposalStatus.definite` distinguishes them;
- a state machine that can be captured and restored need not be replayed from the beginning, and the
  log may lose its beginning: `retain_from`.

Times are milliseconds of the caller's clock; positions are bytes from the log's beginning.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from raft.events import ChangeRefused, Role
from raft.membership import Membership, MembershipChange
from raft.messages import EntryKind, Index, NodeId, Term

__all__ = [
    "ChangeRefusedError",
    "CommittedEntry",
    "LogFullError",
    "LogStatus",
    "NotLeaderError",
    "Phase",
    "ProposalResult",
    "ProposalStatus",
    "ReplicatedLog",
    "RestorableStateMachine",
    "RetentionBounds",
    "Slot",
    "Snapshot",
    "StateDivergedError",
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
    SLAVE_NOT_AVAILABLE = "slave_not_available"  # stored here, no replica available

    @property
    def definite(self) -> bool:
        """Whether the entry surely is, or surely never will be, in the committed log."""
        return self in {ProposalStatus.COMMITTED, ProposalStatus.TRUNCATED}


class Slot(Struct, frozen=True, kw_only=True, gc=False):
    """Place of a proposed entry. `position` is that of the payload's first byte."""

    index: Index
    term: Term
    position: int


class ProposalResult(Struct, frozen=True, kw_only=True, gc=False):
    status: ProposalStatus
    index: Index
    term: Term


class CommittedEntry(Struct, frozen=True, kw_only=True, gc=False):
    """An entry that will never be revoked. `position` as in Slot; `chain` as in the header."""

    index: Index
    term: Term
    kind: EntryKind
    position: int
    payload: bytes
    chain: int


class Phase(enum.Enum):
    """A node's use of its store; it takes part in its group only while SERVING."""

    RECOVERING = "recovering"  # reads its log, restores and replays its state
    UNBORN = "unborn"  # its store is empty, and it is not known that the group is new
    REPAIRING = "repairing"  # durable entries are damaged, copies are fetched from its peers
    SERVING = "serving"


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
    learners: tuple[NodeId, ...]
    begin_position: int  # of the log's first entry: what lies below it was dropped
    writable: bool  # its disk has room for more entries
    phase: Phase
    store_id: str = ""  # of this node's store; "" where an engine has none


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionBounds:
    """Facts of the log for a decision on retention. Positions in bytes."""

    begin_position: int
    end_position: int
    follower_position: int | None  # first byte that the slowest live follower lacks; leader only


class NotLeaderError(Exception):
    """This node can't take the request: definite, nothing was appended. Its text names the leader,
    where it is known."""

    def __init__(self, leader_id: NodeId | None) -> None:
        super().__init__(f"not the leader; leader is {leader_id or 'unknown'}")


class LogFullError(ValueError):
    """There is no room for the entry: definite, nothing was appended. Room may come back."""

    def __init__(self) -> None:
        super().__init__("the log has no room for more entries")


class ChangeRefusedError(Exception):
    """The membership change is invalid, or not possible now: definite, nothing was appended."""

    def __init__(self, refused: ChangeRefused) -> None:
        detail = f": {refused.detail}" if refused.detail else ""
        super().__init__(f"{refused.reason.value}{detail}")
        self.refused = refused


class StateDivergedError(Exception):
    """The engine revoked what it had reported as committed: this node's state holds entries that
    the group has lost. The node must start anew, with an empty state machine."""


class StateMachine(Protocol):
    """The replicated application. Called on the event loop, never concurrently."""

    def apply(self, entries: Sequence[CommittedEntry]) -> None:
        """Apply committed entries in order, no-ops and configurations included. Must not fail: an
        exception stops the node."""

    def on_role_change(self, status: LogStatus) -> None:
        """Note a change of role, term, leader or readiness. After a loss of leadership every
        proposal still open has been, or is about to be, answered."""


class Snapshot(Protocol):
    """The state machine's state at the time of its capture."""

    def encode(self) -> Iterator[bytes]:
        """Yield its bytes in chunks of at most 1 MiB, on a thread while entries are applied."""


class RestorableStateMachine(StateMachine, Protocol):
    """A state machine whose state can be captured and restored.

    Its state is a function of the entries applied; beside it there may be derived files, which hold
    something of each entry that is still in the log.
    """

    def capture(self) -> Snapshot:
        """Capture the present state. On the loop, between two applies, so it must be quick."""

    def prepare_restore(self, index: Index, chunks: Iterable[bytes]) -> Callable[[], None]:
        """Read the state captured after `index` was applied; return a function that replaces the
        present state by it.

        Changes nothing by itself, and runs on a thread while entries are applied. The returned
        function is called where no other call runs: before the first apply on any thread; later,
        when a leader installs the beginning of its log here, on the loop, so it must be quick.
        Raises ValueError where the chunks are no state (an exception of the iterator passes
        through).
        """

    @property
    def needs_indexing(self) -> bool:
        """Whether, after a restore, derived files lack something of entries up to its index."""

    def index_only(self, entries: Sequence[CommittedEntry]) -> None:
        """Add committed entries, in order, that the restored state contains to the derived files.
        These may hold some or all of them already."""

    def trim(self, position: int) -> None:
        """Drop from the derived files what lies below `position`, where the log begins now. On the
        loop, after a restore and after each `retain_from` that removed something."""

    def sync_derived(self) -> None:
        """Make the derived files durable, with what was applied before this call. On a thread while
        entries are applied; a snapshot counts only once this has returned. Raises OSError, which
        stops the node."""


class ReplicatedLog(Protocol):
    async def start(self) -> None:
        """Recover, join the group. Raises OSError or CorruptLogError with the defect."""

    async def stop(self) -> None:
        """Leave cleanly: sync everything appended, write the checkpoint."""

    def status(self) -> LogStatus: ...

    def propose(self, fill: Callable[[Slot], bytes]) -> asyncio.Future[ProposalResult]:
        """Append one entry whose payload `fill` builds for its slot.

        Raises NotLeaderError (also while not `ready`), LogFullError where there is no room, and
        ValueError where the payload is larger than `entry_size_bytes_max`; `fill` may have been
        called then. It may be called twice: what it built first counts no longer, and has the size
        of what it builds then. The future never raises.
        """

    def confirm(self, on_done: Callable[[ProposalStatus], None]) -> None:
        """Call `on_done` with the status that a proposal which is applied here by now is answered
        with: at once where entries are applied after they are committed.

        A retry that finds its message stored is answered by it, not sooner than the first attempt.
        """

    def propose_then(
        self, fill: Callable[[Slot], bytes], on_done: Callable[[ProposalResult], None]
    ) -> None:
        """Propose as `propose` does, and call back with the outcome, never within this call.

        One that is called back costs less than one that awaits a future.
        """

    async def read_index(self) -> Index:
        """Return a linearizable read point, once everything up to it is applied here.

        Raises NotLeaderError. Concurrent calls share one round of confirmation.
        """

    def read(self, position: int, size: int) -> bytes:
        """Return `size` bytes of the log at `position`, as stored.

        Raises LookupError where the log no longer, or not yet, has them, and DamagedLogError where
        they are damaged on this node's disk, until good copies have arrived from its peers.
        """

    async def transfer_leadership(self, target: NodeId) -> None:
        """Hand leadership to `target`; return once this node has ceased to lead.

        Raises NotLeaderError, ValueError where `target` is no other voter, and TimeoutError where
        it did not take over in time: this node goes on leading then.
        """

    def membership(self) -> Membership:
        """Return the membership in force here, committed or not."""

    async def change_membership(self, change: MembershipChange) -> ProposalResult:
        """Change the membership by one step; return once that is committed and applied here, or
        this node can't learn its outcome any more.

        Raises NotLeaderError, LogFullError and ChangeRefusedError: definite, nothing was appended.
        """

    def retention_bounds(self) -> RetentionBounds: ...

    async def retain_from(self, position: int) -> int:
        """Drop whole segments below `position`, but none that the older kept snapshot needs; return
        where the log begins now.

        Where the snapshot holds some back, the state is captured at the end of the next segment,
        however soon: with repeated calls, the log drops them with the second capture.
        `StateMachine.trim` has been called with the new beginning, if it has changed. Raises
        OSError, which stops the node.
        """

    async def wait_failed(self) -> BaseException:
        """Return the reason (a failed persist) when the node had to stop by itself."""
