"""The configuration in force on one node, and those before it.

Place in the data path: `raft.core.core` notifies it of each append, truncation and install; whoever
takes a snapshot queries the configuration that belongs to it.

A configuration is in force from its append, committed or not (4.1), so a truncation revokes it.
Below those in the log lies a first one, which no truncation reaches: the configuration of the
newest snapshot, or the group's initial one.

The snapshot may be newer than the log's end: after an install, or where a crash took the log's last
entries but not the snapshot. Then its configuration is in force although its entry is not in the
log yet. That is safe, since it is committed: a majority of it holds that entry, so that this node
can't win an election before it holds the entry, too.

Invariants: the configuration with the highest index is in force; at most one in a log is
uncommitted, for a leader accepts a change only after the last one and an entry of its own term are
committed.

Source: Ongaro's dissertation 4.1 and 5.1 (what a snapshot holds).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter

from raft.ids import Index
from raft.membership import Configuration, decode_membership
from raft.messages import Entry, EntryKind
from raft.storage import LogStorage

__all__ = ["Configurations"]

_RETAINED_COUNT_MAX = 64
"""Configurations of the log kept in memory. All but the newest are committed, so the oldest may
become the first."""

_by_index = attrgetter("index")


class Configurations:
    """Configurations of one node. `first` is described above; those of the log are read from
    `storage`.

    Raises MembershipError where the payload of a CONFIG entry is invalid.
    """

    __slots__ = ("_first", "_in_log", "in_force")

    def __init__(self, first: Configuration, storage: LogStorage) -> None:
        self._first = first
        self._in_log: list[Configuration] = []  # ascending
        self.in_force = first
        # Entries up to the first one are covered by it, and may be damaged by now.
        for index in storage.config_indexes[-_RETAINED_COUNT_MAX - 1 :]:
            if index > first.index:
                entries = storage.entries(index, index + 1, 0)
                assert entries, f"the configuration at {index} can't be read"
                self.append(entries)

    def at(self, index: Index) -> Configuration:
        """Return the configuration of a snapshot at `index`: the newest at or before it."""
        place = bisect_right(self._in_log, index, key=_by_index)
        found = self._in_log[place - 1] if place else self._first
        if found.index <= self._first.index <= index:
            found = self._first
        assert found.index <= index, f"the configuration at {index} is not known any more"
        return found

    @property
    def replaced(self) -> Configuration | None:
        """Configuration that the one in force replaced; None if it is no longer known."""
        if self.in_force == self._first:
            return None
        return self._in_log[-2] if len(self._in_log) > 1 else self._first

    def append(self, entries: Iterable[Entry]) -> None:
        """Note the CONFIG entries among `entries`, which were appended to the log."""
        for entry in entries:
            if entry.kind is EntryKind.CONFIG:
                membership = decode_membership(entry.payload)
                self._in_log.append(Configuration(index=entry.index, membership=membership))
        if len(self._in_log) > _RETAINED_COUNT_MAX:
            self._keep_first(self._in_log[:-_RETAINED_COUNT_MAX])
            del self._in_log[:-_RETAINED_COUNT_MAX]
        self._choose()

    def truncate_from(self, index: Index) -> None:
        """Drop the configurations at `index` and after it, as the log does."""
        while self._in_log and self._in_log[-1].index >= index:
            self._in_log.pop()
        self._choose()

    def install(self, configuration: Configuration) -> None:
        """Replace all configurations by that of the installed snapshot."""
        self._in_log.clear()
        self._keep_first((configuration,))
        self._choose()

    def _keep_first(self, others: Sequence[Configuration]) -> None:
        self._first = max((self._first, *others), key=_by_index)

    def _choose(self) -> None:
        self.in_force = self._first
        if self._in_log and self._in_log[-1].index >= self._first.index:
            self.in_force = self._in_log[-1]
