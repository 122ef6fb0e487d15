"""The leader's state for one term: its peers' progress, read rounds, handover, its quorum.

Place in the data path: `raft.core.core` creates one in `_become_leader`, passes it replies and
ticks, and drops it when the node steps down, so nothing of one term can leak into another. A
leader's messages depend on nothing un-fsynced but the log's tail, which they may overtake (the
leader counts itself only up to `durable_index`).

All members get entries and heartbeats; voters alone count, and the leader counts itself only while
it is a voter. A removed member still gets them for a while, so that it learns of its removal and
does not campaign.

Invariants:
- a reply moves progress only in the term of this leadership (the core drops all others);
- only an entry of this term is committed by counting, and all before it with it;
- a read is confirmed by a majority's answers to messages sent after the read was requested;
- no entry goes to a peer without room, or to a peer whose log ends before this one begins: that
  peer gets a snapshot first;
- a leader that can't read an uncommitted entry that some peer lacks steps down within an election
  timeout: perhaps no copy exists, and the others can go on only without it.

Source: Raft 5.3, 5.4.2, section 7, figure 2; dissertation 3.10 (transfer), 4.1, 4.2.1 (learners),
4.2.2 (a leader that is removed), 6.2 (check-quorum), 6.4 (ReadIndex).
"""

from __future__ import annotations

from collections.abc import Sequence

from raft.config import RaftConfig
from raft.core.handover import Handover
from raft.core.progress import Progress, ProgressState, Transfer
from raft.core.quorum import majority_reached
from raft.core.raft_log import RaftLog
from raft.core.read_rounds import ReadRounds
from raft.core.ready_builder import ReadyBuilder
from raft.events import InstallChunk, ReadState
from raft.membership import Configuration
from raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    Index,
    InstallSnapshotReply,
    NodeId,
    Term,
    TimeoutNow,
)

__all__ = ["LeaderRole"]


class LeaderRole:
    """Leadership of one term. `log` and `ready_builder` are shared with the core."""

    __slots__ = (
        "_commit_notice_at_ms",
        "_committed_own_term",
        "_config",
        "_counts_itself",
        "_handover",
        "_heartbeat_at_ms",
        "_log",
        "_now_ms",
        "_peers",
        "_progress",
        "_reads",
        "_ready_builder",
        "_term",
        "_unreadable",
        "_voting_peers",
    )

    def __init__(
        self,
        *,
        config: RaftConfig,
        term: Term,
        configuration: Configuration,
        counts_itself: bool,
        log: RaftLog,
        ready_builder: ReadyBuilder,
        now_ms: int,
    ) -> None:
        self._config = config
        self._term = term
        self._log = log
        self._ready_builder = ready_builder
        self._now_ms = now_ms
        self._progress: dict[NodeId, Progress] = {}
        self._reads = ReadRounds(config.read_requests_count_max)
        self._handover = Handover(config, now_ms)
        self._heartbeat_at_ms = now_ms + config.heartbeat_ms
        self._commit_notice_at_ms: int | None = None
        self._committed_own_term = False  # as far as known
        self._unreadable: tuple[Index, int] | None = None  # the uncommitted entry, since when
        self.change_members(configuration, now_ms, counts_itself=counts_itself)

    # Queries of the core.

    @property
    def next_deadline_ms(self) -> int:
        deadline_ms = self._heartbeat_at_ms
        if self._commit_notice_at_ms is not None:
            deadline_ms = min(deadline_ms, self._commit_notice_at_ms)
        if self._handover.target is not None:
            deadline_ms = min(deadline_ms, self._handover.deadline_ms)
        return deadline_ms

    @property
    def progress(self) -> dict[NodeId, Progress]:
        return self._progress

    @property
    def transfer_target(self) -> NodeId | None:
        return self._handover.target

    @property
    def committed_own_term(self) -> bool:
        """Whether the no-op of this term is committed, so that the commit index is the group's."""
        if not self._committed_own_term:
            self._committed_own_term = self._log.term(self._log.commit_index) == self._term
        return self._committed_own_term

    def has_quorum_contact(self, now_ms: int, silence_ms_max: int) -> bool:
        """Return whether a majority, this node included, answered within `silence_ms_max`."""
        contacts_ms = [peer.contact_ms for peer in self._voting_peers]
        return self._majority(contacts_ms, own=now_ms) + silence_ms_max > now_ms

    def answers(self, node_id: NodeId, now_ms: int) -> bool:
        """Return whether `node_id`, which may be this node, answered within an election timeout."""
        peer = self._progress.get(node_id)
        if peer is None:
            return node_id == self._config.node_id
        return now_ms - peer.contact_ms < self._config.election_timeout_ms_max

    def is_caught_up(self, node_id: NodeId, now_ms: int) -> bool:
        """Return whether the peer follows so closely that it may be made a voter (4.2.1)."""
        peer = self._progress.get(node_id)
        return (
            peer is not None
            and peer.match_index + self._config.promotion_lag_max >= self._log.last_index
            and peer.match_index > 0
            and peer.writable
            and self.answers(node_id, now_ms)
        )

    # Members.

    def change_members(
        self, configuration: Configuration, now_ms: int, *, counts_itself: bool
    ) -> None:
        """Lead `configuration` from now on; called before its entry is appended. `counts_itself`:
        this node is one of its voters."""
        membership = configuration.membership
        members = {*membership.voter_ids, *membership.learner_ids} - {self._config.node_id}
        for node_id, peer in self._progress.items():
            if node_id not in members and peer.leaves_at_index is None:
                peer.leaves_at_index = configuration.index
                peer.leaves_by_ms = now_ms + 2 * self._config.election_timeout_ms_max
        news = [
            node_id
            for node_id in sorted(members)
            if node_id not in self._progress or self._progress[node_id].leaves_at_index is not None
        ]
        if self._progress and news:
            self._reads.next_round()  # replies to the earlier holder of a name carry lower rounds
        for node_id in news:
            self._progress[node_id] = Progress(
                node_id,
                next_index=self._log.last_index + 1,
                now_ms=now_ms,
                round_min=self._reads.round,
            )
        if self._handover.target not in membership.voter_ids:
            self._handover.target = None
        self._counts_itself = counts_itself
        self._voting_peers = tuple(
            self._progress[voter] for voter in membership.voter_ids if voter != self._config.node_id
        )
        self._peers = tuple(self._progress.values())

    def _forget_removed(self, now_ms: int) -> None:
        """Drop removed members that know of their removal, or were notified long enough."""
        for peer in self._peers:
            index = peer.leaves_at_index
            if index is not None and (
                min(peer.match_index, peer.commit_sent) >= index or now_ms >= peer.leaves_by_ms
            ):
                del self._progress[peer.node_id]
        self._peers = tuple(self._progress.values())

    def resign(self) -> None:
        """Ask the best voter to campaign at once: this node was removed, and a majority knows it.
        The caller drops the leadership then."""
        successor = self.successor()
        assert successor is not None, "somebody committed it"
        self._send_timeout_now(successor)

    def successor(self) -> NodeId | None:
        """Return the other voter that can take over soonest: one with room, if there is any, then
        the one with the longest log; None if there is no other voter."""
        if not self._voting_peers:
            return None
        best = max(
            self._voting_peers,
            key=lambda peer: (peer.writable, peer.match_index, peer.contact_ms),
        )
        return best.node_id

    # Replication.

    def replicate(self, now_ms: int) -> None:
        """Send the peers the entries that they lack, as far as their windows allow."""
        self._now_ms = now_ms
        for peer in self._peers:
            self._send_entries(peer)
        if self._commit_notice_at_ms is not None and not self._owes_commit_notice():
            self._commit_notice_at_ms = None

    def on_reply(self, reply: AppendEntriesReply, now_ms: int) -> None:
        """Process a peer's answer of this term. The caller calls `maybe_commit` next."""
        assert reply.term == self._term
        self._now_ms = now_ms
        peer = self._progress.get(reply.sender)
        if peer is None or reply.read_round < peer.round_min:
            return  # removed since, or sent by the node that had the name before
        peer.on_contact(
            now_ms,
            writable=reply.writable,
            silence_ms_max=self._config.election_timeout_ms_min,
        )
        peer.read_round = max(peer.read_round, reply.read_round)
        if reply.success:
            assert reply.match_index <= self._log.last_index, (
                f"{reply.sender} claims {reply.match_index}, the log ends at {self._log.last_index}"
            )
            peer.on_success(reply.match_index, first_index=self._log.first_index)
        elif not peer.on_refusal(
            rejected_prev_index=reply.rejected_prev_index,
            next_index=self._next_index(reply),
            now_ms=now_ms,
        ):
            return
        if peer.next_index < self._log.first_index:
            self._begin_install(peer)
        else:
            self._send_entries(peer)
        if reply.sender == self._handover.target:
            self._maybe_finish_transfer()

    def maybe_commit(self, now_ms: int) -> bool:
        """Commit what a majority holds durably, if it is of this term (5.4.2); True if it moved."""
        log = self._log
        match_indexes = [peer.match_index for peer in self._voting_peers]
        index = self._majority(match_indexes, own=log.durable_index)
        # Figure 8: an entry of an earlier term is committed only along with one of this term.
        if index <= log.commit_index or log.term(index) != self._term:
            return False
        log.commit_to(index)
        if self._commit_notice_at_ms is None and self._peers:
            self._commit_notice_at_ms = now_ms + self._config.commit_notice_delay_ms
            if self._config.commit_notice_delay_ms == 0:
                self._notify_commit()
        return True

    def on_unreachable(self, node_id: NodeId, now_ms: int) -> None:
        """Note that messages under way may be lost: the next proposal or heartbeat probes."""
        peer = self._progress.get(node_id)
        if peer is not None:
            peer.on_unreachable(now_ms)

    def tick(self, now_ms: int) -> bool:
        """Send the heartbeats and notices that are due. Return False if the leader must step down:
        it has no quorum, or an entry that it can't read blocks all others."""
        self._now_ms = now_ms
        if now_ms >= self._heartbeat_at_ms:
            # One interval early rather than late, so that it steps down within one election timeout
            # (6.2).
            silence_ms_max = self._config.election_timeout_ms_max - self._config.heartbeat_ms
            if not self.has_quorum_contact(now_ms, silence_ms_max) or self._is_stuck():
                return False
            self._heartbeat_at_ms = now_ms + self._config.heartbeat_ms
            if len(self._peers) > len(self._voting_peers):
                self._forget_removed(now_ms)
            for peer in self._peers:
                self._send_empty(peer)
                self._repeat_chunk(peer)
            self._maybe_prefer()
        if self._commit_notice_at_ms is not None and now_ms >= self._commit_notice_at_ms:
            self._notify_commit()
        if self._handover.target is not None and now_ms >= self._handover.deadline_ms:
            self._handover.give_up(now_ms)  # the target did not take over: go on leading
        return True

    def _is_stuck(self) -> bool:
        if self._unreadable is None:
            return False
        index, since_ms = self._unreadable
        if index <= self._log.commit_index:
            self._unreadable = None
            return False
        return self._now_ms - since_ms >= self._config.election_timeout_ms_max

    def _majority(self, values: Sequence[int], *, own: int) -> int:
        """Return what a majority of voters has reached; `own` counts if this node is a voter."""
        return majority_reached([*values, own] if self._counts_itself else values)

    def _next_index(self, reply: AppendEntriesReply) -> Index:
        """Return where to go on after a refusal: past the last entry whose term both may share."""
        if reply.conflict_term > 0 and reply.rejected_prev_index <= self._log.last_index:
            shared = self._log.last_index_of_term(reply.conflict_term, reply.rejected_prev_index)
            if shared is not None:
                return shared + 1
        return reply.conflict_index

    def _send_entries(self, peer: Progress) -> None:
        log = self._log
        config = self._config
        if peer.next_index < log.first_index:
            return  # it gets a snapshot first, once it answers
        while peer.next_index <= log.last_index:
            size_bytes_max = config.append_size_bytes_max
            window_size_bytes = config.inflight_size_bytes_max
            if peer.next_index <= log.commit_index:  # the peer catches up
                window_size_bytes = min(window_size_bytes, config.catch_up_size_bytes_max)
                size_bytes_max = min(size_bytes_max, config.catch_up_size_bytes_max)
            if not peer.may_send(
                count_max=config.inflight_count_max, size_bytes_max=window_size_bytes
            ):
                return
            entries = log.entries(
                peer.next_index, count_max=config.append_count_max, size_bytes_max=size_bytes_max
            )
            if not entries or log.term(peer.next_index - 1) is None:
                # Damaged here, and under repair: heartbeats keep contact with the peer.
                if peer.next_index > log.commit_index and self._unreadable is None:
                    self._unreadable = peer.next_index, self._now_ms
                return
            if self._unreadable is not None and self._unreadable[0] == peer.next_index:
                self._unreadable = None
            self._send_append(peer, entries)
            size_bytes = sum([len(entry.payload) for entry in entries])
            peer.on_sent(entries[-1].index, size_bytes)

    def _send_empty(self, peer: Progress) -> None:
        """Send a heartbeat; to a peer in PROBE it is a probe."""
        if peer.state is ProgressState.PROBE:
            # Entries before the base can't be probed; the answer tells whether the peer needs a
            # snapshot.
            next_index = max(peer.next_index, self._log.first_index)
            # An entry of unknown term can't be probed either; what the peer acknowledged needs no
            # probe.
            known_prev = self._log.known_prev(next_index - 1)
            peer.next_index = max(known_prev, peer.match_index) + 1
            peer.probe_sent = True
        self._send_append(peer, ())

    def _send_append(self, peer: Progress, entries: tuple[Entry, ...]) -> None:
        log = self._log
        prev_log_index = max(peer.next_index, log.first_index) - 1
        prev_log_term = log.term(prev_log_index)
        if prev_log_term is None:  # a heartbeat may name any entry that the peer has as well
            prev_log_index = log.known_prev(prev_log_index)
            prev_log_term = log.term(prev_log_index)
            assert prev_log_term is not None
            assert not entries
        peer.commit_sent = log.commit_index
        self._ready_builder.send(
            AppendEntries(
                sender=self._config.node_id,
                receiver=peer.node_id,
                term=self._term,
                prev_log_index=prev_log_index,
                prev_log_term=prev_log_term,
                entries=entries,
                leader_commit=log.commit_index,
                read_round=self._reads.round,
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

    # Installing snapshots.

    def on_install_reply(self, reply: InstallSnapshotReply, now_ms: int) -> None:
        """Process a peer's report of its progress with a snapshot. It raises no match index: the
        probe behind the base does."""
        self._now_ms = now_ms
        peer = self._progress.get(reply.sender)
        if peer is None or peer.state is not ProgressState.SNAPSHOT:
            return
        log = self._log
        if reply.installed:
            if log.first_index - 1 <= reply.base_index <= log.last_index:
                # Earlier progress may be that of a lost store; the answer to the probe is not.
                peer.become_probe(max(reply.base_index, peer.match_index) + 1)
                self._send_entries(peer)
            else:  # the log begins later by now: send the newest snapshot from its start
                peer.transfer = Transfer()
                self._request_chunk(peer)
        elif peer.on_install_reply(reply):
            self._request_chunk(peer)

    def _begin_install(self, peer: Progress) -> None:
        if peer.writable and peer.state is not ProgressState.SNAPSHOT:
            peer.become_snapshot()
            self._request_chunk(peer)

    def _repeat_chunk(self, peer: Progress) -> None:
        if peer.state is not ProgressState.SNAPSHOT:
            return
        assert peer.requested_ms is not None
        if self._now_ms >= peer.requested_ms + self._config.install_retry_ms:
            self._request_chunk(peer)

    def _request_chunk(self, peer: Progress) -> None:
        peer.requested_ms = self._now_ms
        wanted = peer.transfer
        self._ready_builder.request_chunk(
            InstallChunk(
                receiver=peer.node_id,
                term=self._term,
                snapshot_index=wanted.snapshot_index,
                base_index=wanted.base_index,
                offset=wanted.next_offset,
            )
        )

    # Reads.

    def has_reads(self) -> bool:
        return bool(self._reads.open)

    def request_read(self, request_id: int) -> bool:
        """Queue a read for the next round; False if too many wait."""
        return self._reads.request(request_id)

    def serve_reads(self) -> list[ReadState]:
        """Answer the reads of a confirmed round, and start the next one if reads wait."""
        reads = self._reads
        answered: list[ReadState] = []
        while True:
            waiting_round = reads.waiting_round
            if waiting_round is not None:
                rounds = [peer.read_round for peer in self._voting_peers]
                if self._majority(rounds, own=reads.round) < waiting_round:
                    return answered
                answered.extend(reads.confirm())
            # 6.4: before an entry of its term is committed the leader may lack commits.
            if not reads.has_queued or not self.committed_own_term:
                return answered
            reads.begin(self._log.commit_index)
            for peer in self._peers:
                self._send_empty(peer)

    def open_reads(self) -> list[int]:
        """Return the requests that are not answered yet."""
        return self._reads.open

    # Transfer.

    def begin_transfer(self, target: NodeId, now_ms: int) -> None:
        """Bring `target` up to the log's end, then have it campaign. A later call replaces the
        target; the call has no effect unless `target` is another voter."""
        if all(peer.node_id != target for peer in self._voting_peers):
            return
        self._handover.begin(target, now_ms)
        self._maybe_finish_transfer()

    def _maybe_prefer(self) -> None:
        preferred = self._config.preferred_leader
        for peer in self._voting_peers:
            if peer.node_id == preferred and self._handover.is_due_to(
                peer, last_index=self._log.last_index, now_ms=self._now_ms
            ):
                self.begin_transfer(peer.node_id, self._now_ms)

    def _maybe_finish_transfer(self) -> None:
        target = self._handover.target
        assert target is not None
        if self._progress[target].match_index == self._log.last_index:
            self._send_timeout_now(target)

    def _send_timeout_now(self, target: NodeId) -> None:
        self._ready_builder.send(
            TimeoutNow(sender=self._config.node_id, receiver=target, term=self._term)
        )
