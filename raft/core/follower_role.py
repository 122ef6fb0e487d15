"""A follower's handling of its leader's messages: log entries, and snapshots.

Place in the data path: `raft.core.core` has checked term and sender, and calls this module to
append the entries to the log or to report where the leader should go on. Answers go into the
`ReadyBuilder`.

Invariants:
- a stale or repeated AppendEntries never shortens the log: only an entry whose term differs does;
- an acknowledgement states what is durable when it leaves;
- without room nothing is appended or truncated; entries held already are still acknowledged;
- the log's beginning is replaced only where it lacks the snapshot's base: what it held then is
  covered by the snapshot or was never committed, whoever leads by now.

Source: Raft 5.3, section 7, figure 2.
"""

from __future__ import annotations

from raft.core.configurations import Configurations
from raft.core.raft_log import RaftLog
from raft.core.ready_builder import ReadyBuilder
from raft.events import ChunkStored, Install, SnapshotStored
from raft.ids import Index, NodeId, Term
from raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Entry,
    InstallSnapshot,
    InstallSnapshotReply,
)

__all__ = ["FollowerRole"]


class FollowerRole:
    """Follower's half of the core. It shares all its parts with the core, which reads
    `configurations` after each call."""

    __slots__ = ("_configurations", "_log", "_node_id", "_ready_builder", "writable")

    def __init__(
        self,
        node_id: NodeId,
        log: RaftLog,
        configurations: Configurations,
        ready_builder: ReadyBuilder,
    ) -> None:
        self._node_id = node_id
        self._log = log
        self._configurations = configurations
        self._ready_builder = ready_builder
        self.writable = True

    # Entries.

    def on_append_entries(self, message: AppendEntries) -> None:
        """Append the entries of the current term's leader and acknowledge them, or refuse them."""
        log = self._log
        prev_log_index = message.prev_log_index
        # Log matching (5.3): entries are appended only behind an entry that both logs share.
        if not log.has(prev_log_index, message.prev_log_term):
            self.refuse(message, message.term)
            return
        entries = message.entries
        if entries:
            assert entries[0].index == prev_log_index + 1
            assert entries[-1].term <= message.term
            held_count = self._held_count(entries)
            if held_count < len(entries):
                if self.writable:
                    self._append(entries[held_count:])
                else:
                    entries = entries[:held_count]
        last_known_index = prev_log_index + len(entries)
        # Figure 2, step 5: only what this message proves to match the leader's log is committed.
        log.commit_to(min(message.leader_commit, last_known_index))
        # Even if the log held all of them already, an earlier fsync may still be under way. A
        # heartbeat needs none, so that a slow disk does not cost the leader its quorum.
        is_durable = not entries and self._ready_builder.term_is_durable
        match_index = min(last_known_index, log.durable_index) if is_durable else last_known_index
        reply = AppendEntriesReply(
            sender=self._node_id,
            receiver=message.sender,
            term=message.term,
            success=True,
            match_index=match_index,
            rejected_prev_index=0,
            conflict_index=0,
            conflict_term=0,
            read_round=message.read_round,
            writable=self.writable,
        )
        if is_durable:
            self._ready_builder.send(reply)
        else:
            self._ready_builder.send_after_sync(reply)

    def refuse(self, message: AppendEntries, current_term: Term) -> None:
        """Reply where the leader should go on (5.3): skip a whole term at once, or go to the log's
        end."""
        log = self._log
        conflict_index, conflict_term = log.last_index + 1, 0
        if log.first_index <= message.prev_log_index <= log.last_index:
            known_term = log.term(message.prev_log_index)
            if known_term is not None:  # else the entry is committed, and the leader an earlier one
                conflict_term = known_term
                conflict_index = log.first_index_of_term_at(message.prev_log_index)
        # Read rounds of an earlier term don't count in this one, which the sender may lead too.
        read_round = message.read_round if message.term == current_term else 0
        self._ready_builder.send(
            AppendEntriesReply(
                sender=self._node_id,
                receiver=message.sender,
                term=current_term,
                success=False,
                match_index=0,
                rejected_prev_index=message.prev_log_index,
                conflict_index=conflict_index,
                conflict_term=conflict_term,
                read_round=read_round,
                writable=self.writable,
            )
        )

    def _held_count(self, entries: tuple[Entry, ...]) -> int:
        """Return how many of the first entries the log holds already."""
        log = self._log
        if entries[0].index > log.last_index:
            return 0
        for count, entry in enumerate(entries):
            if not log.has(entry.index, entry.term):
                return count
        return len(entries)

    def _append(self, entries: tuple[Entry, ...]) -> None:
        """Append new entries. Only an entry with another term truncates (figure 2)."""
        log = self._log
        first_index = entries[0].index
        if first_index <= log.last_index:
            log.truncate_from(first_index)
            self._configurations.truncate_from(first_index)
            self._ready_builder.truncate_from = first_index
        log.append(entries)
        self._configurations.append(entries)
        self._ready_builder.append(entries)

    # Snapshots.

    def on_install_snapshot(self, message: InstallSnapshot) -> None:
        """Store a chunk sent by the current term's leader, or report the install done: a log that
        holds the base needs no snapshot to go on."""
        base = message.base
        if self._log.has(base.index, base.term):
            self._log.commit_to(base.index)  # everything up to a log's base is committed
            self._answer_install(
                message.sender,
                message.term,
                base_index=base.index,
                snapshot_index=message.snapshot_index,
                next_offset=message.offset,
                installed=True,
            )
        else:
            self._ready_builder.received_chunk = message

    def on_chunk_stored(self, event: ChunkStored, term: Term) -> None:
        """Request the next chunk from `event.leader`, which leads in `term`."""
        self._answer_install(
            event.leader,
            term,
            base_index=event.base_index,
            snapshot_index=event.snapshot_index,
            next_offset=event.next_offset,
            installed=False,
        )

    def install(self, event: SnapshotStored) -> None:
        """Replace the log with the snapshot, unless the log holds the base by now."""
        base = event.base
        if self._log.has(base.index, base.term):
            return
        self._log.install(base)
        self._configurations.install(event.configuration)
        self._ready_builder.install = Install(
            base=base, configuration=event.configuration, snapshot_index=event.snapshot_index
        )

    def on_installed(self, event: SnapshotStored, term: Term) -> None:
        """Report the install to `event.leader`, which leads in `term`."""
        self._answer_install(
            event.leader,
            term,
            base_index=event.base.index,
            snapshot_index=event.snapshot_index,
            next_offset=event.next_offset,
            installed=True,
        )

    def _answer_install(
        self,
        leader: NodeId,
        term: Term,
        *,
        base_index: Index,
        snapshot_index: Index,
        next_offset: int,
        installed: bool,
    ) -> None:
        reply = InstallSnapshotReply(
            sender=self._node_id,
            receiver=leader,
            term=term,
            base_index=base_index,
            snapshot_index=snapshot_index,
            next_offset=next_offset,
            installed=installed,
        )
        if installed:
            # The last fsync of the entries that the log holds may still be under way.
            self._ready_builder.send_after_sync(reply)
        else:
            self._ready_builder.send(reply)
