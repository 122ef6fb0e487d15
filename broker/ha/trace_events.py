"""Turns what a master or slave does into events of the trace; does nothing where tracing is off.

Place in the data path: `broker.ha.engine` notifies it of each step as it is taken.

The events are those of the Raft trace as far as there is such a thing here: start, role (leader is
the master, for as long as this process lives), append, apply, truncate where the log was cut to the
master's, state. Terms are 1. There are no votes and no commits: nobody is elected, and an entry is
served once it is appended.

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

    def __init__(self, trace: RaftTrace | None) -> None:
        self._trace = trace

    def started(self, end: LogBase, role: Role, nodes: Sequence[NodeId]) -> None:
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
        if end.index:
            self._trace.record(
                "apply", TERM, first=1, index=end.index, entry_term=TERM, chain=end.chain
            )
        self._trace.record("role", TERM, role=role.value)
        self._trace.flush()

    def applied(self, entries: Sequence[CommittedEntry]) -> None:
        """Record entries that were appended, and that are applied in the same turn."""
        if self._trace is None:
            return
        for entry in entries:
            self._trace.record(
                "append", TERM, index=entry.index, entry_term=TERM, chain=entry.chain
            )
        first, last = entries[0], entries[-1]
        self._trace.record(
            "apply",
            TERM,
            first=first.index,
            index=last.index,
            entry_term=TERM,
            chain=last.chain,
        )
        self._trace.flush()

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
