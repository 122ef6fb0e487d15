"""Collects the Ready of the current step, and decides which message may leave before an fsync.

Place in the data path: `raft.core.core` and its parts fill it while a step runs, `take` empties it
into the Ready at the step's end.

`messages` holds what depends on nothing that is not yet durable: a leader's AppendEntries, refusals
and acknowledgements of what is durable already. Votes given, requests for votes, and
acknowledgements of new entries go into `messages_after_sync`; so does every message of a term that
may not be durable yet. A term is known to be durable by an fsynced entry of it, since term and
entry become durable in the order of their Readys; by another node's vote in it, since the request
left after the fsync; or by the shell's report.

Invariant: a Ready with a hard state has no `messages`.

Source: Raft 5.1, figure 2 (persistent state is updated before responding).
"""

from __future__ import annotations

from collections.abc import Iterable

from raft.events import ChangeRefused, Install, InstallChunk, ReadState, Ready, Role
from raft.ids import Index, NodeId, Term
from raft.membership import Configuration
from raft.messages import Entry, HardState, InstallSnapshot, Message

__all__ = ["ReadyBuilder"]


class ReadyBuilder:
    """Effects of one step. Each public field is set at most once per step."""

    __slots__ = (
        "_install_chunks",
        "_last",
        "_messages",
        "_messages_after_sync",
        "_read_states",
        "change_refused",
        "configuration",
        "entries",
        "hard_state_changed",
        "install",
        "received_chunk",
        "term_is_durable",
        "truncate_from",
    )

    def __init__(self) -> None:
        self.term_is_durable = True
        self.hard_state_changed = False
        self._messages: list[Message] = []
        self._messages_after_sync: list[Message] = []
        self._read_states: list[ReadState] = []
        self._install_chunks: list[InstallChunk] = []
        self._last = Ready(is_quiet=True)
        self._clear()

    def _clear(self) -> None:
        self.entries: tuple[Entry, ...] = ()
        self.truncate_from: Index | None = None
        self.configuration: Configuration | None = None
        self.change_refused: ChangeRefused | None = None
        self.install: Install | None = None
        self.received_chunk: InstallSnapshot | None = None

    def send(self, message: Message) -> None:
        """Send at once if the message's term is durable, else after the fsync."""
        (self._messages if self.term_is_durable else self._messages_after_sync).append(message)

    def send_after_sync(self, message: Message) -> None:
        self._messages_after_sync.append(message)

    def request_chunk(self, chunk: InstallChunk) -> None:
        self._install_chunks.append(chunk)

    def answer_reads(self, states: Iterable[ReadState]) -> None:
        self._read_states.extend(states)

    def append(self, entries: tuple[Entry, ...]) -> None:
        assert not self.entries, "one step appends once"
        self.entries = entries

    def take(
        self,
        *,
        role: Role,
        term: Term,
        voted_for: NodeId | None,
        leader_id: NodeId | None,
        commit_index: Index,
    ) -> Ready:
        """Return the Ready of this step and empty the builder. Those without effects are one object
        until the commit index, the role, the term or the leader changes."""
        last = self._last
        if (
            not (self._messages or self._messages_after_sync or self.entries or self._read_states)
            and not (self.hard_state_changed or self._install_chunks)
            and self.truncate_from is None
            and self.configuration is None
            and self.change_refused is None
            and self.install is None
            and self.received_chunk is None
        ):
            if (
                last.commit_index != commit_index
                or last.role is not role
                or last.term != term
                or last.leader_id != leader_id
            ):
                self._last = last = Ready(
                    commit_index=commit_index,
                    role=role,
                    term=term,
                    leader_id=leader_id,
                    is_quiet=True,
                )
            return last
        hard_state = None
        if self.hard_state_changed:
            assert not self._messages, "what depends on this hard state waits for its fsync"
            hard_state = HardState(current_term=term, voted_for=voted_for)
            self.hard_state_changed = False
        if self.install is not None:
            assert not self.entries
            assert self.truncate_from is None
        ready = Ready(
            hard_state=hard_state,
            truncate_from=self.truncate_from,
            entries=self.entries,
            messages=tuple(self._messages),
            messages_after_sync=tuple(self._messages_after_sync),
            commit_index=commit_index,
            read_states=tuple(self._read_states),
            role=role,
            term=term,
            leader_id=leader_id,
            configuration=self.configuration,
            change_refused=self.change_refused,
            install=self.install,
            install_chunks=tuple(self._install_chunks),
            received_chunk=self.received_chunk,
        )
        self._messages.clear()
        self._messages_after_sync.clear()
        if self._read_states or self._install_chunks:
            self._read_states.clear()
            self._install_chunks.clear()
        self._clear()
        return ready
