"""What only a leader has, for one term: followers' progress, read rounds, transfer, its quorum.

Place in the data path: `raft.core` makes one in `become_leader`, hands it replies and ticks, and
drops it when the node steps down, so nothing of one term can leak into another. It sends through
the callable it was given; a leader's messages depend on nothing un-fsynced but the log's tail,
which they may overtake (the leader counts itself only up to `durable_index`).

Invariants:
- a reply moves progress only in the term of this leadership (the core drops all others);
- only an entry of this term is committed by counting, and all before it with it;
- a read is confirmed by a majority's answers to messages sent after it was asked.

Source: Raft 5.3, 5.4.2, figure 2; dissertation 3.10 (transfer), 6.2 (check-quorum), 6.4
(ReadIndex).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raft.config import RaftConfig
from raft.events import ReadState
from raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    Index,
    Message,
    NodeId,
    Term,
    TimeoutNow,
)
from raft.progress import Progress, ProgressState
from raft.quorum import majority_reached
from raft.raft_log import RaftLog

__all__ = ["Leadership"]


class Leadership:
    """`log` is shared with the core; `voters` contains the leader itself."""

    __slots__ = (
        "_commit_notice_at_ms",
        "_config",
        "_confirming",
        "_heartbeat_at_ms",
        "_log",
        "_peers",
        "_progress",
        "_queued_reads",
        "_read_index",
        "_read_round",
        "_send",
        "_term",
        "_transfer_deadline_ms",
        "transfer_target",
    )

    def __init__(
        self,
        *,
        config: RaftConfig,
        term: Term,
        voters: Sequence[NodeId],
        log: RaftLog,
        now_ms: int,
        send: Callable[[Message], None],
    ) -> None:
        self._config = config
        self._term = term
        self._log = log
        self._send = send
        self._progress = {
            voter: Progress(voter, next_index=log.last_index + 1, now_ms=now_ms)
            for voter in voters
            if voter != config.node_id
        }
        self._peers = tuple(self._progress.values())
        self._heartbeat_at_ms = now_ms + config.heartbeat_ms
        self._commit_notice_at_ms: int | None = None
        self._read_round = 0
        self._read_index: Index = 0  # of the round under way
        self._confirming: list[int] = []  # requests that wait for the round under way
        self._queued_reads: list[int] = []  # requests that wait for the next round
        self.transfer_target: NodeId | None = None
        self._transfer_deadline_ms = 0

    # What the core asks.

    @property
    def next_deadline_ms(self) -> int:
        deadline_ms = self._heartbeat_at_ms
        if self._commit_notice_at_ms is not None:
            deadline_ms = min(deadline_ms, self._commit_notice_at_ms)
        if self.transfer_target is not None:
            deadline_ms = min(deadline_ms, self._transfer_deadline_ms)
        return deadline_ms

    @property
    def progress(self) -> dict[NodeId, Progress]:
        return self._progress

    @property
    def committed_own_term(self) -> bool:
        """Whether its no-op is committed, so that its commit index is the group's."""
        return self._log.term(self._log.commit_index) == self._term

    def has_quorum_contact(self, now_ms: int, silence_ms_max: int) -> bool:
        """Whether a majority, itself included, has answered within that time."""
        contacts_ms = [peer.contact_ms for peer in self._peers]
        return majority_reached([*contacts_ms, now_ms]) + silence_ms_max > now_ms

    # Replication.

    def replicate(self) -> None:
        """Send what the followers lack, as far as their windows allow."""
        for peer in self._peers:
            self._send_entries(peer)
        if self._commit_notice_at_ms is not None and not self._owes_commit_notice():
            self._commit_notice_at_ms = None

    def on_reply(self, reply: AppendEntriesReply, now_ms: int) -> None:
        """A follower answered in this term. The caller asks `maybe_commit` next."""
        assert reply.term == self._term
        peer = self._progress[reply.sender]
        peer.contact_ms = now_ms
        peer.read_round = max(peer.read_round, reply.read_round)
        if reply.success:
            assert reply.match_index <= self._log.last_index, (
                f"{reply.sender} claims {reply.match_index}, the log ends at {self._log.last_index}"
            )
            peer.on_success(reply.match_index)
        elif not peer.on_refusal(
            rejected_prev_index=reply.rejected_prev_index, next_index=self._next_index(reply)
        ):
            return
        self._send_entries(peer)
        if reply.sender == self.transfer_target:
            self._maybe_finish_transfer()

    def maybe_commit(self, now_ms: int) -> bool:
        """Commit what a majority holds durably, if it is of this term (Raft 5.4.2)."""
        log = self._log
        match_indexes = [peer.match_index for peer in self._peers]
        match_indexes.append(log.durable_index)
        index = majority_reached(match_indexes)
        if index <= log.commit_index or log.term(index) != self._term:
            return False
        log.commit_to(index)
        if self._commit_notice_at_ms is None and self._peers:
            self._commit_notice_at_ms = now_ms + self._config.commit_notice_delay_ms
            if self._config.commit_notice_delay_ms == 0:
                self._notify_commit()
        return True

    def on_unreachable(self, node_id: NodeId) -> None:
        """What was on its way may be lost: the next proposal or heartbeat probes."""
        peer = self._progress.get(node_id)
        if peer is not None:
            peer.become_probe(peer.match_index + 1)

    def tick(self, now_ms: int) -> bool:
        """Heartbeats and notices that are due. False: no quorum any more, step down."""
        if now_ms >= self._heartbeat_at_ms:
            # One interval early rather than late: within one election timeout (6.2).
            silence_ms_max = self._config.election_timeout_ms_max - self._config.heartbeat_ms
            if not self.has_quorum_contact(now_ms, silence_ms_max):
                return False
            self._heartbeat_at_ms = now_ms + self._config.heartbeat_ms
            for peer in self._peers:
                self._send_empty(peer)
        if self._commit_notice_at_ms is not None and now_ms >= self._commit_notice_at_ms:
            self._notify_commit()
        if self.transfer_target is not None and now_ms >= self._transfer_deadline_ms:
            self.transfer_target = None  # it did not take over: go on leading
        return True

    def _next_index(self, reply: AppendEntriesReply) -> Index:
        """Where to go on after a refusal: past the last entry whose term both may share."""
        if reply.conflict_term > 0 and reply.rejected_prev_index <= self._log.last_index:
            shared = self._log.last_index_of_term(reply.conflict_term, reply.rejected_prev_index)
            if shared is not None:
                return shared + 1
        return reply.conflict_index

    def _send_entries(self, peer: Progress) -> None:
        log = self._log
        config = self._config
        while peer.next_index <= log.last_index and peer.may_send(
            count_max=config.inflight_count_max, size_bytes_max=config.inflight_size_bytes_max
        ):
            if peer.next_index < log.first_index:
                return  # it lacks what compaction dropped here; heartbeats keep it in touch
            entries = log.entries(
                peer.next_index,
                count_max=config.append_count_max,
                size_bytes_max=config.append_size_bytes_max,
            )
            self._send_append(peer, entries)
            size_bytes = sum(len(entry.payload) for entry in entries)
            peer.on_sent(entries[-1].index, size_bytes)

    def _send_empty(self, peer: Progress) -> None:
        """A heartbeat. To a follower that is being probed it is a probe."""
        self._send_append(peer, ())
        if peer.state is ProgressState.PROBE:
            peer.probe_sent = True

    def _send_append(self, peer: Progress, entries: tuple[Entry, ...]) -> None:
        log = self._log
        prev_log_index = max(peer.next_index, log.first_index) - 1
        peer.commit_sent = log.commit_index
        self._send(
            AppendEntries(
                sender=self._config.node_id,
                receiver=peer.node_id,
                term=self._term,
                prev_log_index=prev_log_index,
                prev_log_term=log.term(prev_log_index),
                entries=entries,
                leader_commit=log.commit_index,
                read_round=self._read_round,
            )
        )

    def _owes_commit_notice(self) -> bool:
        commit_index = self._log.commit_index
        return any(
            peer.commit_sent < commit_index and peer.state is ProgressState.REPLICATE
            for peer in self._peers
        )

    def _notify_commit(self) -> None:
        self._commit_notice_at_ms = None
        for peer in self._peers:
            is_behind = peer.commit_sent < self._log.commit_index
            if is_behind and peer.state is ProgressState.REPLICATE:
                self._send_empty(peer)

    # Reads.

    def request_read(self, request_id: int) -> bool:
        """Queue a read for the next round; False if too many wait."""
        if len(self._queued_reads) + len(self._confirming) >= self._config.read_requests_count_max:
            return False
        self._queued_reads.append(request_id)
        return True

    def serve_reads(self) -> list[ReadState]:
        """Answer the round that a majority has confirmed, begin the next one if reads wait."""
        answered: list[ReadState] = []
        while True:
            if self._confirming:
                rounds = [peer.read_round for peer in self._peers]
                if majority_reached([*rounds, self._read_round]) < self._read_round:
                    return answered
                answered.extend(
                    ReadState(request_id=request_id, index=self._read_index)
                    for request_id in self._confirming
                )
                self._confirming = []
            if not self._queued_reads or not self.committed_own_term:
                return answered
            self._confirming, self._queued_reads = self._queued_reads, []
            self._read_index = self._log.commit_index
            self._read_round += 1
            for peer in self._peers:
                self._send_empty(peer)

    def open_reads(self) -> list[int]:
        """Requests that are not answered yet."""
        return self._confirming + self._queued_reads

    # Transfer.

    def begin_transfer(self, target: NodeId, now_ms: int) -> None:
        """Bring `target` up to the log's end, then tell it to campaign. A later call names
        another target; an unknown one changes nothing."""
        if target not in self._progress:
            return
        self.transfer_target = target
        self._transfer_deadline_ms = now_ms + self._config.election_timeout_ms_max
        self._maybe_finish_transfer()

    def _maybe_finish_transfer(self) -> None:
        target = self.transfer_target
        assert target is not None
        if self._progress[target].match_index == self._log.last_index:
            self._send(TimeoutNow(sender=self._config.node_id, receiver=target, term=self._term))
