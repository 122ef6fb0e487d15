"""The RPCs of Raft and the values that travel in them.

Place in the data path: `raft.core` emits and consumes these, `raft.wire` turns them into frames,
`raft.transport` carries them. One frozen class per RPC, joined by the union `Message`.

Every message carries the sender, the receiver and the sender's term, replies included: a reply
that names no term, or one of an earlier term, must never move a follower's progress (that is how
PySyncObj loses acknowledged writes).

Source: Raft, figure 2; Ongaro's dissertation 6.4 (ReadIndex) and 9.6 (pre-vote).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NewType, TypeAlias

__all__ = [
    "AppendEntries",
    "AppendEntriesReply",
    "Entry",
    "EntryKind",
    "HardState",
    "Index",
    "Message",
    "NodeId",
    "RequestVote",
    "RequestVoteReply",
    "Term",
    "TimeoutNow",
]

NodeId = NewType("NodeId", str)
Term = int
Index = int


class EntryKind(enum.IntEnum):
    """What an entry's payload is to Raft."""

    NOOP = 0  # written by a new leader (dissertation 6.4); empty payload
    CONFIG = 1  # msgpack list of voters; in force from its append (dissertation 4.1)
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
    """What must be durable, file and directory, before any message that depends on it leaves."""

    current_term: Term
    voted_for: NodeId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestVote:
    """Asks for a vote; with `pre_vote` it asks only whether a vote would be given (9.6).

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
    """`term` is the term asked for if granted, else the replier's current term."""

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
    with conflict_term 0 where its log is too short. `rejected_prev_index` echoes the probe, so
    that a stale refusal can be told from a fresh one.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutNow:
    """Tells a caught-up follower to campaign at once (dissertation 3.10)."""

    sender: NodeId
    receiver: NodeId
    term: Term


Message: TypeAlias = (
    RequestVote | RequestVoteReply | AppendEntries | AppendEntriesReply | TimeoutNow
)
