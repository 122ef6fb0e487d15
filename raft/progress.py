"""What a leader knows of one follower: how far it is, and what is on its way to it.

Place in the data path: `raft.leadership` keeps one per peer, for one term.

PROBE: it is not known where the follower's log ends. One AppendEntries is out at a time; a reply
or the next heartbeat, which is a probe too, lets the next go.
REPLICATE: the follower follows. AppendEntries are pipelined within the window, `next_index` moves
on as they are sent; a refusal, or a broken connection, leads back to PROBE.

Invariants: match_index < next_index; match_index never falls within a term (everything a follower
acknowledges is durable there); the window is empty while probing.

Source: Raft 5.3, figure 2; dissertation 10.2.1 (pipelining).
"""

from __future__ import annotations

import enum
from collections import deque

from raft.messages import Index, NodeId

__all__ = ["Progress", "ProgressState"]


class ProgressState(enum.Enum):
    PROBE = "probe"
    REPLICATE = "replicate"


class Progress:
    """Mutated by `Leadership` alone, through the methods where more than one field moves."""

    __slots__ = (
        "_inflight",
        "commit_sent",
        "contact_ms",
        "inflight_size_bytes",
        "match_index",
        "next_index",
        "node_id",
        "probe_sent",
        "read_round",
        "state",
    )

    def __init__(self, node_id: NodeId, *, next_index: Index, now_ms: int) -> None:
        self.node_id = node_id
        self.state = ProgressState.PROBE
        self.match_index: Index = 0
        self.next_index = next_index
        self.probe_sent = False  # PROBE: one is out, wait for its reply or for a heartbeat
        self.contact_ms = now_ms  # when it last answered in this term
        self.read_round = 0  # the last round of confirmation that it answered
        self.commit_sent: Index = 0  # the highest leader_commit sent to it
        self._inflight: deque[tuple[Index, int]] = deque()  # last index and bytes of each message
        self.inflight_size_bytes = 0

    @property
    def inflight_count(self) -> int:
        return len(self._inflight)

    def may_send(self, *, count_max: int, size_bytes_max: int) -> bool:
        """Whether entries may go out now."""
        if self.state is ProgressState.PROBE:
            return not self.probe_sent
        return len(self._inflight) < count_max and self.inflight_size_bytes < size_bytes_max

    def on_sent(self, last_index: Index, size_bytes: int) -> None:
        """Entries up to `last_index` have gone out."""
        assert last_index >= self.next_index, f"{last_index} was sent before {self.next_index}"
        if self.state is ProgressState.PROBE:
            self.probe_sent = True
            return
        self._inflight.append((last_index, size_bytes))
        self.inflight_size_bytes += size_bytes
        self.next_index = last_index + 1

    def on_success(self, match_index: Index) -> bool:
        """The follower has everything up to `match_index`, durable; True if that is news."""
        is_news = match_index > self.match_index
        if is_news:
            self.match_index = match_index
        inflight = self._inflight
        while inflight and inflight[0][0] <= self.match_index:
            self.inflight_size_bytes -= inflight.popleft()[1]
        if self.state is ProgressState.PROBE:
            self.state = ProgressState.REPLICATE
            self.next_index = self.match_index + 1
            self.probe_sent = False
        elif self.next_index <= self.match_index:
            self.next_index = self.match_index + 1
        assert self.match_index < self.next_index
        return is_news

    def on_refusal(self, *, rejected_prev_index: Index, next_index: Index) -> bool:
        """The follower does not have what precedes `rejected_prev_index + 1`; go on at
        `next_index`. False if the refusal answers something long overtaken."""
        if self.is_stale_refusal(rejected_prev_index):
            return False
        # At least one step back, so that probing ends; never below what is known to match.
        self.become_probe(max(min(next_index, rejected_prev_index), self.match_index + 1))
        return True

    def is_stale_refusal(self, rejected_prev_index: Index) -> bool:
        if self.state is ProgressState.REPLICATE:
            return rejected_prev_index <= self.match_index
        return rejected_prev_index != self.next_index - 1

    def become_probe(self, next_index: Index) -> None:
        assert next_index > self.match_index
        self.state = ProgressState.PROBE
        self.next_index = next_index
        self.probe_sent = False
        self._inflight.clear()
        self.inflight_size_bytes = 0
