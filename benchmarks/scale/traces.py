"""The traces of three nodes: elections, appends, fsyncs, commits, applies, reads, states.

Place in the data path: `benchmarks.scale.timeline` says who leads and which entries there are.

Invariants: no event is recorded earlier than what it depends on; a leader commits what it and one
other node have made durable. Sequence numbers of a node rise for ever.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np

from benchmarks.scale.record import MS, ROUND_NS, US, Columns, Numbers, committed_at, mixed

__all__ = ["NODES", "Event", "Role", "Traces"]

NODES: Final = 3
Event = IntEnum(
    "Event", "START ROLE VOTE APPEND TRUNCATE FSYNC COMMIT APPLY CONFIG READ STATE", start=0
)
Role = IntEnum("Role", "LEADER FOLLOWER CANDIDATE", start=0)

_EVENT: Final = (
    "t event incarnation term index first entry_term chain last_index last_term t_begin role peer "
    "voters seq"
)


class Traces:
    """The group so far: the leader, its term, and the last entry."""

    def __init__(self) -> None:
        self.leader = 0
        self.term = 0
        self.index = 0
        self._last = {"index": 0, "entry_term": 0, "chain": 0}
        self._seq = [0] * NODES
        self._incarnation = [1] * NODES
        self._events = [Columns(_EVENT) for _ in range(NODES)]

    def lead(self, now: int, leader: int, *, killed: bool) -> int:
        """Elect `leader`; return the time from which entries are appended. `killed`: the leader
        before was killed, with an entry that it alone had."""
        before, old_term = self.leader, self.term
        if old_term == 0:
            for node in range(NODES):
                self._add(node, now, Event.START, old_term, voters=1, **self._last)
        self.leader, self.term = leader, old_term + 1
        ends = {"last_index": self._last["index"], "last_term": self._last["entry_term"]}
        if killed:
            extra = {"index": self.index + 1, "entry_term": old_term}
            extra["chain"] = int(mixed(np.array([-self.index]))[0])
            self._add(before, now + 10 * US, Event.APPEND, old_term, **extra)
            self._add(before, now + 20 * US, Event.FSYNC, old_term, index=self.index + 1)
            self._incarnation[before] += 1
            self._add(before, now + 50 * US, Event.START, old_term, voters=1, **extra)
            cut_at = now + 950 * US
            self._add(before, cut_at, Event.TRUNCATE, self.term, index=self.index + 1)
        for node in range(NODES):
            role = Role.CANDIDATE if node == leader else Role.FOLLOWER
            self._add(node, now + 300 * US, Event.ROLE, self.term, role=role)
            if not (killed and node == before):  # its log is longer than the candidate's
                self._add(node, now + 400 * US, Event.VOTE, self.term, peer=leader, **ends)
        self._add(leader, now + 500 * US, Event.ROLE, self.term, role=Role.LEADER)
        return now + MS

    def configure(self, t: int) -> None:
        """Record on every node the configuration that the next entry but one holds."""
        for node in range(NODES):
            at = t if node == self.leader else t + 100 * US
            self._add(node, at, Event.CONFIG, self.term, index=self.index + 2, voters=1)

    def entries(self, t: Numbers) -> dict[str, Numbers]:
        """Record entries that the leader appends at `t`, in rising order; return their columns."""
        index = self.index + 1 + np.arange(len(t))
        entry = {"index": index, "entry_term": np.full(len(t), self.term), "chain": mixed(index)}
        is_last = np.append(t[1:] // ROUND_NS != t[:-1] // ROUND_NS, True)
        last = {name: column[is_last] for name, column in entry.items()}
        first = np.append(index[0], last["index"][:-1] + 1)
        committed = committed_at(t[is_last])
        rounds = committed - 400 * US
        for node in range(NODES):
            late = 0 if node == self.leader else 100 * US + node * 10 * US
            self._add_all(node, t + late, Event.APPEND, **entry)
            self._add_all(node, rounds + 50 * US + late, Event.FSYNC, index=last["index"])
            after = committed + 2 * late
            self._add_all(node, after, Event.COMMIT, **last)
            self._add_all(node, after + 10 * US, Event.APPLY, first=first, **last)
        self.index = int(index[-1])
        self._last = {name: int(column[-1]) for name, column in entry.items()}
        self._commits = committed, last["index"]
        return entry

    def reads(self, t: Numbers) -> None:
        """Record that the leader answered the reads that began at `t`."""
        committed, index = self._commits
        place = np.searchsorted(committed, t, side="right") - 1
        served = place >= 0
        self._add_all(
            self.leader,
            t[served] + 10 * US,
            Event.READ,
            t_begin=t[served],
            index=index[place[served]],
        )

    def state(self, t: int) -> None:
        """Record every node's digest of its applied state."""
        chain = int(mixed(np.array([self.index + (1 << 40)]))[0])
        for node in range(NODES):
            self._add(node, t, Event.STATE, self.term, index=self.index, chain=chain)

    def events(self) -> list[dict[str, Numbers]]:
        """Return the events since the last call, by node."""
        whole = []
        for node, columns in enumerate(self._events):
            events = columns.whole("t")
            events["seq"] = self._seq[node] + 1 + np.arange(columns.count)
            self._seq[node] += columns.count
            whole.append(events)
        self._events = [Columns(_EVENT) for _ in range(NODES)]
        return whole

    def _add(self, node: int, t: int, event: Event, term: int, **columns: int) -> None:
        self._events[node].add(
            1, t=t, event=event, term=term, incarnation=self._incarnation[node], **columns
        )

    def _add_all(self, node: int, t: Numbers, event: Event, **columns: Numbers) -> None:
        incarnation = self._incarnation[node]
        of_node = self._events[node]
        of_node.add(len(t), t=t, event=event, term=self.term, incarnation=incarnation, **columns)
