"""Input and output of `raft.core.core`.

In: `Tick`, `Receive`, `Propose`, `LogDurable`, `HardStateDurable`... each with the shell's time.
Out: one `Ready` per step. The core never does IO; the shell carries a Ready out in this order,
which is a contract (stated once more, numbered, in `raft.node.core_shell`):

1. where there is an `install`, reset the log to its base, durably, and restore the state; else
   append `truncate_from` and `entries` to the log file (no fsync yet);
2. send `messages` (they depend on nothing that this Ready persists);
3. make hard state and log durable (fsync; may run off the loop, batched over several Readys);
4. send `messages_after_sync`, in order;
5. pass `LogDurable` to the core, so that a leader counts itself and no follower acknowledges early;
6. apply up to `commit_index`.

A failed persist in 1 or 3 stops the node: nothing after it happens.

Installing a snapshot, seen from the shell. On the leader each `InstallChunk` of a Ready requests
one InstallSnapshot: the shell reads the bytes, at its own pace, and sends it; at most one per
follower is requested at a time. On the follower `received_chunk` is a piece for the shell to store;
it answers with `ChunkStored`, which reports to the leader where to go on, or, once the snapshot is
whole, checked and durable as the newest of this store, with `SnapshotStored`. Only then the core
orders the `install`, if the log still lacks what the snapshot covers.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

from msgspec import Struct

from raft.membership import Configuration, MembershipChange
from raft.messages import (
    Entry,
    HardState,
    Index,
    InstallSnapshot,
    LogBase,
    Message,
    NodeId,
    Term,
)

__all__ = [
    "ChangeMembership",
    "ChangeRefusal",
    "ChangeRefused",
    "ChunkStored",
    "Event",
    "HardStateDurable",
    "Install",
    "InstallChunk",
    "LogDurable",
    "PeerUnreachable",
    "Propose",
    "ReadIndexRequest",
    "ReadState",
    "Ready",
    "Receive",
    "ReplayChanged",
    "Role",
    "RoomChanged",
    "SnapshotStored",
    "Tick",
    "TransferLeadership",
]


class Role(enum.Enum):
    """Raft 5.1, and the pre-candidate of dissertation 9.6."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre_candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class _Event(Struct, frozen=True, kw_only=True, gc=False):
    """What the shell has seen happen, with its time."""

    now_ms: int


class Tick(_Event, frozen=True, kw_only=True):
    """Time has passed; the shell sends it at or after `Core.next_deadline_ms`."""


class Receive(_Event, frozen=True, kw_only=True):
    """A message arrived from a peer whose identity the transport has proved."""

    message: Message


class Propose(_Event, frozen=True, kw_only=True):
    """Append one DATA entry. Only legal while leader; the entry gets last index + 1."""

    payload: bytes


class LogDurable(_Event, frozen=True, kw_only=True):
    """Everything up to `index` (an entry of `term`) is fsynced here.

    The term names which entry it was: after a truncation a late report about a dropped entry
    must not count.

    Caller's duty: name only an entry that was appended before the sync round began which made it
    durable, and whose own hard state, that of its Ready or an earlier one, this round or an
    earlier one has saved. So a durable entry proves its term, and the vote in it, durable.
    """

    index: Index
    term: Term


class HardStateDurable(_Event, frozen=True, kw_only=True):
    """The hard state of a Ready with this `term` is fsynced here.

    It only saves time: without it the core waits for a durable entry of the term, and all that it
    sends meanwhile waits for rounds of fsync, heartbeat replies too.
    """

    term: Term


class PeerUnreachable(_Event, frozen=True, kw_only=True):
    """The connection to or from `peer` broke. A hint, never proof.

    A follower whose leader it was campaigns (pre-votes) after a short random delay instead of a
    whole election timeout; a leader goes back to probing that peer.
    """

    peer: NodeId


class ReadIndexRequest(_Event, frozen=True, kw_only=True):
    """Request a linearizable read point (dissertation 6.4); answered by a ReadState."""

    request_id: int


class TransferLeadership(_Event, frozen=True, kw_only=True):
    """Hand leadership to `target` (dissertation 3.10)."""

    target: NodeId


class ChangeMembership(_Event, frozen=True, kw_only=True):
    """Change the membership by one step (dissertation 4.1).

    Answered in the Ready of this step: `change_refused`, or a CONFIG entry among `entries` and the
    new `configuration`. The change is done once that entry is committed.
    """

    change: MembershipChange


class RoomChanged(_Event, frozen=True, kw_only=True):
    """The log has room for entries, or has none; at the start it has.

    Without room a follower appends no entries and reports so in its replies, a leader goes on
    leading (handing over is the shell's decision, and refusing proposals its duty), and a campaign
    waits for nodes that have room. `can_begin`: there is room for a new leader's first entries, a
    no-op and a configuration; without it the node can't lead, and does not campaign.
    """

    writable: bool
    can_begin: bool = True


class ReplayChanged(_Event, frozen=True, kw_only=True):
    """This node is far from having applied what it knows to be committed, as after a restart, or
    no longer is; at the start it is not.

    It could be elected, for its log is whole, but could not serve until it has applied it: it waits
    for other nodes to campaign, and accepts no leadership that is handed over.
    """

    replaying: bool


class ChunkStored(_Event, frozen=True, kw_only=True):
    """Everything before `next_offset` of the snapshot that `leader` sends is stored.

    To be sent for every `received_chunk`, also for a useless one: it begins beyond what is stored,
    belongs to another snapshot than the one begun, or its checksum is wrong.
    """

    leader: NodeId
    base_index: Index
    snapshot_index: Index
    next_offset: int


class SnapshotStored(_Event, frozen=True, kw_only=True):
    """A snapshot is whole, its checksum is right, and it is durable as this store's newest: a
    restart would restore it. The fields are those of its InstallSnapshot."""

    leader: NodeId
    base: LogBase
    configuration: Configuration
    snapshot_index: Index
    next_offset: int


Event: TypeAlias = (
    Tick
    | Receive
    | Propose
    | LogDurable
    | HardStateDurable
    | PeerUnreachable
    | ReadIndexRequest
    | TransferLeadership
    | ChangeMembership
    | ReplayChanged
    | RoomChanged
    | ChunkStored
    | SnapshotStored
)


class ChangeRefusal(enum.Enum):
    """Why a change was refused. Definite: nothing was appended."""

    NOT_LEADER = "not the leader"
    NOT_READY = "no entry of the leader's own term is committed yet"
    UNDERWAY = "another change is not committed yet"
    HANDING_OVER = "leadership is being handed over"
    NOT_CAUGHT_UP = "the learner lacks too much of the log, or does not answer"
    NO_MAJORITY = "too few of the voters that there would be answer"
    IMPOSSIBLE = "the change does not fit the membership"


class ChangeRefused(Struct, frozen=True, kw_only=True, gc=False):
    """Refusal of a change; `detail` explains where the reason alone is not enough."""

    reason: ChangeRefusal
    detail: str = ""


class InstallChunk(Struct, frozen=True, kw_only=True, gc=False):
    """Send `receiver` one InstallSnapshot of this term, from `offset` on.

    `snapshot_index` and `base_index` name the snapshot that the follower has begun; None and 0:
    none, send the newest. Where the shell no longer has that one it begins with its newest, at 0. A
    new InstallChunk for a follower replaces one that is not sent yet; one of an earlier term is
    dropped.
    """

    receiver: NodeId
    term: Term
    snapshot_index: Index | None
    base_index: Index
    offset: int


class Install(Struct, frozen=True, kw_only=True, gc=False):
    """The log's beginning is replaced: it holds nothing but `base` after this, entries from
    `base.index` + 1 on will follow. The application restores the state of the stored snapshot,
    which contains the entries up to `snapshot_index`: those are not applied any more."""

    base: LogBase
    configuration: Configuration
    snapshot_index: Index


class ReadState(Struct, frozen=True, kw_only=True, gc=False):
    """Answer to a ReadIndexRequest: reads at or after applied `index` are linearizable.

    `index` None: leadership was lost or not yet proved, request it elsewhere.
    """

    request_id: int
    index: Index | None


class Ready(Struct, frozen=True, kw_only=True, gc=False):
    """Effects that the shell must carry out after a step, in the order stated above."""

    hard_state: HardState | None = None
    truncate_from: Index | None = None
    entries: tuple[Entry, ...] = ()
    messages: tuple[Message, ...] = ()
    messages_after_sync: tuple[Message, ...] = ()
    commit_index: Index = 0  # the core's commit index after the step, always filled
    read_states: tuple[ReadState, ...] = ()
    role: Role = Role.FOLLOWER  # after the step, always filled
    term: Term = 0  # current term after the step, always filled
    leader_id: NodeId | None = None  # after the step, always filled
    configuration: Configuration | None = None  # the one in force, where the step changed it
    change_refused: ChangeRefused | None = None  # the answer to a ChangeMembership
    install: Install | None = None  # then there are no `entries` and no `truncate_from`
    install_chunks: tuple[InstallChunk, ...] = ()  # to be read and sent, as a leader
    received_chunk: InstallSnapshot | None = None  # to be stored, as a follower
    is_quiet: bool = False  # surely nothing but the fields that are always filled
