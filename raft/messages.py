"""The RPCs of Raft and the values in them.

Place in the data path: `raft.core.core` emits and consumes these, `raft.peers.wire` turns them into
frames, `raft.peers.transport` carries them. One frozen class per RPC, joined by the union
`Message`. The fields of most stand in a frame in the order that they have here
(`raft.peers.wire_heads.FLAT`).

Every message of the core carries the sender, the receiver and the sender's term, replies included:
a reply without a term, or of an earlier term, must never move a follower's progress (that is how
PySyncObj loses acknowledged writes). `Introduce` and the fetch of entries go from shell to shell:
no rule of Raft depends on them, and they carry no term.

Source: Raft, figure 2 and section 7; Ongaro's dissertation 6.4 (ReadIndex) and 9.6 (pre-vote);
"Protocol-Aware Recovery for Consensus-Based Storage" (the fetch of entries).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from raft.ids import Index, NodeId, Term
from raft.membership import Configuration

__all__ = [
    "AppendEntries",
    "AppendEntriesReply",
    "Entry",
    "EntryKind",
    "FetchEntries",
    "FetchEntriesReply",
    "HardState",
    "Index",
    "InstallSnapshot",
    "InstallSnapshotReply",
    "Introduce",
    "LogBase",
    "Message",
    "NodeId",
    "PeerMessage",
    "RequestVote",
    "RequestVoteReply",
    "Term",
    "TimeoutNow",
]


class EntryKind(enum.IntEnum):
    """Meaning of an entry's payload to Raft."""

    NOOP = 0  # written by a new leader (dissertation 6.4); empty payload
    CONFIG = 1  # a membership; in force from its append (dissertation 4.1)
    DATA = 2  # the application's bytes, opaque here


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of the log. `payload` is never copied on its way from disk to wire."""

    index: Index
    term: Term
    kind: EntryKind
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HardState:
    """Term and vote; durable, file and directory, before a message that depends on them leaves."""

    current_term: Term
    voted_for: NodeId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBase:
    """Place right before a log's first entry: where the log was cut off, or nothing (all zero).

    `position` is one past the last byte of that entry, `chain` its chain.
    """

    index: Index = 0
    term: Term = 0
    position: int = 0
    chain: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestVote:
    """Requests a vote; with `pre_vote` it asks only whether a vote would be granted (9.6).

    For a pre-vote `term` is the term that the candidate would enter, not one it has entered.
    """

    sender: NodeId
    receiver: NodeId
    term: Term
    last_log_index: Index
    last_log_term: Term
    pre_vote: bool
    leadership_transfer: bool = False  # set when TimeoutNow started the campaign: skip the lease


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestVoteReply:
    """Answers a RequestVote. `term` is the requested one if granted, else the current one."""

    sender: NodeId
    receiver: NodeId
    term: Term
    granted: bool
    pre_vote: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendEntries:
    """Replicates entries; empty, it is a heartbeat.

    `read_round` numbers the leader's rounds of confirmation for ReadIndex; the reply echoes it.
    """

    sender: NodeId
    receiver: NodeId
    term: Term
    prev_log_index: Index
    prev_log_term: Term
    entries: tuple[Entry, ...]
    leader_commit: Index
    read_round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendEntriesReply:
    """Answers an AppendEntries of the same term.

    success: `match_index` = prev_log_index + number of entries, durable on the sender.
    refusal: `conflict_index` / `conflict_term` say where to go on (Raft 5.3, optimised back-off):
    the first index of the term that the follower has at prev_log_index, or its last index + 1
    with conflict_term 0 where its log is too short. `rejected_prev_index` echoes the probe, which
    tells a stale refusal from a fresh one.
    `writable`: whether the sender has room for entries. Without room it appends none, whatever else
    the reply says, and reports with a later reply that it has room again.
    """

    sender: NodeId
    receiver: NodeId
    term: Term
    success: bool
    match_index: Index
    rejected_prev_index: Index
    conflict_index: Index
    conflict_term: Term
    read_round: int
    writable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutNow:
    """Makes a caught-up follower campaign at once (dissertation 3.10)."""

    sender: NodeId
    receiver: NodeId
    term: Term


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallSnapshot:
    """A piece of the application's state for a follower whose log ends before the leader's begins
    (Raft, section 7). Built by the leader's shell when the core requests it.

    `base`: where the follower's log is to go on from, the leader's own base or beyond; the leader
    has every entry behind it. `configuration`: the newest one at or before `snapshot_index`.
    `snapshot_index` >= base.index: the state contains the entries behind `base` up to there, so
    they are stored but not applied. `crc` is the CRC32 of `data`, the bytes of the snapshot from
    `offset` on, of `snapshot_size` in all.
    """

    sender: NodeId
    receiver: NodeId
    term: Term
    base: LogBase
    configuration: Configuration
    snapshot_index: Index
    snapshot_size: int
    offset: int
    data: bytes
    crc: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallSnapshotReply:
    """Answers an InstallSnapshot of the same term.

    `next_offset`: the first byte of that snapshot that the follower lacks, so that a broken
    transfer resumes there. `installed`: the follower's log holds the entry at `base_index` or
    begins right behind it, durably.
    """

    sender: NodeId
    receiver: NodeId
    term: Term
    base_index: Index
    snapshot_index: Index
    next_offset: int
    installed: bool


Message: TypeAlias = (
    RequestVote
    | RequestVoteReply
    | AppendEntries
    | AppendEntriesReply
    | TimeoutNow
    | InstallSnapshot
    | InstallSnapshotReply
)
"""Messages between cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduce:
    """Introduces a store to a peer, before it takes part in anything.

    `configuration`: the one in force at a node that takes part in its group; None at one that is
    not admitted yet (`raft.bootstrap.formation`), whose `roster` holds the stores that it knows of,
    by name, its own included.
    """

    sender: NodeId
    receiver: NodeId
    store_id: str
    roster: tuple[tuple[NodeId, str], ...]
    configuration: Configuration | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchEntries:
    """Requests good copies of the committed entries [first_index, last_index], for a repair."""

    sender: NodeId
    receiver: NodeId
    request_id: int
    first_index: Index
    last_index: Index


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchEntriesReply:
    """Answers a FetchEntries. `entries` begin at the requested first_index and may end before the
    requested last one; `chain_before` is the chain of the entry before them. `missing`: this node
    has no good copy of the first one (`entries` is empty then). `commit_index`: entries up to there
    are committed, so that a requester whose entries differ knows that its own never were."""

    sender: NodeId
    receiver: NodeId
    request_id: int
    entries: tuple[Entry, ...]
    chain_before: int
    missing: bool
    commit_index: Index


PeerMessage: TypeAlias = Message | Introduce | FetchEntries | FetchEntriesReply
"""All messages between nodes: the core's and those that never reach a core."""
