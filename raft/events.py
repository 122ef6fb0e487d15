"""What goes into `raft.core` and what comes out of it.

In: `Tick`, `Receive`, `Propose`, `LogDurable`, `HardStateDurable`... each with the shell's time.
Out: one `Ready` per step. The core never does IO; the shell carries a Ready out in this order,
which is a contract (stated once more, numbered, in `raft.node`):

1. append `truncate_from` and `entries` to the log file (no fsync yet);
2. send `messages` (they depend on nothing that this Ready persists);
3. make hard state and log durable (fsync; may run off the loop, batched over several Readys);
4. send `messages_after_sync`, in order;
5. feed `LogDurable` back, so that a leader counts itself and nobody acknowledges early;
6. apply up to `commit_index`.

A failed persist in 1 or 3 stops the node: nothing after it happens.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TypeAlias

from raft.messages import Entry, HardState, Index, Message, NodeId, Term

__all__ = [
    "Event",
    "LogDurable",
    "PeerUnreachable",
    "Propose",
    "ReadIndexRequest",
    "ReadState",
    "Ready",
    "Receive",
    "Role",
    "Tick",
    "TransferLeadership",
]


class Role(enum.Enum):
    """Raft 5.1, and the pre-candidate of dissertation 9.6."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre_candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed; the shell calls it at or after `Core.next_deadline_ms`."""

    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive:
    """A message arrived from a peer whose identity the transport has proved."""

    now_ms: int
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Propose:
    """Append one DATA entry. Only legal while leader; the entry gets last index + 1."""

    now_ms: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDurable:
    """Everything up to `index` (an entry of `term`) is fsynced here.

    The term names which entry it was: after a truncation a late report about a dropped entry
    must not count.
    """

    now_ms: int
    index: Index
    term: Term


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerUnreachable:
    """The connection to or from `peer` broke. A hint, never proof.

    A follower whose leader it was campaigns (pre-votes) after a short random delay instead of a
    whole election timeout; a leader goes back to probing that peer.
    """

    now_ms: int
    peer: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadIndexRequest:
    """Ask for a linearizable read point (dissertation 6.4); answered by a ReadState."""

    now_ms: int
    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferLeadership:
    """Hand leadership to `target` (dissertation 3.10)."""

    now_ms: int
    target: NodeId


Event: TypeAlias = (
    Tick | Receive | Propose | LogDurable | PeerUnreachable | ReadIndexRequest | TransferLeadership
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadState:
    """Answer to a ReadIndexRequest: reads at or after applied `index` are linearizable.

    `index` None: leadership was lost or not yet proved, ask again elsewhere.
    """

    request_id: int
    index: Index | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What the shell must do after a step, in the order told above."""

    hard_state: HardState | None = None
    truncate_from: Index | None = None
    entries: tuple[Entry, ...] = ()
    messages: tuple[Message, ...] = ()
    messages_after_sync: tuple[Message, ...] = ()
    commit_index: Index = 0  # the core's commit index after the step, always filled
    read_states: tuple[ReadState, ...] = field(default=())
    role: Role = Role.FOLLOWER  # after the step, always filled
    term: Term = 0  # current term after the step, always filled
    leader_id: NodeId | None = None  # after the step, always filled
