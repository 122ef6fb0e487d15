"""Turns what a master or slave does into events of the trace; does nothing where tracing is off.

Place in the data path: `broker.ha.engine` notifies it of each step as it is taken.

The events are those of the Raft trace as far as there is such a thing here: start, role (leader is
the master, for as long as this process lives), append, apply, truncate where the log was cut to the
master's, state. Terms are 1, there are no votes: nobody is elected. The master reports a commit
where it begins to serve an entry, which is when it appends it; a slave knows of none.

Invariant: all that was recorded is with the operating system before an answer or a push that
depends on it leaves, unless a full disk holds it back.

Source: docs/FORMATS.md section 6.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.ha.framing import TERM
from raft.events import Role
from raft.messages import Index, LogBase, NodeId
from raft.replicated_log import CommittedEntry
from raft.store.trace import RaftTrace

__all__ = ["TraceEvents"]


class TraceEvents:
    """Trace of one node."""

    def __init__(self, trace: RaftTrace | None, *, is_master: bool) -> None:
        self._trace = trace
        self._is_master = is_master

    def started(self, end: LogBase, nodes: Sequence[NodeId]) -> None:
        """Record that the log ends at `end`, all of which is applied, and what this node is."""
        if self._trace is None:
            return
        self._trace.record(
            "start",
            TERM,
            index=end.index,
            entry_term=TERM if end.index else 0,
            chain=end.chain,
            voters=list(nodes),
        )
        role = Role.LEADER if self._is_master else Role.FOLLOWER
        self._trace.record("role", TERM, role=role.value)
        if end.index:
            self._served(end.index, end.chain, first=1)
        self._trace.flush()

    def applied(self, entries: Sequence[CommittedEntry]) -> None:
        """Record entries that were appended, and that are applied in the same turn."""
        if self._trace is None:
            return
        for entry in entries:
            self._trace.record(
                "append", TERM, index=entry.index, entry_term=TERM, chain=entry.chain
            )
        self._served(entries[-1].index, entries[-1].chain, first=entries[0].index)
        self._trace.flush()

    def _served(self, index: Index, chain: int, *, first: Index) -> None:
        assert self._trace is not None
        if self._is_master:
            self._trace.record("commit", TERM, index=index, entry_term=TERM, chain=chain)
        self._trace.record("apply", TERM, first=first, index=index, entry_term=TERM, chain=chain)

    def truncated(self, index: Index) -> None:
        """Record that the entry at `index` and all behind it were dropped."""
        if self._trace is not None:
            self._trace.record("truncate", TERM, index=index)
            self._trace.flush()

    def state_written(self, index: Index, digest: int) -> None:
        """Record that the state with all up to `index` is in a snapshot."""
        if self._trace is not None:
            self._trace.record("state", TERM, index=index, chain=digest)
            self._trace.flush()
