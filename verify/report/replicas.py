"""Roles and terms of every replica over time, from its trace.

Place in the data path: reduces the table raft to spans of one role, and to the term per second. A
node's span ends at its next role, or at the last event of its incarnation: from there to the next
start the node was down.

Invariants: spans of one node do not overlap; at most 20,000 role changes and 64 nodes are kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["RAFT_COLUMNS", "Replicas", "RoleChange", "Span", "read_replicas"]

RAFT_COLUMNS = pa.schema(
    [
        ("broker_group", pa.string()),
        ("node", pa.string()),
        ("incarnation", pa.int32()),
        ("seq", pa.int64()),
        ("t", pa.int64()),
        ("event", pa.string()),
        ("term", pa.int64()),
        ("role", pa.string()),
    ]
)

_CHANGES_MAX = 20_000
_NODES_MAX = 64
_NS = 1_000_000_000

Node = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChange:
    """A node took a role, or started as a follower."""

    group: str
    node: str
    incarnation: int
    seq: int
    t: int
    role: str
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A node held a role from `begin` to `end`, in nanoseconds."""

    group: str
    node: str
    role: str
    term: int
    begin: int
    end: int


@dataclass(slots=True)
class Replicas:
    """The reduced traces; `terms` by node and second."""

    changes: list[RoleChange] = field(default_factory=list)
    last_seen: dict[tuple[str, str, int], int] = field(default_factory=dict)
    terms: dict[Node, dict[int, int]] = field(default_factory=dict)
    events: int = 0

    @property
    def nodes(self) -> list[Node]:
        """Group and name of every replica."""
        return sorted({(group, node) for group, node, _ in self.last_seen})

    @property
    def leaderships(self) -> int:
        """The number of leaders elected."""
        return sum(change.role == "leader" for change in self.changes)

    def spans(self) -> list[Span]:
        """Return every node's roles as spans, in order of time."""
        spans: list[Span] = []
        by_node: dict[Node, list[RoleChange]] = {}
        for change in self.changes:
            by_node.setdefault((change.group, change.node), []).append(change)
        for (group, node), changes in sorted(by_node.items()):
            changes.sort(key=lambda change: (change.incarnation, change.seq))
            for change, following in zip(changes, [*changes[1:], None], strict=True):
                end = self.last_seen[group, node, change.incarnation]
                if following is not None and following.incarnation == change.incarnation:
                    end = following.t
                if end > change.t:
                    spans.append(
                        Span(
                            group=group,
                            node=node,
                            role=change.role,
                            term=change.term,
                            begin=change.t,
                            end=end,
                        )
                    )
        return spans


def read_replicas(batches: Iterable[pa.RecordBatch]) -> Replicas:
    """Reduce the batches, of RAFT_COLUMNS."""
    replicas = Replicas()
    for batch in batches:
        table = pa.Table.from_batches([batch])
        replicas.events += table.num_rows
        _note_changes(replicas, table)
        _note_last_seen(replicas, table)
        _note_terms(replicas, table)
    return replicas


def _note_changes(replicas: Replicas, table: pa.Table) -> None:
    events = table.filter(pc.is_in(table["event"], value_set=pa.array(["role", "start"])))
    for row in events.to_pylist():
        if len(replicas.changes) >= _CHANGES_MAX:
            return
        replicas.changes.append(
            RoleChange(
                group=str(row["broker_group"]),
                node=str(row["node"]),
                incarnation=int(row["incarnation"] or 0),
                seq=int(row["seq"] or 0),
                t=int(row["t"] or 0),
                role=str(row["role"]) if row["event"] == "role" else "follower",
                term=int(row["term"] or 0),
            )
        )


def _note_last_seen(replicas: Replicas, table: pa.Table) -> None:
    grouped = table.group_by(["broker_group", "node", "incarnation"]).aggregate([("t", "max")])
    for row in grouped.to_pylist():
        key = (str(row["broker_group"]), str(row["node"]), int(row["incarnation"] or 0))
        known = replicas.last_seen.get(key, 0)
        replicas.last_seen[key] = max(known, int(row["t_max"] or 0))


def _note_terms(replicas: Replicas, table: pa.Table) -> None:
    second = pc.divide(pc.fill_null(table["t"], 0), _NS)
    timed = table.select(["broker_group", "node", "term"]).append_column("second", second)
    grouped = timed.group_by(["broker_group", "node", "second"]).aggregate([("term", "max")])
    for row in grouped.to_pylist():
        node = (str(row["broker_group"]), str(row["node"]))
        if node not in replicas.terms and len(replicas.terms) >= _NODES_MAX:
            continue
        terms = replicas.terms.setdefault(node, {})
        place = int(row["second"])
        terms[place] = max(terms.get(place, 0), int(row["term_max"] or 0))
