"""A leader's view of one peer: the peer's log position, and the entries on their way to it.

Place in the data path: `raft.core.leader_role` keeps one per member of the group, for one term.

PROBE: it is not known where the peer's log ends. One AppendEntries is out at a time; a reply or the
next heartbeat, which is a probe too, lets the next go.
REPLICATE: the peer follows. AppendEntries are pipelined within the window, `next_index` advances
as they are sent; a refusal, or a broken connection, leads back to PROBE.
SNAPSHOT: the peer's log ends before this one begins. One chunk of a snapshot is out at a time; the
peer requests the next one, and once it has all of them the leader probes behind the snapshot's
base. The progress of a transfer outlives a broken connection, so that it resumes where it broke.

Invariants: match_index < next_index; match_index falls within a term only where the peer refuses
the entry at it (everything a peer acknowledges is durable there, unless its disk lied); the window
is empty unless replicating. Only an answer to an
AppendEntries raises match_index, and only if the request was sent after this progress was created:
a lost store may have answered under this name before (`round_min`).

Source: Raft 5.3, section 7, figure 2; dissertation 10.2.1 (pipelining).
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass

from raft.messages import Index, InstallSnapshotReply, NodeId

__all__ = ["Progress", "ProgressState", "Transfer"]


class ProgressState(enum.Enum):
    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """The snapshot bytes that a peer wants next; `snapshot_index` None: no transfer yet."""

    snapshot_index: Index | None = None
    base_index: Index = 0
    next_offset: int = 0


class Progress:
    """Progress of one peer. Only `LeaderRole` mutates it, several fields only by methods."""

    __slots__ = (
        "_inflight",
        "commit_sent",
        "contact_ms",
        "inflight_size_bytes",
        "leaves_at_index",
        "leaves_by_ms",
        "match_index",
        "next_index",
        "node_id",
        "probe_sent",
        "read_round",
        "requested_ms",
        "round_min",
        "state",
        "steady_since_ms",
        "transfer",
        "writable",
    )

    def __init__(
        self, node_id: NodeId, *, next_index: Index, now_ms: int, round_min: int = 0
    ) -> None:
        self.node_id = node_id
        self.state = ProgressState.PROBE
        self.match_index: Index = 0
        self.next_index = next_index
        self.probe_sent = False  # PROBE: one is out, wait for its reply or for a heartbeat
        self.contact_ms = now_ms  # when it last answered in this term
        self.steady_since_ms = now_ms  # since when it follows without a break
        self.writable = True  # it had room for entries when it last answered
        self.round_min = round_min  # replies to earlier rounds are not this peer's
        self.read_round = 0  # the last confirmation round that it answered
        self.commit_sent: Index = 0  # the highest leader_commit sent to it
        self.leaves_at_index: Index | None = None  # the CONFIG entry that removed it
        self.leaves_by_ms = 0  # and until when it is notified of that
        self.transfer = Transfer()  # SNAPSHOT: the last request
        self.requested_ms: int | None = None  # SNAPSHOT: when; None: not yet
        self._inflight: deque[tuple[Index, int]] = deque()  # last index and bytes of each message
        self.inflight_size_bytes = 0

    def may_send(self, *, count_max: int, size_bytes_max: int) -> bool:
        """Return whether entries may be sent now."""
        if not self.writable or self.state is ProgressState.SNAPSHOT:
            return False
        if self.state is ProgressState.PROBE:
            return not self.probe_sent
        return len(self._inflight) < count_max and self.inflight_size_bytes < size_bytes_max

    def on_sent(self, last_index: Index, size_bytes: int) -> None:
        """Note that entries up to `last_index` were sent."""
        assert last_index >= self.next_index, f"{last_index} was sent before {self.next_index}"
        if self.state is ProgressState.PROBE:
            self.probe_sent = True
            return
        self._inflight.append((last_index, size_bytes))
        self.inflight_size_bytes += size_bytes
        self.next_index = last_index + 1

    def on_contact(self, now_ms: int, *, writable: bool, silence_ms_max: int) -> None:
        """Note an answer. A peer without room has not taken what was sent to it: go back to its
        match index."""
        if not writable or now_ms > self.contact_ms + silence_ms_max:
            self.steady_since_ms = now_ms
        self.contact_ms = now_ms
        if self.writable and not writable and self.state is ProgressState.REPLICATE:
            self.become_probe(self.match_index + 1)
        self.writable = writable

    def on_success(self, match_index: Index, *, first_index: Index) -> bool:
        """Note that the peer has everything up to `match_index` durably; True if that is new.
        `first_index` is where this log begins: the peer can go on from there."""
        is_news = match_index > self.match_index
        if is_news:
            self.match_index = match_index
        inflight = self._inflight
        while inflight and inflight[0][0] <= self.match_index:
            self.inflight_size_bytes -= inflight.popleft()[1]
        if self.state is ProgressState.PROBE or (
            self.state is ProgressState.SNAPSHOT and self.match_index + 1 >= first_index
        ):
            self.state = ProgressState.REPLICATE
            self.next_index = self.match_index + 1
            self.probe_sent = False
        elif self.next_index <= self.match_index:
            self.next_index = self.match_index + 1
        assert self.match_index < self.next_index
        return is_news

    def on_refusal(self, *, rejected_prev_index: Index, next_index: Index, now_ms: int) -> bool:
        """Go back to `next_index`: the peer lacks the entry at `rejected_prev_index`, or has
        another there. False if the refusal answers an outdated message."""
        if self.is_stale_refusal(rejected_prev_index):
            return False
        self.steady_since_ms = now_ms
        # At least one step back, so that probing ends.
        next_index = min(next_index, rejected_prev_index)
        if self.state is ProgressState.REPLICATE:
            next_index = max(next_index, self.match_index + 1)
        elif next_index <= self.match_index:
            # It acknowledged the entry at its match index and refuses it now: its disk lost what it
            # had reported as durable. A lower match index only delays commits; the same probe would
            # be refused for as long as the term lasts.
            self.match_index = next_index - 1
        self.become_probe(next_index)
        return True

    def is_stale_refusal(self, rejected_prev_index: Index) -> bool:
        if self.state is ProgressState.SNAPSHOT:
            return True  # the leader knows already that the peer lacks the log's beginning
        if self.state is ProgressState.REPLICATE:
            return rejected_prev_index <= self.match_index
        return rejected_prev_index != self.next_index - 1

    def on_unreachable(self, now_ms: int) -> None:
        """Note that messages under way may be lost."""
        self.steady_since_ms = now_ms
        self.become_probe(self.match_index + 1)

    def become_probe(self, next_index: Index) -> None:
        assert next_index > self.match_index
        self.state = ProgressState.PROBE
        self.next_index = next_index
        self.probe_sent = False
        self._inflight.clear()
        self.inflight_size_bytes = 0

    def become_snapshot(self) -> None:
        """Switch to SNAPSHOT: the peer needs entries that this log has dropped."""
        assert self.state is not ProgressState.SNAPSHOT
        self.become_probe(self.next_index)
        self.state = ProgressState.SNAPSHOT
        self.requested_ms = None

    def on_install_reply(self, reply: InstallSnapshotReply) -> bool:
        """Note which bytes the peer wants next; False if that is nothing new: they were requested
        already, or the reply is older than a request for later bytes."""
        wanted = Transfer(
            snapshot_index=reply.snapshot_index,
            base_index=reply.base_index,
            next_offset=reply.next_offset,
        )
        last = self.transfer
        is_same = (last.snapshot_index, last.base_index) == (
            wanted.snapshot_index,
            wanted.base_index,
        )
        # From the start again: the whole snapshot was wrong, or the peer has lost it.
        if is_same and wanted.next_offset != 0 and wanted.next_offset <= last.next_offset:
            return False
        if wanted == last:
            return False
        self.transfer = wanted
        return True
