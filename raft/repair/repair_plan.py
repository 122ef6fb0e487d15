"""Which peer to request good copies of damaged entries from, and when: pure, no IO.

Place in the data path: `raft.repair.log_repairer` passes it the damage and the peers' replies; it
returns the request to send. The log judges the entries of a reply, against the chain on both sides
of the damage.

One request is out at a time. A peer that lacks a good copy, does not answer in time, or sends
entries other than those that stood here is skipped; once all peers have failed, that is reported
and the next damage is tried. Requests start again after a pause. The next request goes to the last
peer whose entries were taken; else peers take turns.

A peer that lacks the entry, but reports that it has committed earlier ones, gets a request for the
last of those: if this node has another one there, what it has behind it never was committed, and no
copy of it will ever exist. The first entry of a leader's term is such a one, so that a group which
goes on without this node always gives the proof.

Invariant: a reply counts only for the request that is out.

Source: Alagappan et al., "Protocol-aware recovery" (FAST '18): a damaged entry is fetched from any
node that has it, and never counted as absent.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from raft.messages import FetchEntries, FetchEntriesReply, Index, NodeId

__all__ = ["RepairPlan", "Wanted"]

_ANSWER_TIMEOUT_MS = 1_000
_ROUND_PAUSE_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Entries that are damaged here."""

    first_index: Index
    last_index: Index


class RepairPlan:
    """Requests of one node. Times never fall."""

    def __init__(self, node_id: NodeId) -> None:
        self._node_id = node_id
        self._request: FetchEntries | None = None
        self._requested_ms = 0
        self._request_id = 0
        self._refused: set[NodeId] = set()  # peers of no help for what is wanted now
        self._heard: set[NodeId] = set()  # those of them that have answered
        self._requested_from: NodeId = node_id  # the peer of the last request
        self._of_use: NodeId | None = None  # whose entries were taken last
        self._tried: Wanted | None = None  # the lowest start of the damage that is requested
        self._tried_until: Index = 0  # and the highest start since
        self._in_vain: set[Index] = set()  # ends of damages that no peer has, for this round
        self._pause_until_ms = 0
        self._proof: tuple[NodeId, Index] | None = None  # a peer, its committed entry to fetch
        self._is_proof = False  # whether the request that is out does so
        self.in_vain: Wanted | None = None  # no peer that answers has it; set once per round
        self.answered_in_vain: frozenset[NodeId] = frozenset()  # the peers that have answered so

    def next(
        self, wanted: Sequence[Wanted], peers: Collection[NodeId], now_ms: int
    ) -> FetchEntries | None:
        """Return the request to send now to one of `peers`, if any; resets `in_vain`."""
        self.in_vain = None
        if self._request is not None:
            if now_ms < self._requested_ms + _ANSWER_TIMEOUT_MS:
                return None
            self.refuse()
        if now_ms < self._pause_until_ms:
            return None
        if self._proof is not None:
            (receiver, index), self._proof = self._proof, None
            self._is_proof = True
            return self._new_request(receiver, Wanted(first_index=index, last_index=index), now_ms)
        first = next((one for one in wanted if one.last_index not in self._in_vain), None)
        if first is None:
            self._in_vain.clear()
            self._pause_until_ms = now_ms + _ROUND_PAUSE_MS
            return None
        if self._is_news(first):
            self._refused.clear()
            self._heard.clear()
        left = sorted(set(peers) - self._refused - {self._node_id})
        if not left:
            self._in_vain.add(first.last_index)
            self._tried = None
            self.in_vain, self.answered_in_vain = first, frozenset(self._heard)
            self._refused.clear()
            self._heard.clear()
            return None
        self._requested_from = self._of_use if self._of_use in left else self._next_of(left)
        self._is_proof = False
        return self._new_request(self._requested_from, first, now_ms)

    def _is_news(self, wanted: Wanted) -> bool:
        """Return whether peers that were refused may have what is wanted now.

        Entries that were taken may turn out wrong, and requests go back to their start: no peer
        gets the same request twice in a round, or a wrong peer and one without a copy would get it
        for ever.
        """
        first, last = wanted.first_index, wanted.last_index
        if self._tried is None or self._tried.last_index != last or first < self._tried.first_index:
            self._tried, self._tried_until = wanted, first
            return True
        if first <= self._tried_until:
            return False
        self._tried_until = first
        return True

    def _next_of(self, left: Sequence[NodeId]) -> NodeId:
        """Take turns: a slow or wrong peer costs its own turn only."""
        return next((peer for peer in left if peer > self._requested_from), left[0])

    def _new_request(self, receiver: NodeId, wanted: Wanted, now_ms: int) -> FetchEntries:
        self._request_id += 1
        self._requested_ms = now_ms
        self._request = FetchEntries(
            sender=self._node_id,
            receiver=receiver,
            request_id=self._request_id,
            first_index=wanted.first_index,
            last_index=wanted.last_index,
        )
        return self._request

    @property
    def is_proof(self) -> bool:
        """Whether the request that is out fetches a committed entry for comparison."""
        return self._is_proof

    def answered(self, reply: FetchEntriesReply) -> FetchEntries | None:
        """Return the request that the reply answers with entries; None if it is of no use."""
        request = self._request
        if (
            request is None
            or reply.sender != request.receiver
            or reply.request_id != request.request_id
        ):
            return None
        self._heard.add(reply.sender)
        first = reply.entries[0].index if reply.entries else 0
        if reply.missing or first != request.first_index:
            self.refuse()
            committed = reply.commit_index
            if reply.missing and not self._is_proof and 0 < committed < request.first_index:
                self._proof = reply.sender, committed
            return None
        return request

    def taken(self) -> None:
        """Note that the entries were of use: the same peer gets the next request."""
        if self._request is not None and not self._is_proof:
            self._of_use = self._request.receiver
        self._request = None

    def withdraw(self) -> None:
        """Withdraw the request: no reply will be taken, and the peer gets another one."""
        self._request = None

    def refuse(self) -> None:
        """Note that the peer of the request is of no help."""
        if self._request is not None:
            self._refused.add(self._request.receiver)
            if self._of_use == self._request.receiver:
                self._of_use = None
            self._request = None
