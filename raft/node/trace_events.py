"""Turns the node's actions into events of the Raft trace; does nothing where tracing is off.

Place in the data path: `raft.node.core_shell` notifies it of each step of the order contract as it
is taken.

Invariants: a vote is traced once it is durable and again each time it is sent; an fsync once it is
done; terms never fall along the trace, since nothing is traced for an earlier term.

From the moment that term or vote changes until that is durable, events are held back: a kill in
between would leave a trace that knows more than the disk, whose term then falls at the restart. A
vote stands in the trace where it was given, so that the log before it is the log voted on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from raft.events import Ready, Role
from raft.log.segment_log import SegmentLog
from raft.membership import Configuration
from raft.messages import (
    Entry,
    HardState,
    Index,
    LogBase,
    Message,
    NodeId,
    RequestVote,
    RequestVoteReply,
    Term,
)
from raft.node.group_commit import SelfVote
from raft.replicated_log import CommittedEntry
from raft.snapshots.snapshot_keeper import WrittenState
from raft.store.trace import RaftTrace

__all__ = ["TraceEvents"]

_VOTE_REQUESTS_MAX = 64
_Fields: TypeAlias = dict[str, int | str | list[str] | None]


@dataclass(slots=True, kw_only=True)
class _Held:
    """An event that waits; `fields` None: a vote that has not been sent yet."""

    event: str
    term: Term
    fields: _Fields | None = None


class TraceEvents:
    """Trace of one node. `term` is everywhere the node's current term."""

    def __init__(
        self, trace: RaftTrace | None, log: SegmentLog, node_id: NodeId, term: Term
    ) -> None:
        self._trace = trace
        self._log = log
        self._node_id = node_id
        self._role: tuple[Role, Term] = (Role.FOLLOWER, term)  # as traced
        # Vote requests with the candidates' logs, for the trace of a vote.
        self._requests: dict[tuple[NodeId, Term], RequestVote] = {}
        self._unsaved: HardState | None = None  # events are held while it is not durable
        self._held: list[_Held] = []

    def started(self, term: Term, voters: Sequence[NodeId]) -> None:
        """Trace the log that was found, and what was dropped of it before there was a core."""
        if self._trace is None:
            return
        log = self._log
        found = log.found_end
        self._trace.record(
            "start",
            term,
            index=log.last_index if found is None else found.index,
            entry_term=log.last_term if found is None else found.term,
            chain=log.chain(log.last_index) if found is None else found.chain,
            voters=list(voters),
        )
        if found is not None:
            self.truncated(term, log.last_index + 1)

    def received(self, message: Message) -> None:
        if self._trace is None or type(message) is not RequestVote or message.pre_vote:
            return
        self._requests[message.sender, message.term] = message
        if len(self._requests) > _VOTE_REQUESTS_MAX:
            del self._requests[next(iter(self._requests))]

    def stepped(self, ready: Ready) -> None:
        """Trace a change of role or term. A pre-candidate is still a follower to all others."""
        if self._trace is None:
            return
        if ready.hard_state is not None:
            self._unsaved = ready.hard_state
        role = Role.FOLLOWER if ready.role is Role.PRE_CANDIDATE else ready.role
        if (role, ready.term) != self._role:
            self._role = (role, ready.term)
            self._record("role", ready.term, role=role.value)
        if self._unsaved is not None and self._gives_vote(ready):
            self._held.append(_Held(event="vote", term=ready.term))  # filled when it is sent

    def truncated(self, term: Term, index: Index) -> None:
        if self._trace is not None:
            self._record("truncate", term, index=index)

    def appended(self, term: Term, entries: Sequence[Entry]) -> None:
        if self._trace is not None:
            for entry in entries:
                self._record(
                    "append",
                    term,
                    index=entry.index,
                    entry_term=entry.term,
                    chain=self._log.chain(entry.index),
                )

    def synced(self, term: Term, index: Index) -> None:
        if self._trace is not None:
            self._record("fsync", term, index=index)

    def voted_for_self(self, term: Term, vote: SelfVote) -> None:
        if vote.term == term:
            self._vote(term, self._node_id, vote.last_log_index, vote.last_log_term)

    def sent(self, term: Term, message: Message) -> None:
        """Trace a queued message: only votes given are recorded."""
        if (
            self._trace is not None
            and type(message) is RequestVoteReply
            and message.granted
            and not message.pre_vote
        ):
            request = self._requests[message.receiver, message.term]
            self._vote(term, message.receiver, request.last_log_index, request.last_log_term)

    def committed(self, term: Term, index: Index) -> None:
        if self._trace is not None:
            log = self._log
            self._record(
                "commit", term, index=index, entry_term=log.term(index), chain=log.chain(index)
            )

    def applied(self, term: Term, entries: Sequence[CommittedEntry]) -> None:
        if self._trace is not None:
            first, last = entries[0], entries[-1]
            self._record(
                "apply",
                term,
                first=first.index,
                index=last.index,
                entry_term=last.term,
                chain=last.chain,
            )

    def passed_over(self, term: Term, first: Index, base: LogBase) -> None:
        """Trace dropped entries up to `base` as applied: the state contains them."""
        if self._trace is not None:
            self._record(
                "apply",
                term,
                first=first,
                index=base.index,
                entry_term=base.term,
                chain=base.chain,
            )

    def installed(self, term: Term, base: LogBase) -> None:
        """Trace the replacement of the log's beginning."""
        if self._trace is not None:
            self._record("install", term, index=base.index, entry_term=base.term, chain=base.chain)

    def state_written(self, term: Term, state: WrittenState) -> None:
        """Trace that the state machine's state is in a snapshot."""
        if self._trace is not None:
            self._record("state", term, index=state.index, chain=state.digest)

    def configured(self, term: Term, configuration: Configuration) -> None:
        """Trace that another configuration is in force."""
        if self._trace is not None:
            voters: list[str] = list(configuration.membership.voter_ids)
            self._record("config", term, index=configuration.index, voters=voters)

    def read(self, term: Term, t_begin: int, index: Index) -> None:
        if self._trace is not None:
            self._record("read", term, t_begin=t_begin, index=index)

    def flush(self) -> None:
        if self._trace is not None:
            self._trace.flush()

    def saved(self, hard_state: HardState | None) -> None:
        """Trace the held events once a round has made `hard_state` durable."""
        if self._trace is None or hard_state is None or hard_state is not self._unsaved:
            return
        self._unsaved = None
        for held in self._held:
            if held.fields is not None:  # else a vote that was never sent
                self._trace.record(held.event, held.term, **held.fields)
        self._held.clear()

    def _vote(self, term: Term, peer: NodeId, last_index: Index, last_term: Term) -> None:
        if self._trace is None:
            return
        fields: _Fields = {"peer": peer, "last_index": last_index, "last_term": last_term}
        for held in self._held:
            if held.event == "vote" and held.term == term and held.fields is None:
                held.fields = fields
                return
        self._record("vote", term, **fields)

    def _gives_vote(self, ready: Ready) -> bool:
        """Return whether this Ready has a vote that is sent only once it is durable."""
        state = ready.hard_state
        if state is not None and state.voted_for == self._node_id:
            return True
        return any(
            type(message) is RequestVoteReply and message.granted and not message.pre_vote
            for message in ready.messages_after_sync
        )

    def _record(self, event: str, term: Term, **fields: int | str | list[str] | None) -> None:
        assert self._trace is not None
        if self._unsaved is None:
            self._trace.record(event, term, **fields)
        else:
            self._held.append(_Held(event=event, term=term, fields=fields))
