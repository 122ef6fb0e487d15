"""The RPCs of Raft and the values in them.

Place in the data path: `raft.core.core` emits and consumes these, `raft.peers.wire` turns them into
frames, `raft.peers.transport` carries them. One frozen class per RPC, joined by the union
`Message`. A class with a tag is the head of its frame (docs/FORMATS.md, section 10): the tag is its
kind, its fields follow in the order that they have here, each in the range of its type. The heads
of the others, which carry entries, members or a snapshot's bytes, are in `raft.peers.wire_heads`.

None of these values can be part of a cycle, so the garbage collector need not look at them.

Every message of the core carries the sender, the receiver and the sender's term, replies included:
a reply without a term, or of an earlier term, must never move a follower's progress (that is how
PySyncObj loses acknowledged writes). `Introduce` and the fetch of entries go from shell to shell:
no rule of Raft depends on them, and they carry no term.

Source: Raft, figure 2 and section 7; Ongaro's dissertation 6.4 (ReadIndex) and 9.6 (pre-vote);
"Protocol-Aware Recovery for Consensus-Based Storage" (the fetch of entries).
"""

from __future__ import annotations

import enum
from typing import TypeAlias

from msgspec import Struct

from raft.ids import Index, NodeId, Number, Term
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


class Entry(Struct, frozen=True, kw_only=True, gc=False):
    """One entry of the log. `payload` is never copied on its way from disk to wire."""

    index: Index
    term: Term
    kind: EntryKind
    payload: bytes


class HardState(Struct, frozen=True, kw_only=True, gc=False):
    """Term and vote; durable, file and directory, before a message that depends on them leaves."""

    current_term: Term
    voted_for: NodeId | None


class LogBase(Struct, frozen=True, kw_only=True, gc=False):
    """Place right before a log's first entry: where the log was cut off, or nothing (all zero).

    `position` is one past the last byte of that entry, `chain` its chain.
    """

    index: Index = 0
    term: Term = 0
    position: int = 0
    chain: int = 0


class _Message(
    Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True, gc=False
):
    """A message from one node to another."""

    sender: NodeId
    receiver: NodeId


class _CoreMessage(_Message, frozen=True, kw_only=True):
    """A message from one core to another, in the sender's term."""

    term: Term


class RequestVote(_CoreMessage, frozen=True, kw_only=True, tag=1):
    """Requests a vote; with `pre_vote` it asks only whether a vote would be granted (9.6).

    For a pre-vote `term` is the term that the candidate would enter, not one it has entered.
    """

    last_log_index: Index
    last_log_term: Term
    pre_vote: bool
    leadership_transfer: bool  # set when TimeoutNow started the campaign: skip the lease


class RequestVoteReply(_CoreMessage, frozen=True, kw_only=True, tag=2):
    """Answers a RequestVote. `term` is the requested one if granted, else the current one."""

    granted: bool
    pre_vote: bool


class AppendEntries(_CoreMessage, frozen=True, kw_only=True):
    """Replicates entries; empty, it is a heartbeat.

    `read_round` numbers the leader's rounds of confirmation for ReadIndex; the reply echoes it.
    """

    prev_log_index: Index
    prev_log_term: Term
    entries: tuple[Entry, ...]
    leader_commit: Index
    read_round: Number


class AppendEntriesReply(_CoreMessage, frozen=True, kw_only=True, tag=4):
    """Answers an AppendEntries of the same term.

    success: `match_index` = prev_log_index + number of entries, durable on the sender.
    refusal: `conflict_index` / `conflict_term` say where to go on (Raft 5.3, optimised back-off):
    the first index of the term that the follower has at prev_log_index, or its last index + 1
    with conflict_term 0 where its log is too short. `rejected_prev_index` echoes the probe, which
    tells a stale refusal from a fresh one.
    `writable`: whether the sender has room for entries. Without room it appends none, whatever else
    the reply says, and reports with a later reply that it has room again.
    """

    success: bool
    match_index: Index
    rejected_prev_index: Index
    conflict_index: Index
    conflict_term: Term
    read_round: Number
    writable: bool


class TimeoutNow(_CoreMessage, frozen=True, kw_only=True, tag=5):
    """Makes a caught-up follower campaign at once (dissertation 3.10)."""


class InstallSnapshot(_CoreMessage, frozen=True, kw_only=True):
    """A piece of the application's state for a follower whose log ends before the leader's begins
    (Raft, section 7). Built by the leader's shell when the core requests it.

    `base`: where the follower's log is to go on from, the leader's own base or beyond; the leader
    has every entry behind it. `configuration`: the newest one at or before `snapshot_index`.
    `snapshot_index` >= base.index: the state contains the entries behind `base` up to there, so
    they are stored but not applied. `crc` is the CRC32 of `data`, the bytes of the snapshot from
    `offset` on, of `snapshot_size` in all.
    """

    base: LogBase
    configuration: Configuration
    snapshot_index: Index
    snapshot_size: Number
    offset: Number
    data: bytes
    crc: int


class InstallSnapshotReply(_CoreMessage, frozen=True, kw_only=True, tag=7):
    """Answers an InstallSnapshot of the same term.

    `next_offset`: the first byte of that snapshot that the follower lacks, so that a broken
    transfer resumes there. `installed`: the follower's log holds the entry at `base_index` or
    begins right behind it, durably.
    """

    base_index: Index
    snapshot_index: Index
    next_offset: Number
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


class Introduce(_Message, frozen=True, kw_only=True):
    """Introduces a store to a peer, before it takes part in anything.

    `configuration`: the one in force at a node that takes part in its group; None at one that is
    not admitted yet (`raft.bootstrap.formation`), whose `roster` holds the stores that it knows of,
    by name, its own included.
    """

    store_id: str
    roster: tuple[tuple[NodeId, str], ...]
    configuration: Configuration | None


class FetchEntries(_Message, frozen=True, kw_only=True, tag=9):
    """Requests good copies of the committed entries [first_index, last_index], for a repair."""

    request_id: Number
    first_index: Index
    last_index: Index


class FetchEntriesReply(_Message, frozen=True, kw_only=True):
    """Answers a FetchEntries. `entries` begin at the requested first_index and may end before the
    requested last one; `chain_before` is the chain of the entry before them. `missing`: this node
    has no good copy of the first one (`entries` is empty then). `commit_index`: entries up to there
    are committed, so that a requester whose entries differ knows that its own never were."""

    request_id: Number
    entries: tuple[Entry, ...]
    chain_before: int
    missing: bool
    commit_index: Index


PeerMessage: TypeAlias = Message | Introduce | FetchEntries | FetchEntriesReply
"""All messages between nodes: the core's and those that never reach a core."""
